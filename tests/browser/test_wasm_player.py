"""The CPU player in a page: Python, Worker and kernels together, alone and with helpers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from aiohttp import web
from playwright.sync_api import Browser

from daisychain.errors import DeviceLost
from daisychain.model.config import ModelConfig
from daisychain.model.llama import build_program
from daisychain.optim.schedule import Schedule
from daisychain.platform.wasm_worker import device_error
from daisychain.players.oracle import OraclePlayer
from daisychain.trainer import MicroBatch, Trainer
from tests.browser.pyodide_page import BOOT_TIMEOUT_MS, ROOT, PyodidePage, PyodideSite, boot

TRAINING = """
from daisychain.model.config import ModelConfig
from daisychain.model.llama import build_program
from daisychain.optim.schedule import Schedule
from daisychain.trainer import MicroBatch, Trainer

async def train(player):
    config = ModelConfig(
        width=32, layers=2, heads=4, kv_heads=2, hidden=64, context=16, vocabulary=300
    )
    model = build_program(config, rows=4, micro_batches=1, seed=3)
    trainer = Trainer(player, model, Schedule(lr=1e-2, steps=40, warmup=4))
    await player.load(model.program)
    await trainer.initialise()
    for step in range(3):
        tokens = [(step + 7 * i * i) % 300 for i in range(model.tokens + 1)]
        ids, targets = (b"".join(t.to_bytes(4, "little") for t in part)
                        for part in (tokens[:-1], tokens[1:]))
        await trainer.train_step([MicroBatch(0, ids, targets)])
    return await trainer.flush()
"""

IN_PAGE = """
from daisychain.platform.wasm_worker import open_wasm
from daisychain.players.wasm import WasmPlayer

player = WasmPlayer(await open_wasm(workers))
outcome = [player.device.parts, await train(player)]
player.close()
outcome
"""

ENDED = """
import asyncio
from daisychain.errors import DeviceError
from daisychain.players.measure import sample_program

player = WasmPlayer(await open_wasm())
await player.load(sample_program())
running = asyncio.ensure_future(player.run(["sample"] * 1_000_000, "record"))  # over 20 minutes
await asyncio.sleep(0.05)
player.close()
outcomes = []
for waiting in (running, player.read_scalars()):
    try:
        outcomes.append(len(await waiting))
    except DeviceError as error:
        outcomes.append(str(error))
outcomes
"""

WATCH = """(live) => {
  const Real = Worker;
  globalThis.made = [];
  globalThis.Worker = function (...parameters) {
    const dead = { postMessage() {}, terminate() {} };
    const worker = made.length < live ? new Real(...parameters) : dead;
    made.push(worker);
    return worker;
  };
  return () => {
    globalThis.Worker = Real;
  };
}"""
"""From now on ``made`` lists the page's Workers, of which only the first ``live`` ever answer."""

LATE = """
import asyncio
import js
from pyodide.code import run_js
from daisychain.errors import DeviceError
from daisychain.platform.wasm_worker import open_wasm
from daisychain.players.wasm import WasmPlayer

async def watched_locks():
    # One for each Worker that has started: the page waits for it.
    return {lock.name for lock in (await js.navigator.locks.query()).pending}

async def until_one_has_started():
    while not await watched_locks() - before:
        await asyncio.sleep(0.01)

async def at_once():
    pass

before = await watched_locks()
forget = run_js(watch)(1)
lines = []
device = await open_wasm(3, lines.append, until_one_has_started)
outcome = [lines, device.parts, await train(WasmPlayer(device))]
device.destroy()
forget()
forget = run_js(watch)(0)
try:
    await open_wasm(3, lines.append, at_once)
except DeviceError as error:
    outcome.append(str(error))
forget()
outcome
"""

KILLED = """
import asyncio
import js
from pyodide.code import run_js
from daisychain.errors import DeviceLost
from daisychain.platform.wasm_worker import open_wasm
from daisychain.players.measure import sample_program
from daisychain.players.wasm import WasmPlayer

forget = run_js(watch)(9)
player = WasmPlayer(await open_wasm(workers))
forget()
await player.load(sample_program())
running = asyncio.ensure_future(player.run(["sample"] * 1_000_000, "record"))  # over 20 minutes
await asyncio.sleep(0.05)
js.made[victim].terminate()  # as the system does it: no event tells of it
outcomes = []
for waiting in (running, player.read_scalars()):
    try:
        outcomes.append(len(await waiting))
    except DeviceLost as error:
        outcomes.append(str(error))
[player.device.parts, *outcomes]
"""

