"""Control messages and bulk frames: round trips, limits, and a million hostile inputs."""

from __future__ import annotations

import json
import random
import zlib
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.cluster import wire
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.fields import Malformed, Phase, Reason
from daisychain.cluster.messages import Envelope, Message
from daisychain.cluster.reduce_plan import FRAME_BYTES, HEADER_BYTES, PAYLOAD_BYTES, Kind
from daisychain.cluster.room_messages import (
    Admit,
    Beat,
    CatchUp,
    Fetch,
    FetchFailed,
    FetchFooter,
    FetchPlan,
    FooterIs,
    Join,
    Leave,
    Refuse,
    Snapshot,
    StateHash,
    Synced,
)
from daisychain.cluster.step_messages import (
    Abort,
    Began,
    Commit,
    Computed,
    Decline,
    Exchanged,
    Guard,
    Propose,
    Share,
)
from daisychain.cluster.vote_messages import (
    Adopt,
    Adopted,
    Drift,
    Query,
    Status,
    Stop,
    TakeOver,
    Tree,
)
from daisychain.cluster.wire import Frame

HASH = "0123456789abcdef" * 2
ROW = Exchanged(340, 5_000_000, 5_000_001)
SAMPLES: list[Message] = [
    Beat(9, 64, "a", 5, HASH, Phase.COMPUTE, 0, ("b", "c"), ("c",), "Ann's phone", "Pixel 8"),
    Join("Ann", "laptop", 0, 0, "", "", 0, ""),
    Refuse(Reason.FULL),
    Snapshot(4, "c", True),
    StateHash(4, HASH),
    Admit(4, 64, 0, "b", HASH, HASH, HASH, 17, ("a", "b"), '{"preset":"nano"}'),
    Fetch(4),
    FetchPlan(HASH),
    FetchFooter(3, 0),
    FooterIs(3, 0, 1, "eJyr5gIAAa8Atw=="),
    FetchFailed("b", 7),
    CatchUp(5, 64, 0x3A83126F, Exchange.INT8, (1, 2), HASH, 20, ("a", "b")),
    Synced(5, HASH),
    Propose(
        6,
        64,
        0,
        64,
        HASH,
        HASH,
        0x3A83126F,
        Exchange.INT4,
        20,
        (Share("a", 2, 20), Share("b", 1, 22)),
        (2, 1),
        ("z",),
    ),
    Began(6, 64),
    Decline(6, 64, Reason.BEHIND, 3, 64, ""),
    Computed(6, 64, 1024, 99, 512, HASH),
    Guard(6, 64, HASH, (7,), 20, 1, 2),
    Commit(6, 64, HASH, 1234, (ROW, ROW)),
    Abort(6, 64, Reason.DEADLINE, ("b",)),
    Query(97),
    Status(True, 97, "b", 5, 64, HASH, ("a", "b"), 6, 64, 64, HASH, ("a", "b"), True),
    Adopt(97, 6, 64, HASH, ("a", "b")),
    Adopted(97),
    TakeOver(97),
    Drift(5, HASH),
    Tree(5, HASH, 1, 0, (HASH,) * 64),
    Stop(5, Reason.GUARD, ("b",)),
    Leave(5, 4, "b", "closed"),
]


def test_every_message_has_a_sample() -> None:
    assert {type(sample) for sample in SAMPLES} == set(get_args(Message))


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_control_round_trip(message: Message) -> None:
    envelope = Envelope("a", "b", 8, message)
    data = wire.encode(envelope)
    assert len(data) <= wire.CONTROL_BYTES
    assert wire.decode(data) == envelope


def test_the_largest_messages_fit() -> None:
    ids = tuple(f"{i:016x}" for i in range(32))
    big = (1 << 48) - 1
    shares = tuple(Share(ids[i], 1024, big - 32768 + 1024 * i) for i in range(32))
    for message in (
        Propose(
            1, 1, 0, 0, "", HASH, 1, Exchange.INT8, big - 32768, shares, (2**32 - 1,) * 32, ids
        ),
        Commit(1, 1, HASH, 2**32 - 1, (Exchanged(*([2**32 - 1] * 3)),) * 32),
        Admit(1, 1, 0, ids[0], HASH, HASH, HASH, big, ids, "\N{GRINNING FACE}" * 8192),
        FooterIs(2**32 - 1, 8, 8, "A" * 32_768),
        Beat(1, 1, ids[0], 1, HASH, Phase.IDLE, 1, ids, ids, "\N{GRINNING FACE}" * 64, "k" * 64),
    ):
        data = wire.encode(Envelope(ids[0], ids[1], 8, message))
        assert len(data) <= wire.CONTROL_BYTES
        assert wire.decode(data).message == message


