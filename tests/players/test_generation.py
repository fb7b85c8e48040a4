"""One model, one prompt: the same tokens and probabilities on every player, past a full context."""

from __future__ import annotations

import asyncio
from functools import cache

import pytest
from webgpu_harness import BrowserDevice

from daisychain.generate import Choice, Sampling, generate
from daisychain.kernels import wgsl
from daisychain.model.config import ModelConfig
from daisychain.model.decode import LOGITS
from daisychain.model.inference import LOAD, build_inference
from daisychain.model.llama import weight_buffer
from daisychain.players.oracle import OraclePlayer
from daisychain.players.player import Player
from daisychain.players.wasm import WasmPlayer
from daisychain.players.webgpu import WebGPUPlayer
from tests.export.models import foreign
from tests.players.wasm_runner import WasmtimeDevice

CONFIG = ModelConfig(32, 2, 4, 2, 64, 24, 120, tied=False)
PROMPT = [0, 85, 105, 44, 33]
TOKENS = 40


async def written(player: Player, sampling: Sampling) -> list[Choice]:
    await player.load(build_inference(CONFIG, from_binary32=True).program)
    for name, data in foreign(CONFIG).weights().items():
        player.write(weight_buffer(name), bytes(data))
    await player.run([LOAD], LOGITS)
    choices = generate(player, CONFIG.context, CONFIG.vocabulary, PROMPT, TOKENS, sampling)
    return [choice async for choice in choices]


@cache
def expected(sampling: Sampling) -> list[Choice]:
    return asyncio.run(written(OraclePlayer(), sampling))


def test_greedy_text_is_not_trivial() -> None:
    tokens = [choice.token for choice in expected(Sampling())]
    assert len(tokens) == TOKENS > CONFIG.context
    assert len(set(tokens)) > 5


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.9, 20, 0.95, seed=7)])
def test_webassembly(sampling: Sampling) -> None:
    assert asyncio.run(written(WasmPlayer(WasmtimeDevice()), sampling)) == expected(sampling)


@pytest.mark.browser
def test_webgpu(chromium_device: BrowserDevice) -> None:
    chromium_device.reopen()
    player = WebGPUPlayer(chromium_device, wgsl.source)
    assert asyncio.run(written(player, Sampling())) == expected(Sampling())
