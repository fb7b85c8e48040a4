"""The integer all-reduce: exact, order-free, unbiased over time, within 32 bits."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import oracle_exchange as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.cluster.exchange import (
    DOWN_LIMIT,
    NO_EXPONENT,
    Exchange,
    Row,
    add,
    agree,
    align,
    pack,
    quantise,
    reduce_row,
    rounding_shift,
    row_exponent,
    unpack,
)
from daisychain.errors import ClusterError

WIDE = (1 << 30) + (1 << 24)
MODES = [Exchange.INT8, Exchange.INT4, Exchange.INT16]
exponents = st.integers(-90, 60)
columns = st.integers(1, 12)


@st.composite
def rows(draw: st.DrawFn, limit: int = WIDE) -> Row:
    size = draw(columns)
    scale = draw(st.integers(0, limit.bit_length()))
    bound = min(limit, 1 << scale)
    values = draw(st.lists(st.integers(-bound, bound), min_size=size, max_size=size))
    return Row(tuple(values), draw(exponents))


def residual_like(row: Row, seed: int, exponent: int) -> Row:
    pick = random.Random(seed)
    return Row(tuple(pick.randint(-32767, 32767) for _ in row.mantissas), exponent)


@settings(max_examples=400, deadline=None)
@given(rows(), st.integers(0, 2**32), exponents, st.sampled_from(MODES), st.integers(1, 32))
def test_equals_the_numpy_oracle(
    gradient: Row, seed: int, exponent: int, mode: Exchange, members: int
) -> None:
    residual = residual_like(gradient, seed, exponent)
    row = align(gradient, residual)
    a, w = oracle.align(
        np.array(gradient.mantissas),
        gradient.exponent,
        np.array(residual.mantissas),
        residual.exponent,
    )
    assert (list(row.mantissas), row.exponent) == (a.tolist(), w)
    limit = mode.up_limit(members)
    own = row_exponent(row, limit)
    assert own == oracle.exponent(a, w, limit)
    for agreed in (own, min(127, own + seed % 40), NO_EXPONENT, -127, 127):
        q, rest = quantise(row, agreed, limit)
        expected = oracle.quantise(a, w, agreed, limit)
        assert (list(q), list(rest.mantissas), rest.exponent) == (
            expected[0].tolist(),
            expected[1].tolist(),
            expected[2],
        )


@settings(max_examples=300, deadline=None)
@given(rows(), st.integers(0, 2**32), exponents, st.integers(0, 60))
def test_no_intermediate_value_exceeds_32_bits(
    gradient: Row, seed: int, exponent: int, more: int
) -> None:
    row = align(gradient, residual_like(gradient, seed, exponent))
    assert all(abs(m) <= 1 << 30 for m in row.mantissas)
    own = row_exponent(row, 127)
    if own == NO_EXPONENT:
        return
    s = max(0, min(127, own + more) - row.exponent)
    q, rest = quantise(row, min(127, own + more), 127)
    for m, k in zip(row.mantissas, q, strict=True):
        assert abs(m + (1 << s >> 1)) < 1 << 31 or s > 30
        assert abs(k << s) < 1 << 31
        assert abs(m - (k << s)) < 1 << 31
    assert all(abs(m) <= 32767 for m in rest.mantissas)


@settings(max_examples=300, deadline=None)
@given(rows(), st.integers(0, 30))
def test_quantised_and_residual_add_up(gradient: Row, more: int) -> None:
    """value = q * 2**E + residual, exactly or within the residual's own rounding."""
    row = align(gradient, Row.zeros(len(gradient.mantissas)))
    own = row_exponent(row, 127)
    if own in (NO_EXPONENT, -127) or own + more > 127:
        return
    agreed = own + more
    q, rest = quantise(row, agreed, 127)
    shift = agreed - row.exponent
    for m, k, r in zip(row.mantissas, q, rest.mantissas, strict=True):
        value = Fraction(m) * Fraction(2) ** row.exponent
        told = Fraction(k) * Fraction(2) ** agreed + Fraction(r) * Fraction(2) ** rest.exponent
        unit = Fraction(2) ** (rest.exponent - 1) if shift > 15 else 0
        assert abs(value - told) <= unit
        assert abs(k) <= 127


