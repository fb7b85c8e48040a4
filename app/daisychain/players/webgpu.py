"""The WebGPU player: flattens a program once, then replays its plans through ``app/js``.

The device behind it is anything with the face of ``GPUDevice``: the browser's in ``platform.gpu``,
a browser driven from outside in tests.
"""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from time import perf_counter
from typing import Any, Protocol

from daisychain.errors import AdmissionError, DeviceError
from daisychain.kernels import wgsl
from daisychain.kernels.catalog import CATALOG, Access
from daisychain.plan import Program
from daisychain.players.player import Piece, PieceResult, queue_ahead

SourceOf = Callable[[str], str]
"""Kernel name -> WGSL."""


class GPUDevice(Protocol):
    """One opened WebGPU device (``app/js/webgpu_player.js`` seen from Python)."""

    @property
    def info(self) -> str:
        """What the browser says about the adapter; may be empty."""

    @property
    def limits(self) -> Mapping[str, int]:
        """The device's limits by their WebGPU names."""

    @property
    def language_features(self) -> frozenset[str]:
        """``wgslLanguageFeatures``."""

    async def compile(self, sources: str) -> str:
        """JSON of {key, code, access}[] -> JSON of [key, first message][] of the failures."""

    async def load(self, program: str) -> None:
        """Loads what ``flatten`` made, in place of the program before."""

    def write(self, buffer: str, offset_bytes: int, data: Any) -> None: ...

    def write_scalars(self, first_word: int, data: bytes) -> None: ...

    async def run(
        self, plans: Sequence[str], read: str, first: int = 0, last: int | None = None
    ) -> bytes:
        """Runs the calls first..last-1 of the plans, counted through; None: to the end."""

    async def run_and_read(self, plans: Sequence[str], buffers: Sequence[str]) -> PieceResult:
        """Runs the plans and reads the buffers and the scalars after them.

        One submit and one read-back, begun as soon as awaited; two may be in flight.
        """

    async def read(self, buffers: Sequence[str]) -> bytes:
        """The contents of the buffers, one after the other."""

    async def read_scalars(self) -> bytes: ...

    def counters(self) -> dict[str, int]:
        """submits, readBacks, dispatches (since the start); buffers, bufferBytes (now)."""

    def destroy(self) -> None: ...


class CompileError(DeviceError):
    """A kernel's WGSL does not compile on this device; ``kernel`` names it."""

    def __init__(self, kernel: str, message: str) -> None:
        super().__init__(
            f"The kernel {kernel} does not compile on this GPU ({message}).",
            "This browser's shader compiler does not understand it.",
            "Update the browser, or train on the CPU (player=wasm).",
        )
        self.kernel, self.message = kernel, message


class WebGPUPlayer:
    """Implements ``players.player.Player`` on a ``GPUDevice``.

    ``source_of`` gives each kernel's WGSL, ``variant`` names this set of sources; kernels are
    compiled at the first load that needs them.  Once ``restrict`` was called, programs may use
    the kernels that it named and no others.  ``sample_ms`` is its speed, once measured.
    """

    name = "webgpu"

    def __init__(self, device: GPUDevice, source_of: SourceOf, variant: str = "") -> None:
        self.device = device
        self.source_of, self.variant = source_of, variant
        self.kernels: list[str] = []
        self.sample_ms: float | None = None
        self.wait_ms = 0.0
        self._is_restricted = False
        self._program = Program({}, {}, 0)

    async def compile(self, kernels: Sequence[str]) -> None:
        """Compiles the named kernels (at once; those compiled before are kept).

        Raises CompileError for the first that does not compile.
        """
        sources = [
            source
            for name in kernels
            for source in kernel_sources(name, self.variant, self.source_of)
        ]
        for key, message in json.loads(await self.device.compile(json.dumps(sources))):
            raise CompileError(key.partition(".")[0], message)

    def restrict(self, kernels: Sequence[str]) -> None:
        """Admission is over: these kernels may be used."""
        self.kernels, self._is_restricted = list(kernels), True

    async def load(self, program: Program) -> None:
        """See ``Player.load``; raises DeviceError before anything is allocated."""
        check_limits(program, self.device.limits)
        used = program.kernels()
        barred = used.difference(self.kernels)
        if barred and self._is_restricted:
            raise AdmissionError(
                f"The kernel {min(barred)} was not admitted on this device.",
                "No kernel may compute before it was checked.",
                "Reload the page.",
            )
        await self.compile(sorted(used))
        await self.device.load(flatten(program, self.variant))
        self._program = program
        for name, data in program.constants.items():
            self.write(name, data)

    def write(self, buffer: str, data: Any, offset_bytes: int = 0, give: bool = False) -> None:
        self.device.write(buffer, offset_bytes, data)

    def write_scalars(self, first_word: int, words: Sequence[int]) -> None:
        self.device.write_scalars(first_word, struct.pack(f"<{len(words)}I", *words))

    async def run(self, plans: Sequence[str], read: str) -> bytes:
        started = perf_counter()
        contents = await self.device.run(plans, read)
        self.wait_ms = 1000.0 * (perf_counter() - started)
        return contents

    def run_pieces(self, pieces: Sequence[Piece]) -> AsyncGenerator[PieceResult, None]:
        return queue_ahead(self._run_piece, pieces)

    async def _run_piece(self, piece: Piece) -> PieceResult:
        return await self.device.run_and_read(*piece)

    async def run_part(self, plans: Sequence[str], read: str, first: int, last: int) -> bytes:
        """``run`` for the calls first..last-1 of the plans, counted through."""
        return await self.device.run(plans, read, first, last)

    async def read(self, buffer: str) -> bytes:
        return await self.device.read([buffer])

    async def read_many(self, buffers: Sequence[str]) -> list[bytes]:
        data = await self.device.read(buffers) if buffers else b""
        ends = list(accumulate(self._program.buffers[name].size_bytes for name in buffers))
        return [data[start:end] for start, end in pairwise([0, *ends])]

    async def read_scalars(self) -> bytes:
        return await self.device.read_scalars()

    def close(self) -> None:
        self.device.destroy()


