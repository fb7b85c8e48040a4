"""A room's run on one device: the same slices, the same exchange arithmetic, one replica.

Written from `daisychain.cluster.exchange` in NumPy, whole tensors at a time, without links, shards
or state machine.  What a room logs must equal this to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from daisychain.cluster.exchange import DOWN_LIMIT, NO_EXPONENT, Exchange
from daisychain.cluster.machine import Machine
from daisychain.cluster.reduce_plan import Layout
from daisychain.cluster.reducer import Reducer
from daisychain.room.books import squares_hash
from daisychain.room.replica import Replica

I64 = NDArray[np.int64]
NEVER = -(1 << 20)


@dataclass(frozen=True)
class Matrix:
    """Rows of integers, each with an exponent: value = mantissa * 2**exponent."""

    mantissas: I64
    exponents: I64

    @classmethod
    def zeros(cls, rows: int, columns: int) -> Matrix:
        return cls(np.zeros((rows, columns), np.int64), np.zeros((rows, 1), np.int64))

    @property
    def largest(self) -> I64:
        return np.abs(self.mantissas).max(axis=1, keepdims=True)

    @property
    def tops(self) -> I64:
        """Exponent just above the largest magnitude of each row; far below for rows of zeros."""
        bits = np.frexp(self.largest.astype(np.float64))[1]
        return np.where(self.largest > 0, self.exponents + bits, NEVER)


def shift(x: I64, s: I64) -> I64:
    """Half up to the right, plain to the left; 0 beyond 30."""
    right = np.clip(s, 0, 31)
    shifted = (x + ((1 << right) >> 1)) >> right
    shifted <<= np.clip(-s, 0, 31)
    shifted[np.broadcast_to(s > 30, x.shape)] = 0
    return shifted


def align(gradient: Matrix, owed: Matrix) -> Matrix:
    """Their sum at an exponent at which each is below 2**29."""
    top = np.maximum(gradient.tops, owed.tops)
    w = np.where(top > NEVER, top - 29, 0)
    parts = (shift(m.mantissas, w - m.exponents) for m in (gradient, owed))
    return Matrix(sum(parts, np.int64(0)), w)


def travelling(rows: Matrix, limit: int) -> I64:
    """The exponents at which the rows round into the limit."""
    largest, found = rows.largest, np.full_like(rows.exponents, NEVER)
    for s in range(31, -1, -1):
        found = np.where(shift(largest, np.full_like(largest, s)) <= limit, s, found)
    return np.where(largest > 0, np.clip(rows.exponents + found, -127, 127), NO_EXPONENT)


def quantise(rows: Matrix, exponents: I64, limit: int) -> tuple[I64, Matrix]:
    """Mantissas at the agreed exponents, and what is left over."""
    s = np.maximum(0, exponents - rows.exponents)
    t = np.maximum(0, s - 15)
    nothing = exponents == NO_EXPONENT
    q = np.where(nothing, 0, np.clip(shift(rows.mantissas, s), -limit, limit))
    rest = rows.mantissas - np.where(s > 30, 0, q << np.minimum(s, 30))
    kept = np.where(nothing, 0, np.clip(shift(rest, t), -32767, 32767))
    return q, Matrix(kept, np.where(nothing, 0, rows.exponents + t))


class SoloRoom:
    """One replica that takes all members' slices; what each member would owe is kept apart."""

    def __init__(self, replica: Replica, machine: Machine, layout: Layout, mode: Exchange) -> None:
        self.replica, self.layout, self.mode = replica, layout, mode
        self._reducer = Reducer(machine, layout)
        self._residuals: dict[tuple[str, str], Matrix] = {}
        self._owed: dict[str, Matrix] = {}
        self._hands: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._step = self._slice = 0

    async def step(
        self, shares: Sequence[tuple[str, int]], logged: str, owners: Sequence[str] = ()
    ) -> tuple[list[int], str, str]:
        """Each member's loss, the reduced gradient's hash, the hash of the weights after it.

        ``shares``: members and their micro-batches.  A room of one exchanges with itself only
        while somebody is coming in, which its ``logged`` hash of the reduced gradient tells.
        ``owners``: those that reduce, if not all.
        """
        self._step += 1
        gradients, losses, tokens = [], [], 0
        for member, micro in shares:
            loss = 0
            for number in range(micro):
                loss += await self.replica.add_slice(self._slice, first=number == 0)
                self._slice += 1
            losses.append(loss)
            tokens += micro * self.replica.model.tokens
            gradients.append((member, await self._gradient()))
        alone = len(shares) == 1
        squares = await self.replica.own_squares() if alone else []
        digest = squares_hash(squares)
        if not alone or digest != logged:
            members = [member for member, _ in shares]
            self._zero_what_changes_hands(members, owners or members)
            reduced = self._reduce(gradients)
            digest = sha256(reduced).hexdigest()[:32]
            await self._reducer.store_whole(reduced, self.mode)
            wide = await self._reducer.wide(self.mode)
            squares = [tensor.squares for tensor in wide]
            self.replica.write_sums(wide)
        scalars = self.replica.scalars(self._step, squares, tokens)
        return losses, digest, await self.replica.apply(scalars)

    def forget(self, member: str) -> None:
        """A member that was away has loaded the state anew: it owes nothing."""
        self._residuals = {key: m for key, m in self._residuals.items() if key[0] != member}

    async def _gradient(self) -> dict[str, Matrix]:
        model, player = self.replica.model, self.replica.player
        names = [p.name for p in model.parameters]
        norms = dict(zip(names, model.program.plans["norm"], strict=True))
        words = np.frombuffer(await player.read_scalars(), "<i4")
        found = {}
        for tensor in self.layout.tensors:
            call = norms[tensor.name]
            data = np.frombuffer(await player.read(call.buffers[0]), "<i4").astype(np.int64)
            exponent = int(words[call.named_params()["x_exp"]])
            found[tensor.name] = Matrix(
                data.reshape(tensor.rows, tensor.columns),
                np.full((tensor.rows, 1), exponent, np.int64),
            )
        return found

    def _zero_what_changes_hands(self, members: Sequence[str], owners: Sequence[str]) -> None:
        """Who reduces which rows follows from both."""
        hands = (tuple(members), tuple(owners))
        if hands != self._hands:
            self._hands = hands
            self._owed.clear()

    def _reduce(self, gradients: Iterable[tuple[str, dict[str, Matrix]]]) -> bytes:
        """The reduced gradient: exponents, then mantissas, of each bucket."""
        given = list(gradients)
        limit = self.mode.up_limit(len(given))
        width = "<i2" if self.mode is Exchange.INT16 else "i1"
        out = []
        for bucket in self.layout.buckets:
            exponents, mantissas = [], []
            for tensor in bucket:
                name, zeros = tensor.name, Matrix.zeros(tensor.rows, tensor.columns)
                rows = [
                    align(gradient[name], self._residuals.get((member, name), zeros))
                    for member, gradient in given
                ]
                agreed = np.max([travelling(r, limit) for r in rows], axis=0)
                total = np.zeros_like(zeros.mantissas)
                for (member, _), row in zip(given, rows, strict=True):
                    q, self._residuals[member, name] = quantise(row, agreed, limit)
                    total = total + q
                if self.mode.rounds_sum:
                    at = np.where(agreed == NO_EXPONENT, 0, agreed)
                    summed = align(Matrix(total, at), self._owed.get(name, zeros))
                    agreed = travelling(summed, DOWN_LIMIT)
                    total, self._owed[name] = quantise(summed, agreed, DOWN_LIMIT)
                else:
                    agreed = np.where(total.any(axis=1, keepdims=True), agreed, NO_EXPONENT)
                exponents.append(agreed.astype("i1").tobytes())
                mantissas.append(total.astype(width).tobytes())
            out += exponents + mantissas
        return b"".join(out)
