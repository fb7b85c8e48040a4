"""Oracles: gradient norm, AdamW in binary32, weights and their narrowing, initial weights."""

from __future__ import annotations

import numpy as np

from daisychain.kernels.catalog import Step
from daisychain.kernels.oracle.primitives import (
    Array,
    Params,
    arx_blocks,
    exponent,
    rounding_shift,
    set_exponent,
)
from daisychain.numbers.formats import nearest_shift

SQUARES_BLOCK = 2048
BETA_1, GAIN_1, BETA_2, GAIN_2, EPSILON, DECAY = (
    np.float32(v) for v in (0.9, 0.1, 0.95, 0.05, 1e-10, 0.1)
)


def sum_squares(p: Params, s: Array, x: Array, record: Array) -> None:
    """Exact sum of squares of the nearest-narrowed tensor.

    Each block of 2,048 elements has a sum below 2^41; its four 16-bit limbs are added to
    record[offset..offset+3].  record[offset+4] = 2 * exponent.
    """
    shift = nearest_shift(int(s[p.x_max]))
    m = rounding_shift(x[: p.count], shift)
    sums = np.add.reduceat(m * m, np.arange(0, p.count, SQUARES_BLOCK))
    for limb in range(4):
        record[p.offset + limb] += np.uint32(((sums >> (16 * limb)) & 0xFFFF).sum())
    set_exponent(record, p.offset + 4, 2 * (exponent(s, p.x_exp) + shift))


def _scalar(s: Array, word: Step) -> np.float32:
    return np.float32(s[word : word + 1].view(np.float32)[0])


def adamw(p: Params, s: Array, param: Array, m: Array, v: Array, g: Array) -> None:
    """AdamW as a fixed order of correctly rounded binary32 operations (denormals kept)."""
    weight, first, second = (a[: p.count].view(np.float32) for a in (param, m, v))
    lr, bias_1, bias_2, clip = (
        _scalar(s, w) for w in (Step.LR, Step.BIAS_1, Step.BIAS_2, Step.CLIP)
    )
    with np.errstate(all="ignore"):
        exact = np.ldexp(g[: p.count].astype(np.float64), exponent(s, p.g_exp))
        grad = exact.astype(np.float32) * clip
        first[:] = first * BETA_1 + grad * GAIN_1
        second[:] = second * BETA_2 + (grad * grad) * GAIN_2
        update = (first * bias_1) / (np.sqrt(second * bias_2) + EPSILON)
        if p.decay:
            update = update + weight * DECAY
        weight[:] = weight - update * lr
    weight_max(p, s, param)


def weight_max(p: Params, s: Array, param: Array) -> None:
    """Raises p_max to the largest pattern without sign: order of patterns = order of values."""
    s[p.p_max] = max(int(s[p.p_max]), int((param[: p.count] & 0x7FFFFFFF).max()))


def _unpack(bits: Array) -> tuple[Array, Array]:
    """(mantissa below 2^24, biased exponent >= 1) of binary32 magnitudes."""
    biased = (bits >> 23).astype(np.int64)
    mantissa = (bits & 0x7FFFFF).astype(np.int64) | np.where(biased > 0, 1 << 23, 0)
    return mantissa, np.maximum(biased, 1)


def narrow_weights(p: Params, s: Array, param: Array, out: Array) -> None:
    """binary32 bits to narrow: mantissas shifted by the exponent difference to the largest."""
    bits = param[: p.count]
    top, top_biased = _unpack(s[p.p_max : p.p_max + 1])
    shift = nearest_shift(int(top[0]))
    e = int(top_biased[0]) - 150 + shift
    mantissa, biased = _unpack(bits & 0x7FFFFFFF)
    signed = np.where(bits >> 31, -mantissa, mantissa)
    out[:] = rounding_shift(signed, e + 150 - biased)
    set_exponent(s, p.out_exp, e)


def init_weights(p: Params, s: Array, param: Array) -> None:
    """Sum of four 16-bit uniforms, centred, times the binary32 scale: one rounding."""
    a, b = arx_blocks(np.arange(p.count, dtype=np.uint32), p.key_a, p.key_b)
    halves = np.stack([a & 0xFFFF, a >> 16, b & 0xFFFF, b >> 16]).astype(np.int64)
    total = halves.sum(0)
    factor = np.array([p.scale_bits], np.uint32).view(np.float32)[0]
    param[: p.count] = ((total - 131070).astype(np.float32) * factor).view(np.uint32)