def kernel_sources(
    kernel: str, variant: str, source_of: SourceOf | None = None
) -> list[dict[str, object]]:
    """What ``compile`` in ``app/js/webgpu_player.js`` wants to know of each form of a kernel."""
    source_of = source_of or partial(wgsl.source, variant=variant)
    kinds: dict[Access, str] = {"read": "read-only-storage"}
    access = [kinds.get(operand.access, "storage") for operand in CATALOG[kernel].operands]
    return [
        {"key": f"{form}.{variant}", "code": source_of(form), "access": access}
        for form in wgsl.forms(kernel, variant)
    ]


def flatten(program: Program, variant: str) -> str:
    """The program as JSON of numbers for ``WebGPUPlayer.load`` in ``app/js/webgpu_player.js``.

    Calls, parameter slices and kernels that occur twice are listed once.
    """
    storages = {name: index for index, name in enumerate(program.storages())}
    buffers = {name: index for index, name in enumerate(program.buffers)}
    kernels: dict[str, int] = {}
    params: dict[tuple[int, ...], int] = {}
    calls: dict[tuple[int, ...], int] = {}
    plans: dict[str, list[int]] = {}
    for plan, plan_calls in program.plans.items():
        plans[plan] = []
        for call in plan_calls:
            form, groups = wgsl.launch(call.kernel, call.named_params(), variant)
            kernel = kernels.setdefault(f"{form}.{variant}", len(kernels))
            words = tuple(word & 0xFFFFFFFF for word in call.params)
            slot = params.setdefault(words, len(params))
            operands = (buffers[name] for name in call.buffers)
            flat = (kernel, slot, *groups, *operands)
            plans[plan].append(calls.setdefault(flat, len(calls)))
    return json.dumps(
        {
            "scalarBytes": 4 * program.scalar_words,
            "storages": list(program.storages().values()),
            "buffers": [
                [b.name, storages[b.storage], b.size_bytes] for b in program.buffers.values()
            ],
            "kernels": list(kernels),
            "params": list(params),
            "calls": list(calls),
            "plans": plans,
        },
        separators=(",", ":"),
    )


def check_limits(program: Program, limits: Mapping[str, int]) -> None:
    """Raises DeviceError when a storage or a launch exceeds what the device allows."""
    allowed = min(limits["maxBufferSize"], limits["maxStorageBufferBindingSize"])
    storages = {"scalars": 4 * program.scalar_words, **program.storages()}
    name, size = max(storages.items(), key=lambda item: item[1])
    if size > allowed:
        raise DeviceError(
            f"The buffer {name} needs {size / 2**20:.0f} MiB, but this GPU allows"
            f" {allowed / 2**20:.0f} MiB a buffer.",
            "The model does not fit this device.",
            "Choose a smaller preset, a smaller batch or a shorter context.",
        )
    most = limits["maxComputeWorkgroupsPerDimension"]
    for call in (call for calls in program.plans.values() for call in calls):
        if max(call.groups()) > most:
            raise DeviceError(
                f"The kernel {call.kernel} needs {max(call.groups())} workgroups in one direction,"
                f" but this GPU allows {most}.",
                "The batch is too large for this device.",
                "Choose a smaller batch or a shorter context.",
            )