def edited(**changes: object) -> bytes:
    body = json.loads(wire.encode(Envelope("a", "b", 8, Began(1, 2))))
    return json.dumps({**body, **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[" * 1_000,
        b'{"v":1}',
        b"1" * 5_000,
        b'{"v":NaN}',
        edited(v=2),
        edited(v=True),
        edited(v=1.0),
        edited(t="Nope"),
        edited(t=["Began"]),
        edited(s=""),
        edited(s="A"),
        edited(s="a\n"),
        edited(d="x" * 17),
        edited(h=9),
        edited(h=-1),
        edited(b=[1]),
        edited(b=[1, 2, 3]),
        edited(b=[1, -2]),
        edited(b=[1, 1 << 32]),
        edited(b=[1, "2"]),
        edited(b=[True, 2]),
        edited(b={"step": 1, "epoch": 2}),
        edited(extra=1),
        edited(t="Leave", b=[1, "\ud800"]),
        edited(t="Leave", b=[1, "x" * 65]),
        edited(t="Leave", b=[1, "a\x00b"]),
        edited(t="Refuse", b=["because"]),
        edited(t="Drift", b=[1, HASH.upper()]),
        edited(t="Abort", b=[1, 2, "lost", ["a"] * 33]),
    ],
)
def test_malformed_control(data: bytes) -> None:
    with pytest.raises(Malformed):
        wire.decode(data)


def test_a_proposal_must_be_consistent() -> None:
    good = next(sample for sample in SAMPLES if isinstance(sample, Propose))
    a, b = good.shares
    for shares in ((a, a), (b, a), (a, Share("b", 1, 23))):
        with pytest.raises(Malformed):
            Propose(6, 64, 0, 64, HASH, HASH, 1, Exchange.INT8, 20, shares, (2, 1), ())
    with pytest.raises(Malformed):
        Propose(6, 64, 0, 64, HASH, HASH, 1, Exchange.INT8, 20, (a, b), (2,), ())


# --------------------------------------------------------------------------------- frames


def frame_bytes(total: int = 100, sequence: int = 0, kind: Kind = Kind.GRADIENT_UP) -> bytes:
    frame = Frame(kind, 7, 64, 2, 1, 3, 40, total, sequence)
    payload = bytes(i & 255 for i in range(frame.length))
    return wire.encode_header(frame, payload) + payload


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(list(Kind)),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**16 - 1),
    st.integers(0, 255),
    st.integers(0, 2**32 - 1),
    st.integers(0, 3 * PAYLOAD_BYTES),
    st.data(),
)
def test_frame_round_trip(
    kind: Kind,
    step: int,
    epoch: int,
    bucket: int,
    who: int,
    first: int,
    total: int,
    data: st.DataObject,
) -> None:
    sequence = data.draw(st.integers(0, wire.frame_count(total) - 1))
    frame = Frame(kind, step, epoch, bucket, who, 255 - who, first, total, sequence)
    payload = random.Random(total).randbytes(frame.length)
    encoded = wire.encode_header(frame, payload) + payload
    assert len(encoded) <= FRAME_BYTES
    back, body = wire.decode_frame(encoded)
    assert (back, bytes(body)) == (frame, payload)


def test_the_header_layout_is_as_written_down() -> None:
    data = frame_bytes()
    assert data[:2] == b"dc"
    assert list(data[2:4]) == [1, 3]
    fields = [data[i:j] for i, j in ((4, 8), (8, 12), (12, 14), (14, 15), (15, 16), (16, 20))]
    assert [int.from_bytes(f, "little") for f in fields] == [7, 64, 2, 1, 3, 40]
    assert int.from_bytes(data[20:24], "little") == 100
    assert data[24:28] == bytes(4)
    assert int.from_bytes(data[28:32], "little") == zlib.crc32(data[:28] + data[32:])


