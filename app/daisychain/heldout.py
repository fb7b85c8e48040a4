"""The held-out measurement, the same for a run alone and in a room."""

from __future__ import annotations

from math import log

from daisychain.data.source import TokenSource
from daisychain.trainer import MicroBatch, Trainer

HELDOUT_BATCHES = 4
"""Batches of held-out text that one measurement reads."""


async def measure_heldout(trainer: Trainer, source: TokenSource) -> dict[str, float]:
    """``heldout_nats`` a token and ``heldout_bits_per_byte``, as far as the source has such text.

    It changes no bit of the training.  Raises DeviceError and DataError.
    """
    held = [b async for b in source.heldout_batches(trainer.model.rows, HELDOUT_BATCHES)]
    if not held:
        return {}
    nats = await trainer.evaluate([MicroBatch(i, b.ids, b.targets) for i, b in enumerate(held)])
    tokens, text_bytes = sum(b.tokens for b in held), sum(b.bytes for b in held)
    bits = {"heldout_bits_per_byte": nats * tokens / (text_bytes * log(2))} if text_bytes else {}
    return {"heldout_nats": nats, **bits}
