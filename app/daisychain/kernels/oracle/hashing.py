"""Oracle of the weight hash: 128 bits, integer, a tree over ranges of 64 KiB.

A guard against drift and damaged transfers, not against an attacker.  The mixing step is the
ChaCha quarter round (RFC 8439, 2.1).
"""

from __future__ import annotations

import numpy as np

from daisychain.kernels.catalog import HASH_RANGE_WORDS
from daisychain.kernels.oracle.primitives import Array, Params

LANES = 256
INITIAL_STATE = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # RFC 8439, 2.3


def _absorb(state: Array, word: Array) -> None:
    """state: u32 [4][lanes]; one quarter round a word."""
    a, b, c, d = state
    a ^= word
    for target, source, mixed, r in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        target += source
        mixed ^= target
        mixed[:] = (mixed << np.uint32(r)) | (mixed >> np.uint32(32 - r))


def _initial(lanes: int) -> Array:
    state = np.repeat(np.array(INITIAL_STATE, np.uint32)[:, None], lanes, 1)
    state[0] ^= np.arange(lanes, dtype=np.uint32)
    return state


def hash_range(words: Array) -> Array:
    """Four words for at most HASH_RANGE_WORDS words.

    Lane l absorbs words l, l + 256, ..., then their number; then lane l absorbs the state of lane
    l + stride for stride 128, 64, ... 1.  The result is lane 0.
    """
    state = _initial(LANES)
    for first in range(0, words.size, LANES):
        part = words[first : first + LANES]
        lanes = state[:, : part.size]
        _absorb(lanes, part)
    absorbed = (words.size - np.arange(LANES) + LANES - 1) // LANES
    _absorb(state, np.maximum(absorbed, 0).astype(np.uint32))
    stride = LANES // 2
    while stride:
        for word in range(4):
            _absorb(state[:, :stride], state[word, stride : 2 * stride])
        stride //= 2
    return state[:, 0]


def hash_ranges(p: Params, s: Array, x: Array, ranges: Array) -> None:
    for r, first in enumerate(range(0, p.count, HASH_RANGE_WORDS)):
        at = 4 * (p.first_range + r)
        ranges[at : at + 4] = hash_range(x[first : min(first + HASH_RANGE_WORDS, p.count)])


def hash_root(p: Params, s: Array, ranges: Array, record: Array) -> None:
    """One lane absorbs all words of ``ranges``, then their number."""
    state = _initial(1)
    for word in ranges[: p.count]:
        _absorb(state, np.array([word], np.uint32))
    _absorb(state, np.array([p.count], np.uint32))
    record[p.offset : p.offset + 4] = state[:, 0]
