"""The browser's WebGPU device, as ``players.webgpu.GPUDevice`` wants it.

All the work is in ``app/js/webgpu_player.js``; this face converts bytes and errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from daisychain.errors import DeviceError, DeviceLost
from daisychain.platform.scripts import import_script

OPEN_LIMIT_S = 20.0
"""A browser whose GPU process hangs never answers; after so long it has no GPU."""


def device_error(name: str, message: str) -> DeviceError:
    """The sentence for an error of ``app/js/webgpu_player.js`` by its name."""
    if name == "AdapterRefused":
        return DeviceError(
            f"The browser gives this page no GPU ({message}).",
            "The GPU or its driver is blocked, switched off or busy.",
            "Switch hardware acceleration on in the browser's settings, or train on the CPU.",
        )
    if name == "DeviceLost":
        return DeviceLost(
            f"The GPU was lost ({message}).",
            "Its driver was restarted or the browser withdrew it; the step under way is void.",
            "Training goes on from the last complete step on a fresh device.",
        )
    if name == "OutOfMemory":
        return DeviceError(
            f"The GPU's memory does not suffice ({message}).",
            "The model does not fit beside what the device holds already.",
            "Close other tabs, or choose a smaller preset, batch or context.",
        )
    return DeviceError(
        f"The GPU refused the program ({message}).",
        "The browser's WebGPU and this page do not agree.",
        "Update the browser, or train on the CPU.",
    )


async def open_gpu() -> BrowserGPU:
    """A fresh device of the page's WebGPU; raises DeviceError where there is none."""
    import js
    from pyodide.ffi import JsException

    gpu = getattr(js.navigator, "gpu", None)
    if not gpu:
        raise DeviceError(
            "This browser has no WebGPU.",
            "It is too old, it has WebGPU switched off, or the page is not on https or localhost.",
            "Use a current Chrome, Edge, Firefox or Safari, or train on the CPU.",
        )
    module = await import_script("js/webgpu_player.js")
    try:
        player = await asyncio.wait_for(module.WebGPUPlayer.open(gpu), OPEN_LIMIT_S)
    except JsException as error:
        raise _translated(error) from error
    except TimeoutError as error:
        reason = f"it did not answer for {OPEN_LIMIT_S:.0f} s"
        raise device_error("AdapterRefused", reason) from error
    return BrowserGPU(player)


class BrowserGPU:
    """One device; see ``GPUDevice``."""

    def __init__(self, player: Any) -> None:
        from pyodide.ffi import to_js

        self._player = player
        self._to_js = to_js
        self._plan_lists: dict[tuple[str, ...], Any] = {}
        self.info: str = player.info
        self.limits: dict[str, int] = player.limits.to_py()
        self.language_features = frozenset(player.languageFeatures.to_py())

    async def compile(self, sources: str) -> str:
        return str(await self._call(self._player.compile(sources)))

    async def load(self, program: str) -> None:
        await self._call(self._player.load(program))

    def write(self, buffer: str, offset_bytes: int, data: Any) -> None:
        """``data``: bytes or a JavaScript typed array."""
        self._player.write(buffer, offset_bytes, self._to_js(data))

    def write_scalars(self, first_word: int, data: bytes) -> None:
        self._player.writeScalars(first_word, self._to_js(data))

    async def run(
        self, plans: Sequence[str], read: str, first: int = 0, last: int | None = None
    ) -> bytes:
        key = tuple(plans)
        if key not in self._plan_lists:  # to_js of a list costs more than the rest of this call
            self._plan_lists[key] = self._to_js(list(key))
        bounds = () if last is None else (first, last)
        return await self._bytes(self._player.run(self._plan_lists[key], read, *bounds))

    async def run_and_read(
        self, plans: Sequence[str], buffers: Sequence[str]
    ) -> tuple[list[Any], bytes]:
        promise = self._player.runAndRead(self._to_js(list(plans)), self._to_js(list(buffers)))
        *contents, scalars = await self._call(promise)
        return contents, bytes(scalars.to_bytes())

    async def read(self, buffers: Sequence[str]) -> bytes:
        return await self._bytes(self._player.read(self._to_js(list(buffers))))

    async def read_scalars(self) -> bytes:
        return await self._bytes(self._player.readScalars())

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self._player.counters.to_py()
        return counters

    def destroy(self) -> None:
        self._player.destroy()

    async def _bytes(self, promise: Any) -> bytes:
        return bytes((await self._call(promise)).to_bytes())

    async def _call(self, promise: Any) -> Any:
        from pyodide.ffi import JsException

        try:
            return await promise
        except JsException as error:
            raise _translated(error) from error


def _translated(error: Any) -> DeviceError:
    return device_error(str(error.name), str(error.message))
