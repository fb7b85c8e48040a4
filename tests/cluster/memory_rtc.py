"""WebRTC in memory for tests of links and meshes: connections of one process, whose ways can fail.

It keeps the rules that the cluster relies on: nothing opens before both descriptions are set, only
the holder of the described certificate can be the other end, a cut way shows as ``disconnected``
and comes back by itself or after an ICE restart, and a closed end is told to the other at once.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from daisychain.cluster.identity import member_id
from daisychain.cluster.reduce_plan import SERVED
from daisychain.platform.rtc import (
    BulkComplete,
    BulkPlane,
    ConnectionEvents,
    IceSettings,
    LinkError,
    Path,
)


class MemoryNetwork:
    """All connections of a test; ``blocked`` pairs of fingerprints find no way to each other."""

    def __init__(self) -> None:
        self.numbers: Iterator[int] = itertools.count(1)
        self.blocked: set[frozenset[bytes]] = set()
        self.connections: dict[str, MemoryConnection] = {}
        self.rtt_ms = 1.0

    def next_id_below(self, other: str) -> None:
        """The id of the device that is made next comes before that of ``other``."""
        ids = ((n, member_id(n.to_bytes(32, "big"))) for n in self.numbers)
        number = next(n for n, id in ids if id < other)
        self.numbers = itertools.chain([number], self.numbers)

    def block(self, one: MemoryRtc, two: MemoryRtc) -> None:
        """Cut the way between two devices; open connections become ``disconnected``."""
        self.blocked.add(frozenset((one.fingerprint, two.fingerprint)))
        self._refresh()

    def unblock(self, heal: bool = True) -> None:
        """All ways are free again; without ``heal`` only ICE restarts find them."""
        self.blocked.clear()
        if heal:
            self._refresh()

    def _refresh(self) -> None:
        for connection in list(self.connections.values()):
            connection.refresh()

    async def rtc(self, complete: BulkComplete) -> MemoryRtc:
        """A device with a fresh certificate."""
        return MemoryRtc(self, complete)


class MemoryBulkPlane:
    """Flows go through whole, and only to who awaits them."""

    def __init__(self, complete: BulkComplete) -> None:
        self.complete = complete
        self.awaited: dict[bytes, str] = {}
        self.ways: dict[str, list[MemoryConnection]] = {}
        self.sent_bytes = 0

    async def send(self, peer: str, header: bytes, data: Any) -> None:
        way = next((c for c in self.ways.get(peer, []) if c.state == "connected"), None)
        if way is None or way.other is None:
            raise LinkError(f"no link to {peer}")
        self.sent_bytes += len(data)
        there = way.other
        for name, ways in there.rtc.plane.ways.items():
            if there in ways and there.rtc.plane.awaited.pop(header, "no") in ("", name):
                there.rtc.plane.complete(name, header, bytes(data))

    def expect(self, peer: str, headers: Sequence[bytes]) -> None:
        self.awaited.update(dict.fromkeys(headers, peer))

    def route(self, step: int, epoch: int, me: int, hops: Sequence[str]) -> None:
        """Forwarding is the business of the real plane."""

    def forget(self, step: int, epoch: int) -> None:
        attempt = struct.pack("<2I", step, epoch)
        self.awaited = {h: peer for h, peer in self.awaited.items() if h[4:12] != attempt}

    def abandon(self, step: int, epoch: int) -> None:
        """Nothing waits here to be sent."""

    def stop_serving(self, peer: str) -> None:
        """Nothing waits here to be sent."""

    def stop_fetching(self) -> None:
        self.awaited = {h: peer for h, peer in self.awaited.items() if h[3] not in SERVED}

    def fetched_frames(self) -> int:
        return 0

    def frames_left(self, header: bytes) -> int:
        return int(header in self.awaited)

    def missing(self) -> list[tuple[str, bytes, int]]:
        return [(peer, header, 1) for header, peer in self.awaited.items()]

    def dropped(self) -> dict[str, int]:
        return {}

    def traffic(self, peer: str) -> dict[str, float]:
        return {
            "channels": 1,
            "sentBytes": self.sent_bytes,
            "receivedBytes": 0,
            "megabytesPerSecond": 0,
        }


class MemoryRtc:
    """One device."""

    def __init__(self, network: MemoryNetwork, complete: BulkComplete) -> None:
        self.network = network
        self.fingerprint = next(network.numbers).to_bytes(32, "big")
        self.fingerprint_sdp = f"a=fingerprint:sha-256 {self.fingerprint.hex(':').upper()}\r\n"
        self.plane = MemoryBulkPlane(complete)
        self.bulk: BulkPlane = self.plane
        self.opened = 0

    def connect(
        self, ice: IceSettings, control: bool, events: ConnectionEvents
    ) -> MemoryConnection:
        self.opened += 1
        return MemoryConnection(self, events)


class MemoryConnection:
    """One end of a connection; ``other`` is the end whose description was set here."""

    def __init__(self, rtc: MemoryRtc, events: ConnectionEvents) -> None:
        self.rtc, self.events = rtc, events
        self.state = "new"
        self.closed = False
        self.ufrag = self._fresh()
        self.other: MemoryConnection | None = None
        self._outbox: list[str] = []

    async def offer(self, restart: bool) -> str:
        if restart:
            self.ufrag = self._fresh()
        return self._describe("actpass")

    async def answer(self, offer: str) -> str:
        self._set_remote(offer)
        self.ufrag = self._fresh()
        return self._describe("active")

    async def accept(self, answer: str) -> None:
        self._set_remote(answer)
        if self.other is not None and self.other.other is self:
            for end in (self, self.other):
                end.refresh(restarted=True)

    async def add_candidate(self, line: str) -> None:
        """Ways are found by ufrag here."""

    async def path(self) -> Path:
        return Path("host", "host", self.rtc.network.rtt_ms)

    def attach_bulk(self, peer: str) -> None:
        self.rtc.plane.ways.setdefault(peer, []).append(self)

    def send_text(self, text: str) -> bool:
        if self.state == "closed" or self.other is None:
            return False
        self._outbox.append(text)
        self._flush()
        return True

    def close(self) -> None:
        self.closed = True
        for ways in self.rtc.plane.ways.values():
            if self in ways:
                ways.remove(self)
        other, self.other = self.other, None
        self.state = "closed"
        if (
            other is not None
            and other.other is self
            and not other.closed
            and not self._blocked(other)
        ):
            self._soon(other.events.on_closed)

    def refresh(self, restarted: bool = False) -> None:
        """Follow what the network does."""
        if self.closed or self.other is None or self.other.closed:
            return
        if self._blocked(self.other):
            self._enter("disconnected" if self.state != "new" else "connecting")
        elif self.state != "connected" and (restarted or self.state == "disconnected"):
            first = self.state in ("new", "connecting")
            self._enter("connected")
            if first:
                self._soon(self.events.on_open)
            self._flush()

    def _fresh(self) -> str:
        ufrag = f"u{next(self.rtc.network.numbers):07d}"
        self.rtc.network.connections[ufrag] = self
        return ufrag

    def _blocked(self, other: MemoryConnection) -> bool:
        pair = frozenset((self.rtc.fingerprint, other.rtc.fingerprint))
        return pair in self.rtc.network.blocked

    def _describe(self, role: str) -> str:
        self._soon(lambda: self.events.on_candidate(""))
        return (
            f"a=ice-ufrag:{self.ufrag}\r\na=ice-pwd:{'p' * 24}\r\n"
            f"{self.rtc.fingerprint_sdp}a=setup:{role}\r\n"
        )

    def _set_remote(self, sdp: str) -> None:
        ufrag, fingerprint = (
            re.search(pattern, sdp) for pattern in (r"ice-ufrag:(\S+)", r"sha-256 (\S+)")
        )
        assert ufrag is not None
        assert fingerprint is not None
        other = self.rtc.network.connections.get(ufrag[1])
        if other is None or other.closed:
            return
        if other.rtc.fingerprint.hex(":").upper() == fingerprint[1]:
            self.other = other

    def _enter(self, state: str) -> None:
        if self.state != state:
            self.state = state
            self._soon(lambda: self.events.on_state(state))

    def _flush(self) -> None:
        while self._outbox and self.state == "connected" and self.other is not None:
            text, other = self._outbox.pop(0), self.other
            self._soon(lambda text=text, other=other: other.closed or other.events.on_text(text))

    def _soon(self, call: Any) -> None:
        asyncio.get_running_loop().call_soon(call)
