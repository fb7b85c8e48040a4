"""Whole meshes in one process: a real relay, connections in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from daisychain.cluster.links import LinkSettings
from daisychain.cluster.lobby import Admitted, Joined, Knocked, Left, TurnedAway
from daisychain.cluster.mesh import MAX_GUESTS, Mesh
from daisychain.cluster.mesh_events import (
    Bulk,
    Coming,
    Control,
    LinkDown,
    LinkUp,
    MeshEvent,
    MeshSettings,
    Unreachable,
)
from daisychain.cluster.pairing import MAX_OFFERS
from daisychain.cluster.seal import RoomKeys, derive_room_keys
from daisychain.cluster.times import Times
from daisychain.cluster.transports import TransportTiming
from daisychain.errors import ClusterError
from daisychain.platform.crypto import Crypto
from daisychain.platform.rtc import BulkComplete, Rtc, open_rtc
from tests.cluster.memory_rtc import MemoryNetwork, MemoryRtc
from tests.cluster.relay_server import RelayServer

CODE = "K7QDM2XP9RTW4HBN"
KEYS: dict[str, RoomKeys] = {}
TIMES = Times(ice_restart_ms=100, drop_ms=600)
QUICK = MeshSettings(
    links=LinkSettings(
        times=TIMES,
        connect_ms=400.0,
        gather_ms=5.0,
        path_poll_ms=50.0,
        restart_pause_ms=100.0,
    ),
    relay_timing=TransportTiming(first_pause_s=0.05, longest_pause_s=0.1),
    approve_all=True,
    tick_ms=20.0,
    seek_ms=100.0,
    seek_anybody_ms=600.0,
    guest_ms=400.0,
    first_retry_ms=50.0,
    longest_retry_ms=200.0,
    farewell_ms=20.0,
)


@pytest.fixture(autouse=True)
def _derive_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 200,000 rounds for each device would be most of the time of these tests."""

    async def derive(code: str, crypto: Crypto) -> RoomKeys:
        if code not in KEYS:
            KEYS[code] = await derive_room_keys(code, crypto)
        return KEYS[code]

    monkeypatch.setattr("daisychain.cluster.mesh.derive_room_keys", derive)


