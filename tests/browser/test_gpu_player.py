"""The GPU player in a page: Python, JavaScript and shaders together, lost in mid-run, refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Browser

from daisychain.model.config import ModelConfig
from daisychain.model.llama import build_program
from daisychain.optim.schedule import Schedule
from daisychain.players.oracle import OraclePlayer
from daisychain.trainer import MicroBatch, Trainer
from tests.browser.pyodide_page import PyodidePage, PyodideSite, boot

TRAINING = """
config = ModelConfig(width=32, layers=2, heads=4, kv_heads=2, hidden=64, context=16, vocabulary=300)
model = build_program(config, rows=4, micro_batches=1, seed=3)

def batch(step):
    tokens = [(step + 7 * i * i) % 300 for i in range(model.tokens + 1)]
    parts = tokens[:-1], tokens[1:]
    return MicroBatch(0, *(b"".join(t.to_bytes(4, "little") for t in part) for part in parts))

async def train(trainer, steps):
    while trainer.step < steps:
        await trainer.train_step([batch(trainer.step)])

async def start(player):
    trainer = Trainer(player, model, Schedule(lr=1e-2, steps=40, warmup=4))
    await trainer.initialise()
    return trainer
"""

OPENING = """
import js
from daisychain.building import kernels_in_use
from daisychain.errors import DeviceError, DeviceLost
from daisychain.model.config import ModelConfig
from daisychain.model.llama import build_program
from daisychain.optim.schedule import Schedule
from daisychain.players.choice import open_player
from daisychain.trainer import MicroBatch, Trainer

notes = []
"""

FIRST_STEPS = """
player = await open_player("webgpu", model.program, notes.append)
trainer = await start(player)
await train(trainer, 2)
before = player.player.device.counters()
await train(trainer, 4)
after = player.player.device.counters()
snapshot = await trainer.snapshot()
{
    "name": player.name,
    "kernels": len(player.kernels),
    "gpu": player.device.info,
    "gemm3": next(k for k in kernels_in_use(player, model.program) if k["name"] == "gemm3"),
    "grown": [after[key] - before[key] for key in ("buffers", "bufferBytes")],
    "reads": after["readBacks"] - before["readBacks"],
    "bytes": after["bufferBytes"],
    "estimate": model.program.memory_bytes(),
    "hash": await trainer.flush(),
}
"""

LOST = """
import asyncio

running = asyncio.ensure_future(trainer.train_step([batch(trainer.step)]))
await asyncio.sleep(0)
player.player.device.destroy()
try:
    await running
    outcome = "the step went through"
except DeviceLost as error:
    outcome = str(error)
player.close()
trainer.player = await open_player("webgpu", model.program, notes.append)
await trainer.restore(snapshot)
await train(trainer, 6)
[outcome, await trainer.flush()]
"""

CHECKED = """
from functools import partial
from daisychain.platform import monotonic_ms
from daisychain.players.choice import open_wasm_player
from daisychain.players.verify import VerifiedPlayer

chosen = []

def spread(count):
    chosen.append((7 + 101 * len(chosen)) % count)
    return chosen[-1]

checker = partial(open_wasm_player, model.program.kernels(), notes.append)
often = VerifiedPlayer(
    trainer.player.player, checker, notes.clear, notes.append, monotonic_ms, spread, share=1e12
)
await often.load(model.program)
checked = await start(often)
await train(checked, 6)
[await checked.flush(), often.checks, len(chosen)]
"""

REFUSED = """
from pyodide.code import run_js

async def refusal(change, preference):
    run_js(change)
    try:
        player = await open_player(preference, model.program, notes.append)
        return player.name
    except DeviceError as error:
        return str(error)

from daisychain.platform import gpu

limit_s, gpu.OPEN_LIMIT_S = gpu.OPEN_LIMIT_S, 0.1
hung = await refusal("navigator.gpu.requestAdapter = () => new Promise(() => {})", "webgpu")
gpu.OPEN_LIMIT_S = limit_s
notes.clear()
no_adapter = await refusal("navigator.gpu.requestAdapter = async () => null", "webgpu")
absent = "Object.defineProperty(navigator, 'gpu', {value: undefined, configurable: true})"
[no_adapter, await refusal(absent, "webgpu"), await refusal(absent, "auto"), notes, hung]
"""


@pytest.fixture(scope="module")
def gpu_page(chromium: Browser, pyodide_site: PyodideSite) -> Iterator[PyodidePage]:
    """A booted page whose WebAssembly cannot suspend: nothing may wait synchronously."""
    context = chromium.new_context()
    context.add_init_script("delete WebAssembly.Suspending; delete WebAssembly.promising;")
    page = boot(context, pyodide_site)
    page.run(OPENING)
    page.run(TRAINING)
    yield page
    context.close()


@pytest.fixture(scope="module")
def hashes() -> dict[int, str]:
    """The oracle's hash after so many steps, from a thread without an event loop."""
    space = {
        "ModelConfig": ModelConfig,
        "build_program": build_program,
        "Schedule": Schedule,
        "MicroBatch": MicroBatch,
        "Trainer": Trainer,
    }
    exec(TRAINING, space)

    async def run() -> dict[int, str]:
        player = OraclePlayer()
        await player.load(space["model"].program)
        trainer = await space["start"](player)
        found = {}
        for steps in (4, 6):
            await space["train"](trainer, steps)
            found[steps] = await trainer.flush()
        return found

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, run()).result()


def test_training_in_the_page_gives_the_oracles_weights(
    gpu_page: PyodidePage, hashes: dict[int, str]
) -> None:
    result = gpu_page.run(FIRST_STEPS)
    assert result["hash"] == hashes[4]
    assert result["name"] == "webgpu"
    assert result["kernels"] > 30
    assert "swiftshader" in result["gpu"].lower()
    assert result["gemm3"]["variant"] in ("software", "packed", "unpacked")  # the fastest here
    assert result["gemm3"]["speed"].endswith(" GMAC/s")
    assert result["reads"] == 2
    assert result["grown"] == [0, 0]
    assert result["bytes"] <= result["estimate"] + 300_000  # parameters of the calls
    notes = gpu_page.run("notes")
    assert "kernels admitted, variant" in notes[0]
    assert notes[-1] == "webgpu is used"


def test_a_device_lost_in_mid_step_is_replaced_and_training_goes_on(
    gpu_page: PyodidePage, hashes: dict[int, str]
) -> None:
    outcome, final = gpu_page.run(LOST)
    assert outcome.startswith("The GPU was lost (destroyed")
    assert final == hashes[6]


def test_calls_checked_on_the_cpu_agree_and_change_nothing(
    gpu_page: PyodidePage, hashes: dict[int, str]
) -> None:
    final, checks, chosen = gpu_page.run(CHECKED)
    assert final == hashes[6]
    assert checks == chosen == 4  # every second run, the first after an ordinary one


def test_no_adapter_and_no_webgpu_are_one_sentence_or_the_cpu(gpu_page: PyodidePage) -> None:
    no_adapter, no_webgpu, automatic, notes, hung = gpu_page.run(REFUSED)
    assert "no GPU (it did not answer for" in hung
    assert no_adapter.startswith("The browser gives this page no GPU (the browser offers no")
    assert no_webgpu.startswith("This browser has no WebGPU.")
    assert automatic == "wasm"
    assert notes[-4:-2] == [
        "webgpu is not used: This browser has no WebGPU.",
        f"wasm: {len(gpu_page.run('player.kernels'))} kernels admitted",
    ]
