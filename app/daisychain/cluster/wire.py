"""What travels: control messages as JSON, bulk frames with a 32-byte header.

Both decoders take hostile input: they check sizes before anything else, raise `Malformed` and
nothing else, and allocate no more than a small multiple of what they were given.

Control: ``{"v": 1, "t": type, "s": source, "d": target, "h": hops, "b": [fields in order]}`` in
UTF-8, at most `CONTROL_BYTES`.

Bulk frame (little endian), at most 64 KiB in all:

    offset size
    0      2    magic "dc"
    2      1    version, 1
    3      1    kind (`reduce_plan.Kind`)
    4      4    step
    8      4    epoch
    12     2    bucket
    14     1    origin: index in the step's roster (STATE, CATCH_UP, PLAN: 0, the link says)
    15     1    target: index in the step's roster (STATE, CATCH_UP, PLAN: 0)
    16     4    first: first row (exponents) or element (gradients) of the tensor range, counted
                from the bucket's start; 0 for CATCH_UP and PLAN; the sender's business for STATE
    20     4    total: payload bytes of the whole flow
    24     2    sequence: frame number within the flow; its payload starts at byte
                sequence * PAYLOAD_BYTES, and only the last frame may be short
    26     2    zero
    28     4    CRC-32 (zlib) of header bytes 0..27 and the payload
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import astuple, dataclass, fields, is_dataclass
from typing import Any, get_args

from daisychain.cluster.fields import Malformed, checks
from daisychain.cluster.messages import Envelope, Message
from daisychain.cluster.reduce_plan import FRAME_BYTES, HEADER_BYTES, PAYLOAD_BYTES, Kind
from daisychain.cluster.roster import is_id

VERSION = 1
CONTROL_BYTES = 65_536
MAX_HOPS = 8
MAX_BRACKETS = 1024
"""Opening brackets in a control message: far above what any valid one has, far below what could
exhaust the stack of a JSON parser."""

_TYPES: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Message)}
_CHECKS = {name: checks(kind) for name, kind in _TYPES.items()}
_HEADER = struct.Struct("<2sBBIIHBBIIHHI")
_MAGIC = b"dc"
_KINDS = {int(kind): kind for kind in Kind}
assert _HEADER.size == HEADER_BYTES


def encode(envelope: Envelope) -> bytes:
    """A control message as bytes for a channel."""
    message = envelope.message
    body = {
        "v": VERSION,
        "t": type(message).__name__,
        "s": envelope.source,
        "d": envelope.target,
        "h": envelope.hops,
        "b": _plain(message),
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def decode(data: bytes) -> Envelope:
    """Inverse of `encode`; Malformed for anything that `encode` could not have made."""
    if len(data) > CONTROL_BYTES:
        raise Malformed("A control message is too long.")
    if data.count(b"[") + data.count(b"{") > MAX_BRACKETS:
        raise Malformed("A control message is nested too much.")
    try:
        body = json.loads(data.decode(), parse_float=_refuse, parse_constant=_refuse)
    except (ValueError, RecursionError) as cause:
        raise Malformed("A control message is not JSON.") from cause
    if type(body) is not dict or body.keys() != {"v", "t", "s", "d", "h", "b"}:
        raise Malformed("A control message has not the agreed fields.")
    if type(body["v"]) is not int or body["v"] != VERSION:
        raise Malformed("A control message is of another version of the program.")
    source, target, hops, plain = body["s"], body["d"], body["h"], body["b"]
    if not (type(source) is str and is_id(source) and type(target) is str and is_id(target)):
        raise Malformed("A control message has no valid sender or receiver.")
    if type(hops) is not int or not 0 <= hops <= MAX_HOPS:
        raise Malformed("A control message has travelled too far.")
    wanted = _CHECKS.get(body["t"]) if type(body["t"]) is str else None
    if wanted is None or type(plain) is not list or len(plain) != len(wanted):
        raise Malformed("A control message is of an unknown type.")
    values = [check(value) for check, value in zip(wanted, plain, strict=True)]
    return Envelope(source, target, hops, _TYPES[body["t"]](*values))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return [_plain(getattr(value, f.name)) for f in fields(value)]
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _refuse(text: str) -> None:
    raise ValueError(f"{text[:20]} is no integer")


@dataclass(frozen=True, slots=True)
class Frame:
    """The header of a bulk frame, without what the bytes themselves tell."""

    kind: Kind
    step: int
    epoch: int
    bucket: int
    origin: int
    target: int
    first: int
    total: int
    sequence: int

    @property
    def offset(self) -> int:
        """Where the payload starts within its flow, in bytes."""
        return self.sequence * PAYLOAD_BYTES

    @property
    def length(self) -> int:
        """Payload bytes that this frame must have."""
        return min(PAYLOAD_BYTES, self.total - self.offset)


def frame_count(total: int) -> int:
    """Frames of a flow of ``total`` bytes; an empty flow is one empty frame."""
    return max(1, -(-total // PAYLOAD_BYTES))


def encode_header(frame: Frame, payload: bytes | memoryview) -> bytes:
    """The 32 bytes that precede ``payload`` on a bulk channel."""
    head = _HEADER.pack(
        _MAGIC,
        VERSION,
        frame.kind,
        frame.step,
        frame.epoch,
        frame.bucket,
        frame.origin,
        frame.target,
        frame.first,
        frame.total,
        frame.sequence,
        0,
        0,
    )[:-4]
    return head + zlib.crc32(payload, zlib.crc32(head)).to_bytes(4, "little")


def flow_header(frame: Frame) -> bytes:
    """The 32 bytes that name a whole flow between a host and its byte pump; no CRC."""
    return _HEADER.pack(_MAGIC, VERSION, *astuple(frame), 0, 0)


def decode_flow_header(header: bytes) -> Frame:
    """Inverse of `flow_header`."""
    _, _, kind, *numbers, _, _ = _HEADER.unpack(header)
    return Frame(_KINDS[kind], *numbers)


def decode_frame(data: bytes | memoryview) -> tuple[Frame, memoryview]:
    """Header and payload of a bulk frame; Malformed unless every bit of it is as it was sent."""
    view = memoryview(data)
    frame, crc = decode_header(view[:HEADER_BYTES], len(view) - HEADER_BYTES)
    payload = view[HEADER_BYTES:]
    if zlib.crc32(payload, zlib.crc32(view[: HEADER_BYTES - 4])) != crc:
        raise Malformed("A bulk frame was damaged on its way.")
    return frame, payload


def decode_header(head: bytes | memoryview, payload_bytes: int) -> tuple[Frame, int]:
    """Header and the CRC it claims, for hosts that keep the payload elsewhere and check it there.

    Malformed if the header contradicts itself or the number of payload bytes.
    """
    if len(head) != HEADER_BYTES or not 0 <= payload_bytes <= PAYLOAD_BYTES:
        raise Malformed("A bulk frame is too short or too long.")
    magic, version, kind, step, epoch, bucket, origin, target, first, total, sequence, zero, crc = (
        _HEADER.unpack(head)
    )
    if magic != _MAGIC or version != VERSION or zero != 0 or kind not in _KINDS:
        raise Malformed("A bulk frame is of an unknown kind.")
    frame = Frame(_KINDS[kind], step, epoch, bucket, origin, target, first, total, sequence)
    if sequence >= frame_count(frame.total) or payload_bytes != frame.length:
        raise Malformed("A bulk frame has not the length that its place asks for.")
    return frame, crc


assert FRAME_BYTES == HEADER_BYTES + PAYLOAD_BYTES
