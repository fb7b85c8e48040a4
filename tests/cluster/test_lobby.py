"""The door of the room as a pure state machine: approval, removal, succession, hostile messages."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.cluster.identity import Member, clean_name, member_id
from daisychain.cluster.lobby import (
    MAX_WAITING,
    Admitted,
    Effect,
    Expel,
    HostChanged,
    Joined,
    Knocked,
    KnockWithdrawn,
    Left,
    Lobby,
    Renamed,
    Send,
    TurnedAway,
)
from daisychain.cluster.register import Register, read_register, write_register

IDS = sorted(member_id(bytes([n]) * 32) for n in range(24))


class Town:
    """Lobbies whose messages travel in order between each pair, some crashed or gone."""

    def __init__(self, count: int, approve_all: bool = False, max_members: int = 16) -> None:
        self.lobbies = {
            me: Lobby(Member(me, f"n{number}", "k"), approve_all, 30_000.0, max_members)
            for number, me in enumerate(IDS[:count])
        }
        self.dead: set[str] = set()
        self.queues: dict[tuple[str, str], deque[dict[str, Any]]] = {}
        self.events: dict[str, list[Effect]] = {me: [] for me in self.lobbies}
        self.now_ms = 0.0

    def carry(self, sender: str, effects: list[Effect] | None) -> None:
        for effect in effects or []:
            if isinstance(effect, Send):
                self.queues.setdefault((sender, effect.to), deque()).append(effect.body)
            else:
                self.events[sender].append(effect)

    def deliver(self, pair: tuple[str, str]) -> None:
        body = self.queues[pair].popleft()
        source, target = pair
        if target in self.lobbies and target not in self.dead:
            self.carry(target, self.lobbies[target].receive(source, body, self.now_ms))

    def tick(self, elapsed_ms: float) -> None:
        self.now_ms += elapsed_ms
        alive = set(self.lobbies) - self.dead
        for me in sorted(alive):
            lobby = self.lobbies[me]
            gone = {id for id in self.lobbies if self.lobbies[id].stage == "left"}
            self.carry(me, lobby.tick(alive - {me} - gone, set(), self.now_ms))

    def settle(self) -> None:
        for _ in range(30):
            while pairs := [pair for pair, queue in sorted(self.queues.items()) if queue]:
                for pair in pairs:
                    self.deliver(pair)
            self.tick(4_000.0)

    def of(self, me: str, kind: type[Any]) -> list[Any]:
        return [event for event in self.events[me] if isinstance(event, kind)]


def room_of(count: int, **options: Any) -> Town:
    town = Town(count, approve_all=True, **options)
    host = IDS[0]
    town.carry(host, town.lobbies[host].open_room())
    for me in IDS[1:count]:
        town.carry(me, town.lobbies[me].meet(host, town.now_ms))
    town.settle()
    return town


def test_knock_accept_refuse_withdraw() -> None:
    town = Town(4)
    host, one, two, three = IDS[:4]
    town.carry(host, town.lobbies[host].open_room())
    for me in (one, two, three):
        town.carry(me, town.lobbies[me].meet(host, 0.0))
    town.settle()
    assert [event.member.id for event in town.of(host, Knocked)] == [one, two, three]
    assert [town.lobbies[me].stage for me in (one, two, three)] == ["knocking"] * 3

    town.carry(host, town.lobbies[host].accept(one))
    town.carry(host, town.lobbies[host].refuse(two))
    town.carry(three, town.lobbies[three].leave())
    town.settle()
    assert town.of(one, Admitted)[0].register.ids == {host, one}
    assert "did not let" in town.of(two, TurnedAway)[0].reason
    assert Expel(two) in town.events[host]
    assert town.of(host, KnockWithdrawn) == [KnockWithdrawn(three)]
    assert not town.lobbies[host].waiting
    assert town.lobbies[host].accept(two) == []


def test_names_are_cleaned_and_change_everywhere() -> None:
    town = room_of(3)
    town.carry(IDS[1], town.lobbies[IDS[1]].rename("  B\x00o\u202eb\n " + "x" * 99))
    town.settle()
    for me in IDS[:3]:
        register = town.lobbies[me].register
        assert register is not None
        assert register.name_of(IDS[1]) == ("B o b " + "x" * 99)[:40]
    assert town.of(IDS[2], Renamed)
    assert clean_name(7, "A device") == clean_name("\n", "A device") == "A device"


def test_removed_is_removed_for_good() -> None:
    town = room_of(4)
    host, rogue = IDS[0], IDS[2]
    town.carry(host, town.lobbies[host].remove(rogue))
    town.settle()
    assert town.of(rogue, TurnedAway)[0].stage == "removed"
    assert [event.reason for event in town.of(IDS[1], Left)] == ["was removed by the host"]
    town.lobbies[rogue].stage, town.lobbies[rogue].register = "outside", None
    town.carry(rogue, town.lobbies[rogue].meet(host, town.now_ms))
    town.settle()
    assert town.lobbies[rogue].stage == "refused"
    town.dead.add(host)
    town.tick(0.0)
    town.tick(31_000.0)
    town.settle()
    heir = IDS[1]
    assert town.lobbies[heir].is_host
    assert town.lobbies[heir].receive(rogue, {"t": "knock", "name": "x"}, 0.0) == [
        Send(rogue, {"t": "refused", "why": "The host removed this device."}),
        Expel(rogue),
    ]


def test_host_lost_lowest_id_takes_over_and_those_once_approved_may_return() -> None:
    town = room_of(4)
    town.dead.add(IDS[0])
    town.tick(0.0)
    town.tick(29_000.0)
    assert not town.of(IDS[1], HostChanged)
    town.tick(2_000.0)
    town.settle()
    for me in IDS[1:4]:
        assert town.lobbies[me].host == IDS[1]
        assert town.of(me, Left)[0].member.id == IDS[0]
    town.lobbies[IDS[1]].approve_all = False
    town.lobbies[IDS[0]] = Lobby(Member(IDS[0], "n0", "k"))
    town.dead.clear()
    town.carry(IDS[0], town.lobbies[IDS[0]].meet(IDS[1], town.now_ms))
    town.settle()
    assert town.lobbies[IDS[0]].stage == "inside"


def test_smaller_room_joins_the_larger_one_when_they_meet_again() -> None:
    town = room_of(5)
    small, large = IDS[:2], IDS[2:5]
    for side in (small, large):
        for me in side:
            lobby = town.lobbies[me]
            for now_ms in (100_000.0, 131_000.0):
                town.carry(me, lobby.tick(set(side), set(), now_ms))
    town.now_ms = 131_000.0
    between = [pair for pair in town.queues if (pair[0] in small) != (pair[1] in small)]
    for pair in between:
        town.queues[pair].clear()
    for side in (small, large):
        for me in side:
            assert town.lobbies[me].register is not None
    while pairs := [pair for pair, queue in sorted(town.queues.items()) if queue]:
        town.deliver(pairs[0])
    assert {town.lobbies[me].host for me in large} == {IDS[2]}
    assert set(town.lobbies[IDS[1]].lost) == set(large)
    assert set(town.lobbies[IDS[4]].lost) == set(small)
    for me in IDS[:5]:
        for other in IDS[:5]:
            room = town.lobbies[other].register
            if room is not None and (me in small) != (other in small):
                size = len(room.members)
                lobby = town.lobbies[me]
                town.carry(me, lobby.meet_room(other, room.host, size, town.now_ms))
    town.settle()
    for me in IDS[:5]:
        register = town.lobbies[me].register
        assert register is not None
        assert register.ids == set(IDS[:5])
        assert register.host == IDS[2]
        assert not town.lobbies[me].lost


def test_no_stranger_lures_a_room_away() -> None:
    town = room_of(3)
    for me in IDS[:3]:
        assert town.lobbies[me].meet_room(IDS[7], IDS[7], 99, 0.0) == []
    alone = Lobby(Member(IDS[5], "n5", "k"))
    alone.open_room()
    assert alone.meet_room(IDS[6], IDS[6], 1, 0.0) == []
    assert alone.meet_room(IDS[6], IDS[6], 2, 0.0)
    assert alone.stage == "knocking"


def test_two_successors_at_once_end_as_one() -> None:
    town = room_of(4)
    one, two, three = (town.lobbies[me] for me in IDS[1:4])
    for lobby, lost in ((one, {IDS[0]}), (two, {IDS[0], IDS[1]})):
        reachable = set(IDS[:4]) - lost
        town.carry(lobby.me.id, lobby.tick(reachable, lost, 50_000.0))
        town.carry(lobby.me.id, lobby.tick(reachable, lost, 60_000.0))
    assert one.is_host
    assert two.is_host
    town.dead.add(IDS[0])
    town.settle()
    assert three.host == IDS[1]


def test_full_room_and_full_doorstep() -> None:
    town = Town(3, approve_all=True, max_members=2)
    town.carry(IDS[0], town.lobbies[IDS[0]].open_room())
    for me in IDS[1:3]:
        town.carry(me, town.lobbies[me].meet(IDS[0], 0.0))
    town.settle()
    assert [town.lobbies[me].stage for me in IDS[1:3]] == ["inside", "refused"]
    assert town.of(IDS[2], TurnedAway)[0].reason == "The room is full: it takes 2 devices."

    host = Lobby(Member(IDS[0], "Ann", "k"))
    host.open_room()
    for me in IDS[1 : MAX_WAITING + 2]:
        effects = host.receive(me, {"t": "knock", "name": "x", "kind": "y"}, 0.0)
    assert len(host.waiting) == MAX_WAITING
    assert effects is not None
    assert isinstance(effects[-1], Expel)


def test_only_the_host_is_obeyed() -> None:
    town = room_of(3)
    member = town.lobbies[IDS[1]]
    before = member.register
    assert before is not None
    forged = Register(9, 9, IDS[2], (Member(IDS[2], "x", ""),))
    for source, body in (
        (IDS[2], {"t": "removed"}),
        (IDS[2], {"t": "refused", "why": "x"}),
        (IDS[2], {"t": "knock", "name": "x"}),
        (IDS[2], {"t": "rename", "name": "x"}),
        (IDS[2], write_register(Register(9, 9, IDS[0], before.members))),
        (IDS[2], write_register(forged)),
        (IDS[5], write_register(Register(9, 9, IDS[5], (*before.members, Member(IDS[5], "", ""))))),
        (IDS[0], {"t": "register"}),
        (IDS[0], {"t": None}),
    ):
        assert not member.receive(source, body, town.now_ms), body
    assert member.register == before
    assert member.stage == "inside"


names = st.one_of(st.text(max_size=60), st.integers(), st.none())
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20), st.sampled_from(IDS)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner)),
    max_leaves=10,
)


def room_and_knocker() -> list[Lobby]:
    knocker = Lobby(Member(IDS[5], "n5", "k"))
    knocker.meet(IDS[0], 0.0)
    return [*room_of(3).lobbies.values(), knocker]


ROOM_AND_KNOCKER = room_and_knocker()


@given(
    st.sampled_from(IDS[:6]),
    st.sampled_from(["knock", "rename", "leave", "register", "refused", "removed", "odd"]),
    st.dictionaries(
        st.sampled_from(["name", "kind", "why", "term", "revision", "host", "members", "removed"]),
        values,
    ),
)
@settings(max_examples=150, deadline=None)
def test_any_message_is_acted_on_or_refused(source: str, kind: str, body: dict[str, Any]) -> None:
    lobbies = copy.deepcopy(ROOM_AND_KNOCKER)
    for lobby in lobbies:
        lobby.receive(source, {**body, "t": kind}, 0.0)
        assert lobby.register is None or len(lobby.register.members) <= 16


@given(st.lists(st.tuples(st.sampled_from(IDS[:8]), names, names), min_size=1, max_size=8))
def test_registers_survive_the_wire(rows: list[tuple[str, object, object]]) -> None:
    members = {id: Member(id, clean_name(n, "A device"), clean_name(k, "")) for id, n, k in rows}
    register = Register(3, 7, rows[0][0], tuple(sorted(members.values())), (IDS[9],))
    assert read_register(write_register(register)) == register


STEPS = ("deliver", "knock", "accept", "refuse", "remove", "leave", "crash", "rename", "tick")


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 99)), max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_history_ends_in_one_register_without_strangers(steps: list[tuple[str, int]]) -> None:
    town = Town(5)
    host, approved, removed = IDS[0], {IDS[0]}, set()
    town.carry(host, town.lobbies[host].open_room())
    for step, choice in steps:
        me = IDS[choice % 5]
        lobby = town.lobbies[me]
        hosts = [
            town.lobbies[id] for id in IDS[:5] if town.lobbies[id].is_host and id not in town.dead
        ]
        pairs = sorted(pair for pair, queue in town.queues.items() if queue)
        if step == "deliver" and pairs:
            town.deliver(pairs[choice % len(pairs)])
        elif step == "tick":
            town.tick(500.0 + 400.0 * choice)
        elif me in town.dead or lobby.stage in ("left", "removed", "refused") or not hosts:
            continue
        elif step == "knock" and lobby.stage == "outside":
            town.carry(me, lobby.meet(hosts[0].me.id, town.now_ms))
        elif step in ("accept", "refuse", "remove"):
            register = hosts[0].register
            assert register is not None
            if step == "accept" and me in hosts[0].waiting:
                approved.add(me)
            if step == "remove" and me in register.ids and me != hosts[0].me.id:
                removed.add(me)
            town.carry(hosts[0].me.id, getattr(hosts[0], step)(me))
        elif step == "leave" and lobby.stage == "inside":
            town.carry(me, lobby.leave())
        elif step == "crash":
            town.dead.add(me)
        elif step == "rename":
            town.carry(me, lobby.rename(f"name {choice}"))
    for _ in range(3):
        town.tick(31_000.0)
        town.settle()
    inside = [
        lobby
        for me, lobby in town.lobbies.items()
        if lobby.stage == "inside" and me not in town.dead
    ]
    for lobby in inside:
        register = lobby.register
        assert register is not None
        assert register == inside[0].register
        assert register.ids == {other.me.id for other in inside}
        assert register.ids <= approved
        assert not register.ids & set(register.removed)
        assert removed.isdisjoint(register.ids)


@pytest.mark.parametrize("event", [Joined, Left])
def test_members_hear_of_each_other(event: type[Any]) -> None:
    town = room_of(3)
    if event is Left:
        town.carry(IDS[2], town.lobbies[IDS[2]].leave())
        town.settle()
    assert [e.member.id for e in town.of(IDS[1], event)] == [IDS[2]]


def test_a_device_that_is_not_ready_waits_at_the_door() -> None:
    town = Town(2, approve_all=True)
    host, newcomer = IDS[:2]
    town.carry(host, town.lobbies[host].open_room())
    town.lobbies[newcomer].may_knock = False
    assert town.lobbies[newcomer].meet(host, 0.0) == []
    assert (town.lobbies[newcomer].stage, town.lobbies[newcomer].host) == ("outside", host)
    town.lobbies[newcomer].may_knock = True
    town.carry(newcomer, town.lobbies[newcomer].meet(host, 1.0))
    town.settle()
    assert town.lobbies[newcomer].stage == "inside"


def test_who_needs_no_answer_is_known_beforehand() -> None:
    town = Town(4)
    host, member, stranger, removed = IDS[:4]
    lobby = town.lobbies[host]
    assert not lobby.lets_in(stranger), "nobody before the room is open"
    town.carry(host, lobby.open_room())
    lobby.approve(member)
    assert lobby.lets_in(member)
    assert not lobby.lets_in(stranger)
    lobby.approve_all = True
    assert lobby.lets_in(stranger)
    lobby.receive(removed, {"t": "knock", "name": "x", "kind": "y"}, 0.0)
    lobby.remove(removed)
    assert not lobby.lets_in(removed)
