"""Wide and narrow numbers: limits, shifts and the byte layout, in plain Python integers.

See docs/NUMBERS.md.  These scalar forms run on the host; tensors are handled by the kernels.
"""

from __future__ import annotations

from fractions import Fraction

NARROW_MAX = 32639
"""Largest narrow mantissa: 127*256 + 127, so that both int8 halves fit."""

WIDE_MAX = (1 << 30) + (1 << 24)
"""Largest wide mantissa."""

MULQ_MAX = NARROW_MAX * 32768 + 16383
"""Largest 32-bit factor of mulq, just below 2^30 - 2^22: 1.0 as such a factor is Q29, never Q30."""


def rounding_shift(x: int, s: int) -> int:
    """(x + 2^(s-1)) >> s: half up; a left shift for s < 0; 0 for s > 30."""
    if s > 30:
        return 0
    return x << -s if s <= 0 else (x + (1 << (s - 1))) >> s


def nearest_shift(maximum: int) -> int:
    """The least s >= 0 with (maximum + half) >> s <= NARROW_MAX."""
    s = 0
    while (maximum + ((1 << s) >> 1)) >> s > NARROW_MAX:
        s += 1
    return s


def stochastic_shift(maximum: int) -> int:
    """The least s >= 0 with (maximum + 2^s - 1) >> s <= NARROW_MAX."""
    s = 0
    while (maximum + (1 << s) - 1) >> s > NARROW_MAX:
        s += 1
    return s


def gemm_shift(k: int) -> int:
    """g of GEMM3 for inner length k: the most bits that hh << g has in 32 bits, at most 7."""
    return min(7, 30 - (16129 * k).bit_length())


def constant16(c: Fraction) -> tuple[int, int]:
    """A positive constant as (mantissa <= 32639, exponent): c ~ mantissa * 2^exponent."""
    e = c.numerator.bit_length() - c.denominator.bit_length() - 15
    while round(c / Fraction(2) ** e) > NARROW_MAX:
        e += 1
    return round(c / Fraction(2) ** e), e


def constant_digits(c: Fraction) -> tuple[int, int, int]:
    """A positive constant in two digits (m, l, e): c ~ (m + l * 2^-14) * 2^e."""
    m, e = constant16(c)
    return m, round(c / Fraction(2) ** (e - 14)) - (m << 14), e