def test_every_flipped_bit_of_a_frame_is_noticed() -> None:
    data = bytearray(frame_bytes(total=40))
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Malformed):
            wire.decode_frame(bytes(data))
        data[bit // 8] ^= 1 << bit % 8
    wire.decode_frame(bytes(data))


def with_header(**changes: int) -> bytes:
    """A frame whose CRC is right and whose fields are not."""
    head = bytearray(frame_bytes())
    places = {"magic": (0, 2), "version": (2, 1), "kind": (3, 1), "total": (20, 4)}
    places |= {"sequence": (24, 2), "zero": (26, 2)}
    for name, value in changes.items():
        at, size = places[name]
        head[at : at + size] = value.to_bytes(size, "little")
    head[28:32] = zlib.crc32(bytes(head[:28]) + bytes(head[32:])).to_bytes(4, "little")
    return bytes(head)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(HEADER_BYTES - 1),
        bytes(HEADER_BYTES),
        bytes(FRAME_BYTES + 1),
        frame_bytes()[:-1],
        frame_bytes() + b"x",
        with_header(magic=1),
        with_header(version=2),
        with_header(kind=0),
        with_header(kind=99),
        with_header(total=99),
        with_header(total=2**32 - 1),
        with_header(sequence=1),
        with_header(sequence=65535),
        with_header(zero=1),
    ],
)
def test_malformed_frames(data: bytes) -> None:
    with pytest.raises(Malformed):
        wire.decode_frame(data)


# ------------------------------------------------------------------------------------ fuzz


def test_fuzz_frames() -> None:
    """900,000 mutated frames: nothing but Malformed, and never a payload beyond the frame."""
    pick = random.Random(5)
    seeds = [bytearray(frame_bytes(total)) for total in (0, 1, 40)]
    byte, place = pick.randbytes(1 << 16), pick.randbytes(1 << 16)
    accepted = 0
    for i in range(900_000):
        data = seeds[i % 3]
        at, value = place[i & 65535] % len(data), byte[i * 7 & 65535] | 1
        data[at] ^= value
        try:
            wire.decode_frame(data[: -(i % 5) or None] if i % 4 == 0 else data)
            accepted += 1
        except Malformed:
            pass
        data[at] ^= value
    assert accepted == 0


def test_fuzz_headers_with_a_right_checksum() -> None:
    """60,000 random headers with a correct CRC: accepted ones describe exactly their payload."""
    pick = random.Random(6)
    accepted = 0
    for i in range(60_000):
        head = bytearray(frame_bytes(total=i % 50)[:28])
        for _ in range(1 + i % 3):
            head[pick.randrange(2, 28)] = pick.choice((0, 1, 2, 3, 127, 255))
        payload = bytes(i % 50)
        data = bytes(head) + zlib.crc32(payload, zlib.crc32(head)).to_bytes(4, "little") + payload
        try:
            frame, body = wire.decode_frame(data)
        except Malformed:
            continue
        accepted += 1
        assert len(body) == frame.length == i % 50
    assert accepted > 1000


def test_fuzz_control() -> None:
    """60,000 mutated messages: nothing but Malformed; what is accepted round-trips."""
    pick = random.Random(7)
    seeds = [wire.encode(Envelope("a", "b", 8, sample)) for sample in SAMPLES]
    pieces = [b'"', b"[", b"]", b"{", b"}", b",", b"-1", b"1e9", b"null", b"true", b"\\u0000", b"9"]
    accepted = 0
    for i in range(60_000):
        data = bytearray(seeds[i % len(seeds)])
        for _ in range(1 + i % 2):
            at = pick.randrange(len(data))
            match pick.randrange(4):
                case 0:
                    data[at] = pick.randrange(256)
                case 1:
                    del data[at : at + pick.randrange(8)]
                case 2:
                    data[at:at] = pick.choice(pieces)
                case _:
                    data[at:at] = data[pick.randrange(len(data)) :][: pick.randrange(40)]
        try:
            envelope = wire.decode(bytes(data))
        except Malformed:
            continue
        accepted += 1
        assert wire.decode(wire.encode(envelope)) == envelope
    assert accepted > 100
