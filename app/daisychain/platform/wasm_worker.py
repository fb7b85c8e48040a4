"""The CPU as the page's compute device: ``players.wasm.WasmDevice`` on module Workers.

All the work is in ``app/js/wasm_player_worker.js``; this face starts the Workers and converts bytes
and errors.  The page makes every Worker itself: Workers of Workers now and then never start in
Firefox (docs/EXPERIMENTS.md).
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from daisychain.errors import DaisyChainError, DeviceError, DeviceLost
from daisychain.platform import cpu_count, read_resource
from daisychain.platform.isolation import is_isolated
from daisychain.platform.javascript import to_js
from daisychain.platform.worker_link import START_TIMEOUT_S, WorkerLink
from daisychain.players.wasm import Region
from daisychain.players.wasm_layout import Layout

MODULE = "wasm/kernels.wasm"
SHARED_MODULE = "wasm/kernels_shared.wasm"
MAX_WORKERS = 16

Patience = Callable[[], Awaitable[object]]


async def start_limit() -> None:
    """Ends when nobody waits any longer for Workers to start."""
    await asyncio.sleep(START_TIMEOUT_S)


def device_error(name: str, message: str) -> DeviceError:
    """The sentence for an error of the Worker by its JavaScript name."""
    if name == "RangeError":
        return DeviceError(
            f"The browser does not give the CPU player enough memory ({message}).",
            "The model does not fit beside what the browser holds already.",
            "Close other tabs, or choose a smaller preset, batch or context.",
        )
    return DeviceLost(
        f"The CPU player stopped ({name}: {message}).",
        "Its Worker failed or the browser ended it; the step under way is void.",
        "Training goes on from the last complete step in a fresh Worker; if that does not help, "
        "reload the page.",
    )


def worker_count(wanted: int | None = None) -> int:
    """Workers that can share the work here: one, or on an isolated page up to the processors."""
    if not is_isolated():
        return 1
    return max(1, min(wanted or cpu_count(), MAX_WORKERS))


async def open_wasm(
    workers: int | None = None,
    log: Callable[[str], None] = lambda line: None,
    patience: Patience = start_limit,
) -> BrowserWasm:
    """Starts the CPU player's Workers; ``workers`` asks for a number of them.

    It goes on with those that started before ``patience`` ended; ``log`` hears of missing ones.
    Raises DeviceError where WebAssembly or its SIMD instructions are missing or no Worker starts.
    """
    import js

    web_assembly = getattr(js, "WebAssembly", None)
    if not web_assembly:
        raise DeviceError(
            "This browser has no WebAssembly.",
            "Without it and without WebGPU there is nothing to compute with.",
            "Update the browser, or switch WebAssembly on in its settings.",
        )
    plain = to_js(read_resource(MODULE))
    if not web_assembly.validate(plain):
        raise DeviceError(
            "This browser's WebAssembly has no SIMD instructions.",
            "The CPU player needs them: without them training would be far too slow.",
            "Update the browser (Chrome 91, Firefox 89, Safari 16.4 or newer), or use WebGPU.",
        )
    wanted = worker_count(workers)
    modules = {"plain": await _compiled(plain)}
    if wanted > 1:
        modules["shared"] = await _compiled(to_js(read_resource(SHARED_MODULE)))
    device = BrowserWasm(wanted)
    try:
        await device.start(modules, patience)
    except BaseException:
        device.destroy()
        raise
    if device.parts < wanted:
        log(f"wasm: {device.parts} of {wanted} Workers started, so these do all the work")
    return device


async def _compiled(module: Any) -> Any:
    import js
    from pyodide.ffi import JsException

    try:
        return await js.WebAssembly.compile(module)
    except JsException as error:
        raise device_error(str(error.name), str(error.message)) from error


class BrowserWasm:
    """One Worker that leads and its helpers.  See ``WasmDevice``."""

    def __init__(self, workers: int) -> None:
        self.parts = workers
        self._workers = [
            WorkerLink("wasm_player_worker", device_error, self._end) for _ in range(workers)
        ]
        self._writes: list[tuple[int, Any]] = []
        self._given: list[Any] = []

    async def start(self, modules: dict[str, Any], patience: Patience) -> None:
        """Hands out the compiled modules and keeps the Workers that answer in time."""
        starts = [asyncio.ensure_future(worker.start(**modules)) for worker in self._workers]
        everyone = asyncio.ensure_future(asyncio.wait(starts))
        limit = asyncio.ensure_future(patience())
        await asyncio.wait({everyone, limit}, return_when=asyncio.FIRST_COMPLETED)
        limit.cancel()
        for worker, start in zip(self._workers, starts, strict=True):
            if not start.done():
                worker.end(_late())
        failures = await asyncio.gather(*starts, return_exceptions=True)
        started = []
        for worker, failure in zip(self._workers, failures, strict=True):
            if failure:
                worker.end(_late())
            else:
                started.append(worker)
        if not started:
            raise failures[0] or _late()
        self._workers, self.parts = started, len(started)

    async def load(self, layout: Layout) -> None:
        fields = _plain(layout)
        self._writes, self._given = [], []
        shared = await self._leader.ask("load", layout=fields)
        await asyncio.gather(
            *(
                helper.ask("help", layout=fields, memory=shared[0], part=part)
                for part, helper in enumerate(self._workers[1:], 1)
            )
        )

    def write(self, address: int, data: Any, give: bool = False) -> None:
        """``data``: bytes or a JavaScript typed array.  Goes with all others before the next run
        or read: a message costs the page more than what it carries."""
        self._writes.append((address, data))
        if give:
            self._given.append(data)

    async def run(self, plans: Sequence[str], read: Region) -> bytes:
        self._send_writes()
        return _bytes((await self._leader.ask("run", plans=list(plans), region=read))[0])

    async def read(self, region: Region) -> bytes:
        self._send_writes()
        return _bytes((await self._leader.ask("read", regions=[region]))[0])

    async def read_arrays(self, regions: Sequence[Region]) -> list[Any]:
        self._send_writes()
        return list(await self._leader.ask("read", regions=list(regions)))

    async def run_alone(
        self, layout: Layout, writes: Sequence[tuple[int, bytes]], reads: Sequence[Region]
    ) -> list[bytes]:
        contents = await self._leader.ask(
            "alone", layout=_plain(layout), writes=writes, regions=reads
        )
        return [_bytes(copy) for copy in contents]

    def destroy(self) -> None:
        """Ends the Workers at once, also in the middle of a run."""
        self._end(DeviceError("The CPU player was closed."))

    def _send_writes(self) -> None:
        writes, self._writes = self._writes, []
        given, self._given = self._given, []
        if writes:
            self._leader.tell("write", given, writes=writes)

    @property
    def _leader(self) -> WorkerLink:
        return self._workers[0]

    def _end(self, error: DaisyChainError) -> None:
        """One Worker less is the end of all: the others would wait for it in the barrier."""
        for worker in self._workers:
            worker.end(error)


def _late() -> DeviceError:
    return DeviceError(
        "The Worker of the CPU player does not start.",
        "The browser is very busy, or it cannot start another thread.",
        "Reload the page; if that does not help, start the browser again.",
    )


def _plain(layout: Layout) -> dict[str, Any]:
    """What the Worker needs of a layout, under the names that it uses."""
    return {
        "parts": layout.parts,
        "pages": layout.pages,
        "control": layout.control,
        "stackTops": layout.stack_tops,
        "contexts": layout.contexts,
        "imageAddress": layout.image_address,
        "image": layout.image,
        "kernels": layout.kernels,
        "plans": {name: array("I", words) for name, words in layout.plans.items()},
    }


def _bytes(copy: Any) -> bytes:
    return bytes(copy.to_bytes())
