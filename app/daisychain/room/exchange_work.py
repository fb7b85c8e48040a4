"""The exchange's arithmetic beside the player: what the step protocol asks for (`effects.Work`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from daisychain.cluster import effects, events
from daisychain.cluster.effects import WorkKind
from daisychain.cluster.machine import agree_bytes
from daisychain.cluster.reduce_plan import Flow, Kind
from daisychain.cluster.reducer import Reducer
from daisychain.errors import DaisyChainError
from daisychain.room.books import Attempt
from daisychain.room.lane import Lane
from daisychain.room.replica import as_bytes


class ExchangeWork:
    """Work on the reducer's memory, one piece after the other.

    Exponents, which are few and need no memory, do not wait behind gradients.  Each bucket that is
    reduced is stored and expanded at once, so that little is left for the end of the step.
    """

    def __init__(
        self,
        reducer: Callable[[], Reducer],
        is_current: Callable[[Attempt], bool],
        give: Callable[[events.Event], None],
        failed: Callable[[DaisyChainError, Any], Awaitable[None]],
    ) -> None:
        self.memory = asyncio.Lock()
        self._reducer, self._is_current, self._give = reducer, is_current, give
        self._lane, self._exponents = Lane(failed), Lane(failed)

    def close(self) -> None:
        """Ends what is under way and drops the rest."""
        self._lane.close()
        self._exponents.close()

    def work(self, attempt: Attempt | None, effect: effects.Work) -> None:
        """Queues a piece of work; `WorkDone` tells when it is done."""
        if attempt is None or attempt.key != (effect.step, effect.epoch):
            return
        if effect.work is WorkKind.MERGE_EXPONENTS:
            self._exponents.add(self._merge, (attempt, effect))
        else:
            self._lane.add(self._work, (attempt, effect))

    def store(self, attempt: Attempt, flow: Flow) -> None:
        """Queues a reduced shard that has come; `FlowReceived` tells when it is stored."""
        self._lane.add(self._store, (attempt, flow))

    async def _merge(self, subject: tuple[Attempt, effects.Work]) -> None:
        attempt, effect = subject
        if self._is_current(attempt):
            merge_exponents(attempt, effect.bucket)
            self._give(_done(effect))

    async def _work(self, subject: tuple[Attempt, effects.Work]) -> None:
        attempt, effect = subject
        async with self.memory:
            if not self._is_current(attempt):
                return
            if effect.work is WorkKind.QUANTISE:
                await quantise(attempt, self._reducer(), effect.bucket)
            else:
                await reduce(attempt, self._reducer(), effect.bucket)
        if self._is_current(attempt):
            self._give(_done(effect))
        if effect.work is WorkKind.REDUCE:
            await self._expand(attempt, effect.bucket)

    async def _store(self, subject: tuple[Attempt, Flow]) -> None:
        attempt, flow = subject
        async with self.memory:
            if not self._is_current(attempt):
                return
            await self._reducer().store(flow.bucket, flow.origin, attempt.received.pop(flow))
        if self._is_current(attempt):
            self._give(events.FlowReceived(*attempt.key, flow))
        await self._expand(attempt, flow.bucket)

    async def _expand(self, attempt: Attempt, bucket: int) -> None:
        async with self.memory:
            if self._is_current(attempt):
                await self._reducer().expand(bucket)


def _done(effect: effects.Work) -> events.WorkDone:
    return events.WorkDone(effect.step, effect.epoch, effect.work, effect.bucket)


def merge_exponents(attempt: Attempt, bucket: int) -> None:
    """The own shard's agreed exponents."""
    plan, me = attempt.plan, attempt.begun.me
    own = plan.shard(bucket, me)
    part = attempt.proposed[bucket][own.first_row : own.first_row + own.rows]
    others = attempt.take(Kind.EXPONENTS_UP, bucket)
    columns = [part, *(as_bytes(data) for data in others.values())]
    attempt.agreed[bucket, me] = agree_bytes(columns) if part else b""


async def quantise(attempt: Attempt, reducer: Reducer, bucket: int) -> None:
    """The bucket at the agreed exponents, for each owner."""
    plan = attempt.plan
    for origin, data in attempt.take(Kind.EXPONENTS_DOWN, bucket).items():
        attempt.agreed[bucket, origin] = as_bytes(data)
    owners = sorted(plan.owners, key=lambda o: plan.shard(bucket, o).first_row)
    agreed = b"".join(attempt.agreed[bucket, owner] for owner in owners)
    pieces = await reducer.quantise(bucket, agreed)
    for owner, piece in zip(plan.owners, pieces, strict=True):
        attempt.outgoing[bucket, owner] = piece


async def reduce(attempt: Attempt, reducer: Reducer, bucket: int) -> None:
    """The own shard of all members, as it travels."""
    others = attempt.take(Kind.GRADIENT_UP, bucket)
    attempt.reduced[bucket] = await reducer.reduce(bucket, list(others.values()))
