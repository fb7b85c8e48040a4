"""All links of this device, and messages to whoever can be reached through them.

The mesh's own messages are JSON after a ``~`` on the control channel: ``hello`` (greeting),
``links`` (link states, flooded), ``fwd`` (a message under way to somebody else), and what the owner
sends.  Everything else on the channel belongs to the session and begins with a brace.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from daisychain.cluster.connection import Connection
from daisychain.cluster.identity import Member, is_member_id
from daisychain.cluster.links import SIGNALS, Link, LinkSettings
from daisychain.cluster.mesh_events import Control, LinkDown, LinkUp
from daisychain.cluster.roster import MAX_MEMBERS
from daisychain.cluster.routing import MAX_REVISION, RoutingTable
from daisychain.cluster.signalling import decode_object
from daisychain.cluster.transports import Allowance
from daisychain.platform.rtc import Rtc

INTERNAL = "~"
MAX_HOPS = 8
HELD_MESSAGES = 64
FORWARDS_PER_S, FORWARD_BURST = 200.0, 1000.0


class NeighboursOwner(Protocol):
    """Who decides what links are for."""

    def emit(self, event: LinkUp | LinkDown | Control) -> None:
        """Tell the session."""

    def may_meet(self, peer: str) -> bool:
        """Whether a device that calls may have a connection."""

    def publish_signal(self, peer: str, body: dict[str, Any]) -> None:
        """Carry a signal to a device that no link leads to."""

    def take_message(self, source: str, body: dict[str, Any]) -> bool:
        """Act on a message of a device; False if it is malformed."""

    def take_hello(self, peer: str, body: dict[str, Any]) -> bool:
        """The other end of a link greets; False if the greeting is malformed."""

    def link_opened(self, peer: str) -> None:
        """A link came up: greet."""

    def link_ended(self, peer: str, clean: bool) -> None:
        """A link is gone, ``clean`` if the other end closed it on purpose."""

    def link_impossible(self, peer: str) -> None:
        """No connection came about in time."""

    def time_passes(self) -> None:
        """A message came; timers of a hidden tab may be late."""


@dataclass
class Neighbour:
    """A device that we have or want a link to; ``announced`` while the session may talk to it."""

    link: Link
    since_ms: float
    greeted: bool = False
    announced: bool = False
    retry_ms: float = 0.0
    pause_ms: float = 0.0
    held: deque[str] = field(default_factory=lambda: deque(maxlen=HELD_MESSAGES))
    forwards: Allowance = field(default_factory=lambda: Allowance(FORWARDS_PER_S, FORWARD_BURST))


class Neighbours:
    """The links by peer id, and the routing table."""

    def __init__(
        self,
        me: str,
        rtc: Rtc,
        settings: LinkSettings,
        owner: NeighboursOwner,
        now_ms: Callable[[], float],
    ) -> None:
        self.malformed = 0
        self.routing = RoutingTable(me)
        self.by_id: dict[str, Neighbour] = {}
        self._me, self._rtc, self._settings = me, rtc, settings
        self._owner, self._now_ms = owner, now_ms

    def meet(self, peer: str) -> Neighbour:
        """The neighbour, made if need be; it is not called yet."""
        known = self.by_id.get(peer)
        if known is None:
            link = Link(self._me, peer, self._rtc, self._settings, self, self._now_ms)
            known = self.by_id[peer] = Neighbour(link, self._now_ms())
        return known

    def adopt(self, peer: str, connection: Connection) -> None:
        """Use a connection that was paired by hand."""
        self.meet(peer).link.adopt(connection)

    def drop(self, peer: str) -> None:
        """Close the link to a device and forget it."""
        known = self.by_id.pop(peer, None)
        if known is not None:
            known.link.close()
            self.note_changes()

    def close(self) -> None:
        """Close all links."""
        for known in self.by_id.values():
            known.link.close()
        self.by_id.clear()

    def tick(self) -> None:
        """Let time pass on all links."""
        for known in list(self.by_id.values()):
            known.link.tick()
        self.note_changes()

    def call(self, wanted: Collection[str], retry_ms: tuple[float, float], now_ms: float) -> None:
        """Call the ``wanted`` that are not linked, after growing pauses of ``retry_ms``.

        The lower id of a pair calls; the other one only if nothing came of that.
        """
        first_ms, longest_ms = retry_ms
        for peer in sorted(wanted):
            is_new = peer not in self.by_id
            known = self.meet(peer)
            if is_new and self._me > peer:
                known.retry_ms = now_ms + self._settings.connect_ms
            if known.link.up or known.link.calling or now_ms < known.retry_ms:
                continue
            known.pause_ms = min(max(2 * known.pause_ms, first_ms), longest_ms)
            known.retry_ms = now_ms + self._settings.connect_ms + known.pause_ms
            known.link.call()

    def dismiss(
        self, kept: Collection[str], new_ms: float, linked_ms: float, now_ms: float
    ) -> None:
        """Drop those not ``kept`` after ``new_ms``, or ``linked_ms`` if their link is up."""
        for peer, known in list(self.by_id.items()):
            patience_ms = linked_ms if known.link.up else new_ms
            if peer not in kept and now_ms - known.since_ms > patience_ms:
                self.drop(peer)

    def take_signal(self, sender: str, body: dict[str, Any]) -> bool:
        """An offer, answer or candidates of a device; False if it is nothing of ours."""
        stranger = sender not in self.by_id
        if stranger and (body.get("t") != "offer" or not self._owner.may_meet(sender)):
            return False
        return self.meet(sender).link.receive(body)

    def announce(self, members: Mapping[str, Member]) -> None:
        """LinkUp and LinkDown for links whose other end became, or is no longer, a member."""
        for peer, known in list(self.by_id.items()):
            ready = known.greeted and known.link.up and peer in members
            if ready and not known.announced:
                known.announced = True
                known.pause_ms = 0.0
                known.link.carry_bulk()
                self._owner.emit(LinkUp(members[peer]))
                while known.held:
                    self._owner.emit(Control(peer, known.held.popleft()))
            elif known.announced and not ready:
                known.announced = False
                self._owner.emit(LinkDown(peer, "it is no longer in the room"))

    def send(self, target: str, body: dict[str, Any]) -> bool:
        """Send directly or through members; False if there is no way."""
        hop = self.routing.next_hop(target)
        if hop is None:
            return False
        if hop == target:
            return self.send_direct(target, body)
        wrapped = {"t": "fwd", "from": self._me, "to": target, "hops": MAX_HOPS, "body": body}
        return self.send_direct(hop, wrapped)

    def send_direct(self, peer: str, body: dict[str, Any]) -> bool:
        """Send over the link to a neighbour; False if it is not up."""
        known = self.by_id.get(peer)
        text = INTERNAL + json.dumps(body, separators=(",", ":"))
        return known is not None and known.link.send_text(text)

    def note_changes(self) -> None:
        """Tell everybody when our set of working links has changed."""
        working = {peer for peer, known in self.by_id.items() if known.link.works}
        if working != self.routing.neighbours:
            self.routing.set_neighbours(working, int(self._now_ms()))
            self._flood(self._me, self.routing.revision, working, "")

    def _flood(self, member: str, revision: int, neighbours: Collection[str], source: str) -> None:
        body = {"t": "links", "of": member, "n": revision, "peers": sorted(neighbours)}
        for peer in self.routing.neighbours:
            if peer != source:
                self.send_direct(peer, body)

    # What links tell (links.LinkOwner):

    def link_signal(self, link: Link, body: dict[str, Any]) -> None:
        """Carry a signal over links where possible, else over relays."""
        if not self.send(link.peer, body):
            self._owner.publish_signal(link.peer, body)

    def link_up(self, link: Link) -> None:
        """Greet, and tell what we know of the room's links."""
        self._owner.link_opened(link.peer)
        self.note_changes()
        for member, revision, neighbours in self.routing.states():
            body = {"t": "links", "of": member, "n": revision, "peers": sorted(neighbours)}
            self.send_direct(link.peer, body)

    def link_text(self, link: Link, text: str) -> None:
        """A control message: the mesh's own, or one for the session."""
        self._owner.time_passes()
        known = self.by_id.get(link.peer)
        if known is None:
            return
        if text.startswith(INTERNAL):
            body = decode_object(text.removeprefix(INTERNAL))
            if body is None or not self._take(link.peer, known, body):
                self.malformed += 1
        elif known.announced:
            self._owner.emit(Control(link.peer, text))
        else:
            known.held.append(text)

    def link_down(self, link: Link, reason: str, clean: bool) -> None:
        """The link ended; the owner decides whether to call again."""
        known = self.by_id.pop(link.peer, None)
        self.note_changes()
        if known is not None and known.announced:
            self._owner.emit(LinkDown(link.peer, reason))
        self._owner.link_ended(link.peer, clean)

    def link_failed(self, link: Link) -> None:
        """No connection came about in time."""
        self._owner.link_impossible(link.peer)

    # Messages in:

    def _take(self, peer: str, known: Neighbour, body: dict[str, Any]) -> bool:
        match body.get("t"):
            case "hello":
                greeted = self._owner.take_hello(peer, body)
                known.greeted |= greeted
                return greeted
            case "links":
                return self._take_links(peer, body)
            case "fwd":
                return known.forwards.take() and self._take_forwarded(peer, body)
        return self._dispatch(peer, body)

    def _dispatch(self, source: str, body: dict[str, Any]) -> bool:
        if body.get("t") in SIGNALS:
            return self.take_signal(source, body)
        return self._owner.take_message(source, body)

    def _take_links(self, peer: str, body: dict[str, Any]) -> bool:
        member, revision, neighbours = body.get("of"), body.get("n"), body.get("peers")
        if not isinstance(member, str) or not is_member_id(member):
            return False
        if type(revision) is not int or not 0 <= revision < MAX_REVISION:
            return False
        if not isinstance(neighbours, list) or len(neighbours) > 2 * MAX_MEMBERS:
            return False
        if not all(is_member_id(neighbour) for neighbour in neighbours):
            return False
        if self.routing.hear(member, revision, neighbours):
            self._flood(member, revision, neighbours, peer)
        return True

    def _take_forwarded(self, peer: str, body: dict[str, Any]) -> bool:
        source, target, hops = body.get("from"), body.get("to"), body.get("hops")
        inner = body.get("body")
        if not (isinstance(source, str) and is_member_id(source) and isinstance(inner, dict)):
            return False
        if not isinstance(target, str) or type(hops) is not int or not 0 < hops <= MAX_HOPS:
            return False
        if source != peer:
            if source == self._me or source in self.routing.neighbours:
                return False  # whoever is linked to us speaks for itself
            self.routing.learn(source, peer)
        if target == self._me:
            return inner.get("t") not in ("fwd", "hello", "links") and self._dispatch(source, inner)
        hop = self.routing.next_hop(target)
        if hop is None or hop == peer:
            return False
        return self.send_direct(hop, {**body, "hops": hops - 1})