ISOLATION = """
from daisychain.platform.isolation import can_isolate, isolate, is_isolated, leave_isolation
[is_isolated(), can_isolate()]
"""

WITHOUT_SIMD = """
import js
from pyodide.code import run_js

run_js("WebAssembly.validate = () => false")
try:
    await open_wasm()
except DeviceError as error:
    refusal = str(error)
refusal
"""

TOO_LARGE = """
from daisychain.plan import Buffer, Program

player = WasmPlayer(await open_wasm())
try:
    await player.load(Program({"x": Buffer("x", "i32", 1 << 30, "x")}, {}, 16))
except DeviceError as error:
    refusal = str(error)
refusal
"""


class SiteWithChoice(PyodideSite):
    """The bare page's server with the Service Worker at its root, as in the built site."""

    def _app(self) -> web.Application:
        app = super()._app()
        script = ROOT / "app/js/isolation_worker.js"

        async def send(_: web.Request) -> web.FileResponse:
            return web.FileResponse(script, headers={"Content-Type": "text/javascript"})

        app.router.add_get("/isolation_worker.js", send)
        return app


@pytest.fixture(scope="module")
def expected() -> str:
    """The oracle's hash after the same training, from a thread without an event loop."""
    namespace = {
        "ModelConfig": ModelConfig,
        "build_program": build_program,
        "Schedule": Schedule,
        "MicroBatch": MicroBatch,
        "Trainer": Trainer,
    }
    exec(TRAINING, namespace)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, namespace["train"](OraclePlayer())).result()


@pytest.fixture(scope="module")
def plain_page(chromium: Browser, pyodide_site: PyodideSite) -> Iterator[PyodidePage]:
    context = chromium.new_context()
    page = boot(context, pyodide_site)
    page.run(TRAINING)
    yield page
    context.close()


@pytest.fixture(scope="module")
def isolated_page(chromium: Browser, site: Path) -> Iterator[PyodidePage]:
    """A page that chose isolation."""
    server = SiteWithChoice(site)
    context = chromium.new_context()
    page = boot(context, server)
    assert page.run(ISOLATION) == [False, True]
    with page.page.expect_navigation():
        page.start("await isolate()")
    page.page.wait_for_function("window.booted === true", timeout=BOOT_TIMEOUT_MS)
    assert page.run(ISOLATION) == [True, False]
    page.run(TRAINING)
    yield page
    context.close()
    server.stop()


def test_one_worker_everywhere(plain_page: PyodidePage, expected: str) -> None:
    assert plain_page.run(IN_PAGE, workers=4) == [1, expected]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_several_on_an_isolated_page(
    isolated_page: PyodidePage, expected: str, workers: int
) -> None:
    assert isolated_page.run(IN_PAGE, workers=workers) == [workers, expected]


def test_a_worker_that_never_starts_is_done_without(
    isolated_page: PyodidePage, expected: str
) -> None:
    lines, parts, weights_hash, refusal = isolated_page.run(LATE, watch=WATCH)
    assert lines == ["wasm: 1 of 3 Workers started, so these do all the work"]
    assert (parts, weights_hash) == (1, expected)
    assert "does not start" in refusal


@pytest.mark.parametrize("victim", [0, 1])
def test_the_end_of_a_worker_is_noticed(isolated_page: PyodidePage, victim: int) -> None:
    parts, *outcomes = isolated_page.run(KILLED, watch=WATCH, workers=2, victim=victim)
    assert parts == 2
    assert ["the browser ended its Worker" in str(outcome) for outcome in outcomes] == [True, True]


def test_isolation_is_given_back(isolated_page: PyodidePage) -> None:
    with isolated_page.page.expect_navigation():
        isolated_page.start("await leave_isolation()")
    assert isolated_page.page.evaluate("crossOriginIsolated") is False


def test_closing_ends_a_run_at_once(plain_page: PyodidePage) -> None:
    plain_page.run("from daisychain.players.wasm import WasmPlayer")
    plain_page.run("from daisychain.platform.wasm_worker import open_wasm")
    assert plain_page.run(ENDED) == ["The CPU player was closed."] * 2


def test_each_failure_of_a_worker_has_its_sentence() -> None:
    refused = device_error("RangeError", "could not allocate memory")
    assert not isinstance(refused, DeviceLost)
    assert "enough memory" in str(refused)
    assert isinstance(device_error("RuntimeError", "memory access out of bounds"), DeviceLost)


def test_refusals_in_words(plain_page: PyodidePage) -> None:
    assert "WebAssembly can address 4.3 GB" in plain_page.run(TOO_LARGE)
    assert "no SIMD" in plain_page.run(WITHOUT_SIMD)
