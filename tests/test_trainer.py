"""The training step on the oracle: it learns, it is deterministic, its pauses leave no trace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np

from daisychain.model.config import ModelConfig
from daisychain.model.llama import Model, build_program
from daisychain.optim.schedule import Schedule
from daisychain.players.oracle import OraclePlayer
from daisychain.trainer import MicroBatch, Trainer

CONFIG = ModelConfig(width=32, layers=2, heads=4, kv_heads=2, hidden=64, context=16, vocabulary=61)
SCHEDULE = Schedule(lr=1e-2, steps=40, warmup=4)


def batch(model: Model, step: int, index: int) -> MicroBatch:
    """Sequences that count upwards modulo 61 from a start that the step gives."""
    start = np.random.default_rng(step).integers(0, 61, (32, 1))
    start = start[index * model.rows : (index + 1) * model.rows]
    tokens = (start + np.arange(model.config.context + 1)) % 61
    ids, targets = (t.astype(np.uint32).tobytes() for t in (tokens[:, :-1], tokens[:, 1:]))
    return MicroBatch(index, ids, targets)


def train(
    steps: int, between: Callable[[Trainer], Awaitable[object]] | None = None, **shape: int
) -> tuple[list[float], str]:
    """Losses and the final hash."""
    model = build_program(CONFIG, **({"rows": 4, "micro_batches": 1, "seed": 7} | shape))

    async def go() -> tuple[list[float], str]:
        trainer = Trainer(OraclePlayer(), model, SCHEDULE)
        await trainer.player.load(model.program)
        await trainer.initialise()
        losses = []
        for step in range(steps):
            batches = [batch(model, step, i) for i in range(model.micro_batches)]
            losses.append((await trainer.train_step(batches)).loss)
            if between:
                await between(trainer)
        return losses, await trainer.flush()

    return asyncio.run(go())


def test_it_learns() -> None:
    losses, _ = train(40)
    assert abs(losses[0] - np.log(61)) < 0.3
    assert losses[-1] < losses[0] / 2


def test_one_seed_gives_one_hash_and_another_seed_another() -> None:
    hashes = [train(3, seed=seed)[1] for seed in (7, 7, 8)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_flush_between_steps_leaves_no_trace() -> None:
    assert train(5) == train(5, between=lambda trainer: trainer.flush())


def test_held_out_measurement_leaves_no_trace() -> None:
    async def measure(trainer: Trainer) -> None:
        batches = [batch(trainer.model, 1000, i) for i in range(8)]
        first, second = (
            await trainer.evaluate(batches + batches[:3]),
            await trainer.evaluate(batches + batches[:3]),
        )
        assert first == second > 0

    assert train(4) == train(4, between=measure)


def test_a_snapshot_continues_to_the_same_bits() -> None:
    async def move(trainer: Trainer) -> None:
        """Go on in a fresh player, as after a lost device."""
        snapshot = await trainer.snapshot()
        trainer.player = OraclePlayer()
        await trainer.player.load(trainer.model.program)
        await trainer.restore(snapshot)

    assert train(5) == train(5, between=move)


def test_micro_batches_sum_up_to_the_batch() -> None:
    """Four micro-batches of one row are the batch of four rows, but for stochastic roundings."""
    one, _ = train(20)
    split, _ = train(20, rows=1, micro_batches=4)
    assert abs(one[0] - split[0]) < 1e-4
    assert np.allclose(one, split, atol=0.02)
    assert split[-1] < split[0] - 1
