"""IEEE-754 binary32 on bit patterns, round to nearest even: the readable definition.

``webgpu/softfloat.wgsl`` does the same with 32-bit words, NumPy and WebAssembly natively.  Every
operation takes and gives u32 patterns: the exact result as a big integer, then one rounding.
Denormals and signed zeros are kept, overflow gives infinity, every NaN is ``NAN``.
"""

from __future__ import annotations

from math import isqrt

SIGN = 0x80000000
INFINITY = 0x7F800000
NAN = 0x7FC00000
MANTISSA_BITS = 23
EXPONENT_MIN = -149
"""The exponent of the last place of denormals and of the smallest normal numbers."""

_GUARD_BITS = 64
"""More than enough quotient and root bits: 24 of result, 1 to round, the rest fold into one."""


def add(x: int, y: int) -> int:
    """x + y."""
    if _is_nan(x) or _is_nan(y) or (_is_infinite(x) and y == x ^ SIGN):
        return NAN
    if _is_infinite(x) or _is_infinite(y):
        return x if _is_infinite(x) else y
    (mx, ex), (my, ey) = _exact(x), _exact(y)
    e = min(ex, ey)
    total = (mx << (ex - e)) + (my << (ey - e))
    if total == 0:
        return x & y & SIGN  # -0 only as the sum of two negative zeros
    return from_wide(total, e)


def sub(x: int, y: int) -> int:
    """x - y."""
    return add(x, y ^ SIGN)


def mul(x: int, y: int) -> int:
    """x * y."""
    sign = (x ^ y) & SIGN
    if _is_nan(x) or _is_nan(y):
        return NAN
    if _is_infinite(x) or _is_infinite(y):
        return NAN if _is_zero(x) or _is_zero(y) else sign | INFINITY
    (mx, ex), (my, ey) = _exact(x), _exact(y)
    return sign | _round(abs(mx * my), ex + ey)


def div(x: int, y: int) -> int:
    """x / y."""
    sign = (x ^ y) & SIGN
    if _is_nan(x) or _is_nan(y) or (_is_infinite(x) and _is_infinite(y)):
        return NAN
    if _is_infinite(x):
        return sign | INFINITY
    if _is_infinite(y):
        return sign
    if _is_zero(y):
        return NAN if _is_zero(x) else sign | INFINITY
    (mx, ex), (my, ey) = _exact(x), _exact(y)
    quotient, rest = divmod(abs(mx) << _GUARD_BITS, abs(my))
    return sign | _round(quotient << 1 | (rest > 0), ex - ey - _GUARD_BITS - 1)


def sqrt(x: int) -> int:
    """The square root; sqrt(-0) = -0."""
    if _is_nan(x) or (x & SIGN and not _is_zero(x)):
        return NAN
    if _is_zero(x) or _is_infinite(x):
        return x
    m, e = _exact(x)
    odd = e & 1
    square = m << (2 * _GUARD_BITS + odd)
    root = isqrt(square)
    return _round(root << 1 | (root * root < square), (e - odd) // 2 - _GUARD_BITS - 1)


def from_wide(m: int, e: int) -> int:
    """The binary32 nearest to m * 2^e (zero is +0)."""
    return (SIGN if m < 0 else 0) | _round(abs(m), e)


def _exact(x: int) -> tuple[int, int]:
    """A finite pattern as (m, e), value m * 2^e with signed m."""
    exponent = x >> MANTISSA_BITS & 0xFF
    fraction = x & ((1 << MANTISSA_BITS) - 1)
    m = fraction | (1 << MANTISSA_BITS) if exponent else fraction
    return (-m if x & SIGN else m), max(exponent, 1) - 1 + EXPONENT_MIN


def _round(m: int, e: int) -> int:
    """The magnitude pattern nearest to m * 2^e, m >= 0; ties to even."""
    shift = max(e + m.bit_length() - MANTISSA_BITS - 1, EXPONENT_MIN) - e
    if shift <= 0:
        kept = m << -shift
    else:
        kept, rest, half = m >> shift, m & ((1 << shift) - 1), 1 << (shift - 1)
        kept += rest > half or (rest == half and kept & 1)
    # The hidden bit of a normal number adds one to the exponent field, and so does a carry.
    field = e + shift - EXPONENT_MIN if kept else 0
    return min((field << MANTISSA_BITS) + kept, INFINITY)


def _is_nan(x: int) -> bool:
    return x & ~SIGN > INFINITY


def _is_infinite(x: int) -> bool:
    return x & ~SIGN == INFINITY


def _is_zero(x: int) -> bool:
    return x & ~SIGN == 0
