"""Session descriptions of data-channel connections, as a few fields instead of an SDP text.

A browser's own SDP is read into ``Description``; what comes from another device is only ever this
small form, and the SDP that our browser gets to parse is rebuilt from it.  ``pack`` makes the
base64url text (110 to 130 characters) that also fits a QR code for pairing by hand::

    byte 0     version (bits 4..7), role (bits 0..1: 0 offer, 1 active, 2 passive)
    byte 1, 2  characters of ufrag and of password
    then       both at 6 bits a character, 32 bytes fingerprint, and per candidate:
               1 byte type * 4 + family, 2 bytes port, 4 (IPv4) or 16 (IPv6, mDNS name) bytes

Source: RFC 8839 (ICE in SDP), RFC 8841 (SCTP), RFC 8842 (DTLS), RFC 8445 section 5.1.2.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import uuid
from dataclasses import dataclass, replace
from typing import Literal

from daisychain.cluster.identity import FINGERPRINT_BYTES
from daisychain.errors import ClusterError

Role = Literal["actpass", "active", "passive"]

MAX_CANDIDATES = 24
MAX_PACKED_CHARACTERS = 1024
MAX_MESSAGE_BYTES = 262_144

_VERSION = 1
_ROLES: tuple[Role, ...] = ("actpass", "active", "passive")
_TYPES = ("host", "srflx", "prflx", "relay")
_TYPE_PREFERENCE = {"host": 126, "prflx": 110, "srflx": 100, "relay": 0}
_ICE_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_ICE_TEXT = re.compile(r"[A-Za-z0-9+/]{4,64}")
_CANDIDATE = re.compile(r"(?:a=)?candidate:\S+ 1 (?i:udp) \d+ (\S+) (\d+) typ (\w+)")
_FINGERPRINT = re.compile(
    r"^a=fingerprint:sha-256 ((?:[0-9A-Fa-f]{2}:){31}[0-9A-Fa-f]{2})\r?$", re.M
)


class PairingError(ClusterError):
    """A pairing text or a session description cannot be used."""


@dataclass(frozen=True)
class Candidate:
    """One address at which a device may be reached: IPv4, IPv6 or the name ``uuid.local``."""

    type: str
    address: str
    port: int


@dataclass(frozen=True)
class Description:
    """An offer (role ``actpass``) or an answer for one connection."""

    role: Role
    ufrag: str
    password: str
    fingerprint: bytes
    candidates: tuple[Candidate, ...] = ()

    def with_candidates(self, candidates: tuple[Candidate, ...]) -> Description:
        """The same description with the first 24 of these candidates."""
        return replace(self, candidates=candidates[:MAX_CANDIDATES])


def parse_candidate(line: str) -> Candidate | None:
    """A candidate in the browser's words, or None for one that we do not use (TCP, strange)."""
    match = _CANDIDATE.match(line)
    if match is None or match[3] not in _TYPES or not 0 < int(match[2]) < 65_536:
        return None
    address = match[1].lower()
    try:
        _pack_address(address)
    except ValueError:
        return None
    return Candidate(match[3], address, int(match[2]))


def candidate_line(candidate: Candidate, place: int = 0) -> str:
    """The candidate for ``addIceCandidate``; earlier ``place`` means higher priority."""
    priority = (_TYPE_PREFERENCE[candidate.type] << 24) + (65_535 - place << 8) + 255
    related = "" if candidate.type == "host" else " raddr 0.0.0.0 rport 0"
    return (
        f"candidate:{place + 1} 1 udp {priority} {candidate.address} {candidate.port} "
        f"typ {candidate.type}{related}"
    )


def description_of(sdp: str) -> Description:
    """The fields of a browser's SDP with one data section; raises PairingError."""
    ufrag, password, setup = (
        re.search(rf"^a={name}:(\S+)\r?$", sdp, re.M) for name in ("ice-ufrag", "ice-pwd", "setup")
    )
    if not (ufrag and password and setup and setup[1] in _ROLES):
        raise PairingError("The browser's session description has an unknown form.")
    found = (parse_candidate(line) for line in sdp.splitlines() if line.startswith("a=candidate"))
    return Description(
        _ROLES[_ROLES.index(setup[1])],
        ufrag[1],
        password[1],
        fingerprint_of(sdp),
    ).with_candidates(tuple(candidate for candidate in found if candidate is not None))


def fingerprint_of(sdp: str) -> bytes:
    """The SHA-256 fingerprint of the certificate in a browser's SDP; raises PairingError."""
    match = _FINGERPRINT.search(sdp)
    if match is None:
        raise PairingError("The browser's session description has no SHA-256 fingerprint.")
    return bytes.fromhex(match[1].replace(":", ""))


