"""``wasm/exchange.wasm`` on wasmtime: the `Machine` of tests in CPython."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import wasmtime

from daisychain.cluster.machine import Operation
from daisychain.cluster.reducer import PAGE_BYTES

MODULE = Path(__file__).resolve().parents[2] / "wasm" / "exchange.wasm"
ENGINE = wasmtime.Engine()


@cache
def compiled() -> wasmtime.Module:
    """Compiled once for all machines."""
    return wasmtime.Module.from_file(ENGINE, str(MODULE))


class WasmtimeMachine:
    """See `daisychain.cluster.machine.Machine`."""

    def __init__(self) -> None:
        self.store = wasmtime.Store(ENGINE)
        limits = wasmtime.Limits(1, 65_535)
        self.memory = wasmtime.Memory(self.store, wasmtime.MemoryType(limits))
        self.exports = wasmtime.Instance(self.store, compiled(), [self.memory]).exports(self.store)

    async def grow(self, size_bytes: int) -> None:
        missing = size_bytes - self.memory.data_len(self.store)
        if missing > 0:
            self.memory.grow(self.store, -(-missing // PAGE_BYTES))

    async def execute(self, operations: Sequence[Operation], give: Sequence[Any] = ()) -> list[Any]:
        results: list[Any] = []
        for kind, *rest in operations:
            if kind == "write":
                address, data, offset, size = rest
                part = bytes(data)[offset : offset + size]
                assert len(part) == size
                self.memory.write(self.store, part, address)
            elif kind == "fill":
                self.memory.write(self.store, bytes(rest[1]), rest[0])
            elif kind in ("read", "hash"):
                pairs = zip(rest[::2], rest[1::2], strict=True)
                data = b"".join(bytes(self.memory.read(self.store, a, a + n)) for a, n in pairs)
                results.append(data if kind == "read" else sha256(data).hexdigest())
            else:
                name, *numbers = rest
                result = self.exports[name](self.store, *numbers)
                if kind == "ask":
                    results.append(result)
        return results

    def close(self) -> None:
        self.store.close()
