"""Players for benchmarks in CPython: the oracle, or WebGPU through Dawn or a driven browser."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from daisychain.kernels.wgsl import source
from daisychain.players.oracle import OraclePlayer
from daisychain.players.player import Player
from daisychain.players.webgpu import WebGPUPlayer
from tests.players.webgpu_harness import BrowserDevice

DAWN_DRIVER = Path(__file__).with_name("dawn_driver.mjs")


class DawnDevice(BrowserDevice):
    """A native GPU through Dawn in Node; ``NODE`` names the executable."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [os.environ.get("NODE", "node"), DAWN_DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()
        self.reopen()


def open_bench_player(kind: str) -> Player:
    """``oracle``, ``dawn``, ``chromium`` or ``firefox``."""
    if kind == "oracle":
        return OraclePlayer()
    device = DawnDevice() if kind == "dawn" else BrowserDevice(kind)
    return WebGPUPlayer(device, source, "packed")


def print_json(**record: object) -> None:
    """One machine-readable line."""
    print(json.dumps(record), flush=True)
