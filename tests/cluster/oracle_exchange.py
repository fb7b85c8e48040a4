"""The exchange arithmetic once more, in NumPy with 64-bit integers: an independent oracle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
NONE = -128


def rounding_shift(x: I64, s: int) -> I64:
    """floor(x / 2**s + 1/2), 0 for s > 30."""
    if s > 30 or not x.any():
        return np.zeros_like(x)
    if s <= 0:
        return x * (1 << -s)
    return np.floor_divide(x + (1 << (s - 1)), 1 << s)


def top(x: I64, e: int) -> int | None:
    largest = int(np.abs(x).max(initial=0))
    return e + largest.bit_length() if largest else None


def align(g: I64, ge: int, r: I64, re: int) -> tuple[I64, int]:
    tops = [t for t in (top(g, ge), top(r, re)) if t is not None]
    if not tops:
        return np.zeros_like(g), 0
    w = max(tops) - 29
    return rounding_shift(g, w - ge) + rounding_shift(r, w - re), w


def exponent(a: I64, w: int, limit: int) -> int:
    largest = np.abs(a).max(initial=0, keepdims=True)
    if not largest[0]:
        return NONE
    s = next(s for s in range(40) if rounding_shift(largest, s)[0] <= limit)
    return int(np.clip(w + s, -127, 127))


def quantise(a: I64, w: int, e: int, limit: int) -> tuple[I64, I64, int]:
    if e == NONE:
        return np.zeros_like(a), np.zeros_like(a), 0
    s = max(0, e - w)
    q = np.clip(rounding_shift(a, s), -limit, limit)
    rest = a - q * (1 << s) if s <= 30 else a
    t = max(0, s - 15)
    return q, np.clip(rounding_shift(rest, t), -32767, 32767), w + t
