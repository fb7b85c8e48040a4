"""Counter-based random bits: 32-bit adds, rotations and xors only (docs/NUMBERS.md).

Eight rounds; six fail a lag test (../docs/NUMBERS.md has the table).  A key names a (seed, step,
micro-batch, tensor); the counter is the element's block, so any device makes the same bits.
"""

from __future__ import annotations

MASK = 0xFFFFFFFF
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
SEED_KEY = (0x243F6A88, 0x85A308D3)
"""The first 64 bits of pi's fraction: nothing up the sleeve."""


def arx(counter: int, key_a: int, key_b: int) -> tuple[int, int]:
    """One block: two u32 words."""
    a = (counter + key_a) & MASK
    b = ((a << 16 | a >> 16) & MASK) ^ key_b
    for r in ROTATIONS:
        a = (a + b) & MASK
        b = ((b << r | b >> (32 - r)) & MASK) ^ a
    return a, b


def step_key(seed: int, step: int, micro_batch: int) -> tuple[int, int]:
    """The two key words of ``Step.KEY_A`` and ``Step.KEY_B``; kernels add the tensor id."""
    key = arx(seed & MASK, *SEED_KEY)
    key = arx(step & MASK, *key)
    return arx(micro_batch & MASK, *key)


def tensor_key(step_words: tuple[int, int], tensor_id: int) -> tuple[int, int]:
    """The key of one tensor within a step."""
    return arx(tensor_id & MASK, *step_words)
