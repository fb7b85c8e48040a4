"""The choice of a player: all are admitted by the same gates, the fastest by measurement is used.

What was measured is kept on the device, so that later starts open one player only.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from daisychain import __version__
from daisychain.errors import AdmissionError, DeviceError
from daisychain.plan import Program
from daisychain.platform import device_name, monotonic_ms, storage_get, storage_set
from daisychain.platform.gpu import open_gpu
from daisychain.platform.wasm_worker import open_wasm
from daisychain.players.admission import admit, golden_sets
from daisychain.players.measure import SAMPLE_KERNELS, Clock, sample_ms
from daisychain.players.player import Player
from daisychain.players.verify import VerifiedPlayer
from daisychain.players.wasm import WasmPlayer
from daisychain.players.webgpu_start import Log, Memory, WebGPUStart

Result = TypeVar("Result")

_dropped: set[str] = set()
"""Players that went wrong in this page: they are not opened again."""

LOST_MS = 1e9
"""The time of a player that was lost while it was measured: it comes last."""


@dataclass(frozen=True)
class Opened:
    """An admitted player, and its speed where opening it told."""

    player: Player
    sample_ms: float | None = None


@dataclass(frozen=True)
class Candidate:
    """A player that may be used: its name and how to open and admit it (raises DeviceError)."""

    name: str
    open: Callable[[Log], Awaitable[Opened]]


class DeviceMemory:
    """``Memory`` in the browser's storage, or in that of the process."""

    def get(self, key: str) -> str | None:
        return storage_get(key)

    def set(self, key: str, value: str) -> object:
        return storage_set(key, value)


async def open_player(preference: str, program: Program, log: Log) -> Player:
    """An admitted player with ``program`` loaded: 'webgpu', 'wasm', or 'auto' for the faster one.

    A player that went wrong in this page is not opened again, whatever the preference.  ``log``
    gets one line for each thing found out.  Raises DeviceError when none can be used.
    """
    memory = DeviceMemory()
    kernels = program.kernels().union(SAMPLE_KERNELS)

    async def webgpu(note: Log) -> Opened:
        sets = golden_sets()
        player = await WebGPUStart(open_gpu, kernels, sets, note, monotonic_ms, memory).open()
        checker = partial(open_wasm_player, kernels, log)
        drop = partial(_dropped.add, "webgpu")
        return Opened(VerifiedPlayer(player, checker, drop, log, monotonic_ms), player.sample_ms)

    async def wasm(note: Log) -> Opened:
        return Opened(await open_wasm_player(kernels, note))

    candidates = [Candidate("webgpu", webgpu), Candidate("wasm", wasm)]
    usable = [c for c in candidates if c.name not in _dropped]
    wanted = [c for c in usable if preference in ("auto", c.name)] or usable
    return await choose(wanted, program, log, monotonic_ms, memory)


async def open_wasm_player(kernels: Collection[str], log: Log) -> WasmPlayer:
    """The CPU player, these kernels admitted; raises DeviceError."""
    player = WasmPlayer(await open_wasm(log=log))
    try:
        await admit(player, golden_sets(), kernels)
    except DeviceError:
        player.close()
        raise
    log(f"wasm: {len(kernels)} kernels admitted")
    return player


async def choose(
    candidates: Sequence[Candidate], program: Program, log: Log, clock_ms: Clock, memory: Memory
) -> Player:
    """The fastest candidate that opens and that ``program`` fits, with the program loaded.

    A remembered order saves the measurement; what then fails gives way to the next in the order.
    """
    reasons: list[DeviceError] = []

    async def attempt(name: str, work: Awaitable[Result]) -> Result | None:
        try:
            return await work
        except DeviceError as error:
            reasons.append(error)
            log(f"{name} is not used: {error.what}")
            return None

    async def loaded(player: Player) -> Player:
        try:
            await player.load(program)
        except DeviceError:
            player.close()
            raise
        return player

    async def timed_ms(it: Opened) -> float:
        return it.sample_ms or await sample_ms(it.player, clock_ms)

    opened: dict[str, Opened] = {}
    key = f"players {__version__} {device_name()}"
    times_ms = _remembered(memory.get(key), [c.name for c in candidates])
    if not times_ms and len(candidates) > 1:
        for candidate in candidates:
            if it := await attempt(candidate.name, candidate.open(log)):
                opened[candidate.name] = it
        candidates = [c for c in candidates if c.name in opened]
        for name, it in opened.items():
            times_ms[name] = await attempt(name, timed_ms(it)) or LOST_MS
        if times_ms:
            shown = ", ".join(f"{ms:.2f} ms on {name}" for name, ms in times_ms.items())
            log(f"a sample of work takes {shown}")
        if len(times_ms) > 1:
            memory.set(key, json.dumps(times_ms))
    try:
        for candidate in sorted(candidates, key=lambda c: times_ms.get(c.name, 0.0)):
            name = candidate.name
            found = opened.pop(name, None) or await attempt(name, candidate.open(log))
            player = await attempt(name, loaded(found.player)) if found else None
            if player:
                player.sample_ms = times_ms.get(name, player.sample_ms)
                log(f"{name} is used")
                return player
    finally:
        for unused in opened.values():
            unused.player.close()
    raise _no_player(reasons)


def _no_player(reasons: Sequence[DeviceError]) -> DeviceError:
    """The only reason itself; of several, what happened in each."""
    if len(reasons) == 1:
        return reasons[0]
    what = " ".join(error.what for error in reasons)
    refused = all(isinstance(error, AdmissionError) for error in reasons)
    kind = AdmissionError if refused else DeviceError
    return kind(what, "So this device cannot train.", reasons[-1].do if reasons else "")


def _remembered(text: str | None, names: Sequence[str]) -> dict[str, float]:
    """Times that an earlier start measured for exactly these players; else nothing."""
    try:
        times_ms = json.loads(text or "null")
        if isinstance(times_ms, dict) and set(times_ms) == set(names):
            return {name: float(time_ms) for name, time_ms in times_ms.items()}
    except (ValueError, TypeError):
        pass  # storage may hold anything: measure again
    return {}
