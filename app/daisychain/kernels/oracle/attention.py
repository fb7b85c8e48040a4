"""Oracles: causal softmax, its division and its backward pass."""

from __future__ import annotations

import numpy as np

from daisychain.kernels.catalog import Step
from daisychain.kernels.oracle.primitives import (
    Array,
    Params,
    exponent,
    mul_reciprocal,
    mulq,
    reciprocal,
    rounding_shift,
    set_exponent,
    write_wide,
)

PROBABILITY_EXPONENT = -14


def exp_rows(m: Array, keep: Array, e: int, p: Params, table: Array) -> tuple[Array, Array]:
    """(t, terms): t = (row maximum - m) * scale in base 2, Q16; terms = 2^-t in Q29.

    ``keep`` marks the entries that count; the others give term 0.  The scale has two digits
    (p.scale_m, p.scale_l, p.scale_e): with one, a t of 20 is off by 1e-4.
    """
    m = m.astype(np.int64)
    top = np.where(keep, m, np.iinfo(np.int64).min).max(-1, keepdims=True)
    d = np.where(keep, top - m, 0)
    to_q16 = e + 16
    if to_q16 >= 0:
        d = np.minimum(d, (1 << 26) >> min(to_q16, 26)) << to_q16
    else:
        d = np.minimum(rounding_shift(d, -to_q16), 1 << 26)
    t = mulq(d, p.scale_m, -p.scale_e) + mulq(d, p.scale_l, 14 - p.scale_e)
    q = np.minimum((t + 8) >> 4, 31 << 12)
    n = q >> 12
    terms = (table[q & 4095].astype(np.int64) + ((1 << n) >> 1)) >> n
    return t, np.where(keep, terms, 0)


def softmax(p: Params, s: Array, scores: Array, table: Array, out: Array, z: Array) -> None:
    """P' = 2^-t in Q14, the maximum of every row at 16,384, and Z = sum P'.

    The division follows the GEMM (row_div): broad rows keep 14 bits where P itself would keep
    14 - log2(T).
    """
    m = scores[: p.rows * p.cols].reshape(p.rows, p.cols)
    rows = np.arange(p.rows)
    query = np.full_like(rows, s[Step.POSITION]) if p.moving else rows % p.cols
    keep = np.arange(p.cols) <= query[:, None]
    _, terms = exp_rows(m, keep, exponent(s, p.x_exp), p, table)
    numerators = rounding_shift(terms, 15)
    out[:] = numerators.reshape(-1)
    z[: p.rows] = numerators.sum(-1)
    set_exponent(s, p.out_exp, PROBABILITY_EXPONENT)


def row_div(p: Params, s: Array, x: Array, z: Array, out: Array) -> None:
    """x / Z at exponent max(eV, eX) - 14: |result| <= max|V|, so no maximum is needed."""
    row, head = np.arange(p.rows)[:, None], np.arange(p.heads)[None, :]
    batch, position = row // p.context, row % p.context
    rows_z = z[(batch * p.heads + head) * p.context + position].astype(np.int64)[..., None]
    r = reciprocal(rows_z)
    ex = exponent(s, p.x_exp)
    e = max(exponent(s, p.v_exp), ex) - 14
    m = x[: p.rows * p.heads * p.head_dim].reshape(p.rows, p.heads, p.head_dim)
    write_wide(s, p, out, mul_reciprocal(m, r, r[2] - 1 + e - ex), e)


def wide_probabilities(numerators: Array, z: Array) -> Array:
    """P = P'/Z in Q29."""
    r = reciprocal(z.astype(np.int64)[:, None])
    return mul_reciprocal(numerators.astype(np.int64) << 15, r, r[2] - 1)


def probabilities(p: Params, s: Array, numerators: Array, z: Array, out: Array) -> None:
    """P narrow, Q14."""
    wide = wide_probabilities(numerators.reshape(p.rows, p.cols), z[: p.rows])
    out[:] = rounding_shift(wide, 15).reshape(-1)
    set_exponent(s, p.out_exp, PROBABILITY_EXPONENT)


def softmax_backward(
    p: Params, s: Array, numerators: Array, z: Array, dp: Array, out: Array
) -> None:
    """dS = P * (dP - sum P*dP) * scale.

    D and w at 2^-14 of dP's unit: D is a plain i32 sum (sum P = 1), |w| <= MULQ_MAX; P as two
    15-bit digits.  A power-of-two scale goes into the exponent.
    """
    wide = wide_probabilities(numerators.reshape(p.rows, p.cols), z[: p.rows])
    dp = dp.reshape(p.rows, p.cols).astype(np.int64)
    dot = mulq(wide, dp, 15).sum(-1, keepdims=True)
    w = (dp << 14) - dot
    high = rounding_shift(wide, 15)
    low = wide - (high << 15)
    o = mulq(w, high, 14) + mulq(w, low, 29)
    e = exponent(s, p.dp_exp) - 14
    if p.scale_m == 16384:
        write_wide(s, p, out, o, e + p.scale_e + 14)
    else:
        write_wide(s, p, out, mulq(o, p.scale_m, 15), e + p.scale_e + 15)
