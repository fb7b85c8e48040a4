"""What a link does as time passes: calls, glare, restarts, giving up, more connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.cluster.connection import ConnectionSettings
from daisychain.cluster.descriptions import fingerprint_of
from daisychain.cluster.identity import member_id
from daisychain.cluster.links import Link, LinkSettings, connections_for_rtt
from tests.cluster.memory_rtc import MemoryNetwork, MemoryRtc

SETTINGS = LinkSettings(connection=ConnectionSettings(), gather_ms=5.0)


class End:
    """One end of a link, its signals carried by the test, and what it was told."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rtc = MemoryRtc(world.network, lambda *_: None)
        self.id = member_id(fingerprint_of(self.rtc.fingerprint_sdp))
        self.told: list[str] = []
        self.refused_signals = 0
        self.mute = False

    def link_to(self, other: End) -> Link:
        self.other = other
        self.link = Link(self.id, other.id, self.rtc, SETTINGS, self, lambda: self.world.now_ms)
        return self.link

    def link_signal(self, link: Link, body: dict[str, Any]) -> None:
        if not self.mute and not self.other.link.receive(body):
            self.other.refused_signals += 1

    def link_up(self, link: Link) -> None:
        self.told.append("up")

    def link_text(self, link: Link, text: str) -> None:
        self.told.append(text)

    def link_down(self, link: Link, reason: str, clean: bool) -> None:
        self.told.append(f"down {clean}")

    def link_failed(self, link: Link) -> None:
        self.told.append("failed")


