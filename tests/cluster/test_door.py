"""The door of a room: how many go in, and what somebody with the code can do before it."""

from __future__ import annotations

from daisychain.cluster import events
from daisychain.cluster.identity import Member
from daisychain.cluster.lobby import (
    HEAR_MS,
    KNOCK_MS,
    MAX_HEARD,
    Expel,
    Knocked,
    KnockWithdrawn,
    Lobby,
    Renamed,
    Send,
    TurnedAway,
)
from daisychain.cluster.mesh_events import MeshSettings
from daisychain.cluster.roster import ROOM_MEMBERS
from tests.cluster.test_lobby import IDS

HOST, GUEST = IDS[0], IDS[1]


def room(approve_all: bool = False) -> Lobby:
    host = Lobby(Member(HOST, "Ann", "k"), approve_all)
    host.open_room()
    return host


def knock(name: str = "Ben") -> dict[str, object]:
    return {"t": "knock", "name": name, "kind": "phone"}


def test_the_seventeenth_device_reads_that_the_room_is_full() -> None:
    settings = events.Settings(lambda step: 0)
    assert MeshSettings().max_members == settings.max_members == ROOM_MEMBERS == 16
    host = room(approve_all=True)
    for other in IDS[2 : ROOM_MEMBERS + 1]:
        host.receive(other, knock(), 0.0)
    assert host.register is not None
    assert len(host.register.members) == ROOM_MEMBERS
    answer = host.receive(GUEST, knock(), 0.0)
    assert answer is not None
    refusal, expelled = answer
    assert isinstance(refusal, Send)
    assert expelled == Expel(GUEST)
    guest = Lobby(Member(GUEST, "Ben", "phone"))
    guest.meet(HOST, 0.0)
    told = guest.receive(HOST, refusal.body, 0.0)
    assert told == [TurnedAway("refused", "The room is full: it takes 16 devices.")]


def test_a_knock_under_ever_new_names_is_announced_once() -> None:
    host = room()
    made = [
        effect
        for k in range(1_000)
        for effect in host.receive(GUEST, knock(f"Ben {k}"), 10.0 * k) or []
    ]
    assert made[0] == Knocked(Member(GUEST, "Ben 0", "phone"))
    assert all(isinstance(effect, Renamed) for effect in made[1:])
    assert len(made) <= 1 + 10.0 * 1_000 / HEAR_MS
    renames = [
        effect
        for k in range(100)
        for effect in host.receive(GUEST, {"t": "rename", "name": f"Bob {k}"}, 10_000.0 + k) or []
    ]
    assert len(renames) <= 1


def test_who_goes_and_knocks_again_and_again_is_announced_once() -> None:
    host = room()
    made = []
    for k in range(1_000):
        made += host.receive(GUEST, knock(), 10.0 * k) or []
        made += host.receive(GUEST, {"t": "leave"}, 10.0 * k) or []
    assert sum(isinstance(effect, Knocked) for effect in made) == 1
    assert sum(isinstance(effect, KnockWithdrawn) for effect in made) <= 1 + 10_000.0 / HEAR_MS
    host.receive(GUEST, knock(), 20_000.0)
    assert GUEST in host.waiting
    for k in range(2 * MAX_HEARD):
        host.receive(f"x{k}", knock(), 20_000.0)
        host.receive(f"x{k}", {"t": "leave"}, 20_000.0)
    assert len(host._heard_ms) == MAX_HEARD


def test_a_device_at_the_door_may_change_its_name() -> None:
    host = room()
    host.receive(GUEST, knock(), 0.0)
    host.receive(GUEST, {"t": "rename", "name": "Bob"}, 100.0)
    assert host.waiting[GUEST].name == "Ben"
    assert host.receive(GUEST, knock("Bob"), KNOCK_MS) == [Renamed(Member(GUEST, "Bob", "phone"))]
    assert host.waiting[GUEST].name == "Bob"
