"""The INT8 units: networks against integers, tables against networks, faults found."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.numbers import units

int8 = st.integers(units.INT8_MIN, units.INT8_MAX)
int16 = st.integers(units.INT16_MIN, units.INT16_MAX)


def test_units_are_right_on_their_whole_domains() -> None:
    assert len(units.product_table()) == len(units.split_table()) == units.DOMAIN
    units.prove()


@given(int8, int8)
def test_multiply(a: int, b: int) -> None:
    assert units.multiply(a, b) == a * b
    assert units.product_table()[256 * (a + 128) + b + 128] == a * b


@given(int16)
def test_split(m: int) -> None:
    high, low = units.split(m)
    assert units.INT8_MIN <= high <= units.INT8_MAX
    assert units.INT8_MIN <= low <= units.INT8_MAX
    assert 256 * high + low == (m if m <= 32639 else m - 65536)
    assert units.split_table()[m + 32768] == (high & 255) << 8 | (low & 255)


@given(st.integers(units.SQUARE_MIN, units.SQUARE_MAX))
def test_square_network(x: int) -> None:
    assert units.SQUARE(x) == x * x


@given(
    st.integers(-9, 9),
    st.lists(st.tuples(st.integers(-5, 5), st.integers(-20, 25)), max_size=8),
)
def test_layout_is_the_network(bias: int, neurons: list[tuple[int, int]]) -> None:
    network = units.ReluNetwork(bias, tuple(neurons))
    assert network.layout(-20, 20) == [network(x) for x in range(-20, 21)]


def test_a_wrong_neuron_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, at = units.SQUARE.neurons[300]
    neurons = (*units.SQUARE.neurons[:300], (weight + 1, at), *units.SQUARE.neurons[301:])
    monkeypatch.setattr(units, "SQUARE", units.ReluNetwork(units.SQUARE.bias, neurons))
    units.product_table.cache_clear()
    try:
        with pytest.raises(ArithmeticError, match=r"the unit multiply gives -?\d+, not"):
            units.prove()
    finally:
        units.product_table.cache_clear()


def test_a_wrong_split_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    table = array("i", units.split_table())
    table[12345] ^= 1
    monkeypatch.setattr(units, "split_table", lambda: table)
    with pytest.raises(ArithmeticError, match=r"the unit split gives .* at entry 12345"):
        units.prove()
