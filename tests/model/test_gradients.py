"""Gradients of the integer model against float64, and float64 against finite differences."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from bench.float64_llama import loss_and_gradients
from daisychain.model.config import ModelConfig
from daisychain.model.llama import Model, build_program, weight_buffer
from daisychain.numbers.random_bits import step_key
from daisychain.players.oracle import OraclePlayer

SMALL = ModelConfig(width=32, layers=2, heads=4, kv_heads=4, hidden=64, context=16, vocabulary=203)
GROUPED = ModelConfig(
    width=32, layers=2, heads=4, kv_heads=2, hidden=40, context=24, vocabulary=203, tied=False
)


def run_gradients(model: Model, tokens: np.ndarray, weights: dict[str, np.ndarray] | None = None):
    """(mean loss in nats, weights, gradients of the mean loss) by the oracle."""

    async def go():
        player = OraclePlayer()
        await player.load(model.program)
        await player.run(["init"], "record")
        for name, w in (weights or {}).items():
            player.write(weight_buffer(name), w.astype(np.float32).tobytes())
        await player.run(["refresh"], "record")
        key = np.array(step_key(1, 0, 0), np.uint32)
        ids, targets = tokens[:, :-1].reshape(-1), tokens[:, 1:].reshape(-1)
        player.write("inputs", np.concatenate([key, ids, targets]).astype(np.uint32).tobytes())
        record = np.frombuffer(await player.run(["begin", "grad"], "record"), np.uint32)
        return player, record

    player, record = asyncio.run(go())
    loss = (int(record[0]) * 65536 + int(record[1])) / 65536 * math.log(2) / model.tokens
    now, gradients = {}, {}
    for call in model.program.plans["norm"]:
        name = call.buffers[0].removeprefix("gradient ")
        p = next(p for p in model.parameters if p.name == name)
        shape = (p.rows, p.cols) if p.is_matrix else (p.cols,)
        now[name] = player.array(weight_buffer(name)).view(np.float32).reshape(shape)
        exponent = int(player.scalars.view(np.int32)[call.named_params()["x_exp"]])
        mantissas = player.array(f"gradient {name}").astype(np.float64).reshape(shape)
        gradients[name] = np.ldexp(mantissas, exponent) / model.tokens
    return loss, now, gradients


@pytest.mark.parametrize("config", [SMALL, GROUPED], ids=["tied", "grouped-untied"])
def test_gradients_match_float64(config: ModelConfig) -> None:
    model = build_program(config, rows=4, micro_batches=1, seed=3)
    tokens = np.random.default_rng(5).integers(0, config.vocabulary, (4, config.context + 1))
    loss, weights, gradients = run_gradients(model, tokens)
    wide = {k: v.astype(np.float64) for k, v in weights.items()}
    expected_loss, expected = loss_and_gradients(config, wide, tokens[:, :-1], tokens[:, 1:])
    assert abs(loss - expected_loss) < 1e-4
    assert gradients.keys() == expected.keys()
    for name, g in gradients.items():
        e = expected[name]
        cosine = (g * e).sum() / np.sqrt((g * g).sum() * (e * e).sum())
        assert cosine >= 0.9999, (name, cosine)
        assert abs(np.linalg.norm(g) / np.linalg.norm(e) - 1) < 2e-3, name


@pytest.mark.parametrize("config", [SMALL, GROUPED], ids=["tied", "grouped-untied"])
def test_float64_reference_matches_finite_differences(config: ModelConfig) -> None:
    rng = np.random.default_rng(2)
    model = build_program(config, rows=1, micro_batches=1, seed=1)
    w = {
        p.name: rng.standard_normal((p.rows, p.cols) if p.is_matrix else (p.cols,)) * 0.2
        for p in model.parameters
    }
    tokens = rng.integers(0, config.vocabulary, (2, config.context + 1))
    ids, targets = tokens[:, :-1], tokens[:, 1:]
    _, gradients = loss_and_gradients(config, w, ids, targets)
    for name in w:
        direction = rng.standard_normal(w[name].shape)
        step = 1e-5
        plus, minus = (
            loss_and_gradients(
                config, {**w, name: w[name] + sign * step * direction}, ids, targets, back=False
            )[0]
            for sign in (1, -1)
        )
        slope = (gradients[name] * direction).sum()
        assert (plus - minus) / (2 * step) == pytest.approx(slope, rel=1e-5, abs=1e-9), name
