"""The CPU player's Worker in three browser engines, with one, two and three Workers."""

from __future__ import annotations

import asyncio
import functools
import http.server
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from daisychain.model.config import ModelConfig
from daisychain.model.llama import Model, build_program
from daisychain.optim.schedule import Schedule
from daisychain.players.oracle import OraclePlayer
from daisychain.players.player import Player
from daisychain.players.wasm import WasmPlayer
from daisychain.trainer import MicroBatch, Trainer
from tests.browser.engines import run_firefox, run_webkit
from tests.players.wasm_recording import RecordingDevice, replay_site

pytestmark = pytest.mark.browser

CONFIG = ModelConfig(width=32, layers=2, heads=4, kv_heads=2, hidden=64, context=16, vocabulary=300)
STEPS = 3


class _IsolatedHandler(http.server.SimpleHTTPRequestHandler):
    """Static files with the headers of a cross-origin isolated page."""

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def isolated_server(folder: Path) -> Iterator[str]:
    handler = functools.partial(_IsolatedHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def batch(model: Model, step: int) -> MicroBatch:
    rng = np.random.default_rng(step)
    tokens = rng.integers(0, model.config.vocabulary, (model.rows, model.config.context + 1))
    ids, targets = (t.astype(np.uint32).tobytes() for t in (tokens[:, :-1], tokens[:, 1:]))
    return MicroBatch(0, ids, targets)


def finished(coroutine: Coroutine[Any, Any, str]) -> str:
    """Its result, from a thread of its own: Playwright keeps an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


async def train(player: Player) -> str:
    """Hash of the weights after a few steps."""
    model = build_program(CONFIG, rows=4, micro_batches=1, seed=3)
    trainer = Trainer(player, model, Schedule(lr=1e-2, steps=40, warmup=4))
    await player.load(model.program)
    await trainer.initialise()
    for step in range(STEPS):
        await trainer.train_step([batch(model, step)])
    return await trainer.flush()


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the page that replays the training with one, two and three Workers."""
    expected = finished(train(OraclePlayer()))
    devices = [RecordingDevice(parts) for parts in (1, 2, 3)]
    for device in devices:
        device.name = "training"
        assert finished(train(WasmPlayer(device))) == expected
    folder = tmp_path_factory.mktemp("replay")
    replay_site(folder, devices)
    with isolated_server(folder) as url:
        yield url


def test_chromium(chromium: Browser, replay: str) -> None:
    page = chromium.new_page()
    page.goto(replay)
    page.wait_for_function("window.outcome")
    assert page.evaluate("window.outcome") == {"parts": [1, 2, 3], "differences": []}
    page.close()


def test_firefox(replay: str) -> None:
    assert run_firefox(replay, "window.outcome") == {"parts": [1, 2, 3], "differences": []}


def test_webkit(replay: str) -> None:
    """WebKitGTK has no SharedArrayBuffer even on an isolated page: one Worker."""
    outcome = run_webkit(replay, "window.outcome")
    assert outcome["differences"] == []
    assert outcome["parts"][0] == 1
