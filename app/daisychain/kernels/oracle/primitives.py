"""Integer primitives of the NumPy oracle (docs/NUMBERS.md).

int64 holds what 32-bit hardware keeps as a carry pair or splits into 15-bit digits; a float64
matrix product is an exact integer engine (all sums < 2^53).  Neither changes a bit.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from daisychain.kernels.catalog import Step
from daisychain.numbers.formats import MULQ_MAX, NARROW_MAX, WIDE_MAX
from daisychain.numbers.random_bits import ROTATIONS, tensor_key
from daisychain.numbers.tables import rsqrt_table

Array = npt.NDArray[Any]
Params = SimpleNamespace

_RSQRT = np.array(rsqrt_table(), np.int64)


def exponent(s: Array, word: int) -> int:
    """The exponent in a word of ``scalars``."""
    return int(s[word : word + 1].view(np.int32)[0])


def set_exponent(s: Array, word: int, value: int) -> None:
    s[word : word + 1].view(np.int32)[0] = value


def write_wide(s: Array, p: Params, out: Array, m: Array, e: int) -> None:
    """Stores mantissas in ``out``, raises ``out_max`` and sets ``out_exp``."""
    store_wide(s, p.out_max, p.out_exp, out, m, e)


def store_wide(s: Array, max_word: int, exp_word: int, out: Array, m: Array, e: int) -> None:
    raise_max(s, max_word, m)
    set_exponent(s, exp_word, e)
    out[:] = m.reshape(-1)


def raise_max(s: Array, word: int, m: Array) -> None:
    top = max(int(m.max()), -int(m.min()))
    assert top <= WIDE_MAX, f"wide mantissa {top}"
    s[word] = max(int(s[word]), top)


def bit_length(x: Array) -> Array:
    """Bit length of non-negative integers below 2^53."""
    return np.frexp(np.asarray(x, np.float64))[1].astype(np.int64)


def rounding_shift(x: Array, s: Any) -> Array:
    """(x + 2^(s-1)) >> s on int64, half up; left shift for s < 0; 0 for s > 30."""
    x = np.asarray(x, np.int64)
    s = np.asarray(s, np.int64)
    r = np.clip(s, 0, 30)
    y = ((x << np.clip(-s, 0, 31)) + ((np.int64(1) << r) >> 1)) >> r
    return np.asarray(np.where(s > 30, 0, y))


def mul16(a: Array, b: Array) -> Array:
    """int16 x int16, |a|, |b| <= 32639: the one product primitive."""
    return a.astype(np.int64) * b


def mulq(x: Array, y: Any, k: Any) -> Array:
    """round(x*y / 2^k), half up; |x| <= MULQ_MAX, |y| <= 32639, k >= 0 (0 for k > 45)."""
    k = np.asarray(k, np.int64)
    x, y = np.asarray(x, np.int64), np.asarray(y, np.int64)
    assert (k >= 0).all(), "mulq shifts right"
    assert x.size == 0 or np.abs(x).max() <= MULQ_MAX, "mulq wide factor"
    assert y.size == 0 or np.abs(y).max() <= NARROW_MAX, "mulq narrow factor"
    k = np.minimum(k, 60)
    return np.asarray((x * y + ((np.int64(1) << k) >> 1)) >> k)


def random_integers(s: Array, tensor_id: int, first: int, count: int, bits: int) -> Array:
    """Integers in [0, 2^bits) for elements first.. : the top bits of word i & 1 of block i >> 1.

    ``first`` is even.
    """
    if bits == 0:
        return np.zeros(count, np.int64)
    key = tensor_key((int(s[Step.KEY_A]), int(s[Step.KEY_B])), tensor_id)
    blocks = np.arange(first // 2, (first + count + 1) // 2, dtype=np.uint32)
    words = np.stack(arx_blocks(blocks, *key), 1).reshape(-1)[:count]
    return (words >> np.uint32(32 - bits)).astype(np.int64)


def arx_blocks(counters: Array, key_a: int, key_b: int) -> tuple[Array, Array]:
    """``numbers.random_bits.arx`` on an array of counters."""
    a = counters.astype(np.uint32) + np.uint32(key_a)
    b = _rotate(a, 16) ^ np.uint32(key_b)
    for r in ROTATIONS:
        a = a + b
        b = _rotate(b, r) ^ a
    return a, b


def _rotate(x: Array, r: int) -> Array:
    return (x << np.uint32(r)) | (x >> np.uint32(32 - r))


def reciprocal(z: Array) -> tuple[Array, Array, Array]:
    """2^(27+b)/z, b = bit length of z, as digits (high, low): high*2^14 + low.

    2^28 / (15 bits of z), then one correction with 29 bits of z; relative error 2^-24.
    """
    b = bit_length(z)
    z29 = np.where(b > 29, z >> np.maximum(b - 29, 0), z << np.maximum(29 - b, 0))
    r0 = (1 << 28) // (z29 >> 14)
    rho = (1 << 28) - mulq(z29, r0, 14)
    r = (r0 << 14) + rounding_shift(r0 * rounding_shift(rho, 2), 12)
    high = rounding_shift(r, 14)
    return high, r - (high << 14), b


def mul_reciprocal(x: Array, r: tuple[Array, Array, Array], k: Any) -> Array:
    """x * (digits of r) / 2^(k+14)."""
    return mulq(x, r[0], k) + mulq(x, r[1], np.asarray(k) + 14)


def reciprocal_sqrt(total: Array) -> tuple[Array, Array]:
    """(r, k): total^-1/2 = r * 2^(-28 - k/2), r in (2^27, 2^28], k even; total >= 1.

    768-entry table and one Newton step; relative error 2^-19.
    """
    k = bit_length(total) - 29
    k += 1 - (k & 1)
    v = np.where(k > 0, total >> np.maximum(k, 0), total << np.maximum(-k, 0))
    r0 = _RSQRT[v >> 19]
    d = (1 << 27) - mulq(mulq(v, r0, 14), r0, 14)
    return (r0 << 14) + rounding_shift(r0 * rounding_shift(d, 4), 10), k + 27
