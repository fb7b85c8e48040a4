"""Oracles of generation: one token at a time over a cache of keys and values."""

from __future__ import annotations

import numpy as np

from daisychain.kernels.catalog import Step
from daisychain.kernels.oracle.primitives import (
    Array,
    Params,
    exponent,
    raise_max,
    rounding_shift,
    set_exponent,
)
from daisychain.numbers.formats import WIDE_MAX


def load_token(p: Params, s: Array, prompt: Array, ids: Array) -> None:
    ids[0] = prompt[min(int(s[Step.POSITION]), p.count - 1)]


def cache_append(p: Params, s: Array, x: Array, cache: Array) -> None:
    """One static exponent for all positions: rows of different tokens share a GEMM."""
    shift = p.cache_e - exponent(s, p.x_exp)
    m = x[: p.cols].astype(np.int64)
    if shift >= 0:
        m = rounding_shift(m, shift)
    else:
        left = min(-shift, 30)
        m = np.clip(m, -(WIDE_MAX >> left), WIDE_MAX >> left) << left
    at = int(s[Step.POSITION]) * p.cols
    cache[at : at + p.cols] = m
    raise_max(s, p.cache_max, m)
    set_exponent(s, p.cache_exp, p.cache_e)


def emit(p: Params, s: Array, x: Array, out: Array) -> None:
    out[0] = exponent(s, p.x_exp)
    out[1 : 1 + p.count] = x[: p.count]


def advance(p: Params, s: Array) -> None:
    s[Step.POSITION] += p.by
