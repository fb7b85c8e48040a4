"""A room of two engines and both players, by links alone, gives the bits of one device."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import log
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Playwright

from daisychain.cluster.exchange import Exchange
from daisychain.cluster.layout import model_layout
from daisychain.players.wasm import WasmPlayer
from daisychain.room.run_maker import PageRunMaker
from daisychain.settings import Settings, resolve
from tests.browser.engines import launch_chromium, run_firefox
from tests.cluster.exchange_machine import WasmtimeMachine
from tests.data.reference import open_reference_source, run_apart
from tests.players.wasm_runner import WasmtimeDevice
from tests.room.solo_reference import SoloRoom

CODE = "K7QD-M2XP-9RTW-4HBN"
SETTINGS = {
    "preset": "nano",
    "batch": 1,
    "context": 8,
    "steps": 1000,
    "seed": 1,
    "eval_every": 0,
    "save_every": 0,
    "sample_every": 0,
}
"""One short sequence each: GPUs are emulated on a CPU here."""

IS_LONG = bool(os.environ.get("DAISYCHAIN_LONG_RUNS"))
STEPS = 30 if IS_LONG else 5
"""Together.  Emulated GPUs take seconds a step: all thirty are shown by the long run."""

TIMEOUT_S = 900.0 if IS_LONG else 300.0
pytestmark = [pytest.mark.alone, pytest.mark.timeout(TIMEOUT_S)]

ENOUGH = f"""(() => {{
  const state = window.daisychain?.state();
  const log = window.daisychain?.log() ?? [];
  const together = log.filter((record) => record.members?.length === 3);
  const checker = log.findIndex((record) => record.note?.startsWith("wasm: "));
  const isChecked = checker >= 0 && log.slice(checker).some((record) => record.members);
  return state?.error || (together.length >= {STEPS} && %s) ? {{ state, log }} : null;
}})()"""
TRAINED, CHECKED = ENOUGH % "true", ENOUGH % "isChecked"
"""Checked: to repeat a kernel call of a GPU, its run opens a CPU player in one of the steps."""


@pytest.fixture
def browsers(playwright_driver: Playwright) -> Iterator[list[Browser]]:
    """A browser process for each device, so that none waits for another."""
    started = [launch_chromium(playwright_driver) for _ in range(2)]
    yield started
    for browser in started:
        browser.close()


def link(server: str, start: str, name: str, player: str) -> str:
    query = "&".join(f"{key}={value}" for key, value in SETTINGS.items())
    return f"{server}?start={start}&{query}&name={name}&player={player}&approve=all#room={CODE}"


def steps_of(records: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {record["step"]: record for record in records if "reduced_hash" in record}


def owners_of(rows: list[dict[str, Any]]) -> list[str]:
    """Who reduced, by the traffic: a link may be late, then one device reduces for all at first."""
    busiest = max(rows, key=lambda row: int(row["bytes"]))
    reduces_alone = busiest["bytes"] > 1.5 * min(row["bytes"] for row in rows)
    return [busiest["id"]] if reduces_alone else [row["id"] for row in rows]


async def check_against_solo(steps: dict[int, dict[str, Any]], settings: Settings) -> None:
    """Loss, reduced gradient and weights of every step, from the first one on."""

    async def open_player(_name: str, program: Any, _note: object) -> WasmPlayer:
        player = WasmPlayer(WasmtimeDevice())
        await player.load(program)
        return player

    async def open_source(settings: Settings, *_: object) -> Any:
        return await open_reference_source(settings)

    async def open_machine() -> WasmtimeMachine:
        return WasmtimeMachine()

    maker = PageRunMaker("wasm", open_player, open_source, open_machine, print, print, print)
    replica = (await maker.found(settings)).replica
    layout = model_layout(replica.model.config)
    solo = SoloRoom(replica, WasmtimeMachine(), layout, Exchange(settings.exchange))
    weights = await replica.initialise()
    for step in range(1, len(steps) + 1):
        record = steps[step]
        assert (step, record["hash"]) == (step, weights)
        shares = [(row["id"], row["micro_batches"]) for row in record["members"]]
        owners = owners_of(record["members"])
        losses, reduced, weights = await solo.step(shares, record["reduced_hash"], owners)
        tokens = settings.context * sum(micro for _, micro in shares)
        assert (step, record["reduced_hash"]) == (step, reduced)
        assert (step, record["loss"]) == (step, sum(losses) / 65536 * log(2) / tokens)
    maker.close()


def test_three_pages_train_as_one_device_would(browsers: list[Browser], server: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        joins = link(server, "join", "fox", "webgpu")
        firefox = pool.submit(run_firefox, joins, TRAINED, TIMEOUT_S)
        gpu, cpu = (browser.new_context().new_page() for browser in browsers)
        cpu.goto(link(server, "join", "cpu", "wasm"))
        gpu.goto(link(server, "room", "gpu", "webgpu"))
        while not firefox.done():
            time.sleep(0.5)
        answers = [firefox.result(), answer_of(gpu, CHECKED), answer_of(cpu, TRAINED)]
    states = [answer["state"] for answer in answers]
    assert [(s["error"], s["player"]) for s in states] == [
        (None, "webgpu"),
        (None, "webgpu"),
        (None, "wasm"),
    ]
    logs = [steps_of(answer["log"]) for answer in answers]
    common = sorted(set.intersection(*map(set, logs)))
    assert len([step for step in common if len(logs[0][step]["members"]) == 3]) >= STEPS
    for step in common:
        assert len({(steps[step]["hash"], steps[step]["reduced_hash"]) for steps in logs}) == 1
    table = states[0]["members"]
    assert sorted(row["name"] for row in table) == ["cpu", "fox", "gpu"]
    assert {row["link"] for row in table if not row["me"]} <= {"direct", "unknown"}

    hosted = logs[1]
    before = 0
    for step, record in sorted(hosted.items()):
        rows = record["members"]
        tokens = SETTINGS["context"] * sum(row["micro_batches"] for row in rows)
        assert record["tokens"] - before == tokens == sum(row["tokens"] for row in rows), step
        before = record["tokens"]
        if len(rows) == 3:
            bound = 2 * 2.1 * states[1]["parameters"]
            assert all(0 < row["bytes"] <= bound for row in rows)
    run_apart(check_against_solo(hosted, resolve(SETTINGS)))


def answer_of(page: Page, wanted: str) -> dict[str, Any]:
    answer: dict[str, Any] = page.wait_for_function(wanted, timeout=120_000).json_value()
    return answer