class Device:
    """A mesh and what it told."""

    def __init__(self, room: Room, settings: MeshSettings) -> None:
        self.events: list[MeshEvent] = []
        self.mesh = Mesh(self.events.append, settings, self._make_rtc)
        self._room = room

    async def _make_rtc(self, complete: BulkComplete) -> Rtc:
        self.rtc = await self._room.network.rtc(complete)
        return self.rtc

    @property
    def id(self) -> str:
        return self.mesh.me.id

    def seen(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class Room:
    """A relay, a network in memory, and devices."""

    def __init__(self) -> None:
        self.server = RelayServer()
        self.network = MemoryNetwork()
        self.devices: list[Device] = []

    async def device(self, join: bool = True, code: str | None = CODE, **changes: Any) -> Device:
        relays = (self.server.url,) if code else ()
        device = Device(self, replace(QUICK, relays=relays, **changes))
        self.devices.append(device)
        start = device.mesh.join_room if join else device.mesh.open_room
        await start(code, f"device {len(self.devices)}", "test")
        return device

    async def meshed(self, count: int, **changes: Any) -> list[Device]:
        devices = [await self.device(join=False, **changes)]
        for _ in range(count - 1):
            devices.append(await self.device(**changes))
        await until(lambda: all(len(d.mesh.linked()) == count - 1 for d in devices))
        return devices


async def until(test: Callable[[], object]) -> None:
    async with asyncio.timeout(10.0):
        while not test():
            await asyncio.sleep(0.01)


def run(test: Callable[[Room], Awaitable[None]]) -> None:
    async def main() -> None:
        room = Room()
        await room.server.start()
        await test(room)
        await asyncio.gather(*(device.mesh.close() for device in room.devices))
        await room.server.stop()

    asyncio.run(asyncio.wait_for(main(), 50))


def test_four_devices_mesh_and_messages_keep_their_order() -> None:
    async def test(room: Room) -> None:
        devices = await room.meshed(4)
        for device in devices:
            assert sorted(event.member.id for event in device.seen(LinkUp)) == sorted(
                other.id for other in devices if other is not device
            )
            for peer in device.mesh.linked():
                for number in range(5):
                    assert device.mesh.send_control(peer, f'{{"n":{number}}}')
        await until(lambda: all(len(device.seen(Control)) == 15 for device in devices))
        for device in devices:
            for peer in device.mesh.linked():
                texts = [event.text for event in device.seen(Control) if event.peer == peer]
                assert texts == [f'{{"n":{number}}}' for number in range(5)]
        one, two = devices[:2]
        two.mesh.bulk.expect(one.id, [b"header"])
        await one.mesh.send_bulk(two.id, b"header", b"payload")
        assert two.seen(Bulk) == [Bulk(one.id, b"header", b"payload")]

    run(test)


def test_nothing_reaches_or_comes_from_a_device_that_waits_at_the_door() -> None:
    async def test(room: Room) -> None:
        host = await room.device(join=False, approve_all=False)
        guest = await room.device()
        await until(lambda: host.mesh.waiting)
        assert not host.mesh.send_control(guest.id, "{}")
        known = guest.mesh._neighbours.by_id[host.id]
        known.link.send_text('{"from": "outside"}')
        host.mesh.bulk.expect("", [b"header"])
        await asyncio.sleep(0.1)
        assert host.seen(Control) == []
        assert host.rtc.plane.ways == {}
        host.mesh.refuse(guest.id)
        await until(lambda: guest.seen(TurnedAway))
        await until(lambda: not host.mesh._neighbours.by_id)
        assert host.seen(Control) == host.seen(LinkUp) == host.seen(Joined) == []

    run(test)


def test_what_a_member_says_before_the_register_has_come_is_kept() -> None:
    async def test(room: Room) -> None:
        host = await room.device(join=False, approve_all=False)
        guest = await room.device()
        await until(lambda: host.mesh.waiting)
        guest.mesh._neighbours.by_id[host.id].link.send_text('{"early": 1}')
        await asyncio.sleep(0.05)
        host.mesh.accept(guest.id)
        await until(lambda: host.seen(Control))
        assert host.events.index(host.seen(LinkUp)[0]) < host.events.index(host.seen(Control)[0])

    run(test)


def test_two_without_a_way_are_told_and_served_by_the_third() -> None:
    async def test(room: Room) -> None:
        host, one = await room.meshed(2)
        two = Device(room, replace(QUICK, relays=(room.server.url,)))
        room.devices.append(two)
        rtc = MemoryRtc(room.network, two.mesh._bulk_complete)
        two.rtc = rtc
        room.network.block(one.rtc, rtc)

        async def given(_complete: BulkComplete) -> Rtc:
            return rtc

        two.mesh._make_rtc = given
        await two.mesh.join_room(CODE, "two", "test")
        await until(lambda: two.id in host.mesh.linked())
        await until(lambda: one.seen(Unreachable) + two.seen(Unreachable))
        sentence = (one.seen(Unreachable) + two.seen(Unreachable))[0].sentence
        assert "device 2" in sentence
        assert "two" in sentence
        assert "pass their data on" in sentence
        await until(lambda: one.mesh._neighbours.by_id[host.id].link.path.local)
        ways = {row.id: row.way for row in one.mesh.link_report()}
        assert ways == {host.id: "direct", two.id: "forwarded"}
        two.mesh.rename("renamed")  # goes to the host, its register goes to all
        await until(lambda: "renamed" in [member.name for member in one.mesh.members])
        assert len(one.mesh.members) == 3
        room.network.unblock()
        await until(lambda: two.id in one.mesh.linked())

    run(test)


def test_newcomer_that_cannot_reach_the_host_comes_in_through_a_member() -> None:
    async def test(room: Room) -> None:
        host, member = await room.meshed(2)
        late = Device(room, replace(QUICK, relays=(room.server.url,)))
        room.devices.append(late)
        rtc = MemoryRtc(room.network, late.mesh._bulk_complete)
        late.rtc = rtc
        room.network.block(host.rtc, rtc)

        async def given(_complete: BulkComplete) -> Rtc:
            return rtc

        late.mesh._make_rtc = given
        await late.mesh.join_room(CODE, "late", "test")
        await until(lambda: late.id in member.mesh.linked())
        assert {m.name for m in host.mesh.members} == {"device 1", "device 2", "late"}

    run(test)


def test_relay_dies_ice_restarts_travel_over_other_links() -> None:
    async def test(room: Room) -> None:
        devices = await room.meshed(3)
        await room.server.stop()
        one, two = devices[1:]
        room.network.block(one.rtc, two.rtc)
        await asyncio.sleep(0.05)
        room.network.unblock(heal=False)
        link = one.mesh._neighbours.by_id[two.id].link
        await until(lambda: link.works)
        reports = [row for device in devices for row in device.mesh.link_report()]
        assert sum(row.restarts for row in reports) >= 1
        assert one.seen(LinkDown) == two.seen(LinkDown) == []
        await room.server.start()

    run(test)


def test_lost_device_is_dropped_and_comes_back_by_itself() -> None:
    async def test(room: Room) -> None:
        devices = await room.meshed(3)
        host, one, two = devices
        for other in (host, one):
            room.network.block(two.rtc, other.rtc)
        await until(lambda: len(host.mesh.members) == len(one.mesh.members) == 2)
        assert [event.reason for event in host.seen(Left)] == ["cannot be reached any more"]
        await until(lambda: two.mesh.members == (two.mesh.me,))
        assert two.mesh.is_host
        room.network.unblock()
        await until(lambda: all(len(device.mesh.linked()) == 2 for device in devices))
        assert len({device.mesh.host for device in devices}) == 1
        assert two.mesh.host in (host.id, one.id)
        assert host.seen(Knocked) == one.seen(Knocked) == []

    run(test)


def test_who_was_lost_is_called_again_without_a_word() -> None:
    """Its page was killed: that two devices cannot connect would be wrong, and told for ever."""

    async def test(room: Room) -> None:
        host, one = await room.meshed(2)
        room.network.block(one.rtc, host.rtc)
        await until(lambda: len(host.mesh.members) == 1)
        calls: list[str] = []
        impossible = host.mesh.link_impossible

        def count(peer: str) -> None:
            calls.append(peer)
            impossible(peer)

        host.mesh.link_impossible = count  # type: ignore[method-assign]
        await until(lambda: one.id in calls)
        await asyncio.sleep(0.05)
        assert host.seen(Unreachable) == []

    run(test)


def test_a_room_opened_twice_with_one_code_becomes_one() -> None:
    async def test(room: Room) -> None:
        host, one = await room.meshed(2)
        again = await room.device(join=False)
        await until(lambda: all(len(d.mesh.linked()) == 2 for d in (host, one, again)))
        assert again.mesh.host == host.id
        assert [event.register.host for event in again.seen(Admitted)] == [again.id, host.id]

    run(test)


def test_who_waits_at_a_host_that_joins_another_room_is_sent_on() -> None:
    async def test(room: Room) -> None:
        first = await room.device(join=False, approve_all=False)
        guest = await room.device()
        await until(lambda: first.mesh.waiting)
        link = guest.mesh._neighbours.by_id[first.id].link
        room.network.next_id_below(first.id)  # the lower id stays the host
        second = await room.device(join=False)
        await until(lambda: all(len(d.mesh.linked()) == 2 for d in (first, second, guest)))
        assert {d.mesh.host for d in (first, guest)} == {second.id}
        assert guest.mesh._neighbours.by_id[first.id].link is link, "it was shown out and came back"

    run(test)


def test_crowd_at_the_door_is_bounded() -> None:
    async def test(room: Room) -> None:
        host = await room.device(join=False, approve_all=False)
        crowd = [await room.device() for _ in range(MAX_GUESTS + 4)]
        await until(lambda: len(host.mesh.waiting) == MAX_GUESTS)
        await asyncio.sleep(0.5)
        assert len(host.mesh._neighbours.by_id) == MAX_GUESTS
        assert len(host.seen(Knocked)) == MAX_GUESTS
        waiting = host.mesh.waiting[0].id
        host.mesh.refuse(waiting)
        await until(lambda: len(host.seen(Knocked)) == MAX_GUESTS + 1)
        assert sum(device.id == waiting for device in crowd) == 1

    run(test)


def returns_late(connection: Any) -> None:
    """As in a browser: the other end may speak before ``accept`` has returned."""
    accept = connection.accept

    async def late(answer: str) -> None:
        await accept(answer)
        await asyncio.sleep(0.3)

    connection.accept = late


def test_pairing_by_hand() -> None:
    async def test(room: Room) -> None:
        host = await room.device(join=False, code=None, approve_all=False)
        guest = await room.device(code=None)
        offers = [await host.mesh.hand_offer() for _ in range(MAX_OFFERS + 1)]
        answer = await guest.mesh.hand_answer(offers[-1])
        for wrong, place in ((offers[0], host), (answer, guest)):
            take = place.mesh.hand_accept if place is host else place.mesh.hand_answer
            with pytest.raises(ClusterError, match="This is an"):
                await take(wrong)
        with pytest.raises(ClusterError, match="this very device"):
            await host.mesh.hand_answer(offers[0])
        with pytest.raises(ClusterError, match="pairing text"):
            await host.mesh.hand_accept(answer[:-9])
        for offer in host.mesh._by_hand._offers:
            returns_late(offer._connection)
        await host.mesh.hand_accept(answer)
        await until(lambda: host.mesh.linked() == (guest.id,))
        await until(lambda: guest.mesh.linked() == (host.id,))
        assert host.seen(Knocked) == []

    run(test)


def test_hostile_control_messages_are_counted_and_cost_nothing() -> None:
    async def test(room: Room) -> None:
        host, rogue, other = await room.meshed(3)
        link = rogue.mesh._neighbours.by_id[host.id].link
        third = "0123456789abcdef"
        bodies = [
            "not json",
            "[]",
            '{"t":"hello","v":1,"host":7}',
            '{"t":"links"}',
            f'{{"t":"links","of":"{third}","n":-1,"peers":[]}}',
            f'{{"t":"links","of":"{third}","n":1,"peers":{["x"] * 100}}}'.replace("'", '"'),
            '{"t":"fwd"}',
            f'{{"t":"fwd","from":"{other.id}","to":"{host.id}","hops":3,"body":{{"t":"leave"}}}}',
            f'{{"t":"fwd","from":"{host.id}","to":"{host.id}","hops":3,"body":{{"t":"leave"}}}}',
            f'{{"t":"fwd","from":"{rogue.id}","to":"{third}","hops":3,"body":{{"t":"leave"}}}}',
            f'{{"t":"fwd","from":"{rogue.id}","to":"{host.id}","hops":99,"body":{{}}}}',
            '{"t":"register","term":9,"revision":9,"host":"x","members":[],"removed":[]}',
            '{"t":"offer","call":"c","i":0,"d":"AAAA"}',
            '{"t":"removed"}',
            "{" * 30_000,
        ]
        for count, body in enumerate(bodies, 1):
            link.send_text("~" + body)
            await asyncio.sleep(0.02)
            assert host.mesh.dropped()["control malformed"] == count, body
        assert len(host.mesh.members) == 3
        assert len(host.mesh.linked()) == 2

    run(test)


def test_another_version_is_told_to_reload() -> None:
    async def test(room: Room) -> None:
        host, rogue = await room.meshed(2)
        link = rogue.mesh._neighbours.by_id[host.id].link
        link.send_text('~{"t":"hello","v":2,"host":""}')
        await until(lambda: host.seen(Unreachable))
        assert "another version" in host.seen(Unreachable)[0].sentence

    run(test)


def test_closing_the_page_says_so() -> None:
    async def test(room: Room) -> None:
        host, one = await room.meshed(2)
        one.mesh._page_event("pagehide")
        await until(lambda: host.seen(Left))
        assert host.seen(Left)[0].reason in ("left the room", "closed the page")
        await until(lambda: host.mesh.linked() == ())

    run(test)


def test_outside_the_page_there_is_no_webrtc() -> None:
    with pytest.raises(ClusterError, match="WebRTC"):
        asyncio.run(open_rtc(lambda *_: None))


def test_a_device_is_linked_before_it_is_ready_and_the_host_knows_that_it_comes() -> None:
    async def test(room: Room) -> None:
        guest = Device(room, replace(QUICK, relays=(room.server.url,)))
        room.devices.append(guest)
        await guest.mesh.join_room(CODE, "guest", "test", knocks=False)
        host = await room.device(join=False)
        await until(lambda: guest.mesh.host == host.id)
        assert {event.id for event in host.seen(Coming)} == {guest.id}
        assert (guest.mesh.stage, host.mesh.members) == ("outside", (host.mesh.me,))
        assert not guest.seen(LinkUp)
        guest.mesh.knock()
        await until(lambda: guest.mesh.linked() == (host.id,))
        assert not guest.seen(Coming)

    run(test)
