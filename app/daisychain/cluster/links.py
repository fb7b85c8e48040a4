"""A link to one neighbour: one control connection and up to three more for bulk data.

Extra connections help where the round trip is long, since each has a congestion window of its own.
All decisions run on ``tick`` with an injected clock.  Who offers: the side that was asked to call;
if both call at once, the lower id's offer stands.  ICE restarts come from the lower id, or from the
other one if that stays silent.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from daisychain.cluster.connection import Connection, ConnectionSettings
from daisychain.cluster.descriptions import (
    Candidate,
    Description,
    PairingError,
    candidates_text,
    pack,
    unpack,
    unpack_candidates,
)
from daisychain.cluster.identity import member_id
from daisychain.cluster.times import Times
from daisychain.platform.rtc import LinkError, Path, Rtc

MAX_CONNECTIONS = 4
MAX_CALLS = 3
ROUND_TRIPS = 3
INSIST_MS = 3_000.0
HAND_MS = 600_000.0
"""How long a connection paired by hand may take: its other end waits for a person."""
SIGNALS = ("offer", "answer", "ice")


@dataclass(frozen=True)
class LinkSettings:
    """How links are made and kept; ``times`` holds the durations shared with the protocol."""

    connection: ConnectionSettings = field(default_factory=ConnectionSettings)
    times: Times = field(default_factory=Times)
    connect_ms: float = 12_000.0
    gather_ms: float = 60.0
    path_poll_ms: float = 2_000.0
    restart_pause_ms: float = 5_000.0
    rtt_per_connection_ms: float = 10.0
    max_connections: int = MAX_CONNECTIONS


class LinkOwner(Protocol):
    """Who owns links and carries their signals."""

    def link_signal(self, link: Link, body: dict[str, Any]) -> None:
        """Carry an offer, answer or candidates to the other side by any way there is."""

    def link_up(self, link: Link) -> None:
        """Control messages and bulk data can flow."""

    def link_text(self, link: Link, text: str) -> None:
        """A control message came."""

    def link_down(self, link: Link, reason: str, clean: bool) -> None:
        """The link ended; ``clean`` if the other side closed it."""

    def link_failed(self, link: Link) -> None:
        """No connection came about in time."""


def connections_for_rtt(rtt_ms: float, settings: LinkSettings) -> int:
    """How many connections a round trip of this length deserves, 1 to ``max_connections``."""
    wanted = 1 + int(rtt_ms // settings.rtt_per_connection_ms)
    return max(1, min(wanted, settings.max_connections))


class Link:
    """All connections to one peer."""

    def __init__(
        self,
        me: str,
        peer: str,
        rtc: Rtc,
        settings: LinkSettings,
        owner: LinkOwner,
        now_ms: Callable[[], float],
    ) -> None:
        self.peer = peer
        self.restarts = 0
        self._me, self._rtc, self._settings = me, rtc, settings
        self._owner, self._now_ms = owner, now_ms
        self._control: Connection | None = None
        self._extras: dict[int, Connection] = {}
        self._calls: dict[str, Connection] = {}
        self._restarted_ms = -settings.restart_pause_ms
        self._polled_ms = now_ms()
        self._round_trips_ms: deque[float] = deque(maxlen=ROUND_TRIPS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._bulk = False
        self.closed = False

    @property
    def up(self) -> bool:
        """Whether control messages can be sent."""
        return self._control is not None

    @property
    def works(self) -> bool:
        """Whether what is sent arrives soon, as far as ICE can tell."""
        return self._control is not None and self.state not in ("disconnected", "failed")

    @property
    def calling(self) -> bool:
        """Whether a connection is being made."""
        return any(call.index == 0 for call in self._calls.values())

    @property
    def dropped(self) -> int:
        """Strange things that came on the open connections: foreign channels, binary, too long."""
        return sum(connection.dropped for connection in self._all())

    @property
    def path(self) -> Path:
        """The way of the control connection."""
        return self._control.path if self._control else Path()

    @property
    def rtt_ms(self) -> float | None:
        """The shortest of the last round trips."""
        return min(self._round_trips_ms, default=None)

    @property
    def state(self) -> str:
        """``connectionState`` of the control connection, or ``new``."""
        return self._control.state if self._control else "new"

    @property
    def connections(self) -> int:
        """Open connections."""
        return (self._control is not None) + len(self._extras)

    def call(self) -> None:
        """Offer a control connection, unless there is one or one is being made."""
        if not self.up and not self.calling:
            self._offer(self._connection(secrets.token_hex(8), 0, mine=True))

    def send_text(self, text: str) -> bool:
        """Send a control message; False if the link cannot take it."""
        return self._control is not None and self._control.send_text(text)

    def adopt(self, connection: Connection) -> None:
        """Take over a connection that was paired by hand; it may take minutes to open."""
        connection.owner = self
        self._calls[connection.call] = connection

    def carry_bulk(self) -> None:
        """From now on the peer may send bulk data: it is a member of the room."""
        if not self._bulk:
            self._bulk = True
            for connection in (self._control, *self._extras.values()):
                if connection is not None:
                    connection.attach(self.peer)

    def receive(self, body: dict[str, Any]) -> bool:
        """Act on a signal of the peer; False if it is malformed or fits nothing we do."""
        kind, call = body.get("t"), body.get("call")
        if not isinstance(call, str) or not 1 <= len(call) <= 32 or self.closed:
            return False
        try:
            if kind == "ice":
                return self._take_candidates(call, unpack_candidates(str(body.get("c"))))
            description = unpack(str(body.get("d")))
        except PairingError:
            return False
        if member_id(description.fingerprint) != self.peer:
            return False
        if kind == "answer":
            return self._take_answer(call, description)
        index = body.get("i")
        if kind != "offer" or type(index) is not int or not 0 <= index < MAX_CONNECTIONS:
            return False
        return self._take_offer(call, index, description)

    def tick(self) -> None:
        """Restart, give up, measure and add connections as time passes."""
        now, settings = self._now_ms(), self._settings
        for call, connection in list(self._calls.items()):
            patience_ms = HAND_MS if connection.by_hand else settings.connect_ms
            if now - connection.changed_ms > patience_ms:
                self._give_up(call)
        control = self._control
        if control is None:
            return
        if control.state in ("disconnected", "failed"):
            self._heal(control, now - control.changed_ms)
        elif now - self._polled_ms >= settings.path_poll_ms:
            self._polled_ms = now
            self._spawn(lambda: self._measure(control))
        for index, extra in list(self._extras.items()):
            if extra.state in ("failed", "closed"):
                extra.close()
                del self._extras[index]

    def close(self) -> None:
        """Close all connections; the owner hears nothing more."""
        self.closed = True
        for connection in self._all():
            connection.close()
        self._calls.clear()
        self._extras.clear()
        self._control = None
        for task in self._tasks:
            task.cancel()

    def _all(self) -> list[Connection]:
        control = [self._control] if self._control else []
        return [*control, *self._extras.values(), *self._calls.values()]

    def _connection(self, call: str, index: int, mine: bool) -> Connection:
        connection = Connection(
            self._rtc, self._settings.connection, call, index, mine, self, self._now_ms
        )
        self._calls[call] = connection
        return connection

    def _offer(self, connection: Connection, restart: bool = False) -> None:
        async def offer() -> None:
            description = await connection.offer(self._settings.gather_ms, restart)
            body = {"t": "offer", "call": connection.call, "i": connection.index}
            self._owner.link_signal(self, {**body, "d": pack(description)})

        self._spawn(offer, connection)

    def _take_offer(self, call: str, index: int, offer: Description) -> bool:
        connection = next((c for c in self._all() if c.call == call), None)
        if connection is None:
            rival = next((c for c in self._calls.values() if c.mine and c.index == index), None)
            if (index > 0 and not self.up) or len(self._calls) >= MAX_CALLS + MAX_CONNECTIONS:
                return False
            if rival is not None:
                if self._insists(rival):
                    return False
                self._calls.pop(rival.call).close()
            connection = self._connection(call, index, mine=False)
        elif self._insists(connection):
            return False
        self._spawn(lambda: self._answer(connection, offer), connection)
        return True

    def _insists(self, connection: Connection) -> bool:
        """Whether our own offer for it stands against the peer's: ours is the lower id's and new.

        An older one that has no answer was lost on its way.
        """
        fresh = self._now_ms() - connection.offered_ms < INSIST_MS
        return connection.offering and self._me < self.peer and fresh

    async def _answer(self, connection: Connection, offer: Description) -> None:
        answer = await connection.answer(offer, self._settings.gather_ms)
        body = {"t": "answer", "call": connection.call, "d": pack(answer)}
        self._owner.link_signal(self, body)

    def _take_answer(self, call: str, answer: Description) -> bool:
        connection = next((c for c in self._all() if c.call == call and c.offering), None)
        if connection is None:
            return False
        self._spawn(lambda: connection.accept(answer), connection)
        return True

    def _take_candidates(self, call: str, candidates: tuple[Candidate, ...]) -> bool:
        connection = next((c for c in self._all() if c.call == call), None)
        if connection is None:
            return False
        self._spawn(lambda: connection.add_candidates(candidates), connection)
        return True

    def _give_up(self, call: str) -> None:
        connection = self._calls.pop(call)
        connection.close()
        if connection.index == 0 and not self.up and not self.calling:
            self._owner.link_failed(self)

    def _heal(self, control: Connection, down_ms: float) -> None:
        now, times = self._now_ms(), self._settings.times
        if down_ms >= times.drop_ms:
            self._down("its connection was lost", clean=False)
            return
        patience = times.ice_restart_ms * (1 if self._me < self.peer else 2)
        rested = now - self._restarted_ms >= self._settings.restart_pause_ms
        if rested and (down_ms >= patience or control.state == "failed"):
            self._restarted_ms = now
            self.restarts += 1
            self._offer(control, restart=True)

    async def _measure(self, control: Connection) -> None:
        await control.look_up_path()
        if control.path.rtt_ms is None:
            return
        self._round_trips_ms.append(control.path.rtt_ms)
        steady = len(self._round_trips_ms) == ROUND_TRIPS
        if not (steady and self._bulk) or self._me > self.peer:
            return
        rtt_ms = min(self._round_trips_ms)  # a busy machine makes single ones long
        busy = {c.index for c in (*self._extras.values(), *self._calls.values())}
        for index in range(1, connections_for_rtt(rtt_ms, self._settings)):
            if index not in busy:
                self._offer(self._connection(secrets.token_hex(8), index, mine=True))

    def _down(self, reason: str, clean: bool) -> None:
        self.close()
        self._owner.link_down(self, reason, clean)

    def _spawn(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        connection: Connection | None = None,
    ) -> None:
        """Run ``work``; if it fails, its connection has no future."""

        async def guarded() -> None:
            try:
                await work()
            except LinkError:
                if connection is not None and connection.call in self._calls:
                    self._give_up(connection.call)

        task = asyncio.ensure_future(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # What the connections tell (connection.ConnectionOwner):

    def connection_open(self, connection: Connection) -> None:
        """A connection opened: it becomes the control connection or an extra one."""
        self._calls.pop(connection.call, None)
        if self._bulk:
            connection.attach(self.peer)
        if connection.index > 0:
            self._extras[connection.index] = connection
            return
        before, self._control = self._control, connection
        if before is not None:
            before.close()  # the other side started anew
        self._polled_ms = self._now_ms() - self._settings.path_poll_ms / 2
        self._owner.link_up(self)

    def connection_state(self, connection: Connection) -> None:
        """A connection that fails before it opens is given up, one by hand is waited for."""
        if connection.state == "failed" and connection.call in self._calls:
            if not connection.by_hand:
                self._give_up(connection.call)
        elif connection.state == "failed":
            self.tick()

    def connection_text(self, connection: Connection, text: str) -> None:
        """A control message."""
        if connection is self._control:
            self._owner.link_text(self, text)

    def connection_closed(self, connection: Connection) -> None:
        """The peer closed a connection; without the control connection the link is down."""
        if connection is self._control:
            self._down("it closed the connection", clean=True)
        elif self._extras.get(connection.index) is connection:
            del self._extras[connection.index]
            connection.close()

    def connection_candidates(
        self, connection: Connection, candidates: tuple[Candidate, ...]
    ) -> None:
        """Addresses found late."""
        body = {"t": "ice", "call": connection.call, "c": candidates_text(candidates)}
        self._owner.link_signal(self, body)
