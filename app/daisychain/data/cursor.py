"""Which windows of a token stream feed which step: pure integer functions of the seed.

A stream of n tokens holds (n - 1) // T windows of T + 1 tokens at stride T.  Each epoch reads them
all once, in an order given by (seed, epoch) alone; so any device can find anybody's windows, and a
resumed or re-assigned slice is exact.  Nothing here holds state.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

from daisychain.numbers.random_bits import MASK, SEED_KEY, arx

ROUNDS = 6
"""Feistel rounds: enough to part neighbours in every small domain (tests/data/test_cursor.py)."""


@lru_cache(maxsize=256)
def _round_keys(seed: int, stream: tuple[int, ...]) -> tuple[int, ...]:
    """One 32-bit key a round, from the seed and the numbers that name the permutation."""
    key = arx(seed & MASK, *SEED_KEY)
    key = arx(seed >> 32 & MASK, *key)
    for number in stream:
        key = arx(number & MASK, *key)
    words = [arx(i, *key) for i in range(ROUNDS // 2)]
    return tuple(word for pair in words for word in pair)


def _mix(value: int) -> int:
    """A 32-bit finalizer with full avalanche (lowbias32, hash-prospector)."""
    value ^= value >> 16
    value = value * 0x7FEB352D & MASK
    value ^= value >> 15
    value = value * 0x846CA68B & MASK
    return value ^ value >> 16


def permute(index: int, size: int, seed: int, *stream: int) -> int:
    """The place of ``index`` in the permutation of ``range(size)`` named by seed and stream.

    A Feistel network over pairs of digits below ceil(sqrt(size)); the few values that land outside
    the range walk on until they are inside, which keeps it one-to-one.
    """
    if not 0 <= index < size:
        raise IndexError(f"{index} is not in a range of {size}")
    base = isqrt(size - 1) + 1
    keys = _round_keys(seed, stream)
    while True:
        left, right = divmod(index, base)
        for key in keys:
            left, right = right, (left + _mix(right ^ key)) % base
        index = left * base + right
        if index < size:
            return index


def window_count(tokens: int, context: int) -> int:
    """How many windows of ``context`` inputs and as many targets a stream holds."""
    return max(0, (tokens - 1) // context)


def window_start(seed: int, sequence_index: int, n_windows: int) -> tuple[int, int]:
    """(epoch, window) of the run's sequence ``sequence_index``; no window twice in an epoch."""
    epoch, place = divmod(sequence_index, n_windows)
    return epoch, permute(place, n_windows, seed, epoch)


def sequence_range(step: int, micro_batch: int, micro_batches: int, rows: int) -> range:
    """The sequence indexes of one micro-batch, of ``micro_batches`` a step with ``rows`` each."""
    first = (step * micro_batches + micro_batch) * rows
    return range(first, first + rows)
