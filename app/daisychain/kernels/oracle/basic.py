"""Oracles: clearing, embedding, narrowing, addition, transposition, GEMM3, the units."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from daisychain.kernels.catalog import Step
from daisychain.kernels.oracle.primitives import (
    Array,
    Params,
    exponent,
    raise_max,
    random_integers,
    rounding_shift,
    set_exponent,
    write_wide,
)
from daisychain.numbers.formats import nearest_shift, stochastic_shift


def zero_scalars(p: Params, s: Array) -> None:
    s[p.start : p.start + p.count] = 0


def move_scalars(p: Params, s: Array) -> None:
    """Hands words over and leaves zeros, ready for the next maximum."""
    s[p.target : p.target + p.count] = s[p.source : p.source + p.count]
    s[p.source : p.source + p.count] = 0


def zero(p: Params, s: Array, out: Array) -> None:
    out[: p.count] = 0


def fill(p: Params, s: Array, out: Array) -> None:
    out[: p.count] = p.bits & 0xFFFFFFFF


def absmax(p: Params, s: Array, x: Array) -> None:
    raise_max(s, p.out_max, x[: p.count])


def load_micro_batch(p: Params, s: Array, inputs: Array, ids: Array, targets: Array) -> None:
    base = int(s[Step.MICRO_BATCH]) * (2 * p.count + 2)
    s[Step.KEY_A], s[Step.KEY_B] = inputs[base], inputs[base + 1]
    ids[:] = inputs[base + 2 : base + 2 + p.count]
    targets[:] = inputs[base + 2 + p.count : base + 2 + 2 * p.count]
    s[Step.MICRO_BATCH] += 1


def gather(p: Params, s: Array, table: Array, ids: Array, out: Array) -> None:
    """out = table rows << 13, exponent - 13."""
    rows = table.reshape(-1, p.cols)[ids[: p.rows]]
    write_wide(s, p, out, rows.astype(np.int64) << 13, exponent(s, p.table_exp) - 13)


def scatter_add(p: Params, s: Array, x: Array, ids: Array, out: Array) -> None:
    """Adds rows by token id.  A stochastic pre-shift by the token count keeps sums below 2^30."""
    shift = max(0, int(s[p.x_max]).bit_length() + p.rows.bit_length() - 30)
    count = p.rows * p.cols
    terms = x[:count].astype(np.int64) + random_integers(s, p.tensor_id, 0, count, shift)
    np.add.at(
        out.reshape(-1, p.cols),
        ids[: p.rows],
        (terms >> shift).astype(np.int32).reshape(-1, p.cols),
    )
    set_exponent(s, p.out_exp, exponent(s, p.x_exp) + shift)


def narrow(p: Params, s: Array, x: Array, out: Array) -> None:
    """Nearest, half up."""
    shift = nearest_shift(int(s[p.x_max]))
    out[:] = rounding_shift(x[: p.count], shift)
    set_exponent(s, p.out_exp, exponent(s, p.x_exp) + shift)


def narrow_stochastic(p: Params, s: Array, x: Array, out: Array) -> None:
    """(m + r) >> shift, r uniform in [0, 2^shift): unbiased."""
    shift = stochastic_shift(int(s[p.x_max]))
    r = random_integers(s, p.tensor_id, 0, p.count, shift)
    out[:] = (x[: p.count] + r) >> shift
    set_exponent(s, p.out_exp, exponent(s, p.x_exp) + shift)


def _sum_exponent(s: Array, a: tuple[int, int], b: tuple[int, int]) -> int:
    """e = max(ea + bits(max a), eb + bits(max b)) - 29: both terms stay below 2^29."""
    return max(exponent(s, e) + int(s[m]).bit_length() for m, e in (a, b)) - 29


def add(p: Params, s: Array, x: Array, y: Array, out: Array) -> None:
    e = _sum_exponent(s, (p.x_max, p.x_exp), (p.y_max, p.y_exp))
    ex, ey = exponent(s, p.x_exp), exponent(s, p.y_exp)
    total = rounding_shift(x[: p.count], e - ex) + rounding_shift(y[: p.count], e - ey)
    write_wide(s, p, out, total, e)


def accumulate(p: Params, s: Array, x: Array, acc: Array) -> None:
    """acc + x by the rule of ``add``, in place; with ``first`` acc counts as empty."""
    ex, ea = exponent(s, p.x_exp), exponent(s, p.acc_exp)
    if p.first:
        e = ex + int(s[p.x_max]).bit_length() - 29
        total = rounding_shift(x[: p.count], e - ex)
    else:
        e = _sum_exponent(s, (p.x_max, p.x_exp), (p.acc_max, p.acc_exp))
        total = rounding_shift(x[: p.count], e - ex) + rounding_shift(acc[: p.count], e - ea)
    write_wide(s, p, acc, total, e)


def transpose(p: Params, s: Array, x: Array, out: Array) -> None:
    size = x.itemsize
    view = as_strided(
        x,
        (p.outer, p.inner, p.group, p.rows, p.cols),
        tuple(size * n for n in (p.in_outer, p.in_inner, p.in_group, p.in_row, 1)),
    )
    out[:] = view.transpose(0, 1, 4, 2, 3).reshape(-1)


def gemm3(p: Params, s: Array, a: Array, b: Array, out: Array) -> None:
    """C[i,j] = sum_k A[i,k] B[j,k] without lo*lo: (hh << g) + ((mid + half) >> (8-g)).

    Exponent eA + eB + 16 - g.  Error: the dropped sum of lo*lo, at most k * 2^14 units of
    2^(eA+eB) (in practice sqrt(k) * 74^2, unbiased), and half an output unit, 2^(15-g).
    """
    size, top = a.itemsize, []
    for z in range(p.outer * p.inner):
        o, i = divmod(z, p.inner)
        rows_a = a[o * p.a_outer + i * p.a_inner :]
        rows_b = b[o * p.b_outer + i // p.b_group * p.b_inner :]
        full_a = as_strided(rows_a, (p.m, p.k), (p.a_row * size, size)).astype(np.int32)
        full_b = as_strided(rows_b, (p.n, p.k), (p.b_row * size, size)).astype(np.int32)
        high_a, high_b = (full_a + 128) >> 8, (full_b + 128) >> 8
        low_b = full_b - (high_b << 8)
        total = _product(full_a, high_b) + _product(high_a, low_b)  # 256*hh + mid
        c = (total + (1 << (7 - p.g))) >> (8 - p.g)
        if p.causal:
            c = np.tril(c)
        top.append(np.abs(c).max())
        target = out[o * p.c_outer + i * p.c_inner :]
        as_strided(target, (p.m, p.n), (p.c_row * 4, 4))[:] = c
    raise_max(s, p.out_max, np.array(top))
    set_exponent(s, p.out_exp, exponent(s, p.a_exp) + exponent(s, p.b_exp) + 16 - p.g)


def _product(a: Array, b: Array) -> Array:
    """A B^T of integers, exact: every sum is below 2^53."""
    return (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.int64)


def unit_products(p: Params, s: Array, out: Array) -> None:
    """out[256*(a+128) + (b+128)] = a*b for all int8 a, b."""
    a, b = np.divmod(np.arange(p.count), 256)
    out[:] = (a - 128) * (b - 128)


def unit_splits(p: Params, s: Array, out: Array) -> None:
    """out[v + 32768] = the bytes of hi (as int8, upper) and lo of v = 256*hi + lo."""
    v = np.arange(p.count) - 32768
    high = (v + 128) >> 8
    out[:] = ((high & 0xFF) << 8) | ((v - (high << 8)) & 0xFF)
