"""The ``/relay`` WebSocket: topic publish and subscribe for pairing, and nothing else.

It keeps no message and knows no content: what passes is sealed by the members of a room
(``daisychain.cluster.seal``).  Every client message is one binary frame::

    byte 0       1 = subscribe, 2 = publish, 3 = ping
    bytes 1..16  the topic
    bytes 17..   the payload of a publish (absent in the others)

A publish reaches every *other* subscriber of the topic as the same bytes, a ping comes back.  A
client that breaks
the form, or asks for more than the limits allow, is cut off; one that reads too slowly loses
messages, never delays others.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

SUBSCRIBE, PUBLISH, PING = 1, 2, 3
TOPIC_BYTES = 16
HEADER_BYTES = 1 + TOPIC_BYTES


@dataclass(frozen=True)
class RelayLimits:
    """What one client, and all of them, may ask for."""

    message_bytes: int = 16 * 1024
    messages_per_s: float = 50.0
    burst_messages: float = 200.0
    topics_per_connection: int = 4
    subscribers_per_topic: int = 64
    connections: int = 512
    queued_messages: int = 256
    ping_s: float = 20.0


@dataclass(eq=False)
class _Client:
    """One connection: its topics, what waits to be sent, and its rate allowance."""

    socket: web.WebSocketResponse
    queue: asyncio.Queue[bytes]
    allowance: float
    refilled_at: float
    topics: set[bytes] = field(default_factory=set)


class Relay:
    """The hub of all ``/relay`` connections of one server."""

    def __init__(self, limits: RelayLimits) -> None:
        self.limits = limits
        self.topics: dict[bytes, set[_Client]] = {}
        self.clients: set[_Client] = set()
        self.dropped_messages = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one WebSocket until it closes or breaks a rule."""
        if len(self.clients) >= self.limits.connections:
            raise web.HTTPServiceUnavailable(text="the relay is full")
        socket = web.WebSocketResponse(
            max_msg_size=self.limits.message_bytes, heartbeat=self.limits.ping_s, compress=False
        )
        await socket.prepare(request)
        client = _Client(
            socket,
            asyncio.Queue(self.limits.queued_messages),
            self.limits.burst_messages,
            time.monotonic(),
        )
        self.clients.add(client)
        writer = asyncio.create_task(self._write(client))
        try:
            async for message in socket:
                if message.type is not WSMsgType.BINARY or not self._receive(client, message.data):
                    break
        finally:
            writer.cancel()
            self._forget(client)
            await socket.close()
        return socket

    async def close(self, _app: web.Application) -> None:
        """Close every connection, so that the server can stop."""
        await asyncio.gather(*(client.socket.close() for client in list(self.clients)))

    def _receive(self, client: _Client, frame: bytes) -> bool:
        """Act on one frame; False cuts the client off."""
        if len(frame) < HEADER_BYTES or not self._within_rate(client):
            return False
        kind, topic = frame[0], frame[1:HEADER_BYTES]
        if kind == SUBSCRIBE and len(frame) == HEADER_BYTES:
            return self._subscribe(client, topic)
        if kind == PING and len(frame) == HEADER_BYTES:
            self._queue(client, frame)
            return True
        if kind == PUBLISH and topic in client.topics:
            for other in self.topics[topic] - {client}:
                self._queue(other, frame)
            return True
        return False

    def _within_rate(self, client: _Client) -> bool:
        now = time.monotonic()
        earned = (now - client.refilled_at) * self.limits.messages_per_s
        client.allowance = min(self.limits.burst_messages, client.allowance + earned) - 1.0
        client.refilled_at = now
        return client.allowance >= 0.0

    def _subscribe(self, client: _Client, topic: bytes) -> bool:
        subscribers = self.topics.setdefault(topic, set())
        full = len(subscribers) >= self.limits.subscribers_per_topic
        if topic not in client.topics and (
            full or len(client.topics) >= self.limits.topics_per_connection
        ):
            if not subscribers:
                del self.topics[topic]
            return False
        client.topics.add(topic)
        subscribers.add(client)
        return True

    def _queue(self, client: _Client, frame: bytes) -> None:
        try:
            client.queue.put_nowait(frame)
        except asyncio.QueueFull:
            self.dropped_messages += 1

    def _forget(self, client: _Client) -> None:
        self.clients.discard(client)
        for topic in client.topics:
            subscribers = self.topics[topic]
            subscribers.discard(client)
            if not subscribers:
                del self.topics[topic]

    async def _write(self, client: _Client) -> None:
        try:
            while True:
                await client.socket.send_bytes(await client.queue.get())
        except ConnectionError:
            await client.socket.close()


def add_relay(
    app: web.Application, path: str = "/relay", limits: RelayLimits | None = None
) -> Relay:
    """Mount the relay on an aiohttp application and return it."""
    relay = Relay(limits or RelayLimits())
    app.router.add_get(path, relay.handle)
    app.on_shutdown.append(relay.close)
    return relay
