"""A session that plays a script, with the face of ``TrainingSession``.  Only for tests of the page.

It runs in CPython and, pasted into a page's main.py by tests/browser/test_page_run.py, in Pyodide.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from daisychain.errors import DaisyChainError
from daisychain.settings import Settings
from daisychain.workshop import Piece

EVAL_EVERY = 25
BITS_PER_NAT = 0.298
WORDS = (" once", " there", " was", " <b>a", " tree</b>.")
KERNELS = [
    {"name": "adamw", "variant": "packed", "speed": None},
    {"name": "cross_entropy", "variant": "packed", "speed": None},
    {"name": "gemm3", "variant": "packed", "speed": "412.5 GMAC/s"},
    {"name": "softmax", "variant": "packed", "speed": None},
]


@dataclass(frozen=True)
class ScriptedEstimate:
    memory_bytes: int
    multiplies_per_step: int
    exchange_bytes: int


def scripted_estimate(settings: Settings) -> ScriptedEstimate:
    work = 3 * settings.parameters * settings.tokens_per_step
    return ScriptedEstimate(40 * settings.parameters, work, settings.parameters)


def scripted_loss(step: int) -> float:
    """Falls as a loss does, with a step's noise that is the same each time."""
    noise = ((step * 2654435761) % 1000) / 1000 - 0.5
    return 5.1 + 4.62 * math.exp(-step / 60) - 0.25 * math.log1p(step / 80) + 0.3 * noise


class ScriptedSession:
    """Waits in each phase until ``go`` names the next one; ``play`` trains some steps at once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.phase = "idle"
        self.records: list[dict[str, Any]] = []
        self.kernels: list[dict[str, Any]] = []
        self.notices: list[str] = []
        self.progress: dict[str, Any] | None = None
        self.heldout: float | None = None
        self.error: str | None = None
        self.file: Any = None
        self.resumed: Any = None
        self.calls: list[str] = []
        self.requests: list[Any] = []
        self.made_checkpoint: Any = None
        self.checkpoint_error: Exception | None = None
        self.saved_step = 0
        self.held = True
        self._raise: Exception | None = None
        self._listeners: list[Callable[[], None]] = []
        self._next = asyncio.Event()

    def subscribe(self, callback: Callable[[], None]) -> None:
        self._listeners.append(callback)

    async def run(self) -> None:
        self.go("data")
        await self._wait_for_the_end()

    async def _wait_for_the_end(self) -> None:
        while self.phase != "end":
            self._next.clear()
            await self._next.wait()
            if self._raise is not None:
                raise self._raise
            if self.phase in ("error", "halt"):
                return
        self.go("idle")

    def go(self, phase: str) -> None:
        self.phase = phase
        if phase == "train" and not self.kernels:
            self.kernels = KERNELS
        self._changed()
        self._next.set()

    def fail(self, error: Exception) -> None:
        if isinstance(error, DaisyChainError):
            self.error = str(error)
            self.go("error")
        else:
            self._raise = error
            self._next.set()

    def play(self, steps: int, told: bool = True) -> None:
        """Trains; ``told`` tells the listeners after every step, as the real session does."""
        for _ in range(steps):
            step = len(self.records) + 1
            self.records.append(self._record(step))
            if told:
                self._changed()
            if step % EVAL_EVERY == 0:
                self.heldout = scripted_loss(step) + 0.08
                self.records[-1]["heldout_nats"] = self.heldout
        self._changed()

    def pause(self) -> None:
        self.calls.append("pause")
        self.go("pause")

    def resume(self) -> None:
        self.calls.append("resume")
        self.go("train")

    def stop(self) -> None:
        self.calls.append("stop")
        self.go("end")

    def close(self) -> None:
        self.calls.append("close")
        if self.phase != "idle":
            self.go("end")

    async def write(self, request: Any, tell: Any) -> None:
        """The words of a known text, each half as likely as the one before."""
        self.requests.append(request)
        for index, word in enumerate(WORDS):
            await asyncio.sleep(0)
            likeliest = ((word, 0.5**index), ("\n", 0.04))
            if not tell(Piece(word, index, 0.5**index, likeliest)):
                return

    async def checkpoint(self) -> Any:
        if self.checkpoint_error:
            raise self.checkpoint_error
        return self.made_checkpoint

    async def kit(self, bits: int, script: bytes) -> Any:
        self.calls.append(f"kit {bits} {len(script) > 0}")
        return [memoryview(b"<html>"), memoryview(bytes(10))]

    def log(self) -> list[dict[str, Any]]:
        return list(self.records)

    def state(self) -> dict[str, Any]:
        last = self.records[-1] if self.records else {}
        bits = None if self.heldout is None else self.heldout * BITS_PER_NAT
        return {
            "phase": self.phase,
            "step": len(self.records),
            "steps": self.settings.steps,
            "loss": last.get("loss"),
            "heldout_nats": self.heldout,
            "heldout_bits_per_byte": bits,
            "tokens": len(self.records) * self.settings.tokens_per_step,
            "tokens_per_s": last.get("tokens_per_s"),
            "weights_hash": last.get("hash", ""),
            "player": "webgpu" if self.kernels else "",
            "kernels": self.kernels,
            "parameters": self.settings.parameters if self.kernels else 0,
            "memory_bytes": 46_400_000 if self.kernels else 0,
            "members": [],
            "saved_step": self.saved_step,
            "notices": self.notices,
            "findings": ["webgpu: 4 kernels admitted with packed units"] if self.kernels else [],
            "progress": self.progress,
            "error": self.error,
        }

    def _record(self, step: int) -> dict[str, Any]:
        return {
            "step": step,
            "loss": scripted_loss(step),
            "lr": self.settings.lr * min(1.0, step / 100),
            "tokens": step * self.settings.tokens_per_step,
            "tokens_per_s": 12_400.0 + step % 37,
            "gpu_ms": 38.2 + step % 5 / 10,
            "host_ms": 1.4,
            "data_ms": 0.1,
            "ms": 39.8,
            "hash": f"{step * 2654435761 % 2**32:08x}0123456789abcdef01234567",
        }

    def _changed(self) -> None:
        for callback in self._listeners:
            callback()
