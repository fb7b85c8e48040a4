"""Soft binary32 against NumPy's float32: every operation, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.numbers import softfloat

SPECIAL = (
    0x00000000,  # 0
    0x80000000,  # -0
    0x00000001,  # the smallest denormal
    0x007FFFFF,  # the largest denormal
    0x00800000,  # the smallest normal number
    0x00800001,
    0x33800000,  # 2^-24: 1 + it is a tie
    0x33800001,  # just above the tie
    0x34400000,  # 3 * 2^-24: a tie that goes up
    0x3F7FFFFF,
    0x3F800000,  # 1
    0x3F800001,
    0x40400000,  # 3
    0x4B800000,  # 2^24: adding 1 is a tie
    0x4B800001,
    0x7F000000,
    0x7F7FFFFF,  # the largest finite number
    0x7F800000,  # infinity
    0x7FC00000,  # NaN
    0x7F800001,  # signalling NaN
)
patterns = st.one_of(
    st.integers(0, 0xFFFFFFFF),
    st.sampled_from(SPECIAL),
    st.sampled_from(SPECIAL).map(lambda x: x | 0x80000000),
    # few mantissa bits: exact ties and exact results; near exponents: cancellation
    st.builds(
        lambda sign, exponent, top, low: sign << 31 | exponent << 23 | top << 20 | low,
        st.integers(0, 1),
        st.one_of(st.integers(0, 3), st.integers(120, 134), st.integers(252, 254)),
        st.integers(0, 7),
        st.integers(0, 3),
    ),
)


def as_float(pattern: int) -> np.float32:
    return np.uint32(pattern).view(np.float32)


def as_pattern(value: np.float32) -> int:
    return softfloat.NAN if np.isnan(value) else int(np.float32(value).view(np.uint32))


BINARY: dict[str, tuple[Callable[[int, int], int], Callable[..., np.float32]]] = {
    "add": (softfloat.add, np.add),
    "sub": (softfloat.sub, np.subtract),
    "mul": (softfloat.mul, np.multiply),
    "div": (softfloat.div, np.divide),
}


@pytest.mark.parametrize("name", BINARY)
@settings(max_examples=400)
@given(x=patterns, y=patterns)
def test_binary_operations(name: str, x: int, y: int) -> None:
    soft, hard = BINARY[name]
    with np.errstate(all="ignore"):
        assert soft(x, y) == as_pattern(hard(as_float(x), as_float(y)))


@pytest.mark.parametrize("name", BINARY)
def test_binary_operations_on_special_values(name: str) -> None:
    soft, hard = BINARY[name]
    values = SPECIAL + tuple(x | 0x80000000 for x in SPECIAL)
    with np.errstate(all="ignore"):
        for x in values:
            for y in values:
                assert soft(x, y) == as_pattern(hard(as_float(x), as_float(y))), (hex(x), hex(y))


@settings(max_examples=400)
@given(patterns)
def test_sqrt(x: int) -> None:
    with np.errstate(all="ignore"):
        assert softfloat.sqrt(x) == as_pattern(np.sqrt(as_float(x)))


@settings(max_examples=400)
@given(st.integers(-(2**30) - 2**24, 2**30 + 2**24), st.integers(-200, 120))
def test_from_wide(m: int, e: int) -> None:
    # float64 holds m * 2^e exactly, so its conversion rounds once.
    with np.errstate(all="ignore"):
        assert softfloat.from_wide(m, e) == as_pattern(np.float32(np.ldexp(float(m), e)))


@given(st.integers(1, 2**24 - 2), st.integers(-100, 60))
def test_ties_go_to_even(n: int, e: int) -> None:
    """n + 1/2 units of the last place, which no float operation can hold."""
    n |= 1 << 23
    rounded = softfloat.from_wide(2 * n + 1, e)
    even = n + (n & 1)
    assert Fraction(float(as_float(rounded))) == Fraction(even) * Fraction(2) ** (e + 1)
