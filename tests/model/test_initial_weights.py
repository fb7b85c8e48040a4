"""Initial weights: the same bits everywhere, and of the deviation that the model asks for."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from daisychain.model.llama import HASH_RANGES, weight_buffer
from daisychain.plan import Program
from daisychain.players.oracle import OraclePlayer
from daisychain.session import build_model
from daisychain.settings import resolve
from daisychain.trainer import weights_hash_of

HASHES = {
    "nano": "19fa8835cdf78e048fbef6598ca2eb44",
    "tiny": "f5c285060c1b3cb5f42609ce04c81430",
    "medium": "6d276ad0ba4f5e2687630189abd61717",
    "small": "67bc5a97e3f6154c80b1e82d2260ded9",
}
"""Hash of each preset's initial weights for seed 1.  A change here is a change of every run."""


def initialised(preset: str) -> tuple[OraclePlayer, str]:
    """A player with the master weights alone, and their hash."""
    model = build_model(resolve({"preset": preset, "seed": 1, "batch": 1}))
    weights = {weight_buffer(p.name) for p in model.parameters}
    plans = model.program.plans
    made = tuple(c for c in plans["init"] if c.buffers and c.buffers[-1] in weights)
    calls = tuple(c for c in made if c.kernel in ("fill", "init_weights"))
    names = weights | {HASH_RANGES, "record"}
    buffers = {name: b for name, b in model.program.buffers.items() if name in names}
    program = Program(buffers, {"init": calls, "hash": plans["hash"]}, model.program.scalar_words)

    async def go() -> tuple[OraclePlayer, str]:
        player = OraclePlayer()
        await player.load(program)
        return player, weights_hash_of(model, await player.run(["init", "hash"], "record"))

    return asyncio.run(go())


@pytest.mark.parametrize("preset", HASHES)
def test_initial_weights_are_pinned(preset: str) -> None:
    assert initialised(preset)[1] == HASHES[preset]


def test_deviations_are_right_to_a_thousandth() -> None:
    player, _ = initialised("nano")
    model = build_model(resolve({"preset": "nano", "seed": 1, "batch": 1}))
    for p in model.parameters:
        values = player.array(weight_buffer(p.name)).view(np.float32).astype(np.float64)
        if p.deviation is None:
            assert (values == 1).all()
            continue
        wanted, sampling = float(p.deviation), 4 / np.sqrt(2 * p.count)
        assert values.std() == pytest.approx(wanted, rel=1e-3 + sampling)
        assert abs(values.mean()) < 5 * wanted / np.sqrt(p.count)
