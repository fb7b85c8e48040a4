"""The exchange's lanes: what does not wait for what, and what is left for the end of a step."""

from __future__ import annotations

import asyncio
from typing import Any

from daisychain.cluster import effects, events
from daisychain.cluster.effects import WorkKind
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.reduce_plan import Flow, Kind, Layout, Rows, make_plan
from daisychain.cluster.step_messages import Propose, Share
from daisychain.room.books import Attempt
from daisychain.room.exchange_work import ExchangeWork

LAYOUT = Layout(((Rows("head", 4, 64),), (Rows("body", 6, 64),)))
PLAN = make_plan(LAYOUT, ("a", "b"), {"a": ["b"], "b": ["a"]}, Exchange.INT8)


class SlowReducer:
    """Takes in everything; quantising ends when it may."""

    def __init__(self) -> None:
        self.may_quantise = asyncio.Event()
        self.done: list[tuple[str, int]] = []

    async def quantise(self, bucket: int, agreed: bytes) -> list[bytes]:
        await self.may_quantise.wait()
        self.done.append(("quantise", bucket))
        return [b"", b""]

    async def store(self, bucket: int, owner: int, data: Any) -> None:
        self.done.append(("store", bucket))

    async def expand(self, bucket: int) -> None:
        self.done.append(("expand", bucket))


def attempt() -> Attempt:
    shares = (Share("a", 1, 0), Share("b", 1, 1))
    proposal = Propose(1, 32, 0, 0, "", "", 0, Exchange.INT8, 0, shares, (2, 1), ())
    found = Attempt(effects.BeginAttempt(proposal, PLAN, 0, shares[0]))
    for bucket in range(2):
        found.proposed[bucket] = bytes(PLAN.layout.buckets[bucket][0].rows)
        for owner in range(2):
            found.agreed[bucket, owner] = b""
    return found


def test_exponents_do_not_wait_for_gradients_and_buckets_are_finished_as_they_come() -> None:
    async def go() -> None:
        reducer: Any = SlowReducer()
        told: list[events.Event] = []
        now, failures = attempt(), list[Any]()

        async def failed(*failure: Any) -> None:
            failures.append(failure)

        work = ExchangeWork(lambda: reducer, lambda a: a is now, told.append, failed)
        flow = Flow(Kind.GRADIENT_DOWN, 0, 1, 0)
        now.received[flow] = b"shard"
        work.work(now, effects.Work(1, 32, WorkKind.QUANTISE, 0))
        work.work(now, effects.Work(1, 32, WorkKind.MERGE_EXPONENTS, 1))
        work.work(now, effects.Work(1, 31, WorkKind.MERGE_EXPONENTS, 0))  # of another attempt
        work.store(now, flow)
        await asyncio.sleep(0.01)
        assert told == [events.WorkDone(1, 32, WorkKind.MERGE_EXPONENTS, 1)]
        reducer.may_quantise.set()
        await asyncio.sleep(0.01)
        assert told[1:] == [
            events.WorkDone(1, 32, WorkKind.QUANTISE, 0),
            events.FlowReceived(1, 32, flow),
        ]
        assert reducer.done == [("quantise", 0), ("store", 0), ("expand", 0)]
        assert flow not in now.received, "it is kept nowhere else"
        now = attempt()  # an aborted attempt's work is left out
        work.store(attempt(), flow)
        await asyncio.sleep(0.01)
        assert (len(told), failures) == (3, [])
        work.close()

    asyncio.run(go())
