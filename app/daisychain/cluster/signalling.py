"""The room's notice board: sealed JSON messages over every relay at once, first delivery wins.

Only three kinds of people can be heard here: members and newcomers who hold the code.  Even they
can only ask for a connection; who they are is proven by the connection itself, and everything
else travels over links.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from daisychain.cluster.identity import id_bytes, id_text
from daisychain.cluster.seal import RoomKeys, Sealer
from daisychain.cluster.transports import RelayAddress, Transport, TransportTiming

REMEMBERED_MESSAGES = 2048
DIGEST_BYTES = 16
MAX_WAITING_MESSAGES = 256


@dataclass(frozen=True)
class RelayState:
    """One relay as the link report shows it."""

    url: str
    state: str
    error: str
    dropped_messages: int


class Signalling:
    """Publishes to and hears from everybody who holds the room's code.

    ``deliver(sender, body)`` gets each new message that is for everybody or for us; ``changed`` is
    called when a relay comes or goes.
    """

    def __init__(
        self,
        keys: RoomKeys,
        me: str,
        addresses: Iterable[RelayAddress],
        deliver: Callable[[str, dict[str, Any]], None],
        changed: Callable[[], None],
        timing: TransportTiming | None = None,
    ) -> None:
        self.malformed = 0
        self.overflowed = 0
        self._me, self._deliver = me, deliver
        self.sealer = Sealer(keys, id_bytes(me), time.time_ns() // 1000)
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(MAX_WAITING_MESSAGES)
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue(MAX_WAITING_MESSAGES)
        self._transports = [
            Transport(address, keys.topic, self._receive, changed, timing) for address in addresses
        ]
        self._tasks = [asyncio.ensure_future(task) for task in (self._open(), self._publish())]

    @property
    def up(self) -> bool:
        """Whether any relay is connected."""
        return any(transport.state == "up" for transport in self._transports)

    def relays(self) -> list[RelayState]:
        """The state of each relay."""
        return [
            RelayState(t.address.url, t.state, t.error, t.dropped_messages)
            for t in self._transports
        ]

    def send(self, body: Mapping[str, object], to: str | None = None) -> None:
        """Publish a message for one id, or for everybody; lost if all relays stay down."""
        if not self._transports:
            return
        text = json.dumps({**body, "to": to}, separators=(",", ":"))
        try:
            self._outgoing.put_nowait(text.encode())
        except asyncio.QueueFull:
            self.overflowed += 1

    def retry(self) -> None:
        """The network is back: connect now instead of after the pause."""
        for transport in self._transports:
            transport.retry()

    async def close(self) -> None:
        """Leave all relays."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(transport.close() for transport in self._transports))

    async def _publish(self) -> None:
        while True:
            sealed = await self.sealer.seal(await self._outgoing.get())
            self._is_new(sealed)  # brokers echo what we say
            for transport in self._transports:
                transport.send(sealed)

    def _receive(self, sealed: bytes) -> None:
        if not self._is_new(sealed):
            return
        try:
            self._waiting.put_nowait(sealed)
        except asyncio.QueueFull:
            self.overflowed += 1

    def _is_new(self, sealed: bytes) -> bool:
        digest = hashlib.sha256(sealed).digest()[:DIGEST_BYTES]
        if digest in self._known:
            return False
        self._known[digest] = None
        if len(self._known) > REMEMBERED_MESSAGES:
            self._known.popitem(last=False)
        return True

    async def _open(self) -> None:
        while True:
            opened = await self.sealer.open(await self._waiting.get())
            if opened is None:
                continue
            body = decode_object(opened.body)
            if body is None:
                self.malformed += 1
            elif body.get("to") in (None, self._me):
                self._deliver(id_text(opened.sender), body)


def decode_object(data: bytes | str) -> dict[str, Any] | None:
    """The JSON object in ``data``, or None when it is anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
