"""Opening the GPU: the kernels' variants are admitted, the fastest one that passes is used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from daisychain import __version__
from daisychain.errors import AdmissionError, DeviceError, DeviceLost
from daisychain.kernels import wgsl
from daisychain.players.admission import admit
from daisychain.players.golden import GoldenSet
from daisychain.players.measure import SAMPLE_KERNELS, Clock, sample_ms
from daisychain.players.webgpu import CompileError, GPUDevice, WebGPUPlayer

SOFTWARE_ADAPTERS = ("swiftshader", "llvmpipe", "lavapipe", "basic render", "fallback")
"""What adapters that run on the CPU say of themselves."""

MARGIN = 1.05
"""A variant must be this much faster than the first that passed: below it is noise."""

Log = Callable[[str], None]


class Memory(Protocol):
    """What earlier starts on this device found out."""

    def get(self, key: str) -> str | None:
        """A value that was set, or None."""

    def set(self, key: str, value: str) -> object:
        """Keeps a value, where the device allows it."""


def usable_variants(device: GPUDevice) -> list[str]:
    """Variants of the kernels that may suit the device, the likeliest first."""
    is_software = any(name in device.info.lower() for name in SOFTWARE_ADAPTERS)
    has_packed = wgsl.PACKED_FEATURE in device.language_features
    variants = ["software", "packed", "unpacked"] if is_software else ["packed", "unpacked"]
    return [variant for variant in variants if has_packed or variant != "packed"]


@dataclass(frozen=True)
class WebGPUStart:
    """How a WebGPU player is opened: for which kernels, proved by what, told to whom."""

    open_device: Callable[[], Awaitable[GPUDevice]]
    kernels: Collection[str]
    sets: Sequence[GoldenSet]
    log: Log
    clock_ms: Clock
    memory: Memory
    read_source: Callable[[str], str] = wgsl.read_file

    async def open(self) -> WebGPUPlayer:
        """A player that may use ``kernels``, all admitted.

        Raises DeviceError: no device, lost, or no variant of the kernels passes.
        """
        device = await self.open_device()
        try:
            return await self._fastest(device)
        except DeviceError:
            device.destroy()
            raise

    async def _fastest(self, device: GPUDevice) -> WebGPUPlayer:
        """The variants are timed once a device and version; later starts begin with the winner."""
        key = f"variant {__version__} {device.info}"
        known = self.memory.get(key)
        variants = usable_variants(device)
        if "packed" not in variants:
            self.log("webgpu: this browser has no packed dot product")
        waiting = [self._player(device, v) for v in sorted(variants, key=lambda v: v != known)]
        first = await self._first_admitted(waiting)
        if known == first.variant or not waiting:
            return first
        fastest = await self._measured(first, waiting)
        self.memory.set(key, fastest.variant)
        if fastest is first or not await self._passes(fastest):
            return first
        return fastest

    def _player(self, device: GPUDevice, variant: str) -> WebGPUPlayer:
        source_of = partial(wgsl.source, variant=variant, read=self.read_source)
        return WebGPUPlayer(device, source_of, variant)

    async def _first_admitted(self, waiting: list[WebGPUPlayer]) -> WebGPUPlayer:
        """Takes players off ``waiting`` up to the first that passes."""
        while len(waiting) > 1:
            player = waiting.pop(0)
            if await self._passes(player):
                return player
        player = waiting.pop()
        await self._admit(player)
        return player

    async def _admit(self, player: WebGPUPlayer) -> None:
        await player.compile(sorted(self.kernels))  # all at once: the browser may use its threads
        await admit(player, self.sets, self.kernels)
        player.restrict(sorted(self.kernels))
        self.log(f"webgpu: {len(self.kernels)} kernels admitted, variant {player.variant}")

    async def _passes(self, player: WebGPUPlayer) -> bool:
        try:
            await self._admit(player)
        except (AdmissionError, CompileError) as error:
            self.log(f"webgpu: variant {player.variant} is refused: {error.what}")
            return False
        return True

    async def _measured(self, first: WebGPUPlayer, others: Sequence[WebGPUPlayer]) -> WebGPUPlayer:
        """The fastest on the sample, by kernels that were admitted."""
        first.sample_ms = await sample_ms(first, self.clock_ms)
        times_ms = {first: first.sample_ms / MARGIN}
        for player in others:
            try:
                await admit(player, self.sets, SAMPLE_KERNELS)
                player.sample_ms = await sample_ms(player, self.clock_ms)
                times_ms[player] = player.sample_ms
            except DeviceLost:
                raise
            except DeviceError as error:
                self.log(f"webgpu: variant {player.variant} is refused: {error.what}")
        fastest = min(times_ms, key=lambda player: times_ms[player])
        shown = ", ".join(f"{p.sample_ms:.2f} ms with {p.variant}" for p in times_ms)
        self.log(f"webgpu: a sample of work takes {shown}: {fastest.variant} is used")
        return fastest
