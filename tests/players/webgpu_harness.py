"""Real browsers as WebGPU devices for tests in CPython: no Pyodide, a bare page on loopback.

``BrowserDevice`` is a ``daisychain.players.webgpu.GPUDevice`` whose calls go through a Node driver
(``browser_driver.mjs``) to ``app/js/webgpu_player.js`` in headless Chromium (Tint on SwiftShader)
or Firefox (Naga on lavapipe).  Fixtures, one browser process each for the whole test run::

    def test_kernel(run_in_chromium):
        after = run_in_chromium(program, {"x": data}, {scalar_word: value}, ["main"])
        assert after["out"] == expected          # every buffer's bytes by name
        assert after["scalars"][4:8] == ...      # the scalars under the name "scalars"
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from daisychain.plan import Program
from daisychain.platform.gpu import device_error
from daisychain.players.player import PieceResult
from daisychain.players.webgpu import SourceOf, WebGPUPlayer
from tests.requirements import require
from tools.bootstrap import ensure_node
from tools.browsers import find_chromium, find_firefox, find_lavapipe

DRIVER = Path(__file__).with_name("browser_driver.mjs")
STOP_TIMEOUT_S = 60

RunProgram = Callable[..., dict[str, bytes]]


class BrowserDevice:
    """One device in one page of one browser process; ``reopen`` gives a fresh device."""

    def __init__(self, browser: str) -> None:
        if browser == "firefox":
            executable = require("Firefox", find_firefox)
            require("Mesa's lavapipe", find_lavapipe)
        else:
            executable = require("Chromium", find_chromium)
        self._process = subprocess.Popen(
            [ensure_node().node, DRIVER, browser, executable],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()
        self.reopen()

    def reopen(self) -> None:
        """A fresh device in place of the one before (which may be lost)."""
        opened = self._request("open")
        self.info: str = opened["info"]
        self.limits: dict[str, int] = opened["limits"]
        self.language_features = frozenset(opened["languageFeatures"])

    async def compile(self, sources: str) -> str:
        return str(self._request("compile", sources))

    async def load(self, program: str) -> None:
        self._request("load", program)

    def write(self, buffer: str, offset_bytes: int, data: Any) -> None:
        self._request("write", buffer, offset_bytes, bytes(data))

    def write_scalars(self, first_word: int, data: bytes) -> None:
        self._request("writeScalars", first_word, data)

    async def run(
        self, plans: Sequence[str], read: str, first: int = 0, last: int | None = None
    ) -> bytes:
        bounds = () if last is None else (first, last)
        return bytes(self._request("run", list(plans), read, *bounds))

    async def run_and_read(self, plans: Sequence[str], buffers: Sequence[str]) -> PieceResult:
        *contents, scalars = self._request("runAndRead", list(plans), list(buffers))
        return contents, scalars

    async def lose_in_run(self, plans: Sequence[str], read: str) -> bytes:
        """A run whose device is destroyed as soon as it is submitted."""
        return bytes(self._request("loseInRun", list(plans), read))

    async def read(self, buffers: Sequence[str]) -> bytes:
        return bytes(self._request("read", list(buffers)))

    async def read_scalars(self) -> bytes:
        return bytes(self._request("readScalars"))

    def counters(self) -> dict[str, int]:
        return dict(self._request("counters"))

    def destroy(self) -> None:
        self._request("destroy")

    def stop(self) -> None:
        """Ends the browser."""
        self._process.communicate(timeout=STOP_TIMEOUT_S)

    def _request(self, method: str, *args: object) -> Any:
        packed = [
            {"base64": base64.b64encode(a).decode()} if isinstance(a, bytes) else a for a in args
        ]
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"method": method, "args": packed}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the browser driver ended with code {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise device_error(*answer["error"])
        return _unpacked(answer["value"])


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(part) for part in value]
    if isinstance(value, dict) and "base64" in value:
        return base64.b64decode(value["base64"])
    return value


def run_program(
    device: BrowserDevice,
    program: Program,
    writes: Mapping[str, bytes],
    scalars: Mapping[int, int],
    plans: Sequence[str],
    source_of: SourceOf,
) -> dict[str, bytes]:
    """Loads the program, writes buffers and scalar words, runs the plans; all contents after.

    Only the storages' last owners are meaningful where temporaries share a storage.
    """

    async def everything() -> dict[str, bytes]:
        player = WebGPUPlayer(device, source_of)
        await player.load(program)
        for name, data in writes.items():
            player.write(name, data)
        for word, value in scalars.items():
            player.write_scalars(word, [value & 0xFFFFFFFF])
        await player.run(plans, next(iter(program.buffers)))
        contents = await player.read_many(list(program.buffers))
        named = dict(zip(program.buffers, contents, strict=True))
        return named | {"scalars": await player.read_scalars()}

    return asyncio.run(everything())


@pytest.fixture(scope="session")
def chromium_device() -> Iterator[BrowserDevice]:
    """The shared Chromium device; a test that loses it calls ``reopen``."""
    device = BrowserDevice("chromium")
    yield device
    device.stop()


@pytest.fixture(scope="session")
def firefox_device() -> Iterator[BrowserDevice]:
    """The shared Firefox device; a test that loses it calls ``reopen``."""
    device = BrowserDevice("firefox")
    yield device
    device.stop()


@pytest.fixture
def run_in_chromium(chromium_device: BrowserDevice) -> RunProgram:
    """``run_program`` on Chromium."""
    return lambda *args, **options: run_program(chromium_device, *args, **options)


@pytest.fixture
def run_in_firefox(firefox_device: BrowserDevice) -> RunProgram:
    """``run_program`` on Firefox."""
    return lambda *args, **options: run_program(firefox_device, *args, **options)
