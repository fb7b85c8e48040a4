"""What one device keeps of a room's run, and how a room begins with that again.

A save holds the state that all members share and what this device's error feedback owes.  A room of
one that goes on from its own save computes the bits of the uninterrupted one; in company the parts
that absent devices owed are lost, as when a device leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from daisychain.cluster.state import Committed
from daisychain.data import TokenSource
from daisychain.errors import DaisyChainError, DataError, DeviceError
from daisychain.export.checkpoint import Checkpoint, Facts
from daisychain.export.checkpoint import Run as SavedRun
from daisychain.numbering import Numbering
from daisychain.room.host import Host
from daisychain.room.replica import as_bytes
from daisychain.room.run import Run
from daisychain.room.run_maker import PageRunMaker
from daisychain.saving import AutoSave, check_model, check_weights, separator_of, tokenizer_json
from daisychain.settings import Settings
from daisychain.trainer import state_buffers

OWN_TIMES = ("eval_every", "save_every", "sample_every")
"""Settings of a save that are this device's own."""


async def check_source(source: TokenSource, resumed: Checkpoint) -> None:
    """Makes the source go on where a checkpoint's run stood.

    Raises DataError unless every device of a room can have that run's model, tokenizer and text.
    """
    run = resumed.run
    if run is None:
        raise DataError(
            "This file holds a model without a run.",
            "A room goes on from a run: newcomers make its first weights by themselves.",
            "Train on it alone.",
        )
    if await tokenizer_json(source.tokenizer) != resumed.tokenizer:
        raise DataError(
            "This run's tokenizer is not one that every device of a room can get.",
            do="Train on it alone.",
        )
    source.restore({**run.cursor, "micro_batches": 1})  # slices are counted one by one in a room


@dataclass(frozen=True)
class Beginning:
    """What a room begins with: its run, step, next slice, the weights' hash, and a copy of the
    state if that is no initial one."""

    run: Run
    step: int
    cursor: int
    weights_hash: str
    state: list[Any] | None = None


async def found(maker: PageRunMaker, settings: Settings, resumed: Checkpoint | None) -> Beginning:
    """Builds the run of a room that begins here, anew or from a checkpoint."""

    async def prepare(source: TokenSource) -> None:
        if resumed is not None:
            await check_source(source, resumed)

    return await begin(await maker.found(settings, prepare), resumed)


async def begin(run: Run, resumed: Checkpoint | None) -> Beginning:
    """Initial weights, or a checkpoint's state.  Raises DataError if that is of another run."""
    replica = run.replica
    weights_hash = await replica.initialise()
    if resumed is None or resumed.run is None:
        return Beginning(run, 0, 0, weights_hash)
    saved, model = resumed.run, replica.model
    check_model(resumed, model.config)
    state = None
    if saved.step:  # newcomers of step 0 make their weights by themselves
        state = [resumed.buffers[name] for name in state_buffers(model)]
        weights_hash = await replica.load_state(state)
    check_weights(saved, weights_hash)
    if saved.owed is not None:
        await run.reducer.restore(saved.owed)
    micro_batches = saved.settings.batch // model.rows
    cursor = Numbering.of(micro_batches, saved).slices(saved.step)
    return Beginning(run, saved.step, cursor, weights_hash, state)


@dataclass(frozen=True)
class Told:
    """What the session adds to a checkpoint."""

    settings: Settings
    own: Settings
    tokenizer: bytes
    facts: Callable[[], Facts]
    log: Callable[[], list[dict[str, Any]]]


async def checkpoint_of(host: Host, told: Told) -> Checkpoint:
    """The model and all that this device knows of its run.

    Raises DeviceError while it has none.
    """
    decided = -1
    while True:
        before = decided

        async def look(run: Run, before: int = before) -> Checkpoint | int:
            at = host.node.core.committed
            if at is None:
                raise DeviceError("The model is not on this device at present.")
            if not at.weights_hash and at.step != before:
                return at.step  # its update may be queued behind this look
            return await _read(run, at, told)

        found = await host.between(look)
        if isinstance(found, Checkpoint):
            return found
        decided = found


async def _read(run: Run, at: Committed, told: Told) -> Checkpoint:
    """The state after the step ``at``, which this device has applied."""
    log, replica = told.log(), run.replica
    names = state_buffers(replica.model)
    state = [memoryview(as_bytes(data)) for data in await replica.state()]
    owed = await run.reducer.owed()
    if owed is not None:
        owed = replace(owed, own=as_bytes(owed.own), reduced=as_bytes(owed.reduced))
    own = {name: getattr(told.own, name) for name in OWN_TIMES}
    saved = SavedRun(
        replace(told.settings, **own),
        at.step,
        at.weights_hash or await replica.weights_hash(),
        replica.source.cursor(),
        log,
        at.cursor,
        owed,
    )
    return Checkpoint(
        replica.model.config,
        dict(zip(names, state, strict=True)),
        told.tokenizer,
        separator_of(replica.source.tokenizer),
        saved,
        told.facts(),
    )


class Keeper:
    """Keeps the run now and then, one save at a time, while the room goes on."""

    def __init__(self, saves: AutoSave, make: Callable[[], Awaitable[Checkpoint]]) -> None:
        self.saves, self._make = saves, make
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def stepped(self, step: int, always: bool = False) -> None:
        """A step is done; ``always`` at a pause and at the end."""
        if not self.saves.is_due(step, always):
            return
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._work())
        else:
            self._again |= always

    async def finish(self) -> None:
        """Waits until everything is kept."""
        if self._task is not None:
            await self._task

    async def _work(self) -> None:
        self._again = True
        while self._again:
            self._again = False
            try:
                checkpoint = await self._make()
            except DaisyChainError:
                return  # there is nothing to keep at present; why, the room tells
            if checkpoint.run is not None and checkpoint.run.step != self.saves.saved_step:
                await self.saves.save(checkpoint)
                await self.saves.finish()