def sdp_of(description: Description, version: int = 1) -> str:
    """The SDP that the browser gets; ``version`` counts the descriptions of one connection."""
    lines = [
        "v=0",
        f"o=- 1 {version} IN IP4 127.0.0.1",
        "s=-",
        "t=0 0",
        "a=group:BUNDLE 0",
        "m=application 9 UDP/DTLS/SCTP webrtc-datachannel",
        "c=IN IP4 0.0.0.0",
        *(f"a={candidate_line(c, place)}" for place, c in enumerate(description.candidates)),
        f"a=ice-ufrag:{description.ufrag}",
        f"a=ice-pwd:{description.password}",
        "a=ice-options:trickle",
        f"a=fingerprint:sha-256 {description.fingerprint.hex(':').upper()}",
        f"a=setup:{description.role}",
        "a=mid:0",
        "a=sctp-port:5000",
        f"a=max-message-size:{MAX_MESSAGE_BYTES}",
    ]
    return "\r\n".join(lines) + "\r\n"


def pack(description: Description) -> str:
    """The description as base64url text."""
    secrets = description.ufrag + description.password
    bits = 0
    for character in secrets:
        bits = bits << 6 | _ICE_CHARACTERS.index(character)
    padding = -6 * len(secrets) % 8
    data = bytes(
        [
            _VERSION << 4 | _ROLES.index(description.role),
            len(description.ufrag),
            len(description.password),
        ]
    )
    data += (bits << padding).to_bytes((6 * len(secrets) + padding) // 8, "big")
    data += description.fingerprint + pack_candidates(description.candidates)
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unpack(text: str) -> Description:
    """The description in a packed text; raises PairingError with a sentence for the person."""
    data = _decode(text)
    if len(data) < 3 or data[0] >> 4 != _VERSION or data[0] & 15 >= len(_ROLES):
        raise _damaged()
    ufrag_length, password_length = data[1], data[2]
    size = (6 * (ufrag_length + password_length) + 7) // 8
    rest = data[3 + size :]
    if len(rest) < FINGERPRINT_BYTES:
        raise _damaged()
    bits = int.from_bytes(data[3 : 3 + size], "big") >> -6 * (ufrag_length + password_length) % 8
    shifts = range(6 * (ufrag_length + password_length - 1), -1, -6)
    secrets = "".join(_ICE_CHARACTERS[bits >> shift & 63] for shift in shifts)
    ufrag, password = secrets[:ufrag_length], secrets[ufrag_length:]
    if not _ICE_TEXT.fullmatch(ufrag) or not _ICE_TEXT.fullmatch(password) or len(password) < 22:
        raise _damaged()
    return Description(
        _ROLES[data[0] & 15],
        ufrag,
        password,
        rest[:FINGERPRINT_BYTES],
        _read_candidates(rest[FINGERPRINT_BYTES:]),
    )


def pack_candidates(candidates: tuple[Candidate, ...]) -> bytes:
    """Candidates back to back, 7 or 19 bytes each."""
    packed = bytearray()
    for candidate in candidates:
        family, address = _pack_address(candidate.address)
        packed.append(_TYPES.index(candidate.type) << 2 | family)
        packed += candidate.port.to_bytes(2, "big") + address
    return bytes(packed)


def unpack_candidates(text: str) -> tuple[Candidate, ...]:
    """Candidates from base64url text; raises PairingError."""
    return _read_candidates(_decode(text))


def candidates_text(candidates: tuple[Candidate, ...]) -> str:
    """Candidates as base64url text."""
    return base64.urlsafe_b64encode(pack_candidates(candidates)).decode().rstrip("=")


def _decode(text: str) -> bytes:
    compact = "".join(text[: 2 * MAX_PACKED_CHARACTERS].split()).rstrip("=")
    if len(compact) > MAX_PACKED_CHARACTERS or not re.fullmatch(r"[A-Za-z0-9_-]*", compact):
        raise _damaged()
    try:
        return base64.urlsafe_b64decode(compact + "=" * (-len(compact) % 4))
    except binascii.Error as cause:
        raise _damaged() from cause


def _read_candidates(data: bytes) -> tuple[Candidate, ...]:
    candidates: list[Candidate] = []
    while data:
        family, kind = data[0] & 3, data[0] >> 2
        size = 3 + (4 if family == 0 else 16)
        port = int.from_bytes(data[1:3], "big")
        full = len(candidates) >= MAX_CANDIDATES
        if family > 2 or kind >= len(_TYPES) or len(data) < size or not port or full:
            raise _damaged()
        candidates.append(Candidate(_TYPES[kind], _address_text(family, data[3:size]), port))
        data = data[size:]
    return tuple(candidates)


def _pack_address(address: str) -> tuple[int, bytes]:
    """Family (0 IPv4, 1 IPv6, 2 mDNS) and bytes; raises ValueError for other addresses."""
    if address.endswith(".local"):
        return 2, uuid.UUID(address.removesuffix(".local")).bytes
    parsed = ipaddress.ip_address(address)
    return (0 if parsed.version == 4 else 1), parsed.packed


def _address_text(family: int, data: bytes) -> str:
    if family == 2:
        return f"{uuid.UUID(bytes=data)}.local"
    return str(ipaddress.ip_address(data))


def _damaged() -> PairingError:
    return PairingError(
        "This is no complete pairing text.",
        do="Copy all of it from the other device, or scan its QR code again.",
    )
