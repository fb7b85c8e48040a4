"""How fast does a player write?  Milliseconds a token of one-token steps, random weights.

    python -m bench.generation_speed [--device kit|dawn|chromium|firefox] [--preset nano ...]

``kit`` is the inference kit's own player (WebAssembly, one thread) in Node; the others are WebGPU.
``prompt`` is the time a token of a long prompt, which goes to a GPU as one command buffer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.devices import open_bench_player
from daisychain.building import model_config
from daisychain.export.kit import KitParts, NarrowWeights, make_kit
from daisychain.model.config import ModelConfig, parameters
from daisychain.model.decode import LOGITS, PROMPT
from daisychain.model.inference import build_inference, narrow_buffer
from daisychain.settings import resolve

ROOT = Path(__file__).resolve().parent.parent
TOKENS = 32


def random_weights(config: ModelConfig) -> NarrowWeights:
    rng = np.random.default_rng(1)
    wanted = parameters(config)
    return NarrowWeights(
        config, {p.name: rng.bytes(2 * p.count) for p in wanted}, {p.name: -18 for p in wanted}
    )


def kit_ms(config: ModelConfig) -> dict[str, float]:
    """The kit's model in Node, the same engine as Chromium's."""
    tokenizer = (ROOT / "data/tokenizer.json").read_bytes()
    parts = make_kit(KitParts(random_weights(config), 16, tokenizer, 0, {}, b""))
    with tempfile.NamedTemporaryFile(suffix=".html") as file:
        file.writelines(parts)
        file.flush()
        command = [os.environ.get("NODE", "node"), "bench/kit_speed.mjs", file.name, str(TOKENS)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


async def player_ms(device: str, config: ModelConfig) -> dict[str, float]:
    player, inference = open_bench_player(device), build_inference(config)
    await player.load(inference.program)
    weights = random_weights(config)
    for name, data in weights.mantissas.items():
        player.write(narrow_buffer(name), data)
        player.write_scalars(inference.exponents[name], [weights.exponents[name] & 0xFFFFFFFF])
    player.write(PROMPT, struct.pack(f"<{TOKENS}I", *range(TOKENS)))
    await player.run(["decode_reset", "decode"], LOGITS)

    async def took_ms(plans: list[str]) -> float:
        start = time.perf_counter()
        await player.run(plans, LOGITS)
        return 1e3 * (time.perf_counter() - start)

    single = min([await took_ms(["decode"]) for _ in range(TOKENS)])
    idle = min([await took_ms([]) for _ in range(10)])
    prompt = min([await took_ms(["decode_reset", *["decode"] * TOKENS]) for _ in range(3)]) / TOKENS
    return {"token": single, "prompt": prompt, "nothing": idle}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--device", default="kit")
    options.add_argument("--preset", nargs="+", default=["nano", "tiny", "small", "medium"])
    chosen = options.parse_args()
    for preset in chosen.preset:
        config = model_config(resolve({"preset": preset}))
        is_kit = chosen.device == "kit"
        found = kit_ms(config) if is_kit else asyncio.run(player_ms(chosen.device, config))
        shown = ", ".join(f"{name} {ms:.2f} ms" for name, ms in found.items())
        print(f"{preset:<8}{chosen.device}: {shown}", flush=True)


if __name__ == "__main__":
    main()
