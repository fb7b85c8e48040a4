"""The room as the session uses it: members, control messages and bulk data, whatever the path.

    mesh = Mesh(on_event, MeshSettings(relays=("/relay",)))
    await mesh.open_room(code, "Ann's laptop", "Chrome on Linux")     # or join_room(...)
    mesh.send_control(peer_id, text)            # JSON text to a linked member
    await mesh.send_bulk(peer_id, header, data) # one flow; header of cluster.wire, 32 bytes
    mesh.bulk.expect("", headers)               # flows that may come; others are dropped
    await mesh.close()

``on_event`` is called with the events of ``lobby`` (Knocked, KnockWithdrawn, Admitted, Joined,
Renamed, Left, HostChanged, TurnedAway) and of ``mesh_events`` (Coming, LinkUp, LinkDown, Control,
Bulk, Unreachable, RelaysChanged).  Control and Bulk come only from members, between their LinkUp
and LinkDown; order is kept within a link.

How devices meet: a newcomer calls ("seek") over the relays, the host answers ("here"), they
connect, and the knock travels over that link, whose other end is proven.  Members then link to each
other; their offers, and whatever must reach a member without a link, are forwarded by members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from daisychain.cluster import link_report as reports
from daisychain.cluster import lobby as door
from daisychain.cluster import mesh_events
from daisychain.cluster.descriptions import fingerprint_of
from daisychain.cluster.identity import Member, clean_name, is_member_id, member_id
from daisychain.cluster.links import SIGNALS
from daisychain.cluster.lobby import Lobby, Stage
from daisychain.cluster.neighbours import Neighbours
from daisychain.cluster.pairing import HandPairing
from daisychain.cluster.seal import derive_room_keys
from daisychain.cluster.signalling import RelayState, Signalling
from daisychain.cluster.transports import Allowance, is_loopback, parse_relay_address
from daisychain.platform import monotonic_ms, on_page_event, page_url
from daisychain.platform.crypto import open_crypto
from daisychain.platform.rtc import BulkComplete, BulkPlane, Rtc, local_network_denied, open_rtc

VERSION = 1
MAX_GUESTS = 16
HOST_NOTICE = 5
"""A host announces itself once in so many periods of a seeking device."""
GATEWAY_PATIENCE = 20
"""A guest of a member that is not the host may take this many times longer: the host decides."""


class Mesh:
    """One device's part of a room; see the module's text."""

    def __init__(
        self,
        on_event: Callable[[mesh_events.MeshEvent], None],
        settings: mesh_events.MeshSettings | None = None,
        make_rtc: Callable[[BulkComplete], Awaitable[Rtc]] = open_rtc,
        now_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        self.settings = settings or mesh_events.MeshSettings()
        self.emit = on_event
        self._make_rtc, self._now_ms = make_rtc, now_ms
        self._closed_cleanly: set[str] = set()
        self._signalling: Signalling | None = None
        self._tasks: set[asyncio.Future[Any]] = set()
        self._answers = Allowance(20.0, 60.0)
        self._seeking_since_ms = self._sought_ms = float("-inf")
        self._ticked_ms = 0.0
        self._open = False

    # Commands of the session:

    async def open_room(self, code: str | None, name: str, kind: str) -> None:
        """Become the host of the room with this canonical code (None: pairing by hand only)."""
        await self._start(code, name, kind)
        self._carry_out(self._lobby.open_room())
        self._tick()

    async def join_room(self, code: str | None, name: str, kind: str, knocks: bool = True) -> None:
        """Look for the room with this code and knock; the answer comes as an event.

        Without ``knocks`` it only connects, and waits at the door until ``knock`` is called.
        """
        await self._start(code, name, kind)
        self._lobby.may_knock = knocks
        self._tick()

    def knock(self) -> None:
        """Ask to come in, now or as soon as the host is found."""
        self._lobby.may_knock = True
        if (host := self._lobby.host) and self._neighbours.routing.next_hop(host):
            self._carry_out(self._lobby.meet(host, self._now_ms()))

    async def close(self) -> None:
        """Leave the room: say so, close all links and relays."""
        if not self._open:
            return
        self._carry_out(self._lobby.leave())
        if self._neighbours.by_id:
            await asyncio.sleep(self.settings.farewell_ms / 1000.0)
        self._close_links()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._signalling is not None:
            await self._signalling.close()

    def accept(self, device: str) -> None:
        """Host: let a device in that knocked."""
        self._carry_out(self._lobby.accept(device))

    def refuse(self, device: str) -> None:
        """Host: turn a device away that knocked."""
        self._carry_out(self._lobby.refuse(device))

    def remove(self, device: str) -> None:
        """Host: remove a member for good."""
        self._carry_out(self._lobby.remove(device))

    def rename(self, name: str) -> None:
        """Change this device's name."""
        self._carry_out(self._lobby.rename(name))

    async def hand_offer(self) -> str:
        """Pairing without a relay, first device: the text for the second one."""
        return await self._by_hand.offer()

    async def hand_answer(self, offer: str) -> str:
        """Second device: the text to carry back."""
        return await self._by_hand.answer(offer)

    async def hand_accept(self, answer: str) -> None:
        """First device: take the second one's text; a host thereby lets it in."""
        await self._by_hand.accept(answer, lambda peer: self._carry_out(self._lobby.approve(peer)))

    def send_control(self, peer: str, text: str) -> bool:
        """Send text (JSON, at most 64 KiB) to a linked member; False if it cannot go now."""
        known = self._neighbours.by_id.get(peer)
        return known is not None and known.announced and known.link.send_text(text)

    async def send_bulk(self, peer: str, header: bytes, data: Any) -> None:
        """Send one flow to a linked member; returns when all of it is with the browser.

        ``data``: bytes, or a Uint8Array that must not change until then.  Raises LinkError.
        """
        await self.bulk.send(peer, header, data)

    # What the session may look at:

    @property
    def me(self) -> Member:
        """This device."""
        return self._lobby.me

    @property
    def bulk(self) -> BulkPlane:
        """Awaited and forwarded flows, see platform.rtc.BulkPlane."""
        return self._rtc.bulk

    @property
    def members(self) -> tuple[Member, ...]:
        """The members in the register, this device included; empty while outside."""
        return self._lobby.register.members if self._lobby.register else ()

    @property
    def host(self) -> str:
        """The host's id, or an empty one."""
        return self._lobby.host

    @property
    def stage(self) -> Stage:
        """Where this device stands: outside, knocking, inside, refused, removed or left."""
        return self._lobby.stage

    @property
    def is_host(self) -> bool:
        """Whether this device lets others in."""
        return self._lobby.is_host

    @property
    def waiting(self) -> tuple[Member, ...]:
        """Host: devices that knocked and wait."""
        return tuple(self._lobby.waiting.values())

    def linked(self) -> tuple[str, ...]:
        """Ids of the members between their LinkUp and LinkDown."""
        known = self._neighbours.by_id.items()
        return tuple(sorted(peer for peer, neighbour in known if neighbour.announced))

    def relays(self) -> tuple[RelayState, ...]:
        """State of each relay."""
        return tuple(self._signalling.relays()) if self._signalling else ()

    def link_report(self) -> list[reports.LinkReport]:
        """A row for each other member."""
        others = [member for member in self.members if member.id != self.me.id]
        return reports.report_rows(others, self._neighbours, self.bulk)

    def dropped(self) -> dict[str, int]:
        """Counters of everything that was dropped, by reason."""
        return reports.dropped_counters(self.bulk, self._neighbours, self._signalling)

    # Start and end:

    async def _start(self, code: str | None, name: str, kind: str) -> None:
        page = page_url()
        addresses = [parse_relay_address(relay, page) for relay in self.settings.relays]
        keys = await derive_room_keys(code, open_crypto()) if code else None
        self._rtc = await self._make_rtc(self._bulk_complete)
        me = member_id(fingerprint_of(self._rtc.fingerprint_sdp))
        links = self.settings.links
        if is_loopback(urlsplit(page).hostname):
            links = replace(links, connection=replace(links.connection, same_machine=True))
        self._lobby = Lobby(
            Member(me, clean_name(name, "A device"), clean_name(kind, "")),
            self.settings.approve_all,
            links.times.drop_ms,
            self.settings.max_members,
        )
        self._neighbours = Neighbours(me, self._rtc, links, self, self._now_ms)
        adopt = self._neighbours.adopt
        self._by_hand = HandPairing(me, self._rtc, links, adopt, self._now_ms)
        self._open = True
        if keys is not None:
            self._signalling = Signalling(
                keys,
                me,
                addresses,
                self._heard,
                lambda: self.emit(mesh_events.RelaysChanged(self.relays())),
                self.settings.relay_timing,
            )
        self._stop_listening = on_page_event(self._page_event)
        self._spawn(self._keep_ticking())

    def _page_event(self, name: str) -> None:
        if name == "pagehide":  # the others learn it in 0.03 s instead of 6
            self._carry_out(self._lobby.leave())
            self._close_links()
        elif name == "online" and self._signalling is not None:
            self._signalling.retry()

    def _close_links(self) -> None:
        self._open = False
        self._stop_listening()
        self._by_hand.close()
        self._neighbours.close()

    async def _keep_ticking(self) -> None:
        while self._open:
            await asyncio.sleep(self.settings.tick_ms / 1000.0)
            self._tick()

    def _spawn(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The clock:

    def _tick(self) -> None:
        if not self._open:
            return
        now = self._ticked_ms = self._now_ms()
        self._neighbours.tick()
        others = self._member_ids() | set(self._lobby.waiting)
        reachable = {other for other in others if self._neighbours.routing.next_hop(other)}
        self._carry_out(self._lobby.tick(reachable, self._closed_cleanly, now))
        self._seek(now)
        self._tend_links(now)

    def _member_ids(self) -> frozenset[str]:
        return self._lobby.register.ids if self._lobby.register else frozenset()

    def _seek(self, now: float) -> None:
        """Outside: ask on the notice board for the host, after a while for any member.

        A host says now and then that it is here, for another one that was started with its code.
        """
        if self.is_host and now - self._sought_ms >= HOST_NOTICE * self.settings.seek_ms:
            self._sought_ms = now
            self._publish({"t": "here"}, None)
        if self._lobby.stage != "outside" or self._signalling is None:
            self._seeking_since_ms = float("-inf")
            return
        links = [known.link for known in self._neighbours.by_id.values()]
        if any(link.up or link.calling for link in links):
            return
        if self._seeking_since_ms < 0:
            self._seeking_since_ms = now
        if now - self._sought_ms >= self.settings.seek_ms:
            self._sought_ms = now
            anybody = now - self._seeking_since_ms >= self.settings.seek_anybody_ms
            self._publish({"t": "seek", "any": anybody}, None)

    def _tend_links(self, now: float) -> None:
        """Inside: link to every member and every lost one, dismiss who has no business here."""
        if self._lobby.stage != "inside":
            return
        wanted = {*self._member_ids(), *self._lobby.lost} - {self.me.id}
        retry_ms = (self.settings.first_retry_ms, self.settings.longest_retry_ms)
        self._neighbours.call(wanted, retry_ms, now)
        patience_ms = self.settings.guest_ms
        gateway_ms = patience_ms if self.is_host else GATEWAY_PATIENCE * patience_ms
        self._neighbours.dismiss(wanted | set(self._lobby.waiting), patience_ms, gateway_ms, now)

    # The notice board; a sender there is only a claim, which its connection must prove:

    def _heard(self, sender: str, body: dict[str, Any]) -> None:
        kind = body.get("t")
        if not self._open or not self.may_meet(sender):
            return
        if kind in ("seek", "offer") and self._lobby.lets_in(sender):
            self.emit(mesh_events.Coming(sender))
        if kind == "seek":
            asked = self.is_host or (body.get("any") is True and self._lobby.stage == "inside")
            if asked and self._answers.take():
                self.publish_signal(sender, {"t": "here"})
        elif kind == "here":
            if self._lobby.stage == "outside" or self.is_host:
                self._neighbours.meet(sender).link.call()
        elif kind not in SIGNALS or not self._neighbours.take_signal(sender, body):
            self._neighbours.malformed += 1

    # What the neighbours ask and tell (neighbours.NeighboursOwner):

    def may_meet(self, peer: str) -> bool:
        """Whether a device may connect to us: members, and a bounded number of newcomers."""
        register = self._lobby.register
        if peer == self.me.id or (register is not None and peer in register.removed):
            return False
        members, known = self._member_ids(), self._neighbours.by_id
        return peer in members or peer in known or len(set(known) - members) < MAX_GUESTS

    def publish_signal(self, peer: str, body: dict[str, Any]) -> None:
        """Use the notice board, if there is one."""
        self._publish(body, peer)

    def _publish(self, body: dict[str, Any], to: str | None) -> None:
        if self._signalling is not None:
            self._signalling.send(body, to)

    def take_message(self, source: str, body: dict[str, Any]) -> bool:
        """A message for the lobby."""
        effects = self._lobby.receive(source, body, self._now_ms())
        if effects is not None:
            self._carry_out(effects)
        return effects is not None

    def take_hello(self, peer: str, body: dict[str, Any]) -> bool:
        """The other end says who the host is; it may be the one to knock at."""
        host = body.get("host")
        if body.get("v") != VERSION:
            sentence = "The other device runs another version of this program. Reload both pages."
            self.emit(mesh_events.Unreachable(peer, sentence))
            self._neighbours.drop(peer)
            return True
        if not (host == "" or is_member_id(host)):
            return False
        if isinstance(host, str) and host:
            self._neighbours.routing.learn(host, peer)
            count, now = body.get("n"), self._now_ms()
            size = count if type(count) is int else 0
            self._carry_out(self._lobby.meet(host, now))
            self._carry_out(self._lobby.meet_room(peer, host, size, now))
        asyncio.get_running_loop().call_soon(self._announce)
        return True

    def link_opened(self, peer: str) -> None:
        """Greet the other end; what it is to us depends on the register."""
        self._closed_cleanly.discard(peer)
        self._greet(peer)

    def link_ended(self, peer: str, clean: bool) -> None:
        """Members are called again, the host is sought again."""
        if clean:
            self._closed_cleanly.add(peer)
        if self._lobby.stage == "knocking" and peer == self.host:
            self._lobby.stage = "outside"
        self._tick()

    def link_impossible(self, peer: str) -> None:
        """Say in plain words that two devices do not reach each other; of lost ones it is known."""
        if peer not in self._member_ids():
            self._neighbours.drop(peer)
        if peer not in self._lobby.lost:
            self._spawn(self._explain(peer))

    def time_passes(self) -> None:
        """Messages drive the clock where timers are late."""
        if self._now_ms() - self._ticked_ms > self.settings.tick_ms:
            self._tick()

    async def _explain(self, peer: str) -> None:
        other = next((m.name for m in self.members if m.id == peer), "the other device")
        routed, denied = self._neighbours.routing.next_hop(peer), await local_network_denied()
        alone = self.settings.links.connection.ice.relay_only
        sentence = reports.why_unreachable(self.me.name, other, routed is not None, denied, alone)
        self.emit(mesh_events.Unreachable(peer, sentence))

    def _greet(self, peer: str) -> None:
        hello = {"t": "hello", "v": VERSION, "host": self.host, "n": len(self.members)}
        self._neighbours.send_direct(peer, hello)

    def _announce(self) -> None:
        self._neighbours.announce({member.id: member for member in self.members})

    def _bulk_complete(self, peer: str, header: bytes, data: Any) -> None:
        if peer in self.linked():
            self.emit(mesh_events.Bulk(peer, header, data))

    # Effects of the lobby:

    def _carry_out(self, effects: Sequence[door.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, door.Send):
                self._neighbours.send(effect.to, effect.body)
            elif isinstance(effect, door.Expel):
                self._drop_later(effect.id)
            else:
                self.emit(effect)
                self._follow(effect)
        if effects:
            self._announce()

    def _follow(self, event: door.Event) -> None:
        """What an event of the door means for the links."""
        known = list(self._neighbours.by_id)
        if isinstance(event, door.Left):
            self._neighbours.routing.forget(event.member.id)
            self._drop_later(event.member.id)
        elif isinstance(event, door.TurnedAway):
            for peer in known:
                self._neighbours.drop(peer)
        elif isinstance(event, door.HostChanged | door.Admitted):
            for peer in known:  # also those that knock here, where the host is another one now
                self._greet(peer)
        if isinstance(event, door.Admitted | door.Joined):
            self._tend_links(self._now_ms())

    def _drop_later(self, peer: str) -> None:
        """Close the link to a device that is out, once what was sent to it has gone."""

        def drop() -> None:
            if peer not in self._member_ids():
                self._neighbours.drop(peer)

        asyncio.get_running_loop().call_later(self.settings.farewell_ms / 1000.0, drop)
