"""Small models with everything that a checkpoint holds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from daisychain.data.byte_pairs import byte_alphabet
from daisychain.export.checkpoint import Checkpoint, Run
from daisychain.model.config import ModelConfig
from daisychain.model.llama import Model, build_program, weight_buffer
from daisychain.optim.schedule import Schedule
from daisychain.players.oracle import OraclePlayer
from daisychain.settings import Settings, resolve
from daisychain.trainer import MicroBatch, Snapshot, Trainer

SEPARATOR = (0, "<|endoftext|>")
MERGES = (("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"))
VOCABULARY = 1 + 256 + len(MERGES)
"""No multiple of 8: the embedding is padded."""

SHAPE = {"width": 16, "layers": 2, "heads": 2, "hidden": 32, "context": 16, "batch": 2}
CURSOR = {"source": "counting", "tokens": 1000}


def tokenizer_json() -> bytes:
    """A byte-level tokenizer of VOCABULARY tokens."""
    names = [*byte_alphabet(), *("".join(pair) for pair in MERGES)]
    options = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    byte_level = {"type": "ByteLevel", **options}
    added = {"special": True, "normalized": False, "lstrip": False, "rstrip": False}
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": [
                {"id": SEPARATOR[0], "content": SEPARATOR[1], "single_word": False, **added}
            ],
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "vocab": {name: i for i, name in enumerate([SEPARATOR[1], *names])},
                "merges": [list(pair) for pair in MERGES],
            },
        }
    ).encode()


def settings(**changed: Any) -> Settings:
    return resolve({**SHAPE, "steps": 6, "warmup": 1, "lr": 1e-2, **changed})


def config_of(s: Settings) -> ModelConfig:
    return ModelConfig(
        s.width, s.layers, s.heads, s.kv_heads, s.hidden, s.context, VOCABULARY, s.tied
    )


def batch(model: Model, step: int) -> MicroBatch:
    """Sequences that count upwards."""
    start = 11 * step + 7 * np.arange(model.rows)[:, None]
    tokens = (start + np.arange(model.config.context + 1)) % VOCABULARY
    ids, targets = (t.astype(np.uint32).tobytes() for t in (tokens[:, :-1], tokens[:, 1:]))
    return MicroBatch(0, ids, targets)


async def trainer_for(s: Settings) -> Trainer:
    """An oracle with initial weights."""
    model = build_program(config_of(s), s.batch, 1, s.seed)
    trainer = Trainer(OraclePlayer(), model, Schedule(s.lr, s.steps, s.warmup))
    await trainer.player.load(model.program)
    await trainer.initialise()
    return trainer


async def train(trainer: Trainer, until: int) -> str:
    while trainer.step < until:
        await trainer.train_step([batch(trainer.model, trainer.step)])
    return await trainer.flush()


@lru_cache
def trained(steps: int = 3, tied: bool = True) -> Checkpoint:
    """The checkpoint of a run of six steps after some of them."""

    async def go() -> Checkpoint:
        s = settings(tied=tied)
        trainer = await trainer_for(s)
        weights_hash = await train(trainer, steps)
        snapshot = await trainer.snapshot()
        log = [{"step": i + 1, "loss": 5.0 - i} for i in range(steps)]
        facts = {"devices": "NumPy", "loss": 5.0}
        run = Run(s, snapshot.step, weights_hash, CURSOR, log)
        buffers = views(snapshot.buffers)
        return Checkpoint(trainer.model.config, buffers, tokenizer_json(), SEPARATOR, run, facts)

    return asyncio.run(go())


def views(buffers: Mapping[str, bytes]) -> dict[str, memoryview]:
    return {name: memoryview(data) for name, data in buffers.items()}


def resumed_hash(checkpoint: Checkpoint, until: int) -> str:
    """The hash after more steps on a fresh player."""

    async def go() -> str:
        run = checkpoint.run
        assert run is not None
        trainer = await trainer_for(run.settings)
        buffers = {name: bytes(data) for name, data in checkpoint.buffers.items()}
        await trainer.restore(Snapshot(run.step, buffers))
        return await train(trainer, until)

    return asyncio.run(go())


def foreign(config: ModelConfig, seed: int = 3) -> Checkpoint:
    """A model without a run, of random weights that make distinct predictions."""
    from daisychain.model.config import parameters

    rng = np.random.default_rng(seed)
    buffers = {}
    for p in parameters(config):
        w = (rng.standard_normal(p.count) * 0.3 + (not p.is_matrix)).astype(np.float32)
        if p.rows == config.vocabulary_rows:
            w[config.vocabulary * p.cols :] = 0
        buffers[weight_buffer(p.name)] = memoryview(w.tobytes())
    return Checkpoint(config, buffers, tokenizer_json(), SEPARATOR)
