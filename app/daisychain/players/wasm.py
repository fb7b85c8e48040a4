"""The WebAssembly player: lays a program out in one linear memory and replays its plans on the CPU.

The device behind it is anything with the face of ``WasmDevice``: Workers of the browser in
``platform.wasm_worker``, wasmtime in tests.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol

from daisychain.kernels.catalog import BYTES_PER_ELEMENT, CATALOG
from daisychain.plan import Buffer, Call, Program
from daisychain.players.player import Piece, PieceResult, queue_ahead
from daisychain.players.wasm_layout import Layout, lay_out

Region = tuple[int, int]
"""Address and size in bytes."""


class WasmDevice(Protocol):
    """One or more Workers on one memory (``app/js/wasm_player_worker.js`` seen from Python).

    Requests are served in order.  Everything awaited raises DeviceError when the Workers died.
    """

    parts: int
    """Number of Workers that share each kernel call."""

    async def load(self, layout: Layout) -> None:
        """Gives the old memory back and makes a zeroed one that holds ``layout.image``."""

    def write(self, address: int, data: Any, give: bool = False) -> None:
        """``give`` as in `Player.write`."""

    async def run(self, plans: Sequence[str], read: Region) -> bytes: ...

    async def read(self, region: Region) -> bytes: ...

    async def read_arrays(self, regions: Sequence[Region]) -> list[Any]:
        """Like ``read`` for each region; in the page JavaScript typed arrays, not copied again."""

    async def run_alone(
        self, layout: Layout, writes: Sequence[tuple[int, bytes]], reads: Sequence[Region]
    ) -> list[bytes]:
        """Runs all plans of a one-part layout in a memory of their own; the loaded one stays."""

    def destroy(self) -> None: ...


class WasmPlayer:
    """Implements ``players.player.Player`` on a ``WasmDevice``."""

    name = "wasm"

    def __init__(self, device: WasmDevice) -> None:
        self.device = device
        self.wait_ms = 0.0
        self.sample_ms: float | None = None
        self._layout = lay_out(Program({}, {}, 0), device.parts)

    async def load(self, program: Program) -> None:
        """See ``Player.load``; raises DeviceError before anything is allocated."""
        self._layout = lay_out(program, self.device.parts)
        await self.device.load(self._layout)
        for name, data in program.constants.items():
            self.write(name, data)

    def write(self, buffer: str, data: Any, offset_bytes: int = 0, give: bool = False) -> None:
        address, size_bytes = self._layout.buffers[buffer]
        length = data.nbytes if isinstance(data, memoryview) else _length(data)
        if offset_bytes < 0 or offset_bytes + length > size_bytes:
            raise ValueError(
                f"{length} bytes at {offset_bytes} do not fit {buffer}, which has {size_bytes}"
            )
        self.device.write(address + offset_bytes, data, give)

    def write_scalars(self, first_word: int, words: Sequence[int]) -> None:
        if first_word < 0 or first_word + len(words) > self._layout.scalar_words:
            raise ValueError(f"scalars {first_word}..+{len(words)} do not exist")
        data = struct.pack(f"<{len(words)}I", *(word & 0xFFFFFFFF for word in words))
        self.device.write(self._layout.scalars + 4 * first_word, data)

    async def run(self, plans: Sequence[str], read: str) -> bytes:
        started = perf_counter()
        contents = await self.device.run(plans, self._layout.buffers[read])
        self.wait_ms = 1000.0 * (perf_counter() - started)
        return contents

    def run_pieces(self, pieces: Sequence[Piece]) -> AsyncGenerator[PieceResult, None]:
        return queue_ahead(self._run_piece, pieces)

    async def _run_piece(self, piece: Piece) -> PieceResult:
        plans, buffers = piece
        scalars = self._layout.scalars, 4 * self._layout.scalar_words
        words, contents = await asyncio.gather(
            self.device.run(plans, scalars),
            self.device.read_arrays([self._layout.buffers[name] for name in buffers]),
        )
        return contents, words

    async def read(self, buffer: str) -> bytes:
        return await self.device.read(self._layout.buffers[buffer])

    async def read_many(self, buffers: Sequence[str]) -> list[bytes]:
        return list(await asyncio.gather(*map(self.read, buffers)))  # one wait for all

    async def read_scalars(self) -> bytes:
        return await self.device.read((self._layout.scalars, 4 * self._layout.scalar_words))

    async def run_call(
        self, call: Call, buffers: Mapping[str, bytes], scalars: bytes
    ) -> dict[str, bytes]:
        """Replays one kernel call on given contents, beside the loaded program.

        ``buffers`` holds the whole contents before the call of every buffer that the call names,
        ``scalars`` those of ``scalars``.  Returns the contents after it of the buffers that the
        call writes, and of ``scalars`` under that name.
        """
        operands = list(zip(call.buffers, CATALOG[call.kernel].operands, strict=True))
        written = [name for name, operand in operands if operand.access != "read"]
        program = Program(
            {
                name: Buffer(name, o.kind, len(buffers[name]) // BYTES_PER_ELEMENT[o.kind], name)
                for name, o in operands
            },
            {"call": (call,)},
            len(scalars) // 4,
        )
        layout = lay_out(program)
        writes = [(layout.buffers[name][0], buffers[name]) for name, _ in operands]
        reads = [layout.buffers[name] for name in written]
        results = await self.device.run_alone(
            layout,
            [*writes, (layout.scalars, scalars)],
            [*reads, (layout.scalars, len(scalars))],
        )
        return dict(zip([*written, "scalars"], results, strict=True))

    def close(self) -> None:
        self.device.destroy()


def _length(data: Any) -> int:
    """Bytes of a bytes-like object or of a JavaScript typed array."""
    return int(data.byteLength) if hasattr(data, "byteLength") else len(data)
