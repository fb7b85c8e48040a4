"""Oracles: cross-entropy with its gradient, and the loss sum."""

from __future__ import annotations

import numpy as np

from daisychain.kernels.oracle.attention import PROBABILITY_EXPONENT, exp_rows
from daisychain.kernels.oracle.primitives import (
    Array,
    Params,
    bit_length,
    exponent,
    mul_reciprocal,
    random_integers,
    reciprocal,
    rounding_shift,
    set_exponent,
)

IGNORED = 0xFFFFFFFF
_ROWS_AT_ONCE = 16  # keeps the int64 temporaries of a 16,512-token vocabulary in cache


def cross_entropy(
    p: Params,
    s: Array,
    logits: Array,
    targets: Array,
    exp_table: Array,
    log_table: Array,
    loss: Array,
    dlogits: Array,
) -> None:
    """Loss a row in base 2 (Q16); dlogits = p - onehot of the SUM of losses, Q30, stochastically
    narrowed by 16.  Probabilities down to 2^-24 survive."""
    table, logs = exp_table.astype(np.int64), log_table.astype(np.int64)
    for first in range(0, p.rows, _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, p.rows)
        part = slice(first * p.cols, last * p.cols)
        m = logits[part].reshape(-1, p.cols)
        target = targets[first:last]
        counts = target != IGNORED
        row = np.arange(last - first)
        column = np.where(counts, target, 0).astype(np.int64)
        t, terms = exp_rows(m, np.arange(p.cols) < p.valid, exponent(s, p.x_exp), p, table)
        z = terms.sum(-1, keepdims=True)
        r = reciprocal(z)
        probability = mul_reciprocal(terms, r, r[2] - 17)
        probability[row, column] -= 1 << 30
        noise = random_integers(s, p.tensor_id, part.start, m.size, 16).reshape(m.shape)
        gradient = (probability + noise) >> 16
        dlogits[part] = np.where(counts[:, None], gradient, 0).reshape(-1)
        value = t[row, column] + _log2_excess(z[:, 0], logs)
        loss[first:last] = np.where(counts, value, 0)
    set_exponent(s, p.out_exp, PROBABILITY_EXPONENT)


def _log2_excess(z: Array, logs: Array) -> Array:
    """log2(z / 2^29) in Q16, by a table of 4,096 intervals with 14 bits of interpolation."""
    b = bit_length(z)
    f = (z >> (b - 29)) - (1 << 28)
    i = f >> 16
    fraction = (f >> 2) & 0x3FFF
    log = logs[i] + rounding_shift((logs[i + 1] - logs[i]) * fraction, 14)
    return ((b - 30) << 16) + rounding_shift(log, 8)


def sum_loss(p: Params, s: Array, loss: Array, record: Array) -> None:
    values = loss[: p.count].astype(np.int64)
    record[p.offset] += np.uint32((values >> 16).sum() & 0xFFFFFFFF)
    record[p.offset + 1] += np.uint32((values & 0xFFFF).sum())
