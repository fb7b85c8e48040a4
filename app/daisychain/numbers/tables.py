"""Tables and constants of the kernels, from exact integer arithmetic.

libm differs between platforms in the last bit, so nothing here touches a float: every value is
computed in fixed point with ``GUARD`` bits and rounded once (docs/NUMBERS.md).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
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


_kept_rope: dict[tuple[int, int], array[int]] = {}


def rope_table(context: int, head_dim: int) -> array[int]:
    """cos, sin of t * 10000^(-j/(head_dim/2)) in Q14: flat [context][head_dim/2][2], 32-bit words.

    The last one is kept, so nobody may change it.
    """
    for _ in rope_work(context, head_dim):
        pass
    return _kept_rope[context, head_dim]


def rope_work(context: int, head_dim: int) -> Iterator[None]:
    """Makes that table and keeps it, one frequency at each step: milliseconds, however large."""
    if (context, head_dim) in _kept_rope:
        return
    table = array("i", bytes(4 * context * head_dim))
    half = head_dim // 2
    ratio, frequency = _exp_series(-_ln10000() // (half * 16)), _ONE
    for j in range(half):
        table[2 * j :: head_dim], table[2 * j + 1 :: head_dim] = _rotations(frequency, context)
        for _ in range(16):
            frequency = frequency * ratio >> GUARD
        yield
    _kept_rope.clear()
    _kept_rope[context, head_dim] = table


ROTATIONS = 128
"""Rotations that are made one by one; all others are these, turned together."""
FRACTION = 71
"""Fraction bits of a factor: those of a product are Q14 and four words of 32 bits below."""
LANE_WORDS = 6
"""Words of a number among many in one integer: four of fraction, Q14, and room for the carry."""


def _rotations(angle: int, count: int) -> tuple[array[int], array[int]]:
    """cos and sin of t * angle in Q14, t = 0..count-1.

    The first few come from repeated rotation.  They are lanes of two long integers: to turn all of
    them further is four products of a long integer and a short one.  The error stays below 2^-69,
    so a value rounds as with GUARD bits unless it is as close as that to a tie.
    """
    first = min(ROTATIONS, count)
    near, step = _turns(_cos_sin(angle), first)
    far, _ = _turns(step, -(-count // first))
    c_lanes, s_lanes = (_lanes(values) for values in zip(*near, strict=True))
    half = _in_each_lane((1 << 32 * (LANE_WORDS - 1)) + (1 << 127), first)
    cosines, sines = array("i"), array("i")
    for c, s in far:
        cosines += _rounded(c_lanes * c - s_lanes * s + half, first)
        sines += _rounded(s_lanes * c + c_lanes * s + half, first)
    return cosines[:count], sines[:count]


def _turns(step: tuple[int, int], count: int) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """cos, sin of 0..count-1 steps with FRACTION bits; those of ``count`` steps with GUARD bits."""
    c1, s1 = step
    c, s, out = _ONE, 0, []
    for _ in range(count):
        out.append((_round(c, FRACTION), _round(s, FRACTION)))
        c, s = (c * c1 - s * s1) >> GUARD, (s * c1 + c * s1) >> GUARD
    return out, (c, s)


def _lanes(values: Iterable[int]) -> int:
    """Numbers, negative ones too, as lanes of one integer: the first is the lowest."""
    positive = [value + (1 << FRACTION + 1) for value in values]
    packed = b"".join(value.to_bytes(4 * LANE_WORDS, "little") for value in positive)
    return int.from_bytes(packed, "little") - _in_each_lane(1 << FRACTION + 1, len(positive))


def _in_each_lane(value: int, count: int) -> int:
    return int.from_bytes(value.to_bytes(4 * LANE_WORDS, "little") * count, "little")


def _rounded(lanes: int, count: int) -> array[int]:
    """The Q14 word of each lane; a half is added already, and a carry that keeps it positive."""
    return array("i", lanes.to_bytes(4 * LANE_WORDS * count, "little"))[4::LANE_WORDS]


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
