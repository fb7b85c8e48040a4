"""One member's arithmetic of the all-reduce on its own memory: the host's half of `Work`.

`Reducer` lays the numbers of a `reduce_plan.Layout` out in the memory of ``wasm/exchange.wasm`` and
drives it; `exchange` defines what comes out.  The memory belongs to a `Machine`: a Worker in the
page, wasmtime in tests.  Bytes that travel are never touched by Python: they are read from the
machine and handed on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import accumulate, chain
from typing import Any

from daisychain.cluster.exchange import DOWN_LIMIT, Exchange
from daisychain.cluster.machine import Machine, Operation, Owed, WideTensor
from daisychain.cluster.places import Place, Places
from daisychain.cluster.reduce_plan import Layout, ReducePlan, shards_of
from daisychain.errors import ClusterError
from daisychain.numbers.formats import nearest_shift

PAGE_BYTES = 65_536
MAX_BYTES = (1 << 32) - PAGE_BYTES
DATA_ADDRESS = 65_536
"""Below it lie the module's stack and data."""

MODES = {Exchange.INT8: 0, Exchange.INT4: 1, Exchange.INT16: 2}
WIDE_SHIFT = {Exchange.INT8: 22, Exchange.INT4: 22, Exchange.INT16: 14}
"""Bits by which reduced mantissas are raised to make a wide tensor (|m| < 2^30)."""


