"""A source that reads its text while training: row groups of parquet files, a few units ahead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from daisychain.data.hub import Listing
from daisychain.data.port import Ids, PortFailure, TokenBlock, Tokens
from daisychain.data.reader import DatasetReader
from daisychain.data.slices import (
    Footer,
    FooterNeeded,
    Slice,
    SlicePlan,
    Unit,
    heldout_unit,
    window_place,
)
from daisychain.data.source import Cursor, Heldout, HeldoutBatch, SourceStatus, check_cursor
from daisychain.errors import DataError

PREFETCH_UNITS = 2
MAX_SUBSTITUTES = 8
CAUTION_PERCENT = 97
"""Units plan with so much of the measured tokens a byte, to make overlaps rare."""

FILES_AHEAD = 2
"""Another member gets the footers of so many files after the one that this device reads."""


@dataclass(frozen=True)
class StreamFacts:
    """What fixes a stream's plan: known to all members of a room, kept in checkpoints."""

    seed: int
    context: int
    micro_batches: int
    lanes: int
    tokens_per_kilobyte: int


Preloaded = dict[tuple[int, int, int, int], TokenBlock]
"""Units that are tokenized already, by their rows."""


class FooterReplaced(Exception):
    """What a member told of a file was wrong: its slices are to be planned again."""


async def locate(
    plan: SlicePlan, lane: int, sequence: int, footer_of: Callable[[int], Awaitable[Footer]]
) -> Slice:
    """Where a sequence comes from; fetches the footers that planning asks for."""
    while True:
        try:
            return plan.locate(lane, sequence)
        except FooterNeeded as needed:
            plan.footers[needed.file] = await footer_of(needed.file)


