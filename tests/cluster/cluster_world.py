"""A room of simulated devices on a virtual clock: the real state machine, a toy model.

The toy model keeps what the protocol must get right and nothing else: weights are one number, a
slice's gradient is a hash of weights and slice number, sums are exact.  So every applied step can
be checked against what its slices should have given.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from toy_device import (
    FAST_TIMES,
    MASK,
    TOY_LAYOUT,
    Decided,
    Device,
    mix,
)

from daisychain.cluster import effects, events
from daisychain.cluster.events import Settings
from daisychain.cluster.messages import Envelope
from daisychain.cluster.reduce_plan import Flow, Layout, ReducePlan
from daisychain.cluster.times import Times


@dataclass
class Trouble:
    """How the network misbehaves just now: probabilities in percent."""

    drop: int = 0
    duplicate: int = 0
    delay: int = 0


class World:
    """Devices, links and time."""

    latency_ms = 5

    def __init__(
        self,
        seed: int = 0,
        times: Times = FAST_TIMES,
        settings: Settings | None = None,
        layout: Layout = TOY_LAYOUT,
    ) -> None:
        self.seed, self.times, self.layout = seed, times, layout
        self.random = Random(seed)
        self.settings = settings or Settings(lambda step: 1000 + step, approve_all=True)
        self.now = 0
        self.devices: dict[str, Device] = {}
        self.cuts: set[frozenset[str]] = set()
        self.trouble = Trouble()
        self.decided: dict[int, Decided] = {}
        self.queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.count = 0
        self.posted = 0
        self.on_post: Callable[[str, str, object], None] | None = None
        self.single_lineage = True
        self.welcoming = True

    # ------------------------------------------------------------------------------- time

    def at(self, when: int, action: Callable[..., None], *args: Any) -> None:
        self.count += 1
        heapq.heappush(self.queue, (when, self.count, action, args))

    def run(self, ms: int) -> None:
        end = self.now + ms
        while self.queue and self.queue[0][0] <= end:
            self.now, _, action, args = heapq.heappop(self.queue)
            action(*args)
        self.now = end

    def run_until(self, done: Callable[[], bool], limit_ms: int) -> bool:
        end = self.now + limit_ms
        while not done():
            if not self.queue or self.queue[0][0] > end:
                self.now = end
                return done()
            self.now, _, action, args = heapq.heappop(self.queue)
            action(*args)
        return True

    def _tick(self, device: Device) -> None:
        if device.live:
            device.give(events.Tick())
            self.at(self.now + 500, self._tick, device)

    # ---------------------------------------------------------------------------- devices

    def make(self, me: str) -> Device:
        """A new device; worlds with other hosts override this."""
        return Device(self, me)

    def add(self, me: str, founder: bool = False) -> Device:
        device = self.make(me)
        self.devices[me] = device
        if founder:
            device.carry_out(device.node.found(self.layout, device.weights_hash()))
        else:
            device.carry_out(device.node.join())
        for other in self.devices.values():
            if other is not device and other.live and self.linked(me, other.me):
                device.give(events.LinkUp(other.me))
                other.give(events.LinkUp(me))
        self.at(self.now + 100 + self.random.randrange(300), self._tick, device)
        return device

    def room(self, size: int, run: bool = True) -> list[Device]:
        """A founder ``a`` and joiners ``b``, ``c``, ... that all know the state."""
        names = [chr(97 + i) for i in range(size)]
        devices = [self.add(name, founder=i == 0) for i, name in enumerate(names)]
        if run:
            devices[0].give(events.Run())
            self.at(self.now, self._everybody_runs)
        return devices

    def _everybody_runs(self) -> None:
        for device in self.devices.values():
            device.give(events.Run())

    def crash(self, me: str, notice: bool = False) -> None:
        """The device is gone; with ``notice`` its links close, otherwise it just falls silent."""
        device = self.devices[me]
        if not device.live:
            return
        device.live = False
        if notice:
            for other in self.alive():
                other.give(events.LinkDown(me))

    def alive(self) -> list[Device]:
        return [device for device in self.devices.values() if device.live]

    # ------------------------------------------------------------------------------ links

    def linked(self, a: str, b: str) -> bool:
        return frozenset((a, b)) not in self.cuts

    def cut(self, a: str, b: str) -> None:
        if self.linked(a, b):
            self.cuts.add(frozenset((a, b)))
            for me, peer in ((a, b), (b, a)):
                if me in self.devices:
                    self.devices[me].give(events.LinkDown(peer))

    def half_open(self, a: str, b: str, ms: int) -> None:
        """The link breaks, and only ``a`` notices at once; ``b`` does ``ms`` later."""
        if self.linked(a, b):
            self.cuts.add(frozenset((a, b)))
            self.devices[a].give(events.LinkDown(b))
            self.at(self.now + ms, self._notice_cut, a, b)

    def _notice_cut(self, a: str, b: str) -> None:
        if not self.linked(a, b):
            self.devices[b].give(events.LinkDown(a))

    def mend(self, a: str, b: str) -> None:
        if not self.linked(a, b):
            self.cuts.discard(frozenset((a, b)))
            if self.devices[a].live and self.devices[b].live:
                self.devices[a].give(events.LinkUp(b))
                self.devices[b].give(events.LinkUp(a))

    def mend_all(self) -> None:
        for pair in sorted(map(sorted, self.cuts)):
            self.mend(*pair)

    def split(self, groups: Iterable[Iterable[str]]) -> None:
        """Cut every link between different groups."""
        where = {me: i for i, group in enumerate(groups) for me in group}
        for a in self.devices:
            for b in self.devices:
                if a < b and where.get(a) != where.get(b):
                    self.cut(a, b)

    def _ways(self, source: str, target: str) -> list[int]:
        """Delays of the copies of a message that arrive."""
        trouble = self.trouble
        if not (self.linked(source, target) and target in self.devices):
            return []
        if not (trouble.drop or trouble.duplicate or trouble.delay):
            return [self.latency_ms]
        roll = self.random.randrange
        if roll(100) < trouble.drop:
            return []
        copies = 2 if roll(100) < trouble.duplicate else 1
        return [
            self.latency_ms + (roll(2000) if roll(100) < trouble.delay else 0)
            for _ in range(copies)
        ]

    def post(self, source: str, link: str, envelope: Envelope) -> None:
        self.posted += 1
        if self.on_post is not None:
            self.on_post(source, link, envelope)
            if not self.devices[source].live:
                return
        for delay in self._ways(source, link):
            self.at(self.now + delay, self._deliver, source, link, envelope)

    def _deliver(self, source: str, link: str, envelope: Envelope) -> None:
        if self.linked(source, link):
            self.devices[link].give(events.Received(source, envelope))

    def post_flow(
        self, source: str, plan: ReducePlan, key: tuple[int, int], flow: Flow, value: int
    ) -> None:
        here = plan.members.index(source)
        hop = plan.members[plan.next_hop(here, flow.target)]
        self.posted += 1
        if self.on_post is not None:
            self.on_post(source, hop, flow)
            if not self.devices[source].live:
                return
        for delay in self._ways(source, hop):
            self.at(self.now + delay, self._flow_at, source, hop, plan, key, flow, value)

    def _flow_at(
        self,
        source: str,
        hop: str,
        plan: ReducePlan,
        key: tuple[int, int],
        flow: Flow,
        value: int,
    ) -> None:
        device = self.devices[hop]
        if not device.live or not self.linked(source, hop):
            return
        if plan.members[flow.target] == hop:
            device.flow_came(key, flow, value)
        else:
            self.post_flow(hop, plan, key, flow, value)

    def post_bulk(self, source: str, target: str, what: tuple[Any, ...]) -> None:
        for delay in self._ways(source, target)[:1]:
            if target in self.devices:
                self.at(self.now + delay, self.devices[target].bulk_came, source, what)

    # ------------------------------------------------------------------------- invariants

    def applied(
        self,
        device: Device,
        effect: effects.Apply,
        reduced_hash: str,
        reduced: int,
        cursor: int,
        roster: tuple[str, ...],
    ) -> None:
        """A device applies a step: the same on all, from the right slices, each of them once."""
        if not self.single_lineage:
            return
        weights = mix(device.weights, reduced)
        now = Decided(effect.epoch, reduced_hash, weights, cursor, roster)
        before = self.decided.setdefault(effect.step, now)
        assert before == now, f"replicas differ at step {effect.step}: {before} {now}"
        if before is now:
            slices = range(device.cursor, cursor)
            total = sum(mix(device.weights, k) for k in slices) & MASK
            assert len(slices) >= len(roster)
            assert total == reduced, "a step is not the sum of its slices' gradients"
            first = self.decided[effect.step - 1].cursor if effect.step > 1 else 0
            assert device.cursor == first, "slices lost or trained twice"

    @property
    def steps(self) -> int:
        """The last committed step."""
        return max(self.decided, default=0)


def with_settings(**changes: Any) -> Settings:
    """Settings of a toy room, changed."""
    return replace(Settings(lambda step: 1000 + step, approve_all=True), **changes)
