"""Who is who: a member's id is a digest of the certificate that its links prove to own.

WebRTC authenticates each end of a link by the SHA-256 fingerprint of its certificate (RFC 8122).
Every member makes one certificate and its id is a digest of the fingerprint, so an offer that
claims somebody else's id cannot match, and a member that was kicked cannot come back as another.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from daisychain.cluster.seal import ID_BYTES

FINGERPRINT_BYTES = 32
MAX_NAME_CHARACTERS = 40

_SYMBOLS = "0123456789abcdefghjkmnpqrstvwxyz"
_ID = re.compile(f"[{_SYMBOLS}]{{16}}")


@dataclass(frozen=True, order=True)
class Member:
    """A device in the room: its id, the name a person gave it, and what kind of device it is."""

    id: str
    name: str
    kind: str


def member_id(fingerprint: bytes) -> str:
    """The id of the member whose certificate has this SHA-256 fingerprint: 16 symbols, 80 bits."""
    return id_text(hashlib.sha256(b"daisychain/member/1" + fingerprint).digest()[:ID_BYTES])


def id_text(data: bytes) -> str:
    """The 10 bytes of an id as 16 base32 symbols; both forms sort alike."""
    bits = int.from_bytes(data, "big")
    return "".join(_SYMBOLS[bits >> shift & 31] for shift in range(75, -1, -5))


def id_bytes(text: str) -> bytes:
    """The 10 bytes of an id; raises ValueError for anything else."""
    if not is_member_id(text):
        raise ValueError(f"{text!r} is no member id")
    bits = 0
    for symbol in text:
        bits = bits << 5 | _SYMBOLS.index(symbol)
    return bits.to_bytes(ID_BYTES, "big")


def is_member_id(value: object) -> bool:
    """Whether a value from outside is a well-formed id."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def clean_name(value: object, fallback: str) -> str:
    """A name from outside made fit to show: one line, printable, at most 40 characters."""
    if not isinstance(value, str):
        return fallback
    shown = "".join(c if c.isprintable() else " " for c in value[: 8 * MAX_NAME_CHARACTERS])
    return " ".join(shown.split())[:MAX_NAME_CHARACTERS].strip() or fallback
