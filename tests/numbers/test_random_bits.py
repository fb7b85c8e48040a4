"""The hash for random bits: vectors of the prototype, a second implementation, uniformity."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from daisychain.numbers.random_bits import (
    MASK,
    ROTATIONS,
    SEED_KEY,
    arx,
    step_key,
    tensor_key,
)

u32 = st.integers(0, MASK)

REFERENCE = (
    (1, (2, 3), (0x3EE65BED, 0x540C2F5C)),
    (0xFFFFFFFF, (0x243F6A88, 0x85A308D3), (0x34AD517D, 0x9A11074A)),
    (123456789, (0xDEADBEEF, 0x12345678), (0x1F3B66E8, 0x60143AB7)),
)


def numpy_arx(
    counter: np.ndarray[tuple[int], np.dtype[np.uint32]], key_a: int, key_b: int
) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint32]], ...]:
    """The same hash on arrays, as the prototype has it."""

    def rotate(x: np.ndarray, r: int) -> np.ndarray:
        return (x << np.uint32(r)) | (x >> np.uint32(32 - r))

    a = counter + np.uint32(key_a)
    b = rotate(a, 16) ^ np.uint32(key_b)
    for r in ROTATIONS:
        a = a + b
        b = rotate(b, r) ^ a
    return a, b


def test_reference_vectors() -> None:
    for counter, key, words in REFERENCE:
        assert arx(counter, *key) == words
    assert arx(3, *arx(2, *arx(1, *SEED_KEY))) == (0xB8FC0148, 0xE526DF37)


@given(u32, u32, u32)
def test_arx_equals_the_array_form(counter: int, key_a: int, key_b: int) -> None:
    a, b = numpy_arx(np.array([counter], np.uint32), key_a, key_b)
    assert arx(counter, key_a, key_b) == (int(a[0]), int(b[0]))


@given(u32, u32, u32)
def test_a_block_can_be_undone(counter: int, key_a: int, key_b: int) -> None:
    """The hash is a bijection of the counter for a key: streams do not run into each other."""
    a, b = arx(counter, key_a, key_b)
    for r in reversed(ROTATIONS):
        b ^= a
        b = (b >> r | b << 32 - r) & MASK
        a = (a - b) & MASK
    assert (a - key_a) & MASK == counter
    assert ((a << 16 | a >> 16) & MASK) ^ key_b == b


def test_keys_of_seeds_steps_micro_batches_and_tensors_differ() -> None:
    steps = [step_key(*key) for key in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0), (1, 1, 1))]
    keys = [tensor_key(step, tensor) for step in steps for tensor in range(3)]
    assert len(set(keys)) == len(keys)
    assert step_key(7, 8, 9) == arx(9, *arx(8, *arx(7, *SEED_KEY)))
    assert tensor_key((5, 6), 4) == arx(4, 5, 6)


def test_bits_are_uniform_and_lags_uncorrelated() -> None:
    key = step_key(1, 2, 3)
    words = np.stack(numpy_arx(np.arange(1 << 17, dtype=np.uint32), *key), 1).reshape(-1)
    uniform = words / 2.0**32 - 0.5
    for lag in (1, 2, 3, 4, 8, 64, 1024):
        z = float((uniform[lag:] * uniform[:-lag]).mean() * 12 * np.sqrt(len(words) - lag))
        assert abs(z) < 5, lag
    counts = np.bincount(words >> np.uint32(24), minlength=256)
    chi = float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
    assert abs(chi - 255) < 5 * np.sqrt(2 * 255)
