"""Cases of the kernels on weights: gradient norm, AdamW, narrowing, initial weights, hashes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daisychain.kernels.cases.build import (
    PATTERNS,
    Case,
    CaseBuilder,
    Integers,
    u32_bytes,
    wide_values,
)
from daisychain.kernels.catalog import HASH_RANGE_WORDS, Step


def sum_squares() -> Iterator[Case]:
    for count in (8, 2048, 5000):
        for pattern in PATTERNS:
            c = CaseBuilder("sum_squares", f"{count} {pattern}")
            x = c.wide("x", wide_values(c.rng, count, pattern), -37)
            record = c.data("record", "u32", u32_bytes(np.arange(12)))
            yield c.finish(x, record, count=count, x_max=x.max_word, x_exp=x.exp_word, offset=3)


def float_bits(values: Integers | float) -> Integers:
    """binary32 bit patterns of numbers."""
    return np.asarray(values, np.float64).astype(np.float32).view(np.uint32).astype(np.int64)


SPECIAL_BITS = np.array(
    [
        0x00000000,  # zeros
        0x80000000,
        0x00000001,  # denormals
        0x80000001,
        0x007FFFFF,
        0x807FFFFF,
        0x00800000,  # least normals
        0x80800000,
        0x00FFFFFF,
        0x3F800000,  # around one
        0x3F7FFFFF,
        0xBF800001,
        0x7F7FFFFF,  # largest
        0xFF7FFFFF,
        0x7E800000,
        0x1F800000,  # squares to a least normal
        0x20000000,
        0x5F7FFFFF,  # squares near overflow
        0x5F800000,
    ],
    np.int64,
)


def random_bits(c: CaseBuilder, count: int, low: int, high: int) -> Integers:
    """Patterns of both signs with a biased exponent in low..high."""
    mantissa = c.rng.integers(0, 1 << 23, count)
    round_ones = c.rng.integers(0, 4, count) == 0  # few bits set: exact products, ties
    mantissa = np.where(round_ones, mantissa & ~0x7FFF, mantissa)
    biased = c.rng.integers(low, high + 1, count)
    return (c.rng.integers(0, 2, count) << 31) | (biased << 23) | mantissa


def adamw() -> Iterator[Case]:
    yield _adamw("training", (100, 126), (80, 120), (60, 110), "mixed", -45, 1e-4, 1)
    yield _adamw("no decay", (100, 126), (80, 120), (60, 110), "uniform", -45, 3e-3, 0)
    yield _adamw("first step", (100, 126), (0, 0), (0, 0), "uniform", -40, 1e-3, 1)
    yield _adamw("denormals", (0, 3), (0, 3), (0, 3), "mixed", -160, 1.0, 1)
    yield _adamw("tiny gradients", (90, 126), (1, 60), (0, 20), "mixed", -110, 1e-2, 1)
    # v overflows to infinity; m stays finite, so that no NaN arises (its pattern is undefined)
    yield _adamw("large", (120, 250), (120, 250), (100, 254), "mixed", 60, 1.0, 1)
    yield _adamw("any exponent", (0, 250), (0, 250), (0, 250), "mixed", -20, 1e-3, 1)
    yield _adamw("zero gradient", (100, 126), (0, 120), (0, 110), "zero", -20, 1e-4, 1)


def _adamw(
    name: str,
    p_range: tuple[int, int],
    m_range: tuple[int, int],
    v_range: tuple[int, int],
    pattern: str,
    exponent: int,
    clip: float,
    decay: int,
) -> Case:
    count = 3001
    c = CaseBuilder("adamw", name)
    p, m, v = (random_bits(c, count, *r) for r in (p_range, m_range, v_range))
    v &= 0x7FFFFFFF
    if name == "first step":
        m[:], v[:] = 0, 0
    if name == "zero gradient":  # zeros of both signs stay what they are
        p[:4], m[:4], v[:4] = (0, 1 << 31, 0, 1 << 31), (0, 0, 1 << 31, 1 << 31), 0
    if name == "any exponent":
        p[: SPECIAL_BITS.size] = SPECIAL_BITS
        m[7 : 7 + SPECIAL_BITS.size] = SPECIAL_BITS
        v[11 : 11 + SPECIAL_BITS.size] = SPECIAL_BITS & 0x7FFFFFFF
    for word, value in (
        (Step.LR, 3e-3),
        (Step.BIAS_1, 1 / (1 - 0.9**3)),
        (Step.BIAS_2, 1 / (1 - 0.95**3)),
        (Step.CLIP, clip),
    ):
        c.set_step(word, int(float_bits(value)))
    g = c.wide("g", wide_values(c.rng, count, pattern), exponent)
    buffers = [c.data(n, "u32", u32_bytes(b)) for n, b in (("p", p), ("m", m), ("v", v))]
    return c.finish(*buffers, g, count=count, decay=decay, g_exp=g.exp_word, p_max=c.word())


def weight_max() -> Iterator[Case]:
    for low, high in ((0, 0), (1, 126), (90, 140)):
        c = CaseBuilder("weight_max", f"exponents {low}..{high}")
        p = c.data("p", "u32", u32_bytes(random_bits(c, 1003, low, high)))
        yield c.finish(p, count=1001, p_max=c.word(3))


def narrow_weights() -> Iterator[Case]:
    for low, high in ((0, 0), (0, 2), (1, 126), (100, 126), (120, 121)):
        c = CaseBuilder("narrow_weights", f"exponents {low}..{high}")
        bits = random_bits(c, 2056, low, high)
        bits[:2] = 0, 0x80000000
        out = c.result("out", "narrow", 2056)
        p = c.data("p", "u32", u32_bytes(bits))
        top = c.word(int((bits & 0x7FFFFFFF).max()))
        yield c.finish(p, out, count=2056, p_max=top, out_exp=out.exp_word)


def init_weights() -> Iterator[Case]:
    for count, scale_bits in ((8, 0x35000000), (5000, 0x33CCCCCD), (333, 0x00000123)):
        c = CaseBuilder("init_weights", f"{count} scale {scale_bits:08x}")
        out = c.output("p", "u32", count)
        yield c.finish(out, count=count, key_a=0x12345678, key_b=0x9ABCDEF0, scale_bits=scale_bits)


def hash_ranges() -> Iterator[Case]:
    for count in (
        1,
        255,
        256,
        300,
        HASH_RANGE_WORDS - 1,
        HASH_RANGE_WORDS,
        2 * HASH_RANGE_WORDS + 257,
    ):
        c = CaseBuilder("hash_ranges", f"{count} words")
        x = c.data("x", "u32", u32_bytes(c.rng.integers(0, 1 << 32, count)))
        ranges = c.data("ranges", "u32", u32_bytes(np.arange(4 * 6)))
        yield c.finish(x, ranges, count=count, first_range=2)


def hash_root() -> Iterator[Case]:
    for count in (4, 1000):
        c = CaseBuilder("hash_root", f"{count} words")
        ranges = c.data("ranges", "u32", u32_bytes(c.rng.integers(0, 1 << 32, count)))
        record = c.data("record", "u32", u32_bytes(np.arange(9)))
        yield c.finish(ranges, record, count=count, offset=3)
