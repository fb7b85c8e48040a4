"""Relays that carry sealed pairing messages: the ``/relay`` WebSocket and MQTT brokers.

A ``Transport`` keeps one connection alive for as long as it is open: it reconnects with a growing,
jittered pause and sends again what was said while it was down.  It trusts the relay with nothing:
messages are bounded in size and rate before anybody looks at them, and a relay that floods or
breaks its protocol is left alone for a while.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol
from urllib.parse import unquote, urljoin, urlsplit

from daisychain.cluster import mqtt
from daisychain.cluster.seal import MAX_SEALED_BYTES, TOPIC_BYTES
from daisychain.errors import ClusterError, SettingsError
from daisychain.platform.websocket import Socket, open_socket

NEVER_UP = 10
"""A relay that never answered, such as /relay on a static host, is tried that much less often."""

_SUBSCRIBE, _PUBLISH, _PING = b"\x01", b"\x02", b"\x03"
_RELAY_HEADER_BYTES = 1 + TOPIC_BYTES


@dataclass(frozen=True)
class TransportTiming:
    """Pauses and limits of one relay connection."""

    handshake_s: float = 10.0
    ping_s: float = 20.0
    silent_s: float = 50.0
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    steady_s: float = 10.0
    outbox_s: float = 10.0
    messages_per_s: float = 100.0
    burst_messages: float = 400.0
    flood_messages: int = 2000


@dataclass(frozen=True)
class Received:
    """What a dialect read: answers to send, payloads of the room, and whether we are in."""

    replies: list[bytes] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    ready: bool = False


class Dialect(Protocol):
    """The conversation with one kind of relay; raises ClusterError when the relay breaks it."""

    subprotocol: str | None
    max_message_bytes: int
    ping: bytes

    def greeting(self) -> bytes:
        """The first message after the connection opened."""

    def receive(self, data: bytes) -> Received:
        """Read one message of the relay."""

    def wrap(self, payload: bytes) -> bytes:
        """The message that publishes a payload."""


class RelayDialect:
    """The ``/relay`` WebSocket, described in tools/relay.py."""

    subprotocol: str | None = None
    max_message_bytes = _RELAY_HEADER_BYTES + MAX_SEALED_BYTES

    def __init__(self, topic: bytes) -> None:
        self._topic = topic
        self.ping = _PING + topic

    def greeting(self) -> bytes:
        """Subscribe; the relay does not acknowledge, but keeps the order."""
        return _SUBSCRIBE + self._topic

    def receive(self, data: bytes) -> Received:
        """A publish on our topic, or the echo of our ping."""
        if data == self.ping:
            return Received()
        if data[:_RELAY_HEADER_BYTES] != _PUBLISH + self._topic:
            raise ClusterError("The relay sent something that nobody asked for.")
        return Received(payloads=[data[_RELAY_HEADER_BYTES:]])

    def wrap(self, payload: bytes) -> bytes:
        """A publish on our topic."""
        return _PUBLISH + self._topic + payload


class MqttDialect:
    """An MQTT 3.1.1 broker with a WebSocket listener."""

    subprotocol: str | None = "mqtt"
    max_message_bytes = mqtt.MAX_PACKET_BYTES
    ping: bytes = mqtt.PING_PACKET

    def __init__(self, topic: bytes, user: str = "", password: str = "") -> None:
        self._topic = f"daisychain/{topic.hex()}"
        self._user, self._password = user, password
        self._decoder = mqtt.MqttDecoder()

    def greeting(self) -> bytes:
        """CONNECT under a fresh client id."""
        self._decoder = mqtt.MqttDecoder()
        client_id = f"dc{secrets.token_hex(8)}"
        return mqtt.connect_packet(client_id, 60, self._user, self._password)

    def receive(self, data: bytes) -> Received:
        """Subscribe once connected, then collect the topic's messages."""
        received = Received()
        ready = False
        for packet in self._decoder.feed(data):
            if isinstance(packet, mqtt.Connected):
                received.replies.append(mqtt.subscribe_packet(1, self._topic))
            elif isinstance(packet, mqtt.Subscribed):
                ready = True
            elif isinstance(packet, mqtt.Published) and packet.topic == self._topic:
                received.payloads.append(packet.payload)
        return Received(received.replies, received.payloads, ready)

    def wrap(self, payload: bytes) -> bytes:
        """PUBLISH on our topic."""
        return mqtt.publish_packet(self._topic, payload)


@dataclass(frozen=True)
class RelayAddress:
    """Where a relay is and how to talk to it; ``url`` holds no user or password."""

    kind: Literal["relay", "mqtt"]
    url: str
    user: str = ""
    password: str = field(default="", repr=False)

    def dialect(self, topic: bytes) -> Dialect:
        """The conversation for this kind of relay."""
        if self.kind == "mqtt":
            return MqttDialect(topic, self.user, self.password)
        return RelayDialect(topic)


def parse_relay_address(text: str, page: str) -> RelayAddress:
    """Read ``wss://...``, ``mqtt+wss://user:password@...`` or a path of the page's own server.

    ``page`` is the address of the page.  Raises SettingsError with a sentence.
    """
    text = text.strip()
    kind: Literal["relay", "mqtt"] = "relay"
    if text.startswith("mqtt+"):
        kind, text = "mqtt", text.removeprefix("mqtt+")
    elif "://" not in text:
        text = urljoin(page, text).replace("http", "ws", 1)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as cause:
        raise SettingsError(f"{text!r} is no address of a relay.") from cause
    if parts.scheme not in ("ws", "wss") or not host:
        raise SettingsError(
            f"{text!r} is no address of a relay.",
            do="Use wss://host/relay, or mqtt+wss://host:port/path for an MQTT broker.",
        )
    if parts.scheme == "ws" and page.startswith("https:") and not is_loopback(host):
        raise SettingsError(
            f"The relay {host} is not encrypted, and this https page may only use wss:// relays."
        )
    bracketed = f"[{host}]" if ":" in host else host
    place = f"{bracketed}:{port}" if port else bracketed
    query = f"?{parts.query}" if parts.query else ""
    url = f"{parts.scheme}://{place}{parts.path or '/'}{query}"
    return RelayAddress(kind, url, unquote(parts.username or ""), unquote(parts.password or ""))


