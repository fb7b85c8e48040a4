"""How does a room scale?  The real state machine on simulated links, beside two f32 exchanges.

Every device has an uplink and a downlink of the same rate, and each pair of devices a one-way
delay; bytes queue at both ends.  Ours runs `daisychain.cluster.protocol` message by message, with
the flows, sizes and overlap of the real plan.  The f32 mesh (everybody sends its whole gradient to
everybody) and the f32 ring (reduce-scatter and all-gather around a ring) get the same links, and
send each bucket as soon as the backward pass has finished it, as ours does.

    python bench/cluster_sim.py [--preset small] [--compute-ms 2000] [--devices 2 4 8 16 32]

Efficiency is the time of the computation alone divided by the time of a step.

A second table: what a third device's coming costs two others.  Its state (12 bytes a parameter) and
each step that the others make meanwhile come to it over the link of one of them.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "app"), str(ROOT / "tests" / "cluster")]

from cluster_world import World, with_settings  # noqa: E402
from toy_device import Device  # noqa: E402

from daisychain.cluster import effects, events, wire  # noqa: E402
from daisychain.cluster.effects import WorkKind  # noqa: E402
from daisychain.cluster.layout import model_layout  # noqa: E402
from daisychain.cluster.messages import Envelope  # noqa: E402
from daisychain.cluster.reduce_plan import (  # noqa: E402
    FRAME_BYTES,
    Flow,
    Kind,
    Layout,
    ReducePlan,
    framed_bytes,
)
from daisychain.cluster.times import Times  # noqa: E402
from daisychain.model.config import ModelConfig  # noqa: E402
from daisychain.settings import PRESETS, swiglu_width  # noqa: E402

BACKWARD = 2 / 3
"""Share of the backward pass in the computation."""
ELEMENTS_A_MS = 500_000
"""Parameters that a device quantises or adds up in a millisecond."""
MEASURED_STEPS = 3
STATE_BYTES_A_PARAMETER = 12
"""A weight and its two moments."""
PIECE_BYTES = 1 << 20
"""So much of what is served is in front of an exchange's flow at most (`HIGH_BYTES`)."""


def ready_times(layout: Layout, compute_ms: float) -> list[float]:
    """When each bucket's gradient is there, counted from the start of the computation."""
    done, times = 0, []
    for starts in layout.row_starts:
        done += starts[-1]
        times.append(compute_ms * (1 - BACKWARD * (1 - done / layout.elements)))
    return times


class SimulatedDevice(Device):
    """The toy host with the timing of a real one."""

    world: SimulatedRoom

    def do_BeginAttempt(self, effect: effects.BeginAttempt) -> None:
        super().do_BeginAttempt(effect)
        self.world.begun_ms.setdefault(effect.proposal.step, self.world.now)

    def later(self, ms: float, event: events.Event) -> None:
        if isinstance(event, events.BucketReady):
            ms = self.world.ready[event.bucket]
        super().later(round(ms), event)

    def do_Work(self, effect: effects.Work) -> None:
        assert self.work is not None
        plan, me = self.work.begun.plan, self.work.begun.me
        elements = plan.layout.row_starts[effect.bucket][-1]
        if effect.work is not WorkKind.QUANTISE:
            elements = plan.shard(effect.bucket, me).elements
        self.world.work_ms = elements / ELEMENTS_A_MS
        super().do_Work(effect)

    def do_StopServing(self, effect: effects.StopServing) -> None:
        super().do_StopServing(effect)
        queue = self.world.serving[self.me, effect.joiner]
        while len(queue) > 1:
            queue.pop()