class World:
    """Two ends, ``low`` with the lower id, on an injected clock."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000.0
        self.network = MemoryNetwork()
        self.low, self.high = sorted((End(self), End(self)), key=lambda end: end.id)
        self.low.link_to(self.high)
        self.high.link_to(self.low)

    async def settle(self) -> None:
        for _ in range(6):
            await asyncio.sleep(0.004)

    async def pass_time(self, elapsed_ms: float, step_ms: float = 250.0) -> None:
        end_ms = self.now_ms + elapsed_ms
        while self.now_ms < end_ms:
            self.now_ms += step_ms
            self.low.link.tick()
            self.high.link.tick()
            await asyncio.sleep(0)
        await self.settle()

    async def connect(self) -> None:
        self.low.link.call()
        await self.settle()
        assert self.low.told == self.high.told == ["up"]


def run(test: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        await asyncio.wait_for(test(world), 30)
        world.low.link.close()
        world.high.link.close()

    asyncio.run(main())


def test_call_and_talk() -> None:
    async def test(world: World) -> None:
        assert not world.low.link.send_text("too early")
        await world.connect()
        assert world.high.link.send_text("a")
        assert world.low.link.send_text("b")
        await world.settle()
        assert (world.low.told, world.high.told) == (["up", "a"], ["up", "b"])
        world.low.link.call()
        await world.settle()
        assert world.low.rtc.opened == 1

    run(test)


def test_both_call_at_once() -> None:
    async def test(world: World) -> None:
        world.low.link.call()
        world.high.link.call()
        await world.settle()
        assert world.low.told == world.high.told == ["up"]
        assert (world.low.link.connections, world.high.link.connections) == (1, 1)
        assert world.high.rtc.opened == 2
        assert not world.high.link.calling

    run(test)


def test_an_offer_of_somebody_else_is_refused() -> None:
    async def test(world: World) -> None:
        stranger = End(world)
        stranger.link_to(world.high)
        stranger.link.call()
        await world.settle()
        assert world.high.refused_signals == 1
        assert world.high.rtc.opened == 0

    run(test)


def test_no_way_is_said_within_15_s_and_can_be_tried_again() -> None:
    async def test(world: World) -> None:
        world.network.block(world.low.rtc, world.high.rtc)
        world.low.link.call()
        await world.settle()
        await world.pass_time(15_000.0)
        assert world.low.told == ["failed"]
        assert not world.low.link.calling
        world.network.unblock()
        world.low.told.clear()
        world.high.told.clear()
        await world.connect()

    run(test)


def test_restart_after_three_seconds_by_the_lower_id() -> None:
    async def test(world: World) -> None:
        await world.connect()
        world.network.block(world.low.rtc, world.high.rtc)
        await world.settle()
        assert not world.low.link.works
        world.low.link.send_text("kept")
        world.network.unblock(heal=False)
        await world.pass_time(2_500.0)
        assert world.low.link.restarts == 0
        await world.pass_time(1_000.0)
        assert (world.low.link.restarts, world.high.link.restarts) == (1, 0)
        assert world.low.link.works
        assert world.high.link.works
        assert (world.low.told, world.high.told) == (["up"], ["up", "kept"])

    run(test)


def test_restart_by_the_higher_id_if_the_lower_one_is_silent() -> None:
    async def test(world: World) -> None:
        await world.connect()
        world.low.mute = True
        world.network.block(world.low.rtc, world.high.rtc)
        await world.settle()
        world.network.unblock(heal=False)
        await world.pass_time(5_500.0)
        assert world.high.link.restarts == 0
        world.low.mute = False
        world.low.link._restarted_ms = world.now_ms + 60_000.0
        await world.pass_time(1_500.0)
        assert world.high.link.restarts == 1
        assert world.low.link.works

    run(test)


def test_lost_for_thirty_seconds_is_down_for_good() -> None:
    async def test(world: World) -> None:
        await world.connect()
        world.network.block(world.low.rtc, world.high.rtc)
        await world.settle()
        await world.pass_time(29_000.0)
        assert world.low.told == ["up"]
        await world.pass_time(2_000.0)
        assert world.low.told == world.high.told == ["up", "down False"]
        assert world.low.link.closed

    run(test)


def test_closed_on_purpose_is_known_at_once() -> None:
    async def test(world: World) -> None:
        await world.connect()
        world.high.link.close()
        await world.settle()
        assert world.low.told == ["up", "down True"]

    run(test)


def test_a_peer_that_starts_anew_replaces_its_old_connection() -> None:
    async def test(world: World) -> None:
        await world.connect()
        world.high.rtc.plane.ways.clear()
        world.high.link_to(world.low).call()
        await world.settle()
        assert world.low.told == ["up", "up"]
        assert world.low.link.connections == 1
        assert world.low.link.send_text("x")
        await world.settle()
        assert world.high.told[-1] == "x"

    run(test)


def test_long_round_trips_get_more_connections_once_bulk_is_allowed() -> None:
    async def test(world: World) -> None:
        world.network.rtt_ms = 25.0
        await world.connect()
        await world.pass_time(10_000.0)
        assert world.low.link.connections == 1
        world.low.link.carry_bulk()
        world.high.link.carry_bulk()
        await world.pass_time(4_000.0)
        await world.pass_time(4_000.0)
        assert (world.low.link.connections, world.high.link.connections) == (3, 3)
        assert len(world.low.rtc.plane.ways[world.high.id]) == 3
        assert world.low.link.rtt_ms == 25.0
        extra = world.high.link._extras[2]
        extra.close()
        await world.settle()
        assert world.low.link.connections == 2
        await world.pass_time(4_000.0)
        assert world.low.link.connections == 3

    run(test)


def test_connections_by_round_trip() -> None:
    counts = [connections_for_rtt(rtt_ms, SETTINGS) for rtt_ms in (0, 2, 9.9, 10, 25, 30, 80, 1e9)]
    assert counts == [1, 1, 1, 2, 3, 4, 4, 4]


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=40)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner)),
    max_leaves=5,
)


@given(
    st.sampled_from(["offer", "answer", "ice", "", None]),
    st.dictionaries(st.sampled_from(["call", "i", "d", "c"]), json_values),
)
@settings(max_examples=150, deadline=None)
def test_any_signal_is_acted_on_or_refused(kind: object, body: dict[str, Any]) -> None:
    async def main() -> None:
        world = World()
        assert not world.low.link.receive({**body, "t": kind})
        assert world.low.rtc.opened == 0

    asyncio.run(main())