class Reducer:
    """See the module's text.  One instance lives as long as a room."""

    def __init__(self, machine: Machine, layout: Layout) -> None:
        self.machine, self.layout = machine, layout
        self._places = Places(layout)
        self._top = DATA_ADDRESS
        e, r = layout.elements, layout.rows
        self._values = self._reserve(4 * e)
        self._aligned, self._proposed = self._reserve(4 * r), self._reserve(r)
        self._agreed, self._base = self._reserve(r), self._reserve(4 * r)
        self._residual = (self._reserve(2 * e), self._reserve(2 * e))
        self._residual_exponents = (self._reserve(4 * r), self._reserve(4 * r))
        self._outgoing, self._reduced = self._reserve(2 * e), self._reserve(2 * e)
        self._reduced_exponents = self._reserve(r)
        self._fixed_top = self._top
        self._now = 0
        self._here: list[set[int]] = [set() for _ in layout.buckets]
        self._expanded: list[list[WideTensor]] = [[] for _ in layout.buckets]
        self._plan: ReducePlan | None = None
        self._is_clean = False
        self._me = 0
        self._owner_key: tuple[tuple[int, ...], int] | None = None
        self._hashing: list[asyncio.Future[list[Any]]] = []

    async def begin(self, plan: ReducePlan, me: int) -> None:
        """A step's attempt under ``plan``; owner residuals are zeroed when the shards changed."""
        await self._clean()
        self._plan, self._me = plan, me
        self._hashing.clear()
        self._forget_reduced()
        if me in plan.owners:
            await self._own(plan.owners, me)

    async def _clean(self) -> None:
        """At the start nothing is owed; what lies elsewhere is written before it is read."""
        if not self._is_clean:
            await self.machine.grow(self._fixed_top)
            owed = self._residual[0], self._outgoing - self._residual[0]
            await self.machine.execute([("fill", *owed)])
            self._is_clean = True

    async def _own(self, owners: tuple[int, ...], me: int) -> None:
        """Makes room for the shards of member ``me``, unless they are what they were."""
        if (owners, me) == self._owner_key:
            return
        own = [cut[owners.index(me)] for cut in shards_of(self.layout, len(owners))]
        self._owner_key, self._top = (owners, me), self._fixed_top
        self._own_elements = list(accumulate((s.elements for s in own), initial=0))
        self._own_rows = list(accumulate((s.rows for s in own), initial=0))
        e, r = self._own_elements[-1], self._own_rows[-1]
        self._total = self._reserve(4 * e)
        self._inbox = self._reserve(2 * max(s.elements for s in own))
        self._owed = (self._reserve(2 * e), self._reserve(2 * e))
        self._owed_exponents = (self._reserve(4 * r), self._reserve(4 * r))
        await self.machine.grow(self._top)
        await self.machine.execute([("fill", self._fixed_top, self._top - self._fixed_top)])

    async def load(self, bucket: int, gradient: Sequence[tuple[Any, int]]) -> Any:
        """The bucket's tensors, in layout order, as (i32 data, exponent); its row exponents.

        The data is given away."""
        plan = self._active()
        limit = plan.mode.up_limit(len(plan.members))
        writes: list[Operation] = []
        aligns: list[Operation] = []
        for place, (data, exponent) in zip(self._places.by_bucket[bucket], gradient, strict=True):
            base = self._base + 4 * place.row
            size = 4 * place.tensor.elements
            writes.append(("write", self._values + 4 * place.element, data, 0, size))
            writes.append(("write", base, exponent.to_bytes(4, "little", signed=True), 0, 4))
            aligns.append(self._align(place, base, limit))
        first, rows, element, elements = self._places.span(bucket)
        writes.append(("hash", self._values + 4 * element, 4 * elements))
        aligns.append(("read", self._proposed + first, rows))
        # Tasks start in their order: the rows are hashed, then aligned in place.
        given = [data for data, _ in gradient]
        self._hashing.append(asyncio.ensure_future(self.machine.execute(writes, given)))
        (exponents,) = await asyncio.ensure_future(self.machine.execute(aligns))
        return exponents

    def _align(self, place: Place, exponent_address: int, limit: int) -> Operation:
        tensor = place.tensor
        return (
            "call",
            "align_rows",
            self._values + 4 * place.element,
            exponent_address,
            0,
            self._residual[self._now] + 2 * place.element,
            self._residual_exponents[self._now] + 4 * place.row,
            self._aligned + 4 * place.row,
            self._proposed + place.row,
            tensor.rows,
            tensor.columns,
            limit,
        )

    async def quantise(self, bucket: int, agreed: Any) -> list[Any]:
        """The bucket at the agreed exponents: the packed mantissas for each owner's shard."""
        plan = self._active()
        mode, limit = plan.mode, plan.mode.up_limit(len(plan.members))
        first, rows, element, _ = self._places.span(bucket)
        later = 1 - self._now
        operations: list[Operation] = [("write", self._agreed + first, agreed, 0, rows)]
        for place in self._places.by_bucket[bucket]:
            operations.append(
                (
                    "call",
                    "quantise_rows",
                    self._values + 4 * place.element,
                    self._aligned + 4 * place.row,
                    self._agreed + place.row,
                    self._outgoing + mode.up_bytes(place.element),
                    self._residual[later] + 2 * place.element,
                    self._residual_exponents[later] + 4 * place.row,
                    place.tensor.rows,
                    place.tensor.columns,
                    limit,
                    MODES[mode],
                )
            )
        shards = [plan.shard(bucket, owner) for owner in plan.owners]
        for shard in shards:
            start = self._outgoing + mode.up_bytes(element + shard.first_element)
            operations.append(("read", start, mode.up_bytes(shard.elements)))
        if self._me in plan.owners:
            own = plan.shard(bucket, self._me)
            total = self._total + 4 * self._own_elements[bucket]
            start = self._outgoing + mode.up_bytes(element + own.first_element)
            operations += [
                ("fill", total, 4 * own.elements),
                ("call", "add_contribution", total, start, own.elements, MODES[mode]),
            ]
        return await self.machine.execute(operations)

    async def reduce(self, bucket: int, contributions: Sequence[Any]) -> Any:
        """The own shard reduced: its row exponents, then its mantissas, as they travel.

        ``contributions``: every other member's packed mantissas of it, which are given away.
        """
        plan = self._active()
        own = plan.shard(bucket, self._me)
        first, _, element, _ = self._places.span(bucket)
        row = first + own.first_row
        width = 2 if plan.mode is Exchange.INT16 else 1
        target = self._reduced + width * (element + own.first_element)
        total = self._total + 4 * self._own_elements[bucket]
        operations: list[Operation] = []
        for data in contributions:
            operations += [
                ("write", self._inbox, data, 0, plan.mode.up_bytes(own.elements)),
                ("call", "add_contribution", total, self._inbox, own.elements, MODES[plan.mode]),
            ]
        for at, rows, columns, start in self._places.pieces(bucket, own):
            operations += self._reduce_piece(bucket, at, rows, columns, start, target)
        exponents = self._reduced_exponents + row
        operations.append(("read", exponents, own.rows, target, width * own.elements))
        (shard,) = await self.machine.execute(operations, contributions)
        self._here[bucket].add(self._me)
        return shard

    def _reduce_piece(
        self, bucket: int, at: int, rows: int, columns: int, start: int, target: int
    ) -> list[Operation]:
        """``at``: rows before the piece in the own shard; ``start``: elements before it."""
        plan = self._active()
        own = plan.shard(bucket, self._me)
        row = self._places.row_base[bucket] + own.first_row + at
        total = self._total + 4 * (self._own_elements[bucket] + start)
        agreed, out_exponents = self._agreed + row, self._reduced_exponents + row
        if not plan.mode.rounds_sum:
            return [
                (
                    "call",
                    "pack_totals",
                    total,
                    agreed,
                    target + 2 * start,
                    out_exponents,
                    rows,
                    columns,
                )
            ]
        owed_row = self._own_rows[bucket] + at
        owed = self._own_elements[bucket] + start
        later = 1 - self._now
        return [
            ("call", "widen_exponents", agreed, self._base + 4 * row, rows),
            (
                "call",
                "align_rows",
                total,
                self._base + 4 * row,
                1,
                self._owed[self._now] + 2 * owed,
                self._owed_exponents[self._now] + 4 * owed_row,
                self._aligned + 4 * row,
                out_exponents,
                rows,
                columns,
                DOWN_LIMIT,
            ),
            (
                "call",
                "quantise_rows",
                total,
                self._aligned + 4 * row,
                out_exponents,
                target + start,
                self._owed[later] + 2 * owed,
                self._owed_exponents[later] + 4 * owed_row,
                rows,
                columns,
                DOWN_LIMIT,
                MODES[Exchange.INT8],
            ),
        ]

    async def store(self, bucket: int, owner: int, data: Any) -> None:
        """The reduced shard of another owner (member index): row exponents, then mantissas.

        The data is given away.
        """
        plan = self._active()
        shard = plan.shard(bucket, owner)
        first, _, element, _ = self._places.span(bucket)
        width = 2 if plan.mode is Exchange.INT16 else 1
        exponents = self._reduced_exponents + first + shard.first_row
        mantissas = self._reduced + width * (element + shard.first_element)
        await self.machine.execute(
            [
                ("write", exponents, data, 0, shard.rows),
                ("write", mantissas, data, shard.rows, width * shard.elements),
            ],
            [data],
        )
        self._here[bucket].add(owner)

    async def expand(self, bucket: int) -> None:
        """Works out what `squares` and `wide` need of a bucket, if it is completely reduced."""
        plan = self._active()
        if self._here[bucket] == set(plan.owners):
            await self._expand([bucket], plan.mode)

    async def store_whole(self, data: Any, mode: Exchange) -> None:
        """The whole reduced gradient of a step, bucket after bucket (a CATCH_UP flow).

        Others reduced it, so what this device owed as an owner is void, as it is for them."""
        await self.machine.grow(self._fixed_top)
        self._forget_reduced()
        self._owner_key = None
        operations: list[Operation] = []
        at = 0
        for address, size in self._whole_parts(mode):
            operations.append(("write", address, data, at, size))
            at += size
        await self.machine.execute(operations)

    async def whole(self, mode: Exchange) -> Any:
        """Inverse of `store_whole`: the reduced gradient as a CATCH_UP flow carries it."""
        (data,) = await self.machine.execute([("read", *chain(*self._whole_parts(mode)))])
        return data

    async def raw_digest(self) -> str:
        """128-bit hash of the gradients that were loaded since `begin`."""
        hashes = await asyncio.gather(*self._hashing)
        return sha256("".join(text for (text,) in hashes).encode()).hexdigest()[:32]

    async def digest(self, mode: Exchange) -> str:
        """128-bit hash of the reduced gradient: the head of the SHA-256 of `whole`."""
        (text,) = await self.machine.execute([("hash", *chain(*self._whole_parts(mode)))])
        return str(text)[:32]

    def _whole_parts(self, mode: Exchange) -> list[tuple[int, int]]:
        """(address, size): exponents, then mantissas, of every bucket."""
        width = 2 if mode is Exchange.INT16 else 1
        parts = []
        for first, rows, element, count in map(self._places.span, range(len(self.layout.buckets))):
            parts.append((self._reduced_exponents + first, rows))
            parts.append((self._reduced + width * element, width * count))
        return parts

    async def wide(self, mode: Exchange) -> list[WideTensor]:
        """The reduced gradient as wide tensors, in layout order.  Uses the values' memory."""
        found = await self._expand_all(mode)
        parts = [(self._values + 4 * p.element, 4 * p.tensor.elements) for p in self._places.all]
        contents = await self.machine.execute([("read", *part) for part in parts])
        return [replace(t, data=data) for t, data in zip(found, contents, strict=True)]

    async def squares(self, mode: Exchange) -> list[tuple[int, int]]:
        """The sums of squares of `wide`; no tensor leaves the memory for them."""
        return [tensor.squares for tensor in await self._expand_all(mode)]

    async def _expand_all(self, mode: Exchange) -> list[WideTensor]:
        missing = [bucket for bucket, known in enumerate(self._expanded) if not known]
        await self._expand(missing, mode)
        return [tensor for bucket in self._expanded for tensor in bucket]

    async def _expand(self, buckets: Sequence[int], mode: Exchange) -> None:
        """Makes wide tensors in the values' memory; their contents stay there."""
        width, packed = (2, Exchange.INT16) if mode is Exchange.INT16 else (1, Exchange.INT8)
        operations: list[Operation] = []
        for place in (place for bucket in buckets for place in self._places.by_bucket[bucket]):
            tensor, address = place.tensor, self._values + 4 * place.element
            reduced = self._reduced_exponents + place.row, self._reduced + width * place.element
            shape = (tensor.rows, tensor.columns, WIDE_SHIFT[mode], MODES[packed])
            operations += [
                ("ask", "expand_rows", *reduced, address, *shape),
                ("ask", "largest_of", address, tensor.elements),
                ("ask", "sum_squares", address, tensor.elements),
            ]
        results = iter(await self.machine.execute(operations) if operations else ())
        for bucket in buckets:
            self._expanded[bucket] = [
                _wide_tensor(place.tensor.name, next(results), next(results), next(results))
                for place in self._places.by_bucket[bucket]
            ]

    def _forget_reduced(self) -> None:
        """Another gradient is on its way into the same memory."""
        for here, expanded in zip(self._here, self._expanded, strict=True):
            here.clear()
            expanded.clear()

    async def owed(self) -> Owed | None:
        """What error feedback owes after the last committed step; None before the first."""
        if not self._is_clean:
            return None
        reads: list[Operation] = [("read", *self._own_parts())]
        if self._owner_key is None:
            (own,) = await self.machine.execute(reads)
            return Owed(own)
        reads.append(("read", *self._reduced_parts()))
        own, reduced = await self.machine.execute(reads)
        return Owed(own, reduced, *self._owner_key)

    async def restore(self, owed: Owed) -> None:
        """Goes on from a checkpoint; ClusterError if that is of another model."""
        await self._clean()
        parts = [(owed.own, self._own_parts())]
        if owed.owners:
            await self._own(owed.owners, owed.me)
            parts.append((owed.reduced, self._reduced_parts()))
        operations: list[Operation] = []
        for data, (first, first_size, second, second_size) in parts:
            if len(data) != first_size + second_size:
                raise ClusterError("The errors kept in this checkpoint are of another model.")
            operations.append(("write", first, data, 0, first_size))
            operations.append(("write", second, data, first_size, second_size))
        await self.machine.execute(operations)

    def _own_parts(self) -> tuple[int, int, int, int]:
        e, r, now = self.layout.elements, self.layout.rows, self._now
        return self._residual[now], 2 * e, self._residual_exponents[now], 4 * r

    def _reduced_parts(self) -> tuple[int, int, int, int]:
        e, r, now = self._own_elements[-1], self._own_rows[-1], self._now
        return self._owed[now], 2 * e, self._owed_exponents[now], 4 * r

    def commit(self) -> None:
        """The step was applied: the residuals of its exchange take effect."""
        self._now = 1 - self._now

    def forget(self) -> None:
        """Another state was loaded: nothing is owed."""
        self._now, self._plan, self._owner_key = 0, None, None
        self._is_clean = False

    def _active(self) -> ReducePlan:
        if self._plan is None:
            raise ClusterError("No exchange is under way.")
        return self._plan

    def _reserve(self, size_bytes: int) -> int:
        address = self._top
        self._top += (size_bytes + 15) // 16 * 16
        if self._top > MAX_BYTES:
            raise ClusterError(
                "This model is too large to be exchanged from this tab.",
                f"The all-reduce would need more than {MAX_BYTES >> 20} MiB of memory.",
                "Choose a smaller preset.",
            )
        return address


def _wide_tensor(name: str, exponent: int, maximum: int, squares: int) -> WideTensor:
    squares_exponent = 2 * (exponent + nearest_shift(maximum))
    return WideTensor(name, b"", exponent, maximum, (int(squares), squares_exponent))
