"""Scalar number formats against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import floor

from hypothesis import given
from hypothesis import strategies as st

from daisychain.numbers.formats import (
    MULQ_MAX,
    NARROW_MAX,
    WIDE_MAX,
    constant16,
    constant_digits,
    gemm_shift,
    nearest_shift,
    rounding_shift,
    stochastic_shift,
)

wide = st.integers(-WIDE_MAX, WIDE_MAX)
maxima = st.one_of(
    st.integers(0, WIDE_MAX),
    st.integers(0, 15).flatmap(
        lambda s: st.integers((NARROW_MAX << s) - 2, (NARROW_MAX + 1 << s) + 2)
    ),
)
constants = st.fractions(min_value=Fraction(1, 2**40), max_value=2**40).filter(lambda c: c > 0)


@given(wide, st.integers(-1, 60))
def test_rounding_shift(x: int, s: int) -> None:
    exact = Fraction(x) / Fraction(2) ** s
    if s > 30:
        assert rounding_shift(x, s) == 0
        assert abs(exact) <= Fraction(1, 2) + Fraction(1, 64)
    else:
        assert rounding_shift(x, s) == floor(exact + Fraction(1, 2))


@given(maxima)
def test_nearest_shift_is_the_least_that_fits(maximum: int) -> None:
    s = nearest_shift(maximum)
    assert rounding_shift(maximum, s) <= NARROW_MAX
    assert -rounding_shift(-maximum, s) <= NARROW_MAX
    assert s == 0 or rounding_shift(maximum, s - 1) > NARROW_MAX


@given(maxima, st.data())
def test_stochastic_shift_is_the_least_that_fits_every_draw(
    maximum: int, data: st.DataObject
) -> None:
    s = stochastic_shift(maximum)
    draw = data.draw(st.integers(0, (1 << s) - 1))
    m = data.draw(st.integers(-maximum, maximum))
    assert -NARROW_MAX - 1 < (m + draw) >> s <= NARROW_MAX
    assert s == 0 or (maximum + (1 << s - 1) - 1) >> s - 1 > NARROW_MAX


@given(st.integers(1, 66_000))
def test_gemm_shift_cannot_overflow_and_wastes_no_bit(k: int) -> None:
    g = gemm_shift(k)
    assert 0 <= g <= 7
    high, middle = 127 * 127 * k, 2 * 127 * 128 * k
    rounded = middle + (1 << 7 - g)
    assert rounded < 1 << 31
    assert (high << g) + (rounded >> 8 - g) <= WIDE_MAX
    assert g == 7 or high << g + 1 > 1 << 29


@given(constants)
def test_constant16_is_within_a_rounding(c: Fraction) -> None:
    m, e = constant16(c)
    assert m + 1 >= (NARROW_MAX + 1) // 2
    assert m <= NARROW_MAX
    assert abs(m * Fraction(2) ** e - c) <= Fraction(2) ** e / 2


@given(constants)
def test_constant_digits_adds_fourteen_bits(c: Fraction) -> None:
    m, low, e = constant_digits(c)
    assert (m, e) == constant16(c)
    assert abs(low) <= 1 << 13
    assert abs((m + Fraction(low, 1 << 14)) * Fraction(2) ** e - c) <= Fraction(2) ** (e - 15)


def test_a_factor_of_mulq_has_two_digits_and_one_is_q29() -> None:
    for x in (MULQ_MAX, -MULQ_MAX):
        high = (x + (1 << 14)) >> 15
        assert abs(high) <= NARROW_MAX
        assert -(1 << 14) <= x - (high << 15) < 1 << 14
    assert (MULQ_MAX + 1 + (1 << 14)) >> 15 > NARROW_MAX
    assert 1 << 29 <= MULQ_MAX < 1 << 30
