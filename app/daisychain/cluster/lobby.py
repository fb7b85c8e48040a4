"""Who is in the room: knocking, the host's approval, names, leaving and removal.

A pure state machine: messages, commands and the clock go in, ``Effect`` values come out.  Every
message reaches it with the id of a device that proved it on a link, or that a member vouches for.

The host holds the room's register and sends it, numbered by (term, revision), to every member.  If
the host is gone, the lowest id among the members that are left continues under the next term.  A
removed device stays removed: its id is bound to its certificate, and each register names it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from daisychain.cluster.identity import Member, clean_name
from daisychain.cluster.register import MAX_REMOVED, Register, read_register, write_register
from daisychain.cluster.roster import ROOM_MEMBERS

MAX_WAITING = 16
KNOCK_MS = 3_000.0
HEAR_MS = KNOCK_MS / 2
"""A device at the door is heard once in this time, whatever names it gives."""
MAX_HEARD = 64
LEFT_MS = 1_500.0
"""A member whose last link was closed on purpose is gone unless it is back within this time."""
LOST_MS = 1_800_000.0

Stage = Literal["outside", "knocking", "inside", "refused", "removed", "left"]


@dataclass(frozen=True)
class Send:
    """Carry a message to a device."""

    to: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Expel:
    """Close the link to a device once what was sent to it is out."""

    id: str


@dataclass(frozen=True)
class Knocked:
    """Host: a device asks to come in, for the first time."""

    member: Member


@dataclass(frozen=True)
class KnockWithdrawn:
    """Host: a device that waited for an answer is gone."""

    id: str


@dataclass(frozen=True)
class Admitted:
    """This device is in the room."""

    register: Register


@dataclass(frozen=True)
class Joined:
    """Another device came in."""

    member: Member


@dataclass(frozen=True)
class Renamed:
    """A member, or a device at the door, has a new name, or is at the door again."""

    member: Member


@dataclass(frozen=True)
class Left:
    """A member is no longer in the room, and why."""

    member: Member
    reason: str


@dataclass(frozen=True)
class HostChanged:
    """Another member is the host now."""

    id: str


@dataclass(frozen=True)
class TurnedAway:
    """This device was refused or removed; ``reason`` is a sentence."""

    stage: Stage
    reason: str


Event = Knocked | KnockWithdrawn | Admitted | Joined | Renamed | Left | HostChanged | TurnedAway
Effect = Send | Expel | Event


@dataclass
class Lobby:
    """One device's view of the room's door."""

    me: Member
    approve_all: bool = False
    drop_ms: float = 30_000.0
    max_members: int = ROOM_MEMBERS
    stage: Stage = "outside"
    may_knock: bool = True
    """A device that is not ready yet waits at the door."""
    register: Register | None = None
    waiting: dict[str, Member] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)
    """Former members that went out of reach, and when: called for half an hour, since they may be
    in a room of their own."""
    _host: str = ""
    _knocked_ms: float = -KNOCK_MS
    _approved: set[str] = field(default_factory=set)
    _now_ms: float = 0.0
    _refused: tuple[str, ...] = ()
    _heard_ms: dict[str, float] = field(default_factory=dict)
    _unreached_ms: dict[str, float] = field(default_factory=dict)

    @property
    def is_host(self) -> bool:
        """Whether this device decides who comes in."""
        return self.register is not None and self.register.host == self.me.id

    @property
    def host(self) -> str:
        """The host as far as known, or an empty id."""
        return self.register.host if self.register else self._host

    def lets_in(self, device: str) -> bool:
        """Host: whether a newcomer needs no answer of the person here."""
        register = self.register
        if register is None or not self.is_host or device in {*register.ids, *register.removed}:
            return False
        return self.approve_all or device in self._approved

    def open_room(self) -> list[Effect]:
        """Become the host of a room with one member."""
        self.register = Register(1, 1, self.me.id, (self.me,))
        self.stage = "inside"
        return [Admitted(self.register)]

    def meet(self, host: str, now_ms: float) -> list[Effect]:
        """A device that is on a link or the notice board says who the host is."""
        if self.stage not in ("outside", "knocking") or host == self.me.id:
            return []
        if host != self._host:
            self._host, self._knocked_ms = host, now_ms - KNOCK_MS
        return self._knock(now_ms) if self.may_knock else []

    def meet_room(self, peer: str, host: str, members: int, now_ms: float) -> list[Effect]:
        """A device of another room with this code is in reach: the smaller room joins the other.

        Of rooms of equal size the one whose host has the higher id gives way.  Only former members
        are believed, or anybody while this device is alone: a stranger must not lure a room away.
        """
        register = self.register
        if self.stage != "inside" or register is None or host in register.ids:
            return []
        if peer not in self.lost and len(register.members) > 1:
            return []
        if (-len(register.members), register.host) < (-members, host):
            return []
        farewell: list[Effect] = [Send(m, {"t": "leave"}) for m in sorted(register.ids)]
        self.stage, self.register, self._host = "knocking", None, host
        self.waiting.clear()
        self._unreached_ms.clear()
        self._knocked_ms = now_ms - KNOCK_MS
        others = [effect for effect in farewell if effect != Send(self.me.id, {"t": "leave"})]
        return [*others, *self._knock(now_ms)]

    def approve(self, device: str) -> list[Effect]:
        """The person at this device paired with ``device`` by hand: that is the approval."""
        self._approved.add(device)
        return self.accept(device)

    def accept(self, device: str) -> list[Effect]:
        """Host: let a waiting device in."""
        member = self.waiting.pop(device, None)
        return [] if member is None else self._admit(member)

    def refuse(self, device: str) -> list[Effect]:
        """Host: turn a waiting device away."""
        if self.waiting.pop(device, None) is None:
            return []
        self._refused = (*self._refused, device)[-MAX_REMOVED:]
        return [Send(device, _refusal("The host did not let this device in.")), Expel(device)]

    def remove(self, device: str) -> list[Effect]:
        """Host: remove a member for good."""
        register = self.register
        if register is None or not self.is_host or device == self.me.id:
            return []
        if device not in register.ids:
            return self.refuse(device)
        self._approved.discard(device)
        removed = (*register.removed, device)[-MAX_REMOVED:]
        effects: list[Effect] = [Send(device, {"t": "removed"}), Expel(device)]
        return effects + self._without(device, "was removed by the host", removed)

    def rename(self, name: str) -> list[Effect]:
        """Give this device another name."""
        self.me = replace(self.me, name=clean_name(name, self.me.name))
        if self.is_host:
            return self._rename(self.me)
        if self.stage in ("inside", "knocking") and self.host:
            return [Send(self.host, {"t": "rename", "name": self.me.name})]
        return []

    def leave(self) -> list[Effect]:
        """Go on purpose."""
        everybody = self.register.ids - {self.me.id} if self.register else frozenset()
        if self.stage == "knocking" and self._host:
            everybody = frozenset({self._host})
        self.stage = "left"
        return [Send(member, {"t": "leave"}) for member in sorted(everybody)]

    def receive(self, source: str, body: dict[str, Any], now_ms: float) -> list[Effect] | None:
        """Act on a message; None if it is malformed, unknown or not the sender's business."""
        match body.get("t"):
            case "knock" if self.is_host:
                name = clean_name(body.get("name"), "A device")
                return self._knocked(Member(source, name, clean_name(body.get("kind"), "")), now_ms)
            case "rename" if self.is_host:
                return self._renamed(source, body.get("name"), now_ms)
            case "leave":
                return self._other_left(source, now_ms)
            case "register":
                register = read_register(body)
                return None if register is None else self._hear(source, register)
            case "refused" if source == self._host and self.stage == "knocking":
                return self._turned_away("refused", clean_name(body.get("why"), "Refused."))
            case "removed" if source == self.host and self.stage == "inside":
                return self._turned_away("removed", "The host removed this device from the room.")
        return None

    def tick(
        self, reachable: Collection[str], closed: Collection[str], now_ms: float
    ) -> list[Effect]:
        """Knock again; drop who is out of reach; take over from a lost host.

        ``closed`` are those of the unreachable that ended their last link on purpose.
        """
        if self.stage == "knocking":
            return self._knock(now_ms)
        if self.stage != "inside" or self.register is None:
            return []
        self._now_ms = now_ms
        self.lost = {id: since for id, since in self.lost.items() if now_ms - since < LOST_MS}
        effects: list[Effect] = []
        for device in sorted(set(self.waiting) - set(reachable)):
            del self.waiting[device]
            effects.append(KnockWithdrawn(device))
        lost: list[str] = []
        for member in self.register.ids - {self.me.id}:
            if member in reachable:
                self._unreached_ms.pop(member, None)
                continue
            since = self._unreached_ms.setdefault(member, now_ms)
            if now_ms - since >= (LEFT_MS if member in closed else self.drop_ms):
                lost.append(member)
        self._succeed(lost, effects)
        if self.is_host:
            for member in sorted(lost):
                if member not in closed:
                    self.lost[member] = now_ms
                why = "closed the page" if member in closed else "cannot be reached any more"
                effects += self._without(member, why, self.register.removed)
        return effects

    def _knock(self, now_ms: float) -> list[Effect]:
        if now_ms - self._knocked_ms < KNOCK_MS:
            return []
        self.stage, self._knocked_ms = "knocking", now_ms
        return [Send(self._host, {"t": "knock", "name": self.me.name, "kind": self.me.kind})]

    def _knocked(self, member: Member, now_ms: float) -> list[Effect]:
        register = self.register
        assert register is not None
        if member.id in register.ids:
            return [Send(member.id, write_register(register))]
        if member.id in register.removed:
            return [Send(member.id, _refusal("The host removed this device.")), Expel(member.id)]
        if member.id in self._refused:  # its knock crossed the answer; a new try has a new id
            return []
        if len(register.members) >= self.max_members:
            full = f"The room is full: it takes {self.max_members} devices."
            return [Send(member.id, _refusal(full)), Expel(member.id)]
        if self.approve_all or member.id in self._approved:
            return self._admit(member)
        return self._at_door(member, now_ms)

    def _at_door(self, member: Member, now_ms: float) -> list[Effect]:
        """A device waits for an answer; it asks again and again, perhaps under another name."""
        if self.waiting.get(member.id) == member:
            return []
        if member.id not in self.waiting and len(self.waiting) >= MAX_WAITING:
            crowd = _refusal("Too many devices wait at the door.")
            return [Send(member.id, crowd), Expel(member.id)]
        heard_ms = self._heard_ms.get(member.id)
        if heard_ms is not None and now_ms - heard_ms < HEAR_MS:
            return []
        others = {id: ms for id, ms in self._heard_ms.items() if id != member.id}
        self._heard_ms = dict([*others.items(), (member.id, now_ms)][-MAX_HEARD:])
        self.waiting[member.id] = member
        return [Knocked(member) if heard_ms is None else Renamed(member)]

    def _admit(self, member: Member) -> list[Effect]:
        register = self.register
        assert register is not None
        self.waiting.pop(member.id, None)
        self._approved.add(member.id)
        self.lost.pop(member.id, None)
        members = tuple(sorted((*register.members, member)))
        return [*self._publish(replace(register, members=members)), Joined(member)]

    def _renamed(self, source: str, name: object, now_ms: float) -> list[Effect] | None:
        register = self.register
        assert register is not None
        waiting = self.waiting.get(source)
        if waiting is not None:
            return self._knocked(replace(waiting, name=clean_name(name, waiting.name)), now_ms)
        for member in register.members:
            if member.id == source:
                return self._rename(replace(member, name=clean_name(name, member.name)))
        return None

    def _rename(self, member: Member) -> list[Effect]:
        register = self.register
        assert register is not None
        if member in register.members:
            return []
        others = [other for other in register.members if other.id != member.id]
        members = tuple(sorted((*others, member)))
        return [*self._publish(replace(register, members=members)), Renamed(member)]

    def _other_left(self, source: str, now_ms: float) -> list[Effect]:
        if self.waiting.pop(source, None) is not None:
            return [KnockWithdrawn(source)]
        register = self.register
        if register is None or source not in register.ids:
            return []
        effects: list[Effect] = []
        self._succeed([source], effects)
        if self.is_host:
            effects += self._without(source, "left the room", register.removed)
        return effects

    def _succeed(self, lost: Collection[str], effects: list[Effect]) -> None:
        """Become the host if the host is lost and this device has the lowest id of the rest."""
        register = self.register
        assert register is not None
        if register.host in lost and self.me.id == min(register.ids - set(lost)):
            self.register = replace(register, term=register.term + 1, host=self.me.id)
            self._approved |= register.ids
            effects.append(HostChanged(self.me.id))

    def _without(self, device: str, reason: str, removed: tuple[str, ...]) -> list[Effect]:
        register = self.register
        assert register is not None
        gone = [member for member in register.members if member.id == device]
        members = tuple(member for member in register.members if member.id != device)
        self._unreached_ms.pop(device, None)
        effects = self._publish(replace(register, members=members, removed=removed))
        return [*effects, *(Left(member, reason) for member in gone)]

    def _publish(self, register: Register) -> list[Effect]:
        self.register = replace(register, revision=register.revision + 1)
        body = write_register(self.register)
        return [Send(other, body) for other in sorted(self.register.ids - {self.me.id})]

    def _hear(self, source: str, register: Register) -> list[Effect] | None:
        """Take a register if its sender may issue it and it is newer than ours."""
        if source != register.host or self.stage not in ("knocking", "inside"):
            return None
        before = self.register
        if self.stage == "knocking" or before is None:
            if source != self._host or self.me.id not in register.ids:
                return None
            self.register, self.stage = register, "inside"
            self._forget_lost(register)
            return [Admitted(register)]
        if register.host not in before.ids or self.me.id not in register.ids:
            return None
        if register.term == before.term and register.host != before.host:
            newer = register.host < before.host  # two took over at once: the lowest id stays
        else:
            newer = (register.term, register.revision) > (before.term, before.revision)
        if not newer:
            return []
        self.register = register
        return self._changes(before, register)

    def _changes(self, before: Register, after: Register) -> list[Effect]:
        effects: list[Effect] = []
        if after.host != before.host:
            effects.append(HostChanged(after.host))
        names = {member.id: member for member in before.members}
        self._forget_lost(after)
        for member in after.members:
            if member.id not in names:
                effects.append(Joined(member))
            elif names[member.id] != member:
                effects.append(Renamed(member))
        for member in before.members:
            if member.id not in after.ids:
                reason = "was removed by the host" if member.id in after.removed else "left"
                if self._unreached_ms.pop(member.id, None) is not None:
                    self.lost[member.id] = self._now_ms
                effects.append(Left(member, reason))
        return effects

    def _forget_lost(self, register: Register) -> None:
        for device in (*register.ids, *register.removed):
            self.lost.pop(device, None)

    def _turned_away(self, stage: Stage, reason: str) -> list[Effect]:
        self.stage, self.register = stage, None
        return [TurnedAway(stage, reason)]


def _refusal(why: str) -> dict[str, Any]:
    return {"t": "refused", "why": why}