class SimulatedRoom(World):
    """A room whose messages take the time that their bytes need; the clock is in milliseconds."""

    def __init__(self, layout: Layout, compute_ms: int, mbit: float, delay_ms: float) -> None:
        times = Times(deadline_floor_ms=10**8, first_deadline_ms=10**8, suspect_ms=10**8)
        settings = with_settings(max_members=32, max_micro_batches=1)
        super().__init__(1, times, settings, layout)
        self.compute_ms, self.delay_ms = compute_ms, delay_ms
        self.bytes_a_ms = mbit * 125
        self.ready = ready_times(layout, compute_ms)
        self.up_free: dict[str, float] = defaultdict(float)
        self.down_free: dict[str, float] = defaultdict(float)
        self.sent: dict[str, int] = defaultdict(int)
        self.sizes: dict[str, int] = {}
        self.begun_ms: dict[int, int] = {}
        self.work_ms = 0.0
        self.serving: dict[tuple[str, str], deque[tuple[int, tuple[Any, ...]]]] = defaultdict(deque)

    def make(self, me: str) -> Device:
        device = SimulatedDevice(self, me)
        device.micro_ms = self.compute_ms
        return device

    def arrival(self, source: str, target: str, size: int, urgent: bool) -> float:
        """When ``size`` bytes sent now are all there; both ends are busy meanwhile.

        Urgent ones (messages, exponents) overtake what is queued, but for the frame under way.
        """
        ms = size / self.bytes_a_ms
        self.sent[source] += size
        frame_ms = FRAME_BYTES / self.bytes_a_ms
        start = max(self.now, self.up_free[source])
        self.up_free[source] = start + ms
        if urgent:
            start = min(start, self.now + frame_ms)
        begin = max(start + self.delay_ms, self.down_free[target])
        self.down_free[target] = begin + ms
        if urgent:
            begin = min(begin, start + self.delay_ms + frame_ms)
        return begin + ms

    def post(self, source: str, link: str, envelope: Envelope) -> None:
        kind = type(envelope.message).__name__
        if kind not in self.sizes:
            self.sizes[kind] = len(wire.encode(envelope))
        when = self.arrival(source, link, self.sizes[kind], urgent=True)
        self.at(round(when + 0.5), self._deliver, source, link, envelope)

    def post_flow(
        self, source: str, plan: ReducePlan, key: tuple[int, int], flow: Flow, value: int
    ) -> None:
        hop = plan.members[plan.next_hop(plan.members.index(source), flow.target)]
        urgent = flow.kind in (Kind.EXPONENTS_UP, Kind.EXPONENTS_DOWN)
        when = self.arrival(source, hop, framed_bytes(plan.flow_bytes(flow)), urgent)
        self.at(round(when + 0.5), self._flow_at, source, hop, plan, key, flow, value)

    def post_bulk(self, source: str, target: str, what: tuple[Any, ...]) -> None:
        layout = self.layout
        size = self.settings.exchange.down_bytes(layout.elements, layout.rows)
        if what[0] == "state":
            size = STATE_BYTES_A_PARAMETER * layout.elements
        queue = self.serving[source, target]
        queue.append((framed_bytes(size), what))
        if len(queue) == 1:
            self._serve(source, target)

    def _serve(self, source: str, target: str) -> None:
        """A piece of what is served; the next one queues when this one has left."""
        queue = self.serving[source, target]
        left, what = queue.popleft()
        piece = min(PIECE_BYTES, left)
        when = round(self.arrival(source, target, piece, urgent=False) + 0.5)
        if left > piece:
            queue.appendleft((left - piece, what))
        else:
            self.at(when, self.devices[target].bulk_came, source, what)
        self.at(when, self.devices[target].give, events.StateProgress())
        if queue:
            self.at(round(self.up_free[source] + 0.5), self._serve, source, target)


def ours(
    layout: Layout, devices: int, compute_ms: int, mbit: float, delay_ms: float
) -> tuple[float, float]:
    """Milliseconds and megabytes sent (by the busiest device) of a step."""
    room = SimulatedRoom(layout, compute_ms, mbit, delay_ms)
    for i in range(devices):
        room.add(f"{i:016x}", founder=i == 0)
    room.run(20_000)
    for device in room.alive():
        device.give(events.Run())
    room.run_until(lambda: len(room.begun_ms) > 1, 10**9)
    first = max(room.begun_ms)
    sent = dict(room.sent)
    room.run_until(lambda: len(room.begun_ms) > 1 + MEASURED_STEPS, 10**9)
    assert all(len(room.decided[s].roster) == devices for s in range(first, first + MEASURED_STEPS))
    ms = (room.begun_ms[first + MEASURED_STEPS] - room.begun_ms[first]) / MEASURED_STEPS
    most = max((room.sent[name] - sent[name] for name in sent), default=0)
    return ms, most / MEASURED_STEPS / 1e6


