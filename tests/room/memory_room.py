"""A room in one process: real hosts, state machines, oracle players and WebAssembly exchange.

Links are calls on the event loop; `Wire` can cut them and tamper with what they carry.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Any

from exchange_machine import WasmtimeMachine
from solo_reference import SoloRoom

from daisychain.cluster import effects, events, wire
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.layout import model_layout
from daisychain.cluster.protocol import Node
from daisychain.cluster.reduce_plan import SERVED, Kind, Layout
from daisychain.cluster.reducer import Reducer
from daisychain.cluster.times import Times
from daisychain.data import HeldoutBatch
from daisychain.errors import DeviceLost
from daisychain.model.config import ModelConfig, binary32_bits
from daisychain.model.llama import build_program
from daisychain.model.pieces import in_pieces
from daisychain.optim.schedule import Schedule
from daisychain.players.oracle import OraclePlayer
from daisychain.room.host import Host
from daisychain.room.replica import Replica
from daisychain.room.run import Run

CONFIG = ModelConfig(width=16, layers=1, heads=2, kv_heads=2, hidden=32, context=8, vocabulary=61)
ROWS = 2
SCHEDULE = Schedule(lr=1e-2, steps=40, warmup=4)
FAST = Times(
    beat_ms=300,
    suspect_ms=2_500,
    deadline_floor_ms=4_000,
    first_deadline_ms=8_000,
    election_ms=300,
    rejoin_ms=1_000,
    join_retry_ms=1_000,
    transfer_stall_ms=3_000,
)


class SliceSource:
    """Sequences that count upwards from a start that the slice's number gives."""

    tokenizer = SimpleNamespace(size=CONFIG.vocabulary)

    async def batch(self, step: int, micro_batch: int, rows: int) -> tuple[Any, Any]:
        context = CONFIG.context
        ids = [(step * 11 + 7 * row + t) % 61 for row in range(rows) for t in range(context)]
        return array("I", ids), array("I", [(i + 1) % 61 for i in ids])

    async def heldout_batches(self, rows: int, limit: int) -> AsyncIterator[HeldoutBatch]:
        return
        yield

    def close(self) -> None:
        pass


class LosablePlayer(OraclePlayer):
    """Lost for good at the first run of a plan whose name begins with ``doomed``."""

    doomed = ""
    lost = False

    def _check(self) -> None:
        if self.lost:
            raise DeviceLost("The test took the device.")

    async def run(self, plans: Sequence[str], read: str) -> bytes:
        self.lost |= bool(self.doomed) and any(plan.startswith(self.doomed) for plan in plans)
        self._check()
        return await super().run(plans, read)

    async def read_many(self, buffers: Sequence[str]) -> list[bytes]:
        self._check()
        return await super().read_many(buffers)

    def write(self, buffer: str, data: Any, offset_bytes: int = 0, give: bool = False) -> None:
        self._check()
        super().write(buffer, data, offset_bytes)


class Maker:
    """Builds oracle replicas; the settings text is not needed.  ``doomed`` as in LosablePlayer."""

    doomed = ""

    def __init__(self, settings: events.Settings) -> None:
        self.settings = settings
        whole = build_program(CONFIG, ROWS, 16, seed=5)
        self.model = in_pieces(whole, self.layout("").names_by_bucket)

    def state_sizes(self, text: str) -> list[int]:
        return [4 * p.count for p in self.model.parameters for _ in range(3)]

    def layout(self, text: str) -> Layout:
        return model_layout(CONFIG, smallest_bucket=600)

    def exchange(self, text: str) -> Exchange:
        return self.settings.exchange

    def plan(self, text: str) -> None:
        return None

    async def reopen(self, losses: int) -> LosablePlayer:
        player = LosablePlayer()
        player.doomed = self.doomed
        await player.load(self.model.program)
        return player

    async def build(self, text: str, told: bytes | None = None) -> Run:
        replica = Replica(await self.reopen(0), self.model, SliceSource(), SCHEDULE)
        return Run(replica, Reducer(WasmtimeMachine(), self.layout(text)), self.settings)


