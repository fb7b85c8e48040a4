"""Cases of the kernels on rows: RMSNorm, RoPE, attention, SwiGLU, cross-entropy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import isqrt

import numpy as np

from daisychain.kernels.cases.build import (
    PATTERNS,
    Case,
    CaseBuilder,
    Integers,
    Tensor,
    i32_bytes,
    narrow_values,
    u32_bytes,
    wide_values,
)
from daisychain.kernels.catalog import Step
from daisychain.numbers.formats import constant16, constant_digits
from daisychain.numbers.tables import (
    exp2_table,
    log2_e,
    log2_table,
    rope_table,
    sigmoid_table,
    silu_slope_table,
    square_root,
)


def _table(c: CaseBuilder, name: str, values: Sequence[int]) -> str:
    return c.data(name, "i32", i32_bytes(np.array(values)))


def rmsnorm() -> Iterator[Case]:
    shapes = ((1, 8), (5, 64), (37, 24), (3, 200), (2, 4096))
    for rows, cols in shapes:
        for pattern, exponent in (("uniform", -29), ("mixed", -40), ("small", -28), ("zero", -20)):
            yield _rmsnorm(rows, cols, pattern, exponent)
    for exponent in (-60, -33, -10, 9):
        yield _rmsnorm(6, 40, "mixed", exponent)
    yield _rmsnorm(4, 64, "extreme", -29)
    yield _rmsnorm(5, 96, "sparse", -29)


def _rmsnorm(rows: int, cols: int, pattern: str, exponent: int) -> Case:
    c = CaseBuilder("rmsnorm", f"{rows} x {cols} {pattern} 2^{exponent}")
    x_values = wide_values(c.rng, (rows, cols), pattern)
    if rows > 2:
        x_values[1] >>= 17  # a row far below the others
    x = c.wide("x", x_values, exponent)
    out = c.result("out", "i32", rows * cols)
    root_m, root_e = constant16(square_root(cols))
    return c.finish(
        x,
        out,
        c.output("inv_rms", "i32", rows),
        c.output("inv_exp", "i32", rows),
        rows=rows,
        cols=cols,
        root_m=root_m,
        root_e=root_e,
        static_e=isqrt(cols).bit_length() - 29,
        x_exp=x.exp_word,
        rows_max=c.word(),
        out_max=out.max_word,
        out_exp=out.exp_word,
    )


def scale() -> Iterator[Case]:
    for pattern in PATTERNS:
        c = CaseBuilder("scale", pattern)
        x = c.narrow("x", narrow_values(c.rng, 13 * 40, pattern), -13)
        w = c.narrow("w", narrow_values(c.rng, 40, "uniform"), -14)
        out = c.result("out", "i32", 13 * 40)
        yield c.finish(
            x,
            w,
            out,
            rows=13,
            cols=40,
            x_exp=x.exp_word,
            w_exp=w.exp_word,
            out_max=out.max_word,
            out_exp=out.exp_word,
        )


def rmsnorm_backward() -> Iterator[Case]:
    for rows, cols in ((1, 8), (7, 64), (33, 24), (2, 1024)):
        for pattern in PATTERNS:
            c = CaseBuilder("rmsnorm_backward", f"{rows} x {cols} {pattern}")
            dy = c.narrow("dy", narrow_values(c.rng, rows * cols, pattern), -30)
            xhat = c.narrow("xhat", _unit_rows(c, rows, cols), -14 + isqrt(cols).bit_length() - 1)
            w = c.narrow("w", narrow_values(c.rng, cols, "uniform"), -15)
            inv_exp = c.rng.integers(-20, 3, rows)
            mean_m, mean_e = constant16(Fraction(1, cols))
            out = c.result("out", "i32", rows * cols)
            yield c.finish(
                dy,
                xhat,
                w,
                c.data("inv_rms", "i32", i32_bytes(c.rng.integers(16384, 32640, rows))),
                c.data("inv_exp", "i32", i32_bytes(inv_exp)),
                out,
                rows=rows,
                cols=cols,
                mean_m=mean_m,
                mean_e=mean_e,
                dy_exp=dy.exp_word,
                xhat_exp=xhat.exp_word,
                w_exp=w.exp_word,
                rows_max=c.word(int(inv_exp.max()) + 4096),
                out_max=out.max_word,
                out_exp=out.exp_word,
            )


def _unit_rows(c: CaseBuilder, rows: int, cols: int) -> Integers:
    """Rows of root mean square <= 1 as xhat has, at exponent -14 + bits(isqrt cols) - 1."""
    values = narrow_values(c.rng, (rows, cols), "mixed")
    unit = 1 << (14 - isqrt(cols).bit_length() + 1)
    rms = np.sqrt((values.astype(np.float64) ** 2).mean(-1, keepdims=True))
    scaled: Integers = np.trunc(values * np.minimum(1, unit / np.maximum(rms, 1))).astype(np.int64)
    return scaled


def rmsnorm_weight_grad() -> Iterator[Case]:
    for rows, cols in ((1, 8), (7, 24), (512, 64), (1030, 8)):
        for pattern in ("uniform", "extreme", "small"):
            c = CaseBuilder("rmsnorm_weight_grad", f"{rows} x {cols} {pattern}")
            dy = c.narrow("dy", narrow_values(c.rng, rows * cols, pattern), -30)
            xhat = c.narrow("xhat", narrow_values(c.rng, rows * cols, pattern), -12)
            out = c.result("out", "i32", cols)
            yield c.finish(
                dy,
                xhat,
                out,
                rows=rows,
                cols=cols,
                dy_exp=dy.exp_word,
                xhat_exp=xhat.exp_word,
                out_max=out.max_word,
                out_exp=out.exp_word,
            )


def rope() -> Iterator[Case]:
    # rows, heads, head_dim, context, position of the first row (None: not moving)
    shapes = ((12, 2, 16, 6, None), (5, 3, 40, 9, None), (1, 4, 8, 1, 7), (2, 2, 32, 1, 3))
    for rows, heads, head_dim, context, position in shapes:
        for backward in (0, 1):
            c = CaseBuilder("rope", f"{rows} x {heads} x {head_dim} at {position}, back {backward}")
            x = c.narrow("x", narrow_values(c.rng, rows * heads * head_dim, "uniform"))
            if position is not None:
                c.set_step(Step.POSITION, position)
            table = _table(c, "table", rope_table(context + (position or 0), head_dim))
            out = c.result("out", "i32", rows * heads * head_dim)
            yield c.finish(
                x,
                table,
                out,
                rows=rows,
                heads=heads,
                head_dim=head_dim,
                context=context,
                moving=int(position is not None),
                backward=backward,
                x_exp=x.exp_word,
                out_max=out.max_word,
                out_exp=out.exp_word,
            )


def _softmax_scale(head_dim: int) -> dict[str, int]:
    names = ("scale_m", "scale_l", "scale_e")
    return dict(zip(names, constant_digits(log2_e() / square_root(head_dim)), strict=True))


def softmax() -> Iterator[Case]:
    for context in (8, 72, 200):
        for pattern, exponent, head_dim in (
            ("uniform", -27, 16),
            ("mixed", -20, 64),
            ("extreme", -14, 24),
            ("small", -16, 16),
            ("uniform", -60, 16),
            ("zero", -20, 16),
            ("small", 3, 64),
        ):
            rows = 2 * context if context < 200 else context
            moving = int(head_dim == 64)
            c = CaseBuilder("softmax", f"{rows} x {context} {pattern} 2^{exponent}")
            c.set_step(Step.POSITION, context // 2 if pattern == "mixed" else context + 5)
            scores = c.wide("scores", wide_values(c.rng, rows * context, pattern), exponent)
            out = c.result("out", "narrow", rows * context)
            yield c.finish(
                scores,
                _table(c, "table", exp2_table()),
                out,
                c.output("z", "i32", rows),
                rows=rows,
                cols=context,
                moving=moving,
                x_exp=scores.exp_word,
                out_exp=out.exp_word,
                **_softmax_scale(head_dim),
            )


def row_div() -> Iterator[Case]:
    # batch, heads, head_dim, context, exponents of x and v
    shapes = (
        (2, 2, 16, 8, -20, -10),
        (1, 3, 24, 5, -30, -30),
        (3, 1, 8, 7, -10, -28),
        (1, 4, 64, 3, -20, 0),
    )
    for batch, heads, head_dim, context, ex, ev in shapes:
        c = CaseBuilder("row_div", f"{batch} x {heads} x {head_dim} x {context} 2^{ex} 2^{ev}")
        rows = batch * context
        z = c.rng.integers(16384, 16384 * 512, batch * heads * context)
        z[:3] = 16384, 16384 * 511 - 1, 32767
        # |x| <= z max|V|, z at 2^-14
        order = z.reshape(batch, heads, context).transpose(0, 2, 1)[..., None]
        sign = c.rng.choice(np.array([-1, 1]), (batch, context, heads, head_dim))
        bound = np.minimum((order << 1 << max(0, ev - ex)) >> max(0, ex - ev), 1 << 29)
        x = c.wide("x", sign * (bound >> c.rng.integers(0, 20, sign.shape)), ex)
        out = c.result("out", "i32", rows * heads * head_dim)
        yield c.finish(
            x,
            c.data("z", "i32", i32_bytes(z)),
            out,
            rows=rows,
            heads=heads,
            head_dim=head_dim,
            context=context,
            x_exp=x.exp_word,
            v_exp=c.word(ev),
            out_max=out.max_word,
            out_exp=out.exp_word,
        )


def _numerators(c: CaseBuilder, rows: int, cols: int) -> tuple[Integers, Integers]:
    """P' as softmax makes it (causal, row maximum 16,384) and its row sums."""
    p = 16384 >> c.rng.integers(0, 16, (rows, cols))
    p = np.where(c.rng.integers(0, 3, (rows, cols)) == 0, p, p * c.rng.integers(1, 3, p.shape) // 2)
    p = np.where(np.arange(cols) <= (np.arange(rows) % cols)[:, None], p, 0)
    p[np.arange(rows), c.rng.integers(0, np.arange(rows) % cols + 1)] = 16384
    p[cols - 1] = 16384  # the broadest row: every column at its maximum
    return p, p.sum(-1)


def probabilities() -> Iterator[Case]:
    for rows, cols in ((8, 8), (48, 24), (200, 200)):
        c = CaseBuilder("probabilities", f"{rows} x {cols}")
        p_values, z_values = _numerators(c, rows, cols)
        out = c.result("out", "narrow", rows * cols)
        yield c.finish(
            c.narrow("p", p_values),
            c.data("z", "i32", i32_bytes(z_values)),
            out,
            rows=rows,
            cols=cols,
            out_exp=out.exp_word,
        )


def softmax_backward() -> Iterator[Case]:
    for rows, cols in ((8, 8), (48, 24), (200, 200)):
        for head_dim in (16, 24):  # 1/sqrt(16) is a power of two
            for pattern in PATTERNS:
                c = CaseBuilder("softmax_backward", f"{rows} x {cols} {pattern} head {head_dim}")
                p_values, z_values = _numerators(c, rows, cols)
                dp = c.narrow("dp", narrow_values(c.rng, rows * cols, pattern), -31)
                out = c.result("out", "i32", rows * cols)
                scale_m, scale_e = constant16(1 / square_root(head_dim))
                yield c.finish(
                    c.narrow("p", p_values),
                    c.data("z", "i32", i32_bytes(z_values)),
                    dp,
                    out,
                    rows=rows,
                    cols=cols,
                    scale_m=scale_m,
                    scale_e=scale_e,
                    dp_exp=dp.exp_word,
                    out_max=out.max_word,
                    out_exp=out.exp_word,
                )


_SWIGLU_EXPONENTS = (-30, -18, -14, -12, -11, -3, 6)


def _swiglu_inputs(kernel: str, exponent: int) -> tuple[CaseBuilder, Tensor, Tensor]:
    c = CaseBuilder(kernel, f"z at 2^{exponent}")
    values = np.concatenate([narrow_values(c.rng, 400, pattern) for pattern in PATTERNS])
    z = c.narrow("z", values, exponent)
    return c, z, c.narrow("u", narrow_values(c.rng, values.size, "uniform"), -15)


def swiglu() -> Iterator[Case]:
    for exponent in _SWIGLU_EXPONENTS:
        c, z, u = _swiglu_inputs("swiglu", exponent)
        out = c.result("out", "i32", 2400)
        yield c.finish(
            z,
            u,
            _table(c, "sigmoid", sigmoid_table()),
            out,
            count=2400,
            z_exp=z.exp_word,
            u_exp=u.exp_word,
            out_max=out.max_word,
            out_exp=out.exp_word,
        )


def swiglu_backward() -> Iterator[Case]:
    for exponent in _SWIGLU_EXPONENTS:
        c, z, u = _swiglu_inputs("swiglu_backward", exponent)
        dy = c.narrow("dy", narrow_values(c.rng, 2400, "uniform"), -33)
        dz, du = c.result("dz", "i32", 2400), c.result("du", "i32", 2400)
        yield c.finish(
            dy,
            z,
            u,
            _table(c, "sigmoid", sigmoid_table()),
            _table(c, "slope", silu_slope_table()),
            dz,
            du,
            count=2400,
            dy_exp=dy.exp_word,
            z_exp=z.exp_word,
            u_exp=u.exp_word,
            dz_max=dz.max_word,
            dz_exp=dz.exp_word,
            du_max=du.max_word,
            du_exp=du.exp_word,
        )


def cross_entropy() -> Iterator[Case]:
    shapes = (
        (1, 8, 8, "uniform", -27),
        (5, 264, 259, "mixed", -24),
        (3, 1024, 1024, "small", -20),
        (4, 520, 513, "zero", -20),
        (4, 2048, 2047, "extreme", -26),
        (3, 4096, 4090, "uniform", -30),
        (2, 16512, 16512, "uniform", -26),
        (3, 64, 61, "uniform", -60),
        (3, 64, 64, "small", 2),
    )
    for rows, cols, valid, pattern, exponent in shapes:
        c = CaseBuilder("cross_entropy", f"{rows} x {valid} of {cols} {pattern} 2^{exponent}")
        logits = c.wide("logits", wide_values(c.rng, (rows, cols), pattern), exponent)
        targets = c.rng.integers(0, valid, rows)
        targets[0] = valid - 1
        if rows > 2:
            targets[1] = 0xFFFFFFFF
        yield cross_entropy_case(c, logits, targets, cols, valid)


def cross_entropy_case(
    c: CaseBuilder, logits: Tensor, targets: Integers, cols: int, valid: int
) -> Case:
    """Rows of ``cols`` logits, of which the first ``valid`` count; a target for each row."""
    rows = len(targets)
    out = c.result("dlogits", "narrow", rows * cols)
    scale_m, scale_l, scale_e = constant_digits(log2_e())
    return c.finish(
        logits,
        c.data("targets", "u32", u32_bytes(targets)),
        _table(c, "exp_table", exp2_table()),
        _table(c, "log_table", log2_table()),
        c.output("loss", "i32", rows),
        out,
        rows=rows,
        cols=cols,
        valid=valid,
        scale_m=scale_m,
        scale_l=scale_l,
        scale_e=scale_e,
        x_exp=logits.exp_word,
        tensor_id=99,
        out_exp=out.exp_word,
    )


def sum_loss() -> Iterator[Case]:
    for count in (1, 700):
        c = CaseBuilder("sum_loss", f"{count} rows")
        loss = c.data("loss", "i32", i32_bytes(c.rng.integers(-3, 40 << 16, count)))
        record = c.data("record", "u32", u32_bytes(np.arange(6)))
        yield c.finish(loss, record, count=count, offset=2)