def third(layout: Layout, compute_ms: int, mbit: float, delay_ms: float) -> tuple[float, float]:
    """Milliseconds from a third device's link to the first step with it, and how many steps of the
    usual length the two others lost until then."""
    room = SimulatedRoom(layout, compute_ms, mbit, delay_ms)
    for i in range(2):
        room.add(f"{i:016x}", founder=i == 0)
    room.run(20_000)
    for device in room.alive():
        device.give(events.Run())
    room.run_until(lambda: len(room.begun_ms) > 1 + MEASURED_STEPS, 10**9)
    first, last = min(room.begun_ms) + 1, max(room.begun_ms)
    usual_ms = (room.begun_ms[last] - room.begun_ms[first]) / (last - first)
    begin, done = room.now, room.begun_ms[last]
    newcomer = room.add(f"{2:016x}")
    newcomer.give(events.Run())
    assert room.run_until(lambda: newcomer.work is not None, 10**7)
    joined = max(room.begun_ms)
    made = joined - last - (begin - done) / usual_ms
    return room.now - begin, (room.now - begin) / usual_ms - made


def in_turn(layout: Layout, compute_ms: int, cost: list[float]) -> float:
    """Time of a step whose buckets are exchanged one after another at these costs."""
    end = 0.0
    for ready, ms in zip(ready_times(layout, compute_ms), cost, strict=True):
        end = max(end, ready) + ms
    return end


def mesh(
    layout: Layout, devices: int, compute_ms: int, mbit: float, delay_ms: float
) -> tuple[float, float]:
    """The naive exchange: 4 bytes a parameter to each of the others."""
    sizes = [4 * starts[-1] * (devices - 1) for starts in layout.row_starts]
    cost = [size / (mbit * 125) for size in sizes]
    return in_turn(layout, compute_ms, cost) + delay_ms, sum(sizes) / 1e6


def ring(
    layout: Layout, devices: int, compute_ms: int, mbit: float, delay_ms: float
) -> tuple[float, float]:
    """Reduce-scatter and all-gather around a ring, 4 bytes a parameter, delays overlapped."""
    rounds = 2 * (devices - 1)
    sizes = [rounds * 4 * starts[-1] / devices for starts in layout.row_starts]
    cost = [size / (mbit * 125) for size in sizes]
    return in_turn(layout, compute_ms, cost) + rounds * delay_ms, sum(sizes) / 1e6


def preset_layout(name: str) -> Layout:
    """The exchange layout of a preset."""
    values = PRESETS[name]
    width, heads = int(values["width"]), int(values["heads"])
    layers, context = int(values["layers"]), int(values["context"])
    return model_layout(ModelConfig(width, layers, heads, heads, swiglu_width(width), context))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--preset", default="small", choices=sorted(PRESETS))
    parser.add_argument("--compute-ms", type=int, default=2000)
    parser.add_argument("--devices", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--mbit", type=float, nargs="+", default=[10, 50, 500])
    parser.add_argument("--delay-ms", type=float, nargs="+", default=[5, 40])
    options = parser.parse_args()
    layout = preset_layout(options.preset)
    print(
        f"{options.preset}: {layout.elements / 1e6:.2f} M parameters, {len(layout.buckets)} "
        f"buckets, {options.compute_ms / 1000:g} s of computation a step.\n"
        "Step time (s), efficiency (%), MB sent by the busiest device a step.\n"
    )
    print("| Mbit/s | delay ms | devices | int8 (this) | f32 ring | f32 mesh |")
    print("|---|---|---|---|---|---|")
    for mbit in options.mbit:
        for delay in options.delay_ms:
            for devices in options.devices:
                cells = []
                for exchange in (ours, ring, mesh):
                    ms, mega = exchange(layout, devices, options.compute_ms, mbit, delay)
                    share = 100 * options.compute_ms / ms
                    cells.append(f"{ms / 1000:.2f} s, {share:.0f} %, {mega:.1f} MB")
                print(f"| {mbit:g} | {delay:g} | {devices} | {' | '.join(cells)} |", flush=True)
    print("\nA third device comes in.\n")
    print("| Mbit/s | delay ms | in after s | steps lost by the others |")
    print("|---|---|---|---|")
    for mbit in options.mbit:
        for delay in options.delay_ms:
            ms, lost = third(layout, options.compute_ms, mbit, delay)
            print(f"| {mbit:g} | {delay:g} | {ms / 1000:.0f} | {lost:.1f} |", flush=True)


if __name__ == "__main__":
    main()
