"""The MQTT codec: packets as the standard draws them, and a decoder that no input can hurt."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.cluster.mqtt import (
    PING_PACKET,
    Connected,
    MqttDecoder,
    MqttError,
    Pong,
    Published,
    Subscribed,
    connect_packet,
    publish_packet,
    subscribe_packet,
)

topics = st.text(st.characters(codec="utf-8"), max_size=50)


def test_packets_as_in_the_standard() -> None:
    assert connect_packet("c", 60) == bytes.fromhex("10 0d 0004 4d515454 04 02 003c 0001 63")
    assert connect_packet("c", 60, "u", "p") == bytes.fromhex(
        "10 13 0004 4d515454 04 c2 003c 0001 63 0001 75 0001 70"
    )
    assert subscribe_packet(10, "a/b") == bytes.fromhex("82 08 000a 0003 612f62 00")
    assert publish_packet("a/b", b"hi") == bytes.fromhex("30 07 0003 612f62 6869")
    assert bytes.fromhex("c000") == PING_PACKET


@given(topics, st.binary(max_size=20_000), st.integers(1, 5000))
@settings(deadline=None)
def test_stream_cut_anywhere(topic: str, payload: bytes, piece: int) -> None:
    stream = b"\x20\x02\0\0" + b"\x90\x03\0\x01\0" + publish_packet(topic, payload) + b"\xd0\0"
    decoder = MqttDecoder()
    packets = [
        packet
        for start in range(0, len(stream), piece)
        for packet in decoder.feed(stream[start : start + piece])
    ]
    assert packets == [Connected(), Subscribed(), Published(topic, payload), Pong()]


@pytest.mark.parametrize(
    "data",
    [
        b"\x20\x02\0\x05",  # refused: not authorised
        b"\x20\x02\0\xff",
        b"\x90\x03\0\x01\x80",  # subscription refused
        b"\x32\x05\0\x01a\0\x01",  # QoS 1
        b"\x30\x02\0\x09",  # topic longer than the packet
        b"\x30\x03\0\x01\xff",  # topic is no UTF-8
        b"\x30\x01\0",
        b"\x31\xff\xff\xff\x7f",  # 268 MB announced
        b"\x30\xff\xff\xff\xff",  # endless length
        b"\xd1\0",  # reserved flags
        b"\xf0\0",
        b"\x10\0",
    ],
)
def test_breaches_raise(data: bytes) -> None:
    with pytest.raises(MqttError):
        MqttDecoder().feed(data)


@given(st.lists(st.binary(max_size=60), max_size=20))
@settings(max_examples=500, deadline=None)
def test_any_input_decodes_or_raises_and_is_not_hoarded(pieces: list[bytes]) -> None:
    decoder = MqttDecoder(max_packet_bytes=64)
    try:
        for piece in pieces:
            decoder.feed(piece)
            assert len(decoder._buffer) <= 64 + 5
    except MqttError:
        pass
