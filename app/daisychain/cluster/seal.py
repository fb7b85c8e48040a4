"""Sealed pairing messages: relays see a derived topic and ciphertext, and can only drop or delay.

The room code gives, through PBKDF2-SHA256 with 200,000 rounds, the topic's name and an AES-256-GCM
key.  A sealed message is ``nonce (12) | ciphertext | tag (16)`` over
``sender id (10) | sequence (8, big-endian) | body``, bound to the topic.  Whatever does not open is
dropped without an answer, so a wrong code meets silence; a replayed message fails the sender's
sequence window.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from collections import OrderedDict
from dataclasses import dataclass

from daisychain.platform.crypto import AesGcmKey, Crypto

PBKDF2_ROUNDS = 200_000
SALT = b"daisychain/room/1"
TOPIC_BYTES = 16
NONCE_BYTES = 12
TAG_BYTES = 16
ID_BYTES = 10
MAX_BODY_BYTES = 8 * 1024
MAX_SEALED_BYTES = NONCE_BYTES + ID_BYTES + 8 + MAX_BODY_BYTES + TAG_BYTES
WINDOW_MESSAGES = 64
REMEMBERED_SENDERS = 256

_HEADER = struct.Struct(f">{ID_BYTES}sQ")


@dataclass(frozen=True)
class RoomKeys:
    """What the room code stands for: where to meet, and the key that locks the messages."""

    topic: bytes
    key: AesGcmKey


@dataclass(frozen=True)
class Opened:
    """A message that was sealed with the room's key: who says to have sent it, and its body."""

    sender: bytes
    body: bytes


async def derive_room_keys(code: str, crypto: Crypto) -> RoomKeys:
    """Keys of the room with this canonical code (about 0.1 s)."""
    master = await crypto.pbkdf2_sha256(code.encode("ascii"), SALT, PBKDF2_ROUNDS, 32)
    topic = hmac.digest(master, b"topic", "sha256")[:TOPIC_BYTES]
    return RoomKeys(topic, await crypto.aes_gcm_key(hmac.digest(master, b"seal", "sha256")))


class ReplayWindow:
    """Which sequence numbers of one sender were seen: the highest and the 64 below it."""

    def __init__(self) -> None:
        self._highest = -1
        self._seen = 0

    def accept(self, sequence: int) -> bool:
        """True once for each number that is not too old."""
        ahead = sequence - self._highest
        if ahead > 0:
            kept = self._seen << ahead if ahead < WINDOW_MESSAGES else 0
            self._seen = (kept | 1) & (1 << WINDOW_MESSAGES) - 1
            self._highest = sequence
            return True
        if -ahead >= WINDOW_MESSAGES or self._seen >> -ahead & 1:
            return False
        self._seen |= 1 << -ahead
        return True


class Sealer:
    """Seals one member's messages and opens those of the others.

    ``first_sequence`` must exceed every number that this sender id has used before: callers take
    the wall clock in microseconds.
    """

    def __init__(self, keys: RoomKeys, sender: bytes, first_sequence: int) -> None:
        if len(sender) != ID_BYTES:
            raise ValueError(f"a sender id has {ID_BYTES} bytes")
        self._keys, self._sender, self._sequence = keys, sender, first_sequence
        self._context = SALT + keys.topic
        self._windows: OrderedDict[bytes, ReplayWindow] = OrderedDict()
        self.unopened = 0
        self.replayed = 0

    async def seal(self, body: bytes) -> bytes:
        """The sealed message for a body of at most 8 KiB."""
        if len(body) > MAX_BODY_BYTES:
            raise ValueError(f"{len(body)} bytes are too many for one pairing message")
        plaintext = _HEADER.pack(self._sender, self._sequence) + body
        self._sequence += 1
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + await self._keys.key.encrypt(nonce, plaintext, self._context)

    async def open(self, sealed: bytes) -> Opened | None:
        """The message, or None (and a counter) for what is foreign, damaged or replayed."""
        if not NONCE_BYTES + _HEADER.size + TAG_BYTES <= len(sealed) <= MAX_SEALED_BYTES:
            self.unopened += 1
            return None
        nonce, ciphertext = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
        plaintext = await self._keys.key.decrypt(nonce, ciphertext, self._context)
        if plaintext is None:
            self.unopened += 1
            return None
        sender, sequence = _HEADER.unpack_from(plaintext)
        if sender == self._sender or not self._window(sender).accept(sequence):
            self.replayed += 1
            return None
        return Opened(sender, plaintext[_HEADER.size :])

    def _window(self, sender: bytes) -> ReplayWindow:
        window = self._windows.setdefault(sender, ReplayWindow())
        self._windows.move_to_end(sender)
        if len(self._windows) > REMEMBERED_SENDERS:
            self._windows.popitem(last=False)
        return window
