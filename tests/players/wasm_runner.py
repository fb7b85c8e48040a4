"""Runs the WebAssembly kernels in CPython, on wasmtime: the device of ``WasmPlayer`` in tests.

With several parts it runs the shares of each call one after the other, which gives what Workers
give at the same time as long as no share reads what another one writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wasmtime

from daisychain.players.wasm import Region
from daisychain.players.wasm_layout import Layout

MODULE = Path(__file__).resolve().parents[2] / "wasm" / "kernels.wasm"


class _Instance:
    """A memory with the kernels and a layout in it."""

    def __init__(self, engine: wasmtime.Engine, module: wasmtime.Module, layout: Layout) -> None:
        self.store = wasmtime.Store(engine)
        self.layout = layout
        limits = wasmtime.Limits(layout.pages, layout.pages)
        self.memory = wasmtime.Memory(self.store, wasmtime.MemoryType(limits))
        self.exports = wasmtime.Instance(self.store, module, [self.memory]).exports(self.store)
        self.write(layout.image_address, layout.image)

    def write(self, address: int, data: Any, give: bool = False) -> None:
        self.memory.write(self.store, bytes(data), address)

    def read(self, region: Region) -> bytes:
        address, size_bytes = region
        return bytes(self.memory.read(self.store, address, address + size_bytes))

    def run(self, plan: str) -> None:
        words = self.layout.plans[plan]
        stack_pointer = self.exports["__stack_pointer"]
        for kernel, record in zip(words[::2], words[1::2], strict=True):
            function = self.exports[self.layout.kernels[kernel]]
            for part in range(self.layout.parts):
                stack_pointer.set_value(self.store, self.layout.stack_tops[part])
                function(self.store, record, self.layout.contexts[part])


class WasmtimeDevice:
    """``WasmDevice`` on wasmtime."""

    def __init__(self, parts: int = 1) -> None:
        self.parts = parts
        config = wasmtime.Config()
        config.wasm_relaxed_simd = False
        config.cranelift_opt_level = "speed"
        self._engine = wasmtime.Engine(config)
        self._module = wasmtime.Module.from_file(self._engine, str(MODULE))
        self._instance: _Instance | None = None

    def module_exports(self) -> dict[str, int | None]:
        """Names of the module's exports, with the values of those that are globals."""
        store = wasmtime.Store(self._engine)
        memory = wasmtime.Memory(store, wasmtime.MemoryType(wasmtime.Limits(1, 1)))
        exports = wasmtime.Instance(store, self._module, [memory]).exports(store)
        return {
            name: export.value(store) if isinstance(export, wasmtime.Global) else None
            for name, export in exports.items()
        }

    @property
    def instance(self) -> _Instance:
        assert self._instance is not None, "nothing is loaded"
        return self._instance

    async def load(self, layout: Layout) -> None:
        self._instance = _Instance(self._engine, self._module, layout)

    def write(self, address: int, data: Any, give: bool = False) -> None:
        self.instance.write(address, data)

    async def run(self, plans: Sequence[str], read: Region) -> bytes:
        for plan in plans:
            self.instance.run(plan)
        return self.instance.read(read)

    async def read(self, region: Region) -> bytes:
        return self.instance.read(region)

    async def read_arrays(self, regions: Sequence[Region]) -> list[Any]:
        return [self.instance.read(region) for region in regions]

    async def run_alone(
        self, layout: Layout, writes: Sequence[tuple[int, bytes]], reads: Sequence[Region]
    ) -> list[bytes]:
        alone = _Instance(self._engine, self._module, layout)
        for address, data in writes:
            alone.write(address, data)
        for plan in layout.plans:
            alone.run(plan)
        return [alone.read(region) for region in reads]

    def destroy(self) -> None:
        self._instance = None
