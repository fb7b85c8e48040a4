"""This device's own way into a room, as its host goes it: what it fetches and what it loads.

State, later steps and data plan come over one link from the device that serves them; they are
awaited from the moment that `effects.FetchState` or `AwaitSteps` names it until this device takes
part, and nothing of them is kept longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from daisychain.cluster import effects, events, wire
from daisychain.cluster.protocol import Node
from daisychain.cluster.reduce_plan import Kind
from daisychain.errors import ClusterError
from daisychain.platform.rtc import BulkPlane
from daisychain.room.books import catch_up_header, whole_bytes
from daisychain.room.data_plan import PlanInbox
from daisychain.room.recovery import Recovery
from daisychain.room.replica import as_bytes, hash_state
from daisychain.room.run import Run, RunMaker
from daisychain.room.state_inbox import StateInbox

LOOK_MS = 250


class Bulk(Protocol):
    """What carries the bytes, once it is open."""

    @property
    def bulk(self) -> BulkPlane: ...


class Arrival:
    """``built`` gets the run that is made for the room, if there is none yet."""

    def __init__(
        self,
        node: Node,
        links: Bulk,
        maker: RunMaker,
        give: Callable[[events.Event], None],
        recovery: Recovery,
        built: Callable[[Run], None],
    ) -> None:
        self._node, self._links, self._maker = node, links, maker
        self._give, self._recovery, self._built = give, recovery, built
        self._plan = PlanInbox()
        self._state = StateInbox()
        self._used = False
        self._later_bytes = 0
        self._seen = (0, 0)

    def expect(self, effect: effects.FetchState | effects.AwaitSteps, run: Run | None) -> None:
        """Awaits the flows of the state, if it is to be fetched, and of the steps after it."""
        text, is_fetched = effect.settings_text, isinstance(effect, effects.FetchState)
        self._links.bulk.stop_fetching()
        with suppress(ClusterError):  # a text that is none is told of in its turn
            awaited = self._plan.open(None if run else self._maker.plan(text))
            size = whole_bytes(self._maker.layout(text), self._maker.exchange(text))
            sizes = self._maker.state_sizes(text) if is_fetched else ()
            self._later_bytes = size
            awaited += self._state.open(effect, effect.step, sizes, size)
            self._links.bulk.expect(effect.source, awaited)

    def came(self, frame: wire.Frame, data: Any) -> None:
        """A flow that is complete."""
        if frame.kind is Kind.STATE:
            self._state.came(frame.step, frame.bucket, data)
            self._give(events.StateProgress())
        elif frame.kind is Kind.PLAN:
            self._plan.came(as_bytes(data))
        else:
            self._state.catch_up_came(frame.step, data)
            self._give(events.CatchUpReceived(frame.step))

    def take_later_step(self, step: int) -> Any:
        """The reduced gradient of a step that came, once: another fetch may begin before it is
        applied, and drops all that is still here."""
        return self._state.take_catch_up(step)

    def look(self, run: Run | None) -> None:
        """Tells the node of progress: a large buffer on a slow link takes long to be complete.

        Of the steps after the state only the next one counts: what comes behind a gap is no use.
        """
        bulk, at = self._links.bulk, self._node.core.committed
        left = 0
        if self._node.core.joining is not None and at is not None:
            left = bulk.frames_left(catch_up_header(at.step + 1, self._later_bytes))
        seen = bulk.fetched_frames(), left
        if seen != self._seen or (run is None and self._state.is_wanted):
            self._give(events.StateProgress())
        self._seen = seen

    def end(self) -> None:
        """Nothing more is fetched: this device takes part, or does not want to any more, or what
        would load the state is lost."""
        self._state.close()
        self._links.bulk.stop_fetching()

    def use_state(self) -> None:
        """The state that was loaded counts."""
        self._used = True
        self._recovery.use_state()

    async def fetch(
        self, effect: effects.FetchState, run: Run | None, exchange_memory: asyncio.Lock
    ) -> None:
        """Builds the run if there is none, loads the state, and goes back if it is not wanted."""
        if run is not None:
            run.check_room(effect.settings_text)
        layout, before = self._maker.layout(effect.settings_text), None
        if run is None:
            told = await self._plan.wait(
                lambda digest: self._give(events.PlanWanted(effect.source, digest)),
                lambda: self._state.is_open(effect),
            )
            if not self._state.is_open(effect):
                return
            run = await self._maker.build(effect.settings_text, told)
            self._built(run)
        elif self._node.core.committed is not None and not self._recovery.is_stateless:
            before = await run.replica.state()
        if effect.step:
            contents = await self._state.wait(effect, LOOK_MS)
            if contents is None:
                return
            weights_hash = await run.replica.load_state(contents)
            digest = await hash_state(contents)
        else:
            digest = weights_hash = await run.replica.initialise()
        self._state.loaded()
        self._used = False
        self._give(events.StateLoaded(effect.step, digest, weights_hash, layout, run.settings))
        if self._used:
            async with exchange_memory:
                run.reducer.forget()
        elif before is not None:
            await run.replica.load_state(before)
