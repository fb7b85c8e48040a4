"""Where does the time of a training step go?  Each call of a step by itself, on one device.

usage: python3 -m bench.step_profile [--device dawn|chromium|firefox] [--preset nano ...]
Prints a table a preset: kernel, calls a step, ms, share; then the slowest calls and whole steps.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import defaultdict

import numpy as np

from bench.devices import open_bench_player
from daisychain.building import build_model
from daisychain.model.llama import Model
from daisychain.optim.schedule import Schedule
from daisychain.plan import Call, Program
from daisychain.players.player import Player
from daisychain.settings import resolve
from daisychain.trainer import MicroBatch, Trainer

STEP_PLANS = ("begin", "update", "hash", "grad", "norm")


def with_single_calls(model: Model) -> tuple[Program, list[tuple[str, Call]]]:
    """The program with a plan for each call of a step."""
    plans = dict(model.program.plans)
    singles = []
    for plan in STEP_PLANS:
        for index, call in enumerate(model.program.plans[plan]):
            name = f"{plan} {index}"
            plans[name] = (call,)
            singles.append((name, call))
    plans["nothing"] = ()
    return Program(
        model.program.buffers, plans, model.program.scalar_words, model.program.constants
    ), singles


async def seconds(player: Player, plans: list[str]) -> float:
    start = time.perf_counter()
    await player.run(plans, "record")
    return time.perf_counter() - start


async def profile(device: str, preset: str, repeats: int, steps: int) -> None:
    settings = resolve({"preset": preset})
    model = build_model(settings)
    program, singles = with_single_calls(model)
    player = open_bench_player(device)
    start = time.perf_counter()
    await player.load(program)
    print(
        f"\n{preset} on {device}: {program.memory_bytes() / 1e6:.0f} MB, "
        f"loaded in {time.perf_counter() - start:.1f} s"
    )
    trainer = Trainer(player, model, Schedule(1e-3, 1000, 10))
    await trainer.initialise()
    tokens = np.random.default_rng(0).integers(0, 16512, (2, model.tokens)).astype(np.uint32)
    batches = [
        MicroBatch(i, tokens[0].tobytes(), tokens[1].tobytes()) for i in range(model.micro_batches)
    ]
    for _ in range(3):
        await trainer.train_step(batches)
    idle = min([await seconds(player, ["nothing"]) for _ in range(10)])
    times: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    calls = []
    for name, call in singles:
        took = (await seconds(player, [name] * repeats) - idle) / repeats
        times[call.kernel] += took
        counts[call.kernel] += 1
        calls.append((took, name, call))
    total = sum(times.values())
    print("| kernel | calls | ms | share |\n|---|---|---|---|")
    for kernel, took in sorted(times.items(), key=lambda item: -item[1]):
        print(f"| {kernel} | {counts[kernel]} | {took * 1e3:.3f} | {took / total:.1%} |")
    print(f"sum {total * 1e3:.2f} ms a micro-batch and update; empty run {idle * 1e3:.2f} ms")
    for took, name, call in sorted(calls, key=lambda item: -item[0])[:8]:
        shape = {
            k: v
            for k, v in call.named_params().items()
            if k in ("m", "n", "k", "outer", "inner", "rows", "cols", "count")
        }
        print(f"  {took * 1e3:.3f} ms  {name}  {call.kernel} {shape}")
    start = time.perf_counter()
    for _ in range(steps):
        await trainer.train_step(batches)
    each = (time.perf_counter() - start) / steps
    print(f"whole steps: {each * 1e3:.2f} ms, {settings.tokens_per_step / each:.0f} tokens/s")
    player.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="dawn")
    parser.add_argument("--preset", nargs="+", default=["nano"])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    for preset in options.preset:
        asyncio.run(profile(options.device, preset, options.repeats, options.steps))


if __name__ == "__main__":
    main()