def test_rounding_is_half_up() -> None:
    assert [rounding_shift(x, 1) for x in (-3, -2, -1, 0, 1, 2, 3)] == [-1, -1, 0, 0, 1, 1, 2]
    assert rounding_shift(5, -2) == 20
    assert rounding_shift(1 << 30, 31) == 0


def test_sum_is_order_free_and_exact() -> None:
    pick = random.Random(1)
    parts = [[pick.randint(-127, 127) for _ in range(9)] for _ in range(32)]
    total = add(parts)
    for _ in range(20):
        pick.shuffle(parts)
        assert add(parts) == total
    assert agree([[1, NO_EXPONENT], [NO_EXPONENT, -5]]) == (1, -5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("members", [1, 2, 5, 32])
def test_error_feedback_loses_nothing_over_time(mode: Exchange, members: int) -> None:
    """Sum of the reduced gradients = sum of the true ones, up to what the residuals still hold."""
    pick = random.Random(members)
    up = [Row.zeros(6) for _ in range(members)]
    down = Row.zeros(6)
    true = [Fraction(0)] * 6
    given_out = [Fraction(0)] * 6
    quantum = Fraction(0)
    for _ in range(60):
        gradients = [
            Row(tuple(pick.randint(-(1 << 20), 1 << 20) >> 3 * j for j in range(6)), -30)
            for _ in range(members)
        ]
        rows_ = [align(g, r) for g, r in zip(gradients, up, strict=True)]
        limit = mode.up_limit(members)
        agreed = agree([[row_exponent(row, limit)] for row in rows_])[0]
        sent = [quantise(row, agreed, limit) for row in rows_]
        up = [rest for _, rest in sent]
        mantissas, exponent, down = reduce_row(mode, add(q for q, _ in sent), agreed, down)
        assert all(abs(m) <= (32767 if mode is Exchange.INT16 else DOWN_LIMIT) for m in mantissas)
        for j in range(6):
            true[j] += sum(Fraction(g.mantissas[j]) for g in gradients) / 2**30
            given_out[j] += Fraction(mantissas[j]) * Fraction(2) ** exponent
        quantum = max(quantum, Fraction(2) ** agreed, Fraction(2) ** exponent)
    for j in range(6):
        assert abs(true[j] - given_out[j]) <= quantum * (members + 1)


def test_int16_needs_no_second_rounding() -> None:
    limit = Exchange.INT16.up_limit(32)
    total = add([[limit, -limit]] * 32)
    assert max(map(abs, total)) <= 32767
    assert reduce_row(Exchange.INT16, total, -3, Row.zeros(2)) == (total, -3, Row.zeros(2))
    zero = reduce_row(Exchange.INT16, (0, 0), -3, Row.zeros(2))
    assert zero[1] == NO_EXPONENT


def test_a_false_agreed_exponent_only_clips() -> None:
    row = Row((1 << 29, -(1 << 29), 3), 10)
    for exponent in (-127, 0, 9, 127):
        q, rest = quantise(row, exponent, 127)
        assert all(abs(m) <= 127 for m in q)
        assert all(abs(m) <= 32767 for m in rest.mantissas)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(MODES), st.integers(0, 40), st.integers(0, 2**32))
def test_packing(mode: Exchange, size: int, seed: int) -> None:
    limit = mode.up_limit(3)
    pick = random.Random(seed)
    values = tuple(pick.randint(-limit, limit) for _ in range(size))
    data = pack(mode, values)
    assert len(data) == mode.up_bytes(size)
    assert unpack(mode, data, size) == values
    with pytest.raises(ClusterError):
        unpack(mode, data + b"x", size)


def test_packing_is_as_written_down() -> None:
    assert pack(Exchange.INT8, (1, -1, -127)) == bytes([1, 255, 129])
    assert pack(Exchange.INT4, (1, -1, 7)) == bytes([0xF1, 0x07])
    assert pack(Exchange.INT16, (-2,)) == b"\xfe\xff"
