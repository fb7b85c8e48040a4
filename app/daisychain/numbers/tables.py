"""Tables and constants of the kernels, from exact integer arithmetic.

libm differs between platforms in the last bit, so nothing here touches a float: every value is
computed in fixed point with ``GUARD`` bits and rounded once (docs/NUMBERS.md).
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import isqrt

GUARD = 128
"""Fraction bits of the working precision; far more than any entry needs to round correctly."""

_ONE = 1 << GUARD

EXP_ENTRIES = 4096
LOG_ENTRIES = 4097
RSQRT_ENTRIES = 1024
SIGMOID_ENTRIES = 1026


def _round(x: int, bits: int) -> int:
    """A fixed-point number with GUARD fraction bits to ``bits`` fraction bits, half up."""
    shift = GUARD - bits
    return (x + (1 << (shift - 1))) >> shift


def _divide(x: int, y: int) -> int:
    return (x << GUARD) // y


def _exp_series(x: int) -> int:
    """e^x for a fixed-point |x| <= 1."""
    term, total, n = _ONE, _ONE, 1
    while term not in (0, -1):
        term = (term * x >> GUARD) // n
        total, n = total + term, n + 1
    return total


@cache
def _ln2() -> int:
    """ln 2 = 2 artanh(1/3)."""
    power, total, n = _ONE // 3, 0, 1
    while power:
        total, power, n = total + power // n, power // 9, n + 2
    return 2 * total


@cache
def _ln10000() -> int:
    """ln 10000 = 4 (ln 10), ln 10 = 3 ln 2 + 2 artanh(1/9)."""
    power, total, n = _ONE // 9, 0, 1
    while power:
        total, power, n = total + power // n, power // 81, n + 2
    return 4 * (3 * _ln2() + 2 * total)


def log2_e() -> Fraction:
    """log2(e), good to 2^-120."""
    return Fraction(_ONE, _ln2())


def square_root(n: int) -> Fraction:
    """sqrt(n), good to 2^-128."""
    return Fraction(isqrt(n << (2 * GUARD)), _ONE)


@cache
def exp2_table() -> tuple[int, ...]:
    """2^(29 - i/4096), i = 0..4095."""
    ratio = _exp_series(-_ln2() // EXP_ENTRIES)
    values, x = [], _ONE
    for _ in range(EXP_ENTRIES):
        values.append(_round(x, 29))
        x = x * ratio >> GUARD
    return tuple(values)


@cache
def log2_table() -> tuple[int, ...]:
    """2^24 * log2(1 + i/4096), i = 0..4096, by ln((n+1)/n) = 2 artanh(1/(2n+1)) summed up."""
    values, total = [0], 0
    for n in range(EXP_ENTRIES, 2 * EXP_ENTRIES):
        odd = 2 * n + 1
        power, k = _ONE // odd, 1
        while power:
            total += 2 * (power // k)
            power, k = power // (odd * odd), k + 2
        values.append(_round(_divide(total, _ln2()), 24))
    return tuple(values)


@cache
def rsqrt_table() -> tuple[int, ...]:
    """2^14 / sqrt((i + 1/2)/256) for i = 256..1023; zeros before."""
    values = [0] * 256
    for i in range(256, RSQRT_ENTRIES):
        # 2^14 * sqrt(512 / (2i+1))
        root = isqrt((512 << (2 * GUARD)) // (2 * i + 1))
        values.append(_round(root, 14))
    return tuple(values)


@cache
def _sigmoid_pairs() -> tuple[tuple[int, int], ...]:
    """(sigmoid(z), slope of z*sigmoid(z)) at z = i/64, in Q14."""
    ratio, e = _exp_series(-_ONE // 64), _ONE
    pairs = []
    for i in range(SIGMOID_ENTRIES):
        g = _divide(_ONE, _ONE + e)
        z = i * _ONE // 64
        slope = g * (_ONE + (z * (_ONE - g) >> GUARD)) >> GUARD
        pairs.append((_round(g, 14), _round(slope, 14)))
        e = e * ratio >> GUARD
    return tuple(pairs)


def sigmoid_table() -> tuple[int, ...]:
    """sigmoid(i/64) in Q14."""
    return tuple(g for g, _ in _sigmoid_pairs())


def silu_slope_table() -> tuple[int, ...]:
    """d/dz (z * sigmoid(z)) at i/64 in Q14."""
    return tuple(slope for _, slope in _sigmoid_pairs())


def rope_table(context: int, head_dim: int) -> tuple[int, ...]:
    """cos, sin of t * 10000^(-j/(head_dim/2)) in Q14: flat [context][head_dim/2][2]."""
    half = head_dim // 2
    ratio = _exp_series(-_ln10000() // (half * 16))
    columns, frequency = [], _ONE
    for _ in range(half):
        columns.append(_rotations(frequency, context))
        for _ in range(16):
            frequency = frequency * ratio >> GUARD
    return tuple(v for t in range(context) for column in columns for v in column[t])


def _rotations(angle: int, count: int) -> list[tuple[int, int]]:
    """cos, sin of t * angle in Q14, t = 0..count-1, by repeated rotation."""
    c1, s1 = _cos_sin(angle)
    c, s, out = _ONE, 0, []
    for _ in range(count):
        out.append((_round(c, 14), _round(s, 14)))
        c, s = (c * c1 - s * s1) >> GUARD, (s * c1 + c * s1) >> GUARD
    return out


def _cos_sin(angle: int) -> tuple[int, int]:
    """Taylor series for 0 <= angle <= 2."""
    cosine, sine, term, n = 0, 0, _ONE, 0
    while term:
        sign = -1 if n & 2 else 1
        if n & 1:
            sine += sign * term
        else:
            cosine += sign * term
        n += 1
        term = (term * angle >> GUARD) // n
    return cosine, sine


def half_cosine(i: int, n: int) -> float:
    """(1 + cos(pi * i/n)) / 2 for 0 <= i <= n, the cosine decay: 1 down to 0."""
    c, _ = _cos_sin(_pi() * i // (2 * n))
    return float(Fraction(c * c, _ONE * _ONE))


@cache
def _pi() -> int:
    """Machin: 16 arctan(1/5) - 4 arctan(1/239)."""
    return 16 * _arctan_inverse(5) - 4 * _arctan_inverse(239)


def _arctan_inverse(x: int) -> int:
    power, total, n, sign = _ONE // x, 0, 1, 1
    while power:
        total += sign * (power // n)
        power, n, sign = power // (x * x), n + 2, -sign
    return total