class Plane:
    """The byte pump of one device: awaited flows only, forwarded by the attempt's hops."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.awaited: dict[bytes, str] = {}
        self.frames = 0
        self.parts: dict[bytes, int] = {}
        self.hops: dict[tuple[int, int], tuple[int, Sequence[str]]] = {}

    def expect(self, peer: str, headers: Sequence[bytes]) -> None:
        self.awaited.update((header[:24], peer) for header in headers)

    def route(self, step: int, epoch: int, me: int, hops: Sequence[str]) -> None:
        self.hops[step, epoch] = me, hops

    def forget(self, step: int, epoch: int) -> None:
        self.hops.pop((step, epoch), None)
        self._await_no(lambda frame: (frame.step, frame.epoch) == (step, epoch))

    def _await_no(self, is_meant: Callable[[wire.Frame], bool]) -> None:
        frames = {name: wire.decode_flow_header(name + bytes(8)) for name in self.awaited}
        self.awaited = {n: p for n, p in self.awaited.items() if not is_meant(frames[n])}

    def abandon(self, step: int, epoch: int) -> None:
        for (origin, _), link in self.device.world.slow.items():
            if origin == self.device.me:
                link.drop(lambda frame: (frame.step, frame.epoch) == (step, epoch))

    def stop_serving(self, peer: str) -> None:
        if link := self.device.world.slow.get((self.device.me, peer)):
            link.drop(lambda frame: frame.kind in SERVED)

    def stop_fetching(self) -> None:
        self._await_no(lambda frame: frame.kind in SERVED)

    def fetched_frames(self) -> int:
        return self.frames

    def frames_left(self, header: bytes) -> int:
        came = self.parts.get(header[:24], 0)
        return max(1, 1_000 - came) if header[:24] in self.awaited else 0

    def frame_came(self, header: bytes) -> None:
        """A part of a flow is here."""
        if header[:24] in self.awaited:
            self.parts[header[:24]] = self.parts.get(header[:24], 0) + 1
            self.frames += wire.decode_flow_header(header).kind in (Kind.STATE, Kind.PLAN)

    def came(self, peer: str, header: bytes, data: bytes) -> None:
        self.frame_came(header)
        frame = wire.decode_flow_header(header)
        route = self.hops.get((frame.step, frame.epoch))
        if route and route[0] != frame.target:
            self.device.world.post_bulk(self.device.me, route[1][frame.target], header, data)
            return
        wanted = self.awaited.get(header[:24])
        if wanted is not None and wanted in ("", peer):
            del self.awaited[header[:24]]
            self.device.host.bulk(peer, header, data)


class Device:
    """One member: node, host, links."""

    def __init__(self, world: Wire, me: str) -> None:
        self.world, self.me = world, me
        self.seen: list[effects.Effect] = []
        self.bulk = Plane(self)
        self.node = Node(me, me, "test", world.settings, world.times)
        self.live = True

    async def open(self, founder: bool) -> None:
        maker = self.maker = Maker(self.world.settings)
        run = await maker.build("") if founder else None
        self.host = Host(self.node, self, maker, self.heard, run)
        if founder:
            assert run is not None
            weights = await run.replica.initialise()
            self.host.carry_out(self.node.found(maker.layout(""), weights))
        else:
            self.host.carry_out(self.node.join())

    def heard(self, effect: effects.Effect) -> None:
        self.seen.append(effect)
        if isinstance(effect, effects.AskApproval):
            self.host.give(events.Approve(effect.peer, True))

    def send_control(self, peer: str, text: str) -> bool:
        self.world.post(self.me, peer, text)
        return True

    async def send_bulk(self, peer: str, header: bytes, data: Any) -> None:
        self.world.post_bulk(self.me, peer, header, bytes(data))

    def steps(self) -> list[effects.Log]:
        return [e for e in self.seen if isinstance(e, effects.Log)]

    def first_step_after_loss(self) -> int:
        losses = [e for e in self.seen if isinstance(e, effects.Notice) and e.code == "device-lost"]
        later = self.seen[self.seen.index(losses[-1]) :]
        return next(e.step for e in later if isinstance(e, effects.Log))

    def lose(self, plan: str) -> None:
        """Its device is lost when it next runs this plan."""
        assert self.host.run is not None
        self.host.run.replica.player.doomed = plan

    def kill(self) -> None:
        self.live = False
        self.host.close()


class SlowLink:
    """One way from a device to another: so many bytes a second, in order, a piece at a time."""

    PAUSE_S = 0.05

    def __init__(self, world: Wire, origin: str, peer: str, bytes_per_s: float) -> None:
        self.world, self.origin, self.peer = world, origin, peer
        self.piece_bytes = bytes_per_s * self.PAUSE_S
        self.queue: list[tuple[bytes, bytes]] = []
        self.moved_bytes = 0.0

    def post(self, header: bytes, data: bytes) -> None:
        self.queue.append((header, data))
        if len(self.queue) == 1:
            asyncio.get_running_loop().call_later(self.PAUSE_S, self._move)

    def _move(self) -> None:
        if not self.queue:
            return
        header, data = self.queue[0]
        self.moved_bytes += self.piece_bytes
        device = self.world.reach(self.origin, self.peer)
        if device and self.piece_bytes:
            device.bulk.frame_came(header)
        if self.moved_bytes >= len(data):
            self.queue.pop(0)
            self.moved_bytes = 0.0
            self.world.post_at_once(self.origin, self.peer, header, data)
        if self.queue:
            asyncio.get_running_loop().call_later(self.PAUSE_S, self._move)

    def drop(self, is_meant: Callable[[wire.Frame], bool]) -> None:
        """Drops what waits, but for the first flow, which is under way."""
        waiting = [f for f in self.queue[1:] if not is_meant(wire.decode_flow_header(f[0]))]
        self.queue[1:] = waiting

    def waiting(self) -> list[wire.Frame]:
        """What waits behind the first flow."""
        return [wire.decode_flow_header(header) for header, _ in self.queue[1:]]


class Wire:
    """All devices, and the links between them; ``slow`` ones are named by both ends."""

    def __init__(self, settings: events.Settings, times: Times = FAST) -> None:
        self.settings, self.times = settings, times
        self.devices: dict[str, Device] = {}
        self.cuts: set[frozenset[str]] = set()
        self.slow: dict[tuple[str, str], SlowLink] = {}
        self.tamper: Callable[[str, str, bytes, bytes], bytes] = lambda a, b, header, data: data

    async def add(self, me: str) -> Device:
        return await self.enter(Device(self, me))

    async def enter(self, device: Device) -> Device:
        me = device.me
        await device.open(founder=not self.devices)
        self.devices[me] = device
        for other in self.devices.values():
            if other is not device and other.live and frozenset((me, other.me)) not in self.cuts:
                device.host.give(events.LinkUp(other.me))
                other.host.give(events.LinkUp(me))
        return device

    def reach(self, origin: str, peer: str) -> Device | None:
        device = self.devices.get(peer)
        cut = frozenset((origin, peer)) in self.cuts
        return device if device and device.live and not cut else None

    def post(self, origin: str, peer: str, text: str) -> None:
        if device := self.reach(origin, peer):
            asyncio.get_running_loop().call_soon(self._control, device, origin, text)

    def _control(self, device: Device, origin: str, text: str) -> None:
        if device.live:
            device.host.control(origin, text)

    def slow_down(self, origin: str, peer: str, bytes_per_s: float) -> SlowLink:
        """From now on bulk data take their time on this way."""
        link = self.slow[origin, peer] = SlowLink(self, origin, peer, bytes_per_s)
        return link

    def post_bulk(self, origin: str, peer: str, header: bytes, data: bytes) -> None:
        if link := self.slow.get((origin, peer)):
            link.post(header, data)
        else:
            self.post_at_once(origin, peer, header, data)

    def post_at_once(self, origin: str, peer: str, header: bytes, data: bytes) -> None:
        if device := self.reach(origin, peer):
            data = self.tamper(origin, peer, header, data)
            asyncio.get_running_loop().call_soon(self._bulk, device, origin, header, data)

    def _bulk(self, device: Device, origin: str, header: bytes, data: bytes) -> None:
        if device.live:
            device.bulk.came(origin, header, data)

    def kill(self, me: str) -> None:
        self.devices[me].kill()
        for other in self.devices.values():
            if other.live:
                other.host.give(events.LinkDown(me))

    async def until(self, done: Callable[[], bool], seconds: float = 30) -> None:
        async with asyncio.timeout(seconds):
            while not done():
                await asyncio.sleep(0.01)

    async def check_against_solo(self, returned: Device | None = None) -> None:
        """All that was logged, from the first step on, is what one device alone would compute.

        ``returned`` is a device that was lost and has loaded the state anew.
        """
        back = returned.first_step_after_loss() if returned else 0
        log = {entry.step: entry for device in self.devices.values() for entry in device.steps()}
        maker = Maker(self.settings)
        replica = (await maker.build("")).replica
        weights = await replica.initialise()
        solo = SoloRoom(replica, WasmtimeMachine(), maker.layout(""), self.settings.exchange)
        for step in range(1, len(log) + 1):
            assert (step, log[step].start_hash) == (step, weights)
            shares = [(c.id, c.micro) for c in log[step].contributions]
            if returned and step == back:
                solo.forget(returned.me)
            losses, reduced, weights = await solo.step(shares, log[step].reduced_hash)
            assert (step, losses) == (step, [c.loss for c in log[step].contributions])
            assert (step, reduced) == (step, log[step].reduced_hash)

    def close(self) -> None:
        for device in self.devices.values():
            device.host.close()


def room_settings(**changed: Any) -> events.Settings:
    given: dict[str, Any] = {"text": "test", "approve_all": True, "total_micro_batches": None}
    rate = lambda step: binary32_bits(SCHEDULE.learning_rate(step - 1))  # noqa: E731
    return events.Settings(rate, **(given | changed))
