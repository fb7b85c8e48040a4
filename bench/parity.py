"""Does integer training match float64?  Same initial weights, same batches, both by our AdamW.

usage: python3 -m bench.parity [--device oracle|dawn|chromium] [--preset nano] [--steps 300]
                               [--seeds 1 2 3] [--lr 3e-3] [--gradients 0 100]
Prints, as Markdown: held-out loss of both and its difference a seed; the cosine and the relative
error of every gradient against float64 at the weights of the given steps (first seed).
"""

from __future__ import annotations

import argparse
import asyncio
import os
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import numpy as np

from bench.devices import open_bench_player
from bench.float64_llama import AdamW, Weights, loss_and_gradients
from daisychain.building import build_model
from daisychain.data import TokenSource
from daisychain.model.llama import Model, weight_buffer
from daisychain.optim.schedule import Schedule
from daisychain.settings import Settings, resolve
from daisychain.trainer import MicroBatch, Trainer
from tests.data.reference import open_reference_source

HELDOUT_LIMIT = 24
Batches = list[tuple[np.ndarray, np.ndarray]]


def open_model(settings: Settings) -> tuple[Model, TokenSource]:
    return build_model(settings), asyncio.run(open_reference_source(settings))


async def heldout(model: Model, source: TokenSource) -> list[MicroBatch]:
    batches = [b async for b in source.heldout_batches(model.rows, HELDOUT_LIMIT)]
    return [MicroBatch(i, b.ids, b.targets) for i, b in enumerate(batches)]


def as_rows(model: Model, batch: MicroBatch) -> tuple[np.ndarray, np.ndarray]:
    shape = (model.rows, model.config.context)
    ids, targets = (np.array(x, np.int64).reshape(shape) for x in (batch.ids, batch.targets))
    return ids, targets


async def step_batches(model: Model, source: TokenSource, step: int) -> list[MicroBatch]:
    pairs = [await source.batch(step, i, model.rows) for i in range(model.micro_batches)]
    return [MicroBatch(i, *pair) for i, pair in enumerate(pairs)]


def shaped(model: Model, contents: dict[str, np.ndarray]) -> Weights:
    out = {}
    for p in model.parameters:
        shape = (p.rows, p.cols) if p.is_matrix else (p.cols,)
        out[p.name] = contents[p.name].astype(np.float64).reshape(shape)
    return out


async def read_weights(trainer: Trainer) -> Weights:
    data = await trainer.player.read_many([weight_buffer(p.name) for p in trainer.model.parameters])
    arrays = [np.frombuffer(d, np.float32) for d in data]
    return shaped(
        trainer.model, dict(zip((p.name for p in trainer.model.parameters), arrays, strict=True))
    )


async def read_gradients(trainer: Trainer) -> Weights:
    """Gradients of the mean loss after a train_step (one micro-batch a step)."""
    model = trainer.model
    data = await trainer.player.read_many([f"gradient {p.name}" for p in model.parameters])
    scalars = np.frombuffer(await trainer.player.read_scalars(), np.int32)
    calls = {c.buffers[0]: c.named_params() for c in model.program.plans["norm"]}
    out = {}
    for p, d in zip(model.parameters, data, strict=True):
        exponent = int(scalars[calls[f"gradient {p.name}"]["x_exp"]])
        out[p.name] = np.ldexp(np.frombuffer(d, np.int32).astype(np.float64), exponent)
    return {k: v / model.tokens for k, v in shaped(model, out).items()}


def compare_gradients(model: Model, weights: Weights, ours: Weights, batch: MicroBatch) -> list:
    _, expected = loss_and_gradients(model.config, weights, *as_rows(model, batch))
    rows = []
    for name, g in ours.items():
        e = expected[name]
        cosine = (g * e).sum() / np.sqrt((g * g).sum() * (e * e).sum())
        rows.append((name, cosine, np.linalg.norm(g - e) / np.linalg.norm(e)))
    return rows


async def train_integer(settings: Settings, device: str, check_at: list[int]) -> dict[str, Any]:
    model, source = open_model_async(settings)
    trainer = Trainer(open_bench_player(device), model, schedule(settings))
    await trainer.player.load(model.program)
    await trainer.initialise()
    initial = await read_weights(trainer)
    gradients = []
    for step in range(settings.steps):
        batches = await step_batches(model, source, step)
        checked = step in check_at and model.micro_batches == 1
        if checked:
            await trainer.flush()
            before = await read_weights(trainer)
        await trainer.train_step(batches)
        if checked:
            ours = await read_gradients(trainer)
            gradients.append((step, compare_gradients(model, before, ours, batches[0])))
    loss = await trainer.evaluate(await heldout(model, source))
    return {"initial": initial, "loss": loss, "hash": await trainer.flush(), "grads": gradients}


_OPENED: dict[Settings, tuple[Model, TokenSource]] = {}


def open_model_async(settings: Settings) -> tuple[Model, TokenSource]:
    """The model and source opened before the event loop started."""
    return _OPENED[settings]


def schedule(settings: Settings) -> Schedule:
    return Schedule(settings.lr, settings.steps, settings.warmup)


def train_float64(settings: Settings, initial: Weights) -> float:
    os.nice(5)
    model, source = open_model(settings)
    weights, optimizer, rates = dict(initial), AdamW(initial), schedule(settings)

    async def go() -> float:
        for step in range(settings.steps):
            total: Weights = {}
            for batch in await step_batches(model, source, step):
                _, g = loss_and_gradients(model.config, weights, *as_rows(model, batch))
                total = {k: total.get(k, 0) + v / model.micro_batches for k, v in g.items()}
            optimizer.step(weights, total, rates.learning_rate(step))
        losses = [
            loss_and_gradients(model.config, weights, *as_rows(model, b), back=False)[0]
            for b in await heldout(model, source)
        ]
        return float(np.mean(losses))

    return asyncio.run(go())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="oracle")
    parser.add_argument("--preset", default="nano")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--gradients", type=int, nargs="*", default=[0, 100])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    runs: list[tuple[int, dict[str, Any], Future[float]]] = []
    with ProcessPoolExecutor(len(options.seeds)) as pool:
        for seed in options.seeds:
            given = {"preset": options.preset, "steps": options.steps, "seed": seed}
            settings = resolve(given | {"lr": options.lr})
            _OPENED[settings] = open_model(settings)
            result = asyncio.run(train_integer(settings, options.device, options.gradients))
            runs.append((seed, result, pool.submit(train_float64, settings, result["initial"])))
            print(f"seed {seed}: integer {result['loss']:.5f} hash {result['hash']}", flush=True)
        report(options, runs)


def report(options: argparse.Namespace, runs: list) -> None:
    print(f"\n{options.preset}, {options.steps} steps, lr {options.lr}, device {options.device}")
    print("\n| seed | float64 | integer | difference | weight hash |\n|---|---|---|---|---|")
    differences = []
    for seed, result, future in runs:
        reference = future.result()
        differences.append(result["loss"] - reference)
        print(
            f"| {seed} | {reference:.5f} | {result['loss']:.5f} | {differences[-1]:+.5f} "
            f"| {result['hash']} |"
        )
    print(f"\nmean difference {np.mean(differences):+.5f} nats\n")
    for step, rows in runs[0][1]["grads"]:
        print(f"| gradient at step {step}, seed {runs[0][0]} | cosine | relative error |")
        print("|---|---|---|")
        for name, cosine, error in rows:
            print(f"| {name} | {cosine:.7f} | {error:.1e} |")
        print()


if __name__ == "__main__":
    main()