class StreamSource:
    """Batches out of a dataset's units; each micro-batch reads from the lane it belongs to."""

    def __init__(
        self,
        name: str,
        reader: DatasetReader,
        footers: dict[int, Footer],
        facts: StreamFacts,
        preloaded: Preloaded,
    ) -> None:
        self.name, self.context = name, facts.context
        self.tokenizer = reader.tokenizer
        self.facts = facts
        self._reader = reader
        self.plan = self._make_plan(footers)
        self._units: dict[tuple[int, int, int, int], asyncio.Future[TokenBlock]] = {}
        for rows, block in preloaded.items():
            self._units[rows] = asyncio.get_running_loop().create_future()
            self._units[rows].set_result(block)
        self._ahead: dict[int, list[Unit]] = {}
        self._heldout: Heldout | None = None
        self._footers: dict[int, asyncio.Future[None]] = {}
        self._told: set[int] = set()
        self._latest = 0, 0
        self.footer_of: Callable[[int], Awaitable[Footer | None]] | None = None
        """Asked before the file itself: a room's other members, None if they have no answer."""
        self.skipped: list[str] = []
        """One sentence for each damaged row group that was passed over."""

    async def batch(self, step: int, micro_batch: int, rows: int) -> tuple[Ids, Ids]:
        lane, sequences = self._sequences(step, micro_batch, rows)
        while True:
            with suppress(FooterReplaced):
                slices, picks = await self._pick(lane, sequences)
                break
        self._latest = lane, sequences[-1]
        self._look_ahead(lane, slices)
        port = self.tokenizer.port
        ids = port.gather(picks, self.context)
        return ids, port.gather([(tokens, start + 1) for tokens, start in picks], self.context)

    async def _pick(
        self, lane: int, sequences: range
    ) -> tuple[list[Slice], list[tuple[Tokens, int]]]:
        """The sequences' slices, and for each the tokens and where it starts there."""
        slices = [await self._locate(lane, sequence) for sequence in sequences]
        picks = []
        for part in slices:
            tokens = (await self._block(lane, part)).tokens
            start = window_place(part.place, part.unit.windows, len(tokens), self.context)
            picks.append((tokens, start))
        return slices, picks

    async def rows_used(self, step: int, micro_batch: int, rows: int) -> list[Slice]:
        """Which rows feed a micro-batch, by the plan alone."""
        lane, sequences = self._sequences(step, micro_batch, rows)
        return [await self._locate(lane, sequence) for sequence in sequences]

    def _sequences(self, step: int, micro_batch: int, rows: int) -> tuple[int, range]:
        """The lane of a micro-batch and its sequences there."""
        facts = self.facts
        if not 0 <= micro_batch < facts.micro_batches:
            raise DataError(f"Micro-batch {micro_batch} is not among {facts.micro_batches} a step.")
        slots = -(-facts.micro_batches // facts.lanes)
        slot, lane = divmod(micro_batch, facts.lanes)
        first = (step * slots + slot) * rows
        return lane, range(first, first + rows)

    async def _locate(self, lane: int, sequence: int) -> Slice:
        return await locate(self.plan, lane, sequence, self._load_footer)

    async def _load_footer(self, file: int) -> Footer:
        if file not in self.plan.footers:
            # Who gives up waiting must not end what others wait for, too.
            await asyncio.shield(self._start_footer(file))
        return self.plan.footers[file]

    def _start_footer(self, file: int) -> asyncio.Future[None]:
        """The task that gets a footer, started if need be; one that failed is started again."""
        task = self._footers.get(file)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._footers[file] = asyncio.ensure_future(self._get_footer(file))
            task.add_done_callback(_retrieve)
        return task

    async def _get_footer(self, file: int) -> None:
        told = await self.footer_of(file) if self.footer_of else None
        if told is not None:
            self._told.add(file)
        self.plan.footers[file] = told or await self._reader.footer(file)

    async def footer_for_others(self, file: int) -> Footer | None:
        """What another member may be told: a footer that is here, or that this device itself is
        getting or will need soon; None for others.  Raises PortFailure if it cannot be had."""
        soon = self.plan.files_from(*self._latest, FILES_AHEAD)
        if file in self.plan.footers or file in self._footers or file in soon:
            return await self._load_footer(file)
        return None

    async def _block(self, lane: int, part: Slice) -> TokenBlock:
        """The tokens of a slice's unit, or of the nearest unit in a row group that is whole."""
        try:
            return await self._load(part.unit)
        except PortFailure as failure:
            if failure.kind != "damaged":
                raise
            await self._check_told(part.unit.file)
            self._note(failure)
            substitutes = self.plan.substitutes(lane, part.epoch, part.unit)
            for unit in substitutes[:MAX_SUBSTITUTES]:
                try:
                    return await self._load(unit)
                except PortFailure as other:
                    if other.kind != "damaged":
                        raise
                    self._note(other)
            raise

    async def _check_told(self, file: int) -> None:
        """The file's own footer takes the place of one that was told and leads nowhere.

        Raises FooterReplaced unless they are the same.
        """
        if file not in self._told:
            return
        told, own = self.plan.footers[file], await self._reader.footer(file)
        self._told.discard(file)
        if told == own:
            return
        path = self._reader.listing.files[file].path
        self._reader.corrections.append(
            f"The footer of {path} that a device told is wrong. The file's own is used."
        )
        for rows in [rows for rows in self._units if rows[0] == file]:
            del self._units[rows]
        self.plan.footers[file] = own
        self.plan = self._make_plan(self.plan.footers)
        raise FooterReplaced

    def _note(self, failure: PortFailure) -> None:
        sentence = str(failure)
        if sentence not in self.skipped:
            self.skipped.append(sentence)

    def _load(self, unit: Unit) -> asyncio.Future[TokenBlock]:
        """The task that reads a unit, started if need be; one that failed is started again."""
        task = self._units.get(unit.rows)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            reading = self._reader.rows(self.plan.footers[unit.file], unit, self.context + 1)
            task = self._units[unit.rows] = asyncio.ensure_future(reading)
            task.add_done_callback(_retrieve)
        return task

    def _look_ahead(self, lane: int, used: list[Slice]) -> None:
        """Keep the units in use and the next ones of this lane, drop those behind."""
        keep = list(dict.fromkeys(part.unit for part in used))
        part = used[-1]
        for _ in range(PREFETCH_UNITS):
            try:
                part = self.plan.locate(lane, part.following)
            except FooterNeeded as needed:
                self._start_footer(needed.file)
                break
            keep.append(part.unit)
        self._ahead[lane] = keep
        wanted = {unit.rows for units in self._ahead.values() for unit in units}
        for rows in [rows for rows in self._units if rows not in wanted]:
            if self._units[rows].done():
                del self._units[rows]
        for unit in keep:
            self._load(unit)

    async def heldout_batches(
        self, rows: int, limit: int | None = None
    ) -> AsyncIterator[HeldoutBatch]:
        for batch in (await self._load_heldout()).batches(rows, limit):
            yield batch

    async def _load_heldout(self) -> Heldout:
        if self._heldout is None:
            footer = await self._load_footer(0)
            unit = heldout_unit(footer)
            tokens: Tokens | None = None
            if unit is not None:
                try:
                    tokens = (await self._reader.rows(footer, unit, 0)).tokens
                except PortFailure as failure:
                    if failure.kind != "damaged":
                        raise
                    self._note(failure)
            self._heldout = Heldout(tokens, self.context, self.tokenizer)
        return self._heldout

    @property
    def listing(self) -> Listing:
        """The files that it reads."""
        return self._reader.listing

    @property
    def heldout_bytes_per_token(self) -> float:
        return self._heldout.bytes_per_token if self._heldout else 0.0

    def status(self) -> SourceStatus:
        done = [task for task in self._units.values() if task.done() and not task.cancelled()]
        ready = sum(len(task.result().tokens) for task in done if not task.exception())
        notice = next(reversed(self._reader.corrections + self.skipped), "")
        return SourceStatus(ready, self._reader.retry.waiting, notice, self._reader.received_bytes)

    async def shared(self) -> dict[str, object]:
        """What another member of a room needs to open the same stream and to ask the Hub for rows
        only, held-out ones included."""
        await self._load_footer(0)
        return {
            "listing": self._reader.listing.to_record(),
            "footers": {
                str(file): footer.to_record() for file, footer in self.plan.footers.items()
            },
            "tokens_per_kilobyte": self.facts.tokens_per_kilobyte,
        }

    def cursor(self) -> Cursor:
        facts = self.facts
        files = self._reader.listing.files
        return {
            "source": self.name,
            "tokenizer": self.tokenizer.name,
            "seed": facts.seed,
            "context": facts.context,
            "micro_batches": facts.micro_batches,
            "lanes": facts.lanes,
            "tokens_per_kilobyte": facts.tokens_per_kilobyte,
            "files": len(files),
            "file_bytes": sum(file.bytes for file in files),
        }

    def restore(self, cursor: Cursor) -> None:
        rate = cursor.get("tokens_per_kilobyte")
        check_cursor(self.cursor() | {"tokens_per_kilobyte": rate}, cursor)
        if isinstance(rate, int) and 0 < rate <= 1000 and rate != self.plan.tokens_per_kilobyte:
            self.facts = replace(self.facts, tokens_per_kilobyte=rate)
            self.plan = self._make_plan(self.plan.footers)

    def _make_plan(self, footers: dict[int, Footer]) -> SlicePlan:
        facts = self.facts
        return SlicePlan(
            footers,
            files=len(self._reader.listing.files),
            seed=facts.seed,
            context=facts.context,
            lanes=facts.lanes,
            tokens_per_kilobyte=facts.tokens_per_kilobyte,
        )

    def close(self) -> None:
        for task in self._units.values():
            task.cancel()
        for footer in self._footers.values():
            footer.cancel()
        self._units.clear()
        self.tokenizer.port.close()


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Look at a background task's failure, which is raised where its result is awaited."""
    if not task.cancelled():
        task.exception()


async def measure(
    reader: DatasetReader, footers: dict[int, Footer], *, seed: int, context: int, lanes: int
) -> tuple[int, Preloaded]:
    """Tokens a kilobyte of the run's first unit, with some caution, and that unit's tokens."""
    plan = SlicePlan(
        footers,
        files=len(reader.listing.files),
        seed=seed,
        context=context,
        lanes=lanes,
        tokens_per_kilobyte=1,
    )
    part = await locate(plan, 0, 0, reader.footer)
    for unit in [part.unit, *plan.substitutes(0, part.epoch, part.unit)[:MAX_SUBSTITUTES]]:
        try:
            block = await reader.rows(footers[unit.file], unit, context + 1)
        except PortFailure as failure:
            if failure.kind != "damaged":
                raise
            damage = failure
            continue
        group = footers[unit.file].groups[unit.group]
        size = max(1, group.unpacked * (unit.last - unit.first) // group.rows)
        rate = len(block.tokens) * 10 * CAUTION_PERCENT // size
        return min(max(rate, 1), 1000), {unit.rows: block}
    raise damage
