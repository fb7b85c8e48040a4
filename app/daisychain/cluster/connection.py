"""One WebRTC connection to another device: descriptions and candidates out and in.

A ``Connection`` knows nothing of rooms.  Its owner carries the descriptions to the other side (over
relays, links, or a person's hands) and decides when to restart or give up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from daisychain.cluster.descriptions import (
    MAX_CANDIDATES,
    Candidate,
    Description,
    candidate_line,
    description_of,
    parse_candidate,
    sdp_of,
)
from daisychain.platform.rtc import IceSettings, Path, Rtc


@dataclass(frozen=True)
class ConnectionSettings:
    """How a connection finds its way.

    ``same_machine``: the page was served by this very machine, so others that came by the same
    address are on it too.  Browsers hide their addresses behind names that only multicast DNS can
    resolve, which containers and some networks do not have; the loopback address works there.
    """

    ice: IceSettings = field(default_factory=IceSettings)
    same_machine: bool = False


class ConnectionOwner(Protocol):
    """Who is told what happens to a connection."""

    def connection_open(self, connection: Connection) -> None:
        """Its channels are open: the other end has proven its certificate."""

    def connection_state(self, connection: Connection) -> None:
        """``connection.state`` changed."""

    def connection_text(self, connection: Connection, text: str) -> None:
        """A control message came."""

    def connection_closed(self, connection: Connection) -> None:
        """The other end closed it on purpose."""

    def connection_candidates(
        self, connection: Connection, candidates: tuple[Candidate, ...]
    ) -> None:
        """More addresses of this device were found after its description was handed out."""


class Connection:
    """An RTCPeerConnection and where its negotiation stands.

    ``call`` names the negotiation, ``index`` 0 carries control and bulk, 1 to 3 only bulk;
    ``mine`` tells whether this side offers, ``by_hand`` that a person carries the descriptions.
    """

    def __init__(
        self,
        rtc: Rtc,
        settings: ConnectionSettings,
        call: str,
        index: int,
        mine: bool,
        owner: ConnectionOwner,
        now_ms: Callable[[], float],
    ) -> None:
        self.call, self.index, self.mine = call, index, mine
        self.by_hand = False
        self.opened = False
        self.closed = False
        self.offering = False
        self.offered_ms = 0.0
        self.state = "new"
        self.path = Path()
        self.dropped = 0
        self.changed_ms = now_ms()
        self._now_ms, self.owner = now_ms, owner
        self._version = 0
        self._remote_set = False
        self._early: list[Candidate] = []
        self._taken = 0
        self._found: list[Candidate] = []
        self._gathered = asyncio.Event()
        self._trickling = False
        self._flush: asyncio.TimerHandle | None = None
        self._same_machine = settings.same_machine
        self._connection = rtc.connect(settings.ice, index == 0, self)

    def attach(self, peer: str) -> None:
        """Let the bulk plane use this connection for a peer."""
        self._connection.attach_bulk(peer)

    async def offer(self, gather_ms: float, restart: bool = False) -> Description:
        """An offer with the addresses found within ``gather_ms``; later ones trickle."""
        self.offering, self.offered_ms = True, self._now_ms()
        self._begin_search()
        sdp = await self._connection.offer(restart)
        return await self._describe(sdp, gather_ms)

    async def answer(self, offer: Description, gather_ms: float) -> Description:
        """The answer to an offer, likewise."""
        self._version += 1
        self.offering = False
        self._begin_search()
        sdp = await self._connection.answer(sdp_of(offer, self._version))
        await self._remote_is_set()
        return await self._describe(sdp, gather_ms)

    async def accept(self, answer: Description) -> None:
        """Take the answer to our offer."""
        self._version += 1
        self.offering = False
        await self._connection.accept(sdp_of(answer, self._version))
        await self._remote_is_set()

    async def add_candidates(self, candidates: tuple[Candidate, ...]) -> None:
        """Take addresses of the other end, at most 24 for each description."""
        for candidate in candidates[: MAX_CANDIDATES - self._taken]:
            self._taken += 1
            if self._remote_set:
                await self._connection.add_candidate(candidate_line(candidate, self._taken))
            else:
                self._early.append(candidate)

    async def look_up_path(self) -> None:
        """Refresh ``path`` from the browser's statistics."""
        path = await self._connection.path()
        if path.local:
            self.path = path

    def send_text(self, text: str) -> bool:
        """Send a control message; False if it cannot go now."""
        return self.opened and not self.closed and self._connection.send_text(text)

    def close(self) -> None:
        """Close; the owner hears nothing more of it."""
        if self.closed:
            return
        self.closed = True
        self.state = "closed"
        if self._flush is not None:
            self._flush.cancel()
        self._connection.close()

    async def _remote_is_set(self) -> None:
        self._remote_set = True
        self._taken = 0
        early, self._early = self._early, []
        await self.add_candidates(tuple(early))

    def _begin_search(self) -> None:
        self._found = []
        self._gathered.clear()
        self._trickling = False

    async def _describe(self, sdp: str, gather_ms: float) -> Description:
        try:
            async with asyncio.timeout(gather_ms / 1000.0):
                await self._gathered.wait()
        except TimeoutError:
            pass
        found, self._found = self._found, []
        self._trickling = True
        return description_of(sdp).with_candidates(tuple(found))

    def _trickle(self) -> None:
        self._flush = None
        found, self._found = self._found, []
        if found and not self.closed:
            self.owner.connection_candidates(self, tuple(found[:MAX_CANDIDATES]))

    # What the browser tells (platform.rtc.ConnectionEvents):

    def on_candidate(self, line: str) -> None:
        """Collect an address of our own."""
        candidate = parse_candidate(line)
        if candidate is not None:
            self._found.append(candidate)
            if self._same_machine and candidate.address.endswith(".local"):
                self._found.append(Candidate("host", "127.0.0.1", candidate.port))
        elif not line:
            self._gathered.set()
        if self._trickling and self._found and self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(0.05, self._trickle)

    def on_state(self, state: str) -> None:
        """Follow ``connectionState``."""
        if state != self.state and not self.closed:
            self.state = state
            self.changed_ms = self._now_ms()
            self.owner.connection_state(self)

    def on_open(self) -> None:
        """The channels are open."""
        if not self.closed and not self.opened:
            self.opened = True
            self.owner.connection_open(self)

    def on_text(self, text: str) -> None:
        """A control message."""
        if not self.closed:
            self.owner.connection_text(self, text)

    def on_closed(self) -> None:
        """The other end is gone on purpose."""
        if not self.closed:
            self.owner.connection_closed(self)

    def on_dropped(self) -> None:
        """Something strange was dropped."""
        self.dropped += 1
