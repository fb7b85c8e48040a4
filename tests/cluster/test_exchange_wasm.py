"""wasm/exchange.wasm against the arithmetic of cluster/exchange.py, to the bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wasmtime

from daisychain.cluster.exchange import (
    NO_EXPONENT,
    Exchange,
    Row,
    add,
    align,
    pack,
    quantise,
    reduce_row,
    row_exponent,
)
from daisychain.numbers.formats import nearest_shift

MODULE = Path(__file__).resolve().parents[2] / "wasm" / "exchange.wasm"
ROWS, COLS = 5, 64
COUNT = ROWS * COLS
MODES = {Exchange.INT8: 0, Exchange.INT4: 1, Exchange.INT16: 2}


class Wasm:
    """The module with an arena; ``put`` copies an array in and gives its address."""

    def __init__(self) -> None:
        engine = wasmtime.Engine()
        self.store = wasmtime.Store(engine)
        self.memory = wasmtime.Memory(self.store, wasmtime.MemoryType(wasmtime.Limits(32, 32)))
        module = wasmtime.Module.from_file(engine, str(MODULE))
        self.exports = wasmtime.Instance(self.store, module, [self.memory]).exports(self.store)
        self.top = 1 << 16

    def put(self, array: np.ndarray) -> int:
        address, self.top = self.top, self.top + (array.nbytes + 15 & ~15)
        self.memory.write(self.store, array.tobytes(), address)
        return address

    def get(self, address: int, count: int, dtype: Any) -> np.ndarray:
        size = count * np.dtype(dtype).itemsize
        return np.frombuffer(self.memory.read(self.store, address, address + size), dtype)

    def call(self, name: str, *args: int) -> Any:
        return self.exports[name](self.store, *args)


def random_row(rng: random.Random, limit: int, exponents: tuple[int, int]) -> Row:
    kind = rng.randrange(5)
    top = 0 if kind == 0 else limit if kind == 1 else rng.randrange(1, limit + 1)
    return Row(
        tuple(
            rng.choice((top, -top, 0)) if kind == 2 else rng.randint(-top, top) for _ in range(COLS)
        ),
        rng.randint(*exponents),
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(12))
def test_a_member_and_an_owner_compute_as_defined(mode: Exchange, seed: int) -> None:
    rng, members = random.Random(seed), 3
    limit = mode.up_limit(members)
    gradients, residuals = [], []
    for _ in range(members):
        e = rng.randint(-60, -20)
        gradients.append(
            [Row(random_row(rng, (1 << 30) + (1 << 24), (0, 0)).mantissas, e) for _ in range(ROWS)]
        )
        residuals.append([random_row(rng, 32767, (-70, -30)) for _ in range(ROWS)])
    aligned = [
        [align(g, r) for g, r in zip(*pair, strict=True)]
        for pair in zip(gradients, residuals, strict=True)
    ]
    proposed = [[row_exponent(row, limit) for row in rows] for rows in aligned]
    agreed = [max(column) for column in zip(*proposed, strict=True)]
    sent = []
    w = Wasm()
    agreed_at = w.put(np.array(agreed, np.int8))
    for member in range(members):
        values = w.put(flat(gradients[member], np.int32))
        exponents = w.put(np.array([gradients[member][0].exponent], np.int32))
        rest = w.put(flat(residuals[member], np.int16))
        rest_e = w.put(np.array([r.exponent for r in residuals[member]], np.int32))
        at, bytes_at = w.put(np.zeros(ROWS, np.int32)), w.put(np.zeros(ROWS, np.int8))
        w.call("align_rows", values, exponents, 0, rest, rest_e, at, bytes_at, ROWS, COLS, limit)
        assert list(w.get(bytes_at, ROWS, np.int8)) == proposed[member]
        assert (w.get(values, COUNT, np.int32) == flat(aligned[member], np.int32)).all()
        out = w.put(np.zeros(2 * COUNT, np.uint8))
        w.call(
            "quantise_rows",
            values,
            at,
            agreed_at,
            out,
            rest,
            rest_e,
            ROWS,
            COLS,
            limit,
            MODES[mode],
        )
        expected = [quantise(row, e, limit) for row, e in zip(aligned[member], agreed, strict=True)]
        data = b"".join(pack(mode, q) for q, _ in expected)
        assert w.get(out, len(data), np.uint8).tobytes() == data
        assert (w.get(rest, COUNT, np.int16) == flat([r for _, r in expected], np.int16)).all()
        assert list(w.get(rest_e, ROWS, np.int32)) == [r.exponent for _, r in expected]
        sent.append((out, [q for q, _ in expected]))
    check_owner(w, mode, rng, agreed, agreed_at, sent)


def check_owner(
    w: Wasm, mode: Exchange, rng: random.Random, agreed: list[int], agreed_at: int, sent: list
) -> None:
    total = w.put(np.zeros(COUNT, np.int32))
    for out, _ in sent:
        w.call("add_contribution", total, out, COUNT, MODES[mode])
    sums = [add(q[row] for _, q in sent) for row in range(ROWS)]
    assert (w.get(total, COUNT, np.int32) == np.array(sums).reshape(-1)).all()
    owed = [random_row(rng, 32767, (-70, -30)) for _ in range(ROWS)]
    expected = [reduce_row(mode, s, a, r) for s, a, r in zip(sums, agreed, owed, strict=True)]
    bytes_at = w.put(np.zeros(ROWS, np.int8))
    reduced = w.put(np.zeros(2 * COUNT, np.uint8))
    if mode is Exchange.INT16:
        w.call("pack_totals", total, agreed_at, reduced, bytes_at, ROWS, COLS)
        dtype, out_mode, shift = np.int16, 2, 14
    else:
        base = [0 if a == NO_EXPONENT else a for a in agreed]
        rest = w.put(flat(owed, np.int16))
        rest_e = w.put(np.array([r.exponent for r in owed], np.int32))
        at = w.put(np.zeros(ROWS, np.int32))
        w.call(
            "align_rows",
            total,
            w.put(np.array(base, np.int32)),
            1,
            rest,
            rest_e,
            at,
            bytes_at,
            ROWS,
            COLS,
            127,
        )
        w.call("quantise_rows", total, at, bytes_at, reduced, rest, rest_e, ROWS, COLS, 127, 0)
        assert (w.get(rest, COUNT, np.int16) == flat([r for *_, r in expected], np.int16)).all()
        dtype, out_mode, shift = np.int8, 0, 22
    exponents = [e for _, e, _ in expected]
    assert list(w.get(bytes_at, ROWS, np.int8)) == exponents
    assert (w.get(reduced, COUNT, dtype) == np.array([q for q, *_ in expected]).reshape(-1)).all()
    check_expanded(w, [q for q, *_ in expected], exponents, (bytes_at, reduced), out_mode, shift)


def check_expanded(
    w: Wasm, mantissas: list, exponents: list[int], at: tuple[int, int], mode: int, shift: int
) -> None:
    """The wide tensor has each row's value to within half a unit, exactly where it fits."""
    out = w.put(np.zeros(COUNT, np.int32))
    e = w.call("expand_rows", at[0], at[1], out, ROWS, COLS, shift, mode)
    wide = w.get(out, COUNT, np.int32).reshape(ROWS, COLS).astype(np.float64)
    for row in range(ROWS):
        if exponents[row] == NO_EXPONENT:
            assert not wide[row].any()
            continue
        scaled = np.ldexp(np.array(mantissas[row], np.float64), exponents[row] - e)
        assert np.abs(scaled - wide[row]).max() <= (0.5 if exponents[row] < e else 0)
    largest = int(np.abs(wide).max())
    assert w.call("largest_of", out, COUNT) == largest < 1 << 30
    shift = nearest_shift(largest)
    narrow = np.floor((wide + ((1 << shift) >> 1)) / (1 << shift)).astype(object)
    assert w.call("sum_squares", out, COUNT) == int((narrow**2).sum())


def flat(rows: list[Row], dtype: Any) -> np.ndarray:
    return np.array([row.mantissas for row in rows]).astype(dtype).reshape(-1)


@pytest.mark.parametrize("largest", [32639, 32640, 32767 << 3, 65278, 65279, 32639 << 14])
def test_squares_are_taken_of_narrow_numbers(largest: int) -> None:
    w, shift = Wasm(), nearest_shift(largest)
    values = [largest, -largest, largest // 2, 1, 0]
    expected = sum(((v + ((1 << shift) >> 1)) >> shift) ** 2 for v in values)
    assert w.call("sum_squares", w.put(np.array(values, np.int32)), len(values)) == expected
