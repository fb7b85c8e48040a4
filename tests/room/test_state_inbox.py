"""A state on its way: what belongs to an earlier one does not get in between."""

from __future__ import annotations

import asyncio

from daisychain.room.replica import hash_state
from daisychain.room.state_inbox import StateInbox


def test_buffers_of_a_state_given_up_are_no_part_of_the_next() -> None:
    inbox, first, second = StateInbox(), object(), object()
    inbox.open(first, 3, [4, 4], 10)
    inbox.came(3, 0, b"old0")
    inbox.open(second, 5, [4, 4], 10)
    inbox.came(3, 1, b"old1")
    inbox.came(5, 1, b"new1")
    inbox.came(5, 0, b"new0")
    assert asyncio.run(inbox.wait(first, 1)) is None
    assert asyncio.run(inbox.wait(second, 1)) == [b"new0", b"new1"]


def test_steps_made_meanwhile_are_awaited_from_the_first_on() -> None:
    assert len(StateInbox().open(object(), 0, [4, 4], 10)) == 2 * 64
    assert len(StateInbox().open(object(), 7, [4, 4], 10)) == 2 * 64 + 2
    assert len(StateInbox().open(object(), 7, [4, 4], 9_000_000)) == 2 * 8 + 2, "not too many bytes"


def test_the_hash_of_a_state_tells_its_buffers_apart() -> None:
    states = [[b"ab", b"c"], [b"a", b"bc"], [b"abc"], [b"abc", b""], [b"c", b"ab"]]
    hashes = {asyncio.run(hash_state(state)) for state in states}
    assert len(hashes) == len(states)
    assert {len(found) for found in hashes} == {32}
