"""The oracle player: runs plans on NumPy.  The definition; for tests, tools and CPython."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from daisychain.kernels.catalog import CATALOG
from daisychain.kernels.oracle import ORACLES
from daisychain.kernels.oracle.primitives import Array
from daisychain.plan import Buffer, Call, Program
from daisychain.players.player import Piece, PieceResult

_DTYPES: dict[str, Any] = {"narrow": np.int16, "i32": np.int32, "u32": np.uint32}


def pack_narrow(m: Array) -> bytes:
    """int16 mantissas to the interleaved layout."""
    high = (m.astype(np.int32) + 128) >> 8
    low = m - (high << 8)
    return np.stack([high.reshape(-1, 8), low.reshape(-1, 8)], 1).astype(np.int8).tobytes()


def unpack_narrow(data: bytes) -> Array:
    """The interleaved layout to int16 mantissas."""
    halves = np.frombuffer(data, np.int8).reshape(-1, 2, 8).astype(np.int16)
    return (halves[:, 0] * 256 + halves[:, 1]).reshape(-1)


class OraclePlayer:
    """``Player`` on NumPy.  Buffers that share a storage share its memory, as on a device."""

    name = "oracle"

    def __init__(self) -> None:
        self.program = Program({}, {}, 0)
        self.scalars: Array = np.zeros(0, np.uint32)
        self.wait_ms = 0.0
        self.sample_ms: float | None = None
        self._storages: dict[str, Array] = {}

    async def load(self, program: Program) -> None:
        self.program = program
        self.scalars = np.zeros(program.scalar_words, np.uint32)
        self._storages = {
            name: np.zeros(size, np.uint8) for name, size in program.storages().items()
        }
        for name, data in program.constants.items():
            self.write(name, data)

    def array(self, name: str) -> Array:
        """The live array of a buffer, by its kind: int16, int32 or uint32."""
        buffer = self._buffer(name)
        return self._storages[buffer.storage][: buffer.size_bytes].view(_DTYPES[buffer.kind])

    def write(self, buffer: str, data: Any, offset_bytes: int = 0, give: bool = False) -> None:
        raw = memoryview(data).cast("B")
        if self._buffer(buffer).kind == "narrow":
            values = unpack_narrow(bytes(raw))
            self.array(buffer)[offset_bytes // 2 : offset_bytes // 2 + values.size] = values
        else:
            target = self.array(buffer).view(np.uint8)
            target[offset_bytes : offset_bytes + len(raw)] = np.frombuffer(raw, np.uint8)

    def write_scalars(self, first_word: int, words: Sequence[int]) -> None:
        values = np.array([word & 0xFFFFFFFF for word in words], np.uint32)
        self.scalars[first_word : first_word + len(values)] = values

    async def run(self, plans: Sequence[str], read: str) -> bytes:
        for plan in plans:
            for call in self.program.plans[plan]:
                self.execute(call)
        return await self.read(read)

    async def run_pieces(self, pieces: Sequence[Piece]) -> AsyncGenerator[PieceResult, None]:
        for plans, buffers in pieces:
            await self.run(plans, buffers[0])
            yield await self.read_many(buffers), await self.read_scalars()

    def execute(self, call: Call) -> None:
        """Runs one kernel call."""
        if call.kernel not in CATALOG:
            raise LookupError(f"unknown kernel {call.kernel}")
        params = SimpleNamespace(**call.named_params())
        arrays = [self.array(name) for name in call.buffers]
        ORACLES[call.kernel](params, self.scalars, *arrays)

    async def read(self, buffer: str) -> bytes:
        array = self.array(buffer)
        return pack_narrow(array) if self._buffer(buffer).kind == "narrow" else array.tobytes()

    async def read_many(self, buffers: Sequence[str]) -> list[bytes]:
        return [await self.read(buffer) for buffer in buffers]

    async def read_scalars(self) -> bytes:
        return self.scalars.tobytes()

    def close(self) -> None:
        self._storages = {}

    def _buffer(self, name: str) -> Buffer:
        return self.program.buffers[name]
