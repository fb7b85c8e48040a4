"""Sealing: only the room's members can read and write, and nothing counts twice."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.cluster.seal import (
    MAX_BODY_BYTES,
    MAX_SEALED_BYTES,
    WINDOW_MESSAGES,
    ReplayWindow,
    RoomKeys,
    Sealer,
    derive_room_keys,
)
from daisychain.platform.crypto import open_crypto

ALICE, BOB = b"alice-----", b"bob-------"


def keys_of(secret: int = 1, topic: bytes = b"t" * 16) -> RoomKeys:
    return RoomKeys(topic, asyncio.run(open_crypto().aes_gcm_key(bytes([secret] * 32))))


def test_derivation_is_fixed_and_separates_topic_from_key() -> None:
    keys = asyncio.run(derive_room_keys("K7QDM2XP9RTW4HBN", open_crypto()))
    again = asyncio.run(derive_room_keys("K7QDM2XP9RTW4HBN", open_crypto()))
    other = asyncio.run(derive_room_keys("K7QDM2XP9RTW4HBP", open_crypto()))
    assert keys.topic == again.topic == bytes.fromhex("6c2e9a2e69afacf0b6221e35629e877e")
    assert keys.topic != other.topic

    async def crossing() -> bytes | None:
        return await again.key.decrypt(b"n" * 12, await keys.key.encrypt(b"n" * 12, b"x", b""), b"")

    assert asyncio.run(crossing()) == b"x"


@given(st.binary(max_size=MAX_BODY_BYTES))
@settings(max_examples=30, deadline=None)
def test_round_trip_once(body: bytes) -> None:
    keys = keys_of()
    alice, bob = Sealer(keys, ALICE, 0), Sealer(keys, BOB, 0)
    sealed = asyncio.run(alice.seal(body))
    assert len(sealed) <= MAX_SEALED_BYTES
    opened = asyncio.run(bob.open(sealed))
    assert opened is not None
    assert (opened.sender, opened.body) == (ALICE, body)
    assert asyncio.run(bob.open(sealed)) is None
    assert asyncio.run(alice.open(sealed)) is None
    assert (bob.replayed, alice.replayed) == (1, 1)


def test_wrong_code_wrong_topic_and_damage_meet_silence() -> None:
    sealed = asyncio.run(Sealer(keys_of(), ALICE, 0).seal(b"hello"))
    strangers = [Sealer(keys_of(2), BOB, 0), Sealer(keys_of(1, b"u" * 16), BOB, 0)]
    for stranger in strangers:
        assert asyncio.run(stranger.open(sealed)) is None
        assert stranger.unopened == 1
    bob = Sealer(keys_of(), BOB, 0)
    for place in range(len(sealed)):
        damaged = bytearray(sealed)
        damaged[place] ^= 1
        assert asyncio.run(bob.open(bytes(damaged))) is None
    assert bob.unopened == len(sealed)


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_garbage_is_counted_and_dropped(garbage: bytes) -> None:
    bob = Sealer(keys_of(), BOB, 0)
    assert asyncio.run(bob.open(garbage)) is None
    assert bob.unopened == 1


@given(st.lists(st.integers(0, 200), max_size=300))
def test_window_accepts_each_number_at_most_once(sequences: list[int]) -> None:
    window, accepted, highest = ReplayWindow(), set(), -1
    for sequence in sequences:
        fresh = sequence not in accepted and sequence > highest - WINDOW_MESSAGES
        assert window.accept(sequence) is fresh
        if fresh:
            accepted.add(sequence)
        highest = max(highest, sequence)


def test_many_senders_do_not_fill_memory() -> None:
    keys = keys_of()
    bob = Sealer(keys, BOB, 0)
    for number in range(400):
        sender = Sealer(keys, number.to_bytes(10, "big"), 0)
        assert asyncio.run(bob.open(asyncio.run(sender.seal(b"")))) is not None
    assert len(bob._windows) == 256
