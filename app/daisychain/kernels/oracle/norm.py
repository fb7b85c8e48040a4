"""Oracles: RMSNorm and RoPE, forward and backward."""

from __future__ import annotations

from math import isqrt

import numpy as np

from daisychain.kernels.catalog import Step
from daisychain.kernels.oracle.primitives import (
    Array,
    Params,
    bit_length,
    exponent,
    mul16,
    mulq,
    reciprocal_sqrt,
    rounding_shift,
    write_wide,
)
from daisychain.numbers.formats import NARROW_MAX

EPSILON_EXPONENT = -20
"""epsilon = 2^-20, added at the row's own scale."""

ROW_MAX_BIAS = 4096
"""Added to row exponents so that their maximum can be kept as u32."""


def _shift_to_15_bits(x: Array) -> Array:
    """The shift that rounds each non-negative value to at most 32639."""
    s = bit_length(x) - 15
    return s + (rounding_shift(x, s) > NARROW_MAX)


def rmsnorm(p: Params, s: Array, x: Array, out: Array, inv_rms: Array, inv_exp: Array) -> None:
    """xhat = x / rms(x), and per row 1/rms as 16-bit mantissa and exponent.

    Each row is first brought to 15 bits by its own maximum: no row loses bits to a larger one.
    |xhat| <= sqrt(cols), so the output exponent is static.  S keeps lo*lo (it does not cancel in
    squares).
    """
    m = x[: p.rows * p.cols].reshape(p.rows, p.cols).astype(np.int64)
    ex = exponent(s, p.x_exp)
    shift = np.maximum(_shift_to_15_bits(np.abs(m).max(-1, keepdims=True)), -26 - ex)
    m = rounding_shift(m, shift)
    er = shift + ex
    sh = EPSILON_EXPONENT - 2 * er
    epsilon = (np.int64(p.cols) << np.clip(sh, 0, 32)) >> np.clip(-sh, 0, 62)
    total = np.maximum(1, mul16(m, m).sum(-1, keepdims=True) + epsilon)
    r, k = reciprocal_sqrt(total)
    root = mulq(r, p.root_m, 15)
    e = -28 - k // 2 + p.root_e + 15
    q = _shift_to_15_bits(root)
    root = rounding_shift(root, q)
    e = e + q
    write_wide(s, p, out, rounding_shift(mul16(m, root), p.static_e - e), p.static_e)
    inv_rms[: p.rows] = root[:, 0]
    inv_exp[: p.rows] = (e - er)[:, 0]
    s[p.rows_max] = max(int(s[p.rows_max]), int((e - er).max()) + ROW_MAX_BIAS)


def scale(p: Params, s: Array, x: Array, w: Array, out: Array) -> None:
    m = mul16(x[: p.rows * p.cols].reshape(-1, p.cols), w[: p.cols])
    write_wide(s, p, out, m, exponent(s, p.x_exp) + exponent(s, p.w_exp))


def rmsnorm_backward(
    p: Params,
    s: Array,
    dy: Array,
    xhat: Array,
    w: Array,
    inv_rms: Array,
    inv_exp: Array,
    out: Array,
) -> None:
    """dx = (t - xhat * mean(t * xhat)) / rms, t = dy * w."""
    n, d = p.rows, p.cols
    dy, xhat = dy.reshape(n, d), xhat.reshape(n, d)
    t = mul16(dy, w)
    et = exponent(s, p.dy_exp) + exponent(s, p.w_exp)
    ex = exponent(s, p.xhat_exp)
    dot = mul16(rounding_shift(t, 15), xhat).sum(-1, keepdims=True)
    head = d.bit_length() + 1
    c = mulq(rounding_shift(dot, head), p.mean_m, 15)
    ec = et + 15 + ex + head + 15 + p.mean_e
    a = (isqrt(d) + 2).bit_length()
    u = rounding_shift(t, a) - mulq(c, xhat, et + a - ec - ex)
    e_max = int(s[p.rows_max]) - ROW_MAX_BIAS
    dx = mulq(u, inv_rms[:n, None], 15 + e_max - inv_exp[:n, None].astype(np.int64))
    write_wide(s, p, out, dx, et + a + 15 + e_max)


def rmsnorm_weight_grad(p: Params, s: Array, dy: Array, xhat: Array, out: Array) -> None:
    """dw = sum over rows of dy * xhat."""
    g = p.rows.bit_length()
    total = mul16(dy.reshape(p.rows, p.cols), xhat.reshape(p.rows, p.cols)).sum(0)
    e = exponent(s, p.dy_exp) + exponent(s, p.xhat_exp) + g
    write_wide(s, p, out, rounding_shift(total, g), e)


def rope(p: Params, s: Array, x: Array, table: Array, out: Array) -> None:
    """Rotates the halves of each head by the position's angles; backward turns the other way."""
    half = p.head_dim // 2
    count = p.rows * p.heads * p.head_dim
    m = x[:count].reshape(p.rows, p.heads, p.head_dim)
    position = np.arange(p.rows) % p.context
    if p.moving:
        position = position + int(s[Step.POSITION])
    angles = table.reshape(-1, half, 2)[position][:, None]
    cos, sin = angles[..., 0], -angles[..., 1] if p.backward else angles[..., 1]
    first, second = m[..., :half], m[..., half:]
    turned = [
        mul16(first, cos) - mul16(second, sin),
        mul16(first, sin) + mul16(second, cos),
    ]
    write_wide(s, p, out, np.concatenate(turned, -1), exponent(s, p.x_exp) - 14)
