"""One run, one hash: the same solo link in every engine and on every player, and on the oracle.

The CPU player of Chromium loses its Worker on the way, as if the system had ended it.
"""

from __future__ import annotations

import asyncio
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import Page

from daisychain.optim.schedule import Schedule
from daisychain.players.oracle import OraclePlayer
from daisychain.session import build_model
from daisychain.settings import resolve
from daisychain.trainer import MicroBatch, Trainer
from tests.browser.engines import run_firefox, run_webkit
from tests.data.reference import open_reference_source

STEPS = 20
GPU_STEPS = STEPS if os.environ.get("DAISYCHAIN_LONG_RUNS") else 4
"""Emulated GPUs take seconds a step, so only the first ones of the run are waited for; `test_room`
has them train more steps, to the same bits."""

SETTINGS = {
    "preset": "nano",
    "batch": 1,
    "context": 32,
    "seed": 1,
    "eval_every": 0,
    "sample_every": 0,
}
"""One short sequence a step and no text at the end: GPUs are emulated on a CPU here."""

TIMEOUT_S = 300
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S)]

REACHED = """(() => {
  const state = window.daisychain?.state();
  const isThere = state?.step >= %d && (state.step < %d || state.phase === "idle");
  return state?.phase === "error" || isThere ? { state, log: window.daisychain.log() } : null;
})()"""
END_THE_WORKER = """
let isEnded = false;
window.Worker = class extends Worker {
  postMessage(message, ...rest) {
    super.postMessage(message, ...rest);
    if (isEnded || message.op !== "run" || window.daisychain.state().step < 5) return;
    isEnded = true;
    this.terminate();
  }
};
"""
"""Ends the CPU player's Worker in the middle of its first step after the fifth."""

RUNS = [
    ("chromium", "wasm"),
    ("chromium", "webgpu"),
    ("firefox", "wasm"),
    ("firefox", "webgpu"),
    ("webkit", "wasm"),
]


def steps_of(player: str) -> int:
    return GPU_STEPS if player == "webgpu" else STEPS


def link(server: str, player: str) -> str:
    wanted = {**SETTINGS, "steps": STEPS}
    query = "&".join(f"{name}={value}" for name, value in wanted.items())
    return f"{server}?start=solo&{query}&player={player}"


async def oracle_hashes() -> list[str]:
    """Hash of the weights before each step, and after the last."""
    settings = resolve({**SETTINGS, "steps": STEPS})
    source = await open_reference_source(settings)
    model = build_model(settings, source.tokenizer.size)
    schedule = Schedule(settings.lr, settings.steps, settings.warmup)
    trainer = Trainer(OraclePlayer(), model, schedule)
    await trainer.player.load(model.program)
    await trainer.initialise()
    hashes = []
    for step in range(STEPS):
        batch = MicroBatch(0, *await source.batch(step, 0, model.rows))
        hashes.append((await trainer.train_step([batch])).weights_hash)
    return [*hashes, await trainer.flush()]


@functools.cache
def expected() -> list[str]:
    """From a thread without an event loop: Playwright's occupies the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(oracle_hashes())).result()


def run(engine: str, player: str, server: str, page: Page) -> Any:
    url, reached = link(server, player), REACHED % (steps_of(player), STEPS)
    if engine == "firefox":
        return run_firefox(url, reached, TIMEOUT_S)
    if engine == "webkit":
        return run_webkit(url, reached, TIMEOUT_S)
    if player == "wasm":
        page.add_init_script(END_THE_WORKER)
    page.goto(url)
    return page.wait_for_function(reached, timeout=TIMEOUT_S * 1000).json_value()


@pytest.mark.parametrize(("engine", "player"), RUNS)
def test_an_engine_gives_the_oracle_s_hashes(
    engine: str, player: str, server: str, page: Page
) -> None:
    count = steps_of(player)
    result = run(engine, player, server, page)
    state = result["state"]
    assert (state["error"], state["player"]) == (None, player)
    steps = [record for record in result["log"] if "loss" in record]
    hashes = [record["hash"] for record in steps]
    if count == STEPS:
        assert (state["phase"], state["step"]) == ("idle", count)
        assert sum(r["loss"] for r in steps[-3:]) / 3 < steps[0]["loss"] - 0.5
        hashes.append(state["weights_hash"])
    assert len(hashes) >= count
    assert hashes == expected()[: len(hashes)]
    lost = [text for text in state["notices"] if "the browser ended its Worker" in text]
    assert len(lost) == ((engine, player) == ("chromium", "wasm"))
