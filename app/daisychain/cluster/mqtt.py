"""The part of MQTT 3.1.1 that pairing needs: CONNECT, SUBSCRIBE, PUBLISH at QoS 0, PING.

Encoders build client packets; ``MqttDecoder`` reads what a broker sends, strictly and with a size
limit that is checked before a packet is collected.
Source: OASIS MQTT Version 3.1.1, sections 2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from daisychain.errors import ClusterError

MAX_PACKET_BYTES = 32 * 1024

_CONNACK, _PUBLISH, _SUBACK, _PINGRESP = 2, 3, 9, 13
_CONNACK_REASONS = (
    "",
    "it does not speak MQTT 3.1.1",
    "it refuses this client id",
    "it is unavailable",
    "user name or password is wrong",
    "this client is not authorised",
)


class MqttError(ClusterError):
    """The broker broke the protocol or refused us."""


@dataclass(frozen=True)
class Connected:
    """CONNACK: the broker accepted the connection."""


@dataclass(frozen=True)
class Subscribed:
    """SUBACK: the subscription stands."""


@dataclass(frozen=True)
class Published:
    """PUBLISH: a message on a topic."""

    topic: str
    payload: bytes


@dataclass(frozen=True)
class Pong:
    """PINGRESP: the broker is alive."""


Packet = Connected | Subscribed | Published | Pong


def _text(value: str) -> bytes:
    data = value.encode()
    if len(data) > 0xFFFF:
        raise ValueError("an MQTT string has at most 65,535 bytes")
    return len(data).to_bytes(2, "big") + data


def _packet(first_byte: int, body: bytes) -> bytes:
    length, digits = len(body), bytearray()
    while True:
        length, digit = length >> 7, length & 0x7F
        digits.append(digit | (0x80 if length else 0))
        if not length:
            return bytes([first_byte]) + bytes(digits) + body


def connect_packet(client_id: str, keep_alive_s: int, user: str = "", password: str = "") -> bytes:
    """CONNECT with a clean session; user and password only where given."""
    flags = 0x02 | (0x80 if user else 0) | (0x40 if user and password else 0)
    body = _text("MQTT") + bytes([4, flags]) + keep_alive_s.to_bytes(2, "big") + _text(client_id)
    if user:
        body += _text(user) + (_text(password) if password else b"")
    return _packet(0x10, body)


def subscribe_packet(packet_id: int, topic: str) -> bytes:
    """SUBSCRIBE to one topic at QoS 0."""
    return _packet(0x82, packet_id.to_bytes(2, "big") + _text(topic) + b"\0")


def publish_packet(topic: str, payload: bytes) -> bytes:
    """PUBLISH at QoS 0, not retained."""
    return _packet(0x30, _text(topic) + payload)


PING_PACKET = _packet(0xC0, b"")
DISCONNECT_PACKET = _packet(0xE0, b"")


class MqttDecoder:
    """Cuts a broker's byte stream into packets; any breach raises MqttError."""

    def __init__(self, max_packet_bytes: int = MAX_PACKET_BYTES) -> None:
        self._max_packet_bytes = max_packet_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Packet]:
        """The packets that ``data`` completes."""
        self._buffer += data
        packets: list[Packet] = []
        while (bounds := self._bounds()) is not None:
            start, end = bounds
            packets.append(_decode(self._buffer[0], bytes(self._buffer[start:end])))
            del self._buffer[:end]
        return packets

    def _bounds(self) -> tuple[int, int] | None:
        """Where the first packet's body starts and ends, or None while it is incomplete."""
        length = 0
        for place, digit in enumerate(self._buffer[1:5]):
            length |= (digit & 0x7F) << 7 * place
            if digit & 0x80:
                continue
            if length > self._max_packet_bytes:
                raise MqttError(f"The broker announced a packet of {length:,} bytes.")
            end = 2 + place + length
            return (2 + place, end) if len(self._buffer) >= end else None
        if len(self._buffer) >= 5:
            raise MqttError("The broker sent a packet length that does not end.")
        return None


def _decode(first_byte: int, body: bytes) -> Packet:
    kind, flags = first_byte >> 4, first_byte & 0x0F
    if kind == _PUBLISH:
        return _decode_publish(flags, body)
    if flags:
        raise MqttError(f"The broker sent packet type {kind} with reserved flags {flags}.")
    if kind == _CONNACK and len(body) == 2 and body[0] <= 1:
        if body[1] == 0:
            return Connected()
        reasons = dict(enumerate(_CONNACK_REASONS))
        raise MqttError(f"The broker refused: {reasons.get(body[1], f'code {body[1]}')}.")
    if kind == _SUBACK and len(body) == 3:
        if body[2] > 2:
            raise MqttError("The broker refused the subscription.")
        return Subscribed()
    if kind == _PINGRESP and not body:
        return Pong()
    raise MqttError(f"The broker sent an unexpected packet of type {kind}.")


def _decode_publish(flags: int, body: bytes) -> Published:
    if flags & 0x06:
        raise MqttError("The broker sent a message above QoS 0.")
    length = int.from_bytes(body[:2], "big")
    if len(body) < 2 + length:
        raise MqttError("The broker sent a message with a damaged topic.")
    try:
        topic = body[2 : 2 + length].decode()
    except UnicodeDecodeError as cause:
        raise MqttError("The broker sent a topic that is no UTF-8.") from cause
    return Published(topic, body[2 + length :])
