"""Cases of the kernels on whole tensors: clearing, embedding, formats, sums, GEMM3, the units."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daisychain.kernels.cases.build import (
    PATTERNS,
    Case,
    CaseBuilder,
    i32_bytes,
    narrow_values,
    u32_bytes,
    wide_values,
)
from daisychain.kernels.catalog import Step
from daisychain.numbers.formats import gemm_shift


def zero_scalars() -> Iterator[Case]:
    for count in (1, 300):
        c = CaseBuilder("zero_scalars", f"{count} words")
        start = c.words([7] * (count + 2))
        yield c.finish(start=start + 1, count=count)


def move_scalars() -> Iterator[Case]:
    for count in (1, 300):
        c = CaseBuilder("move_scalars", f"{count} words")
        source = c.words(range(1, count + 1))
        target = c.words([9] * (count + 1))
        yield c.finish(source=source, target=target, count=count)


def zero() -> Iterator[Case]:
    c = CaseBuilder("zero", "ragged")
    yield c.finish(c.output("out", "i32", 1003), count=1001)


def fill() -> Iterator[Case]:
    c = CaseBuilder("fill", "ragged")
    yield c.finish(c.output("out", "u32", 1003), count=1001, bits=0xBF800000)


def absmax() -> Iterator[Case]:
    for pattern in PATTERNS:
        c = CaseBuilder("absmax", pattern)
        x = c.wide("x", wide_values(c.rng, 1003, pattern))
        yield c.finish(x, count=1001, out_max=c.word(2))


def load_micro_batch() -> Iterator[Case]:
    count = 300
    for entry in (0, 2):
        c = CaseBuilder("load_micro_batch", f"entry {entry}")
        inputs = c.data("inputs", "u32", u32_bytes(c.rng.integers(0, 1 << 32, 3 * (2 * count + 2))))
        c.set_step(Step.MICRO_BATCH, entry)
        ids, targets = c.output("ids", "u32", count), c.output("targets", "u32", count)
        yield c.finish(inputs, ids, targets, count=count)


def gather() -> Iterator[Case]:
    for rows, cols, pattern in ((5, 24, "uniform"), (70, 64, "mixed"), (3, 8, "zero")):
        c = CaseBuilder("gather", f"{rows} x {cols} {pattern}")
        table = c.narrow("table", narrow_values(c.rng, 11 * cols, pattern))
        ids = c.data("ids", "u32", u32_bytes(c.rng.integers(0, 11, rows)))
        out = c.result("out", "i32", rows * cols)
        yield c.finish(
            table,
            ids,
            out,
            rows=rows,
            cols=cols,
            table_exp=table.exp_word,
            out_max=out.max_word,
            out_exp=out.exp_word,
        )


def scatter_add() -> Iterator[Case]:
    shapes = ((5, 24, "uniform"), (70, 64, "mixed"), (300, 8, "extreme"), (3, 8, "small"))
    for rows, cols, pattern in shapes:
        c = CaseBuilder("scatter_add", f"{rows} x {cols} {pattern}")
        x = c.wide("x", wide_values(c.rng, rows * cols, pattern))
        ids = c.data("ids", "u32", u32_bytes(c.rng.integers(0, 11, rows)))
        out = c.data("out", "i32", i32_bytes(c.rng.integers(-9, 9, 11 * cols)))
        yield c.finish(
            x,
            ids,
            out,
            rows=rows,
            cols=cols,
            x_max=x.max_word,
            x_exp=x.exp_word,
            tensor_id=17,
            out_exp=c.word(),
        )


def narrow() -> Iterator[Case]:
    yield from _narrowing("narrow", {})


def narrow_stochastic() -> Iterator[Case]:
    yield from _narrowing("narrow_stochastic", {"tensor_id": 123456789})


def _narrowing(kernel: str, more: dict[str, int]) -> Iterator[Case]:
    limits = [(pattern, 31) for pattern in PATTERNS]
    limits += [("uniform", bits) for bits in (5, 15, 16, 17, 23)] + [("extreme", 16)]
    for pattern, bits in limits:
        for count in (8, 2056):
            c = CaseBuilder(kernel, f"{count} {pattern} of {bits} bits")
            x = c.wide("x", wide_values(c.rng, count, pattern) >> (31 - bits), -40)
            out = c.result("out", "narrow", count)
            yield c.finish(
                x,
                out,
                count=count,
                x_max=x.max_word,
                x_exp=x.exp_word,
                out_exp=out.exp_word,
                **more,
            )


_EXPONENT_PAIRS = ((-20, -20), (-20, -31), (-3, -20), (-20, -60), (5, -20))


def add() -> Iterator[Case]:
    for pattern in PATTERNS:
        for ex, ey in _EXPONENT_PAIRS:
            c = CaseBuilder("add", f"{pattern} 2^{ex} + 2^{ey}")
            x = c.wide("x", wide_values(c.rng, 777, pattern), ex)
            y = c.wide("y", wide_values(c.rng, 777, "uniform") >> 9, ey)
            out = c.result("out", "i32", 777)
            yield c.finish(
                x,
                y,
                out,
                count=777,
                x_max=x.max_word,
                x_exp=x.exp_word,
                y_max=y.max_word,
                y_exp=y.exp_word,
                out_max=out.max_word,
                out_exp=out.exp_word,
            )


def accumulate() -> Iterator[Case]:
    for first in (0, 1):
        for ex, ey in _EXPONENT_PAIRS:
            c = CaseBuilder("accumulate", f"first {first} 2^{ex} to 2^{ey}")
            x = c.wide("x", wide_values(c.rng, 777, "mixed"), ex)
            acc = c.wide("acc", wide_values(c.rng, 777, "uniform"), ey)
            yield c.finish(
                x,
                acc,
                count=777,
                first=first,
                x_max=x.max_word,
                x_exp=x.exp_word,
                acc_max=acc.max_word,
                acc_exp=acc.exp_word,
                out_max=c.word(),
                out_exp=c.word(),
            )


def transpose() -> Iterator[Case]:
    # rows, cols, outer, inner, group and the strides of a row, outer, inner, group
    shapes = (
        (8, 8, 1, 1, 1, 8, 64, 64, 64),
        (24, 40, 1, 1, 1, 40, 0, 0, 0),
        (16, 8, 2, 3, 1, 24, 16 * 24, 8, 0),  # heads side by side in a row
        (16, 24, 2, 2, 2, 24, 2 * 2 * 16 * 24, 2 * 16 * 24, 16 * 24),
        (64, 64, 3, 1, 1, 64, 64 * 64, 0, 0),
    )
    for shape in shapes:
        rows, cols, outer, inner, group, in_row, in_outer, in_inner, in_group = shape
        c = CaseBuilder("transpose", "x".join(map(str, shape)))
        last = (
            (outer - 1) * in_outer
            + (inner - 1) * in_inner
            + (group - 1) * in_group
            + (rows - 1) * in_row
        )
        x = c.narrow("x", narrow_values(c.rng, last + cols, "uniform"))
        out = c.output("out", "narrow", rows * cols * outer * inner * group)
        yield c.finish(
            x,
            out,
            rows=rows,
            cols=cols,
            outer=outer,
            inner=inner,
            group=group,
            in_row=in_row,
            in_outer=in_outer,
            in_inner=in_inner,
            in_group=in_group,
        )


def gemm3() -> Iterator[Case]:
    shapes = (
        (1, 1, 8, "uniform"),
        (64, 64, 64, "uniform"),
        (37, 69, 40, "mixed"),
        (130, 65, 24, "uniform"),
        (3, 200, 520, "extreme"),
        (8, 8, 4096, "extreme"),
        (16, 72, 16, "small"),
        (5, 5, 8, "zero"),
        (35, 9, 136, "extreme"),
        (33, 34, 152, "mixed"),
    )
    for m, n, k, pattern in shapes:
        yield _gemm(f"{m} x {n} x {k} {pattern}", pattern, m=m, n=n, k=k)
    # rows of dlogits, sum |m| <= 2^15 + k: g = 7 is proven
    yield _gemm("dlogits rows, g 7", "dlogits", m=9, n=24, k=4096, g=7)
    for size in (16, 72, 136):
        yield _gemm(f"causal {size}", "mixed", m=size, n=size, k=16, causal=1, outer=2, inner=3)
    # heads side by side in rows; each B is shared by two A (grouped heads)
    strides = {"a_row": 64, "a_inner": 16, "b_row": 32, "b_inner": 16, "c_row": 4 * 24}
    yield _gemm(
        "grouped heads",
        "uniform",
        m=40,
        n=24,
        k=16,
        outer=2,
        inner=4,
        b_group=2,
        c_inner=24,
        **strides,
    )


def _gemm(name: str, pattern: str, **given: int) -> Case:
    m, n, k = given["m"], given["n"], given["k"]
    outer, inner, group = given.get("outer", 1), given.get("inner", 1), given.get("b_group", 1)
    p = {"g": gemm_shift(k), "causal": 0, "outer": 1, "inner": 1, "b_group": 1}
    p |= {"a_row": k, "b_row": k, "c_row": n, "a_inner": m * k, "b_inner": n * k, "c_inner": m * n}
    p |= given
    if "a_outer" not in given:
        p["a_outer"] = m * p["a_row"] if p["a_row"] > k else inner * m * k
        p["b_outer"] = n * p["b_row"] if p["b_row"] > k else inner // group * n * k
        p["c_outer"] = m * p["c_row"] if p["c_row"] > n else inner * m * n
    c = CaseBuilder("gemm3", name)
    if pattern == "dlogits":
        a_values = np.zeros((m, k), np.int64)
        a_values[:, ::3] = c.rng.integers(-8, 8, (m, (k + 2) // 3))
        a_values[np.arange(m), np.arange(m)] = -16384
        a = c.narrow("a", a_values)
        b = c.narrow("b", narrow_values(c.rng, n * k, "extreme"))
    else:
        a = c.narrow("a", narrow_values(c.rng, outer * p["a_outer"], pattern), -9)
        b = c.narrow("b", narrow_values(c.rng, outer * p["b_outer"], pattern), -12)
    out = c.result("out", "i32", outer * p["c_outer"])
    words = {"a_exp": a.exp_word, "b_exp": b.exp_word}
    return c.finish(a, b, out, **p, **words, out_max=out.max_word, out_exp=out.exp_word)


def unit_products() -> Iterator[Case]:
    c = CaseBuilder("unit_products", "all")
    yield c.finish(c.output("out", "i32", 65536), count=65536)


def unit_splits() -> Iterator[Case]:
    c = CaseBuilder("unit_splits", "all")
    yield c.finish(c.output("out", "i32", 65536), count=65536)