def is_loopback(host: str | None) -> bool:
    """Whether a host name means this very device."""
    return host in ("localhost", "127.0.0.1", "::1") or (host or "").endswith(".localhost")


class Transport:
    """A relay connection that stays up as long as it can.

    ``deliver`` gets every payload of the topic; ``changed`` is called when ``state`` changes.
    """

    def __init__(
        self,
        address: RelayAddress,
        topic: bytes,
        deliver: Callable[[bytes], None],
        changed: Callable[[], None],
        timing: TransportTiming | None = None,
    ) -> None:
        self.address = address
        self.state: Literal["connecting", "up", "down"] = "connecting"
        self.error = ""
        self.dropped_messages = 0
        self._dialect = address.dialect(topic)
        self._deliver, self._changed = deliver, changed
        self._timing = timing or TransportTiming()
        self._outbox: deque[tuple[float, bytes]] = deque(maxlen=64)
        self._socket: Socket | None = None
        self._heard_at = 0.0
        self._allowance = Allowance(self._timing.messages_per_s, self._timing.burst_messages)
        self._wake = asyncio.Event()
        self._was_up = False
        self._task = asyncio.ensure_future(self._run())

    def send(self, payload: bytes) -> None:
        """Publish now, or as soon as the relay is back if that is within ten seconds."""
        if self.state == "up" and self._socket is not None:
            self._socket.send(self._dialect.wrap(payload))
        else:
            self._outbox.append((time.monotonic(), payload))

    def retry(self) -> None:
        """Connect now if it is down."""
        self._wake.set()

    async def close(self) -> None:
        """Leave the relay for good."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.state = "down"

    async def _run(self) -> None:
        pause = self._timing.first_pause_s
        while True:
            started = time.monotonic()
            flooded = self.dropped_messages + self._timing.flood_messages
            try:
                await self._converse(flooded)
                self.error = "The relay closed the connection."
            except (ClusterError, TimeoutError) as error:
                self.error = str(error) or "The relay did not answer in time."
            self._enter("down")
            if self.dropped_messages >= flooded:
                pause = self._timing.longest_pause_s
            elif time.monotonic() - started > self._timing.steady_s:
                pause = self._timing.first_pause_s
            await self._rest(pause * random.uniform(0.75, 1.25))
            longest = self._timing.longest_pause_s
            pause = min(2 * pause, longest if self._was_up else NEVER_UP * longest)
            self._enter("connecting")

    async def _rest(self, pause_s: float) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(pause_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _converse(self, flooded: int) -> None:
        """One connection from opening to end."""
        dialect = self._dialect
        url = self.address.url
        socket = await open_socket(url, dialect.subprotocol, dialect.max_message_bytes)
        watch = asyncio.ensure_future(self._watch(socket))
        try:
            self._socket, self._heard_at = socket, time.monotonic()
            socket.send(dialect.greeting())
            if isinstance(dialect, RelayDialect):
                self._up(socket)
            while (data := await socket.receive()) is not None:
                self._heard_at = time.monotonic()
                received = dialect.receive(data)
                for reply in received.replies:
                    socket.send(reply)
                if received.ready:
                    self._up(socket)
                self._hand_over(received.payloads)
                if self.dropped_messages >= flooded:
                    raise ClusterError("The relay floods us, it is left alone for a while.")
        finally:
            self._socket = None
            watch.cancel()
            socket.close()

    def _hand_over(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            if len(payload) <= MAX_SEALED_BYTES and self._allowance.take():
                self._deliver(payload)
            else:
                self.dropped_messages += 1

    async def _watch(self, socket: Socket) -> None:
        """Close a connection whose handshake hangs or whose broker fell silent."""
        await asyncio.sleep(self._timing.handshake_s)
        while self.state == "up":
            socket.send(self._dialect.ping)
            await asyncio.sleep(self._timing.ping_s)
            if time.monotonic() - self._heard_at > self._timing.silent_s:
                break
        socket.close()

    def _up(self, socket: Socket) -> None:
        oldest = time.monotonic() - self._timing.outbox_s
        while self._outbox:
            queued_at, payload = self._outbox.popleft()
            if queued_at >= oldest:
                socket.send(self._dialect.wrap(payload))
        self.error = ""
        self._was_up = True
        self._enter("up")

    def _enter(self, state: Literal["connecting", "up", "down"]) -> None:
        if state != self.state:
            self.state = state
            self._changed()


class Allowance:
    """A token bucket: ``rate_per_s`` on average, ``burst`` at once."""

    def __init__(
        self, rate_per_s: float, burst: float, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate_per_s, self._burst, self._now_s = rate_per_s, burst, now_s
        self._left, self._filled_at = burst, now_s()

    def take(self) -> bool:
        """Spend one; False when nothing is left."""
        now = self._now_s()
        self._left = min(self._burst, self._left + (now - self._filled_at) * self._rate_per_s)
        self._filled_at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
