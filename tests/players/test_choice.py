"""The choice among players that were admitted, with a clock and players of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from daisychain.building import kernels_in_use
from daisychain.errors import AdmissionError, DeviceError, DeviceLost
from daisychain.plan import Program, ProgramBuilder
from daisychain.players.choice import Candidate, Opened, choose
from daisychain.players.measure import sample_ms, sample_program
from daisychain.players.oracle import OraclePlayer
from daisychain.players.player import Player


class Clock:
    """Time that passes only when a player works."""

    now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


class Memory(dict[str, str]):
    """A device's storage."""

    def set(self, key: str, value: str) -> None:
        self[key] = value


class TimedPlayer(OraclePlayer):
    """Takes ``call_ms`` a call and ``latency_ms`` a run on the clock; holds small programs only."""

    def __init__(self, name: str, clock: Clock, call_ms: float, latency_ms: float = 1.0) -> None:
        super().__init__()
        self.name, self.clock = name, clock
        self.call_ms, self.latency_ms = call_ms, latency_ms
        self.limit_bytes = 1 << 30
        self.runs = 0
        self.is_closed = False

    async def load(self, program: Program) -> None:
        if program.memory_bytes() > self.limit_bytes:
            raise DeviceError("The buffer w needs too much.", "It does not fit.", "Choose less.")
        self.program = program

    def write(self, buffer: str, data: Any, offset_bytes: int = 0, give: bool = False) -> None:
        assert len(data) == self.program.buffers[buffer].size_bytes
        assert 0 not in data, "the CPU leaves zeros out, so a sample of them would flatter it"

    async def run(self, plans: Sequence[str], read: str) -> bytes:
        self.runs += 1
        self.clock.now_ms += self.latency_ms + self.call_ms * len(plans)
        return b""

    def close(self) -> None:
        self.is_closed = True


class Bench:
    """Candidates by name and what happened to them."""

    def __init__(self) -> None:
        self.clock, self.memory = Clock(), Memory()
        self.log: list[str] = []
        self.opened: list[TimedPlayer] = []
        self.candidates: list[Candidate] = []

    def add(
        self, name: str, call_ms: float, limit: int = 1 << 30, known_ms: float | None = None
    ) -> None:
        async def opening(_log: Callable[[str], None]) -> Opened:
            player = TimedPlayer(name, self.clock, call_ms)
            player.limit_bytes = limit
            self.opened.append(player)
            return Opened(player, known_ms)

        self.candidates.append(Candidate(name, opening))

    def add_failing(self, name: str, error: DeviceError) -> None:
        async def opening(_log: Callable[[str], None]) -> Opened:
            raise error

        self.candidates.append(Candidate(name, opening))

    def choose(self) -> TimedPlayer:
        self.log.clear()
        self.opened.clear()
        work: Awaitable[Player] = choose(
            self.candidates, program(), self.log.append, self.clock, self.memory
        )
        player = asyncio.run(work)  # type: ignore[arg-type]
        assert isinstance(player, TimedPlayer)
        assert player.program == program()
        assert [p.is_closed for p in self.opened] == [p is not player for p in self.opened]
        return player


def program() -> Program:
    builder = ProgramBuilder()
    builder.buffer("w", "i32", 1 << 20)
    return builder.build()


def test_the_faster_one_is_used_both_times_are_logged_and_remembered() -> None:
    bench = Bench()
    bench.add("webgpu", call_ms=4.0)
    bench.add("wasm", call_ms=2.0)
    assert bench.choose().name == "wasm"
    assert bench.log == [
        "a sample of work takes 4.00 ms on webgpu, 2.00 ms on wasm",
        "wasm is used",
    ]
    again = bench.choose()  # the next start
    assert again.name == "wasm"
    assert kernels_in_use(again, sample_program())[1] == {
        "name": "gemm3",
        "variant": "",
        "speed": "4.2 GMAC/s",  # 8.4 million multiply-adds in 2 ms
    }
    assert [player.runs for player in bench.opened] == [0]
    assert bench.log == ["wasm is used"]


def test_what_is_remembered_may_be_damaged_or_of_other_players() -> None:
    bench = Bench()
    bench.add("webgpu", call_ms=1.0)
    bench.add("wasm", call_ms=2.0)
    bench.choose()
    (key,) = bench.memory
    for text in ("", "no json", "[1]", '{"webgpu": 1}', '{"webgpu": "x", "wasm": 2}'):
        bench.memory[key] = text
        assert bench.choose().name == "webgpu"
        assert len(bench.log) == 2


def test_a_forced_player_is_not_measured() -> None:
    bench = Bench()
    bench.add("wasm", call_ms=2.0)
    player = bench.choose()
    assert (player.runs, bench.log) == (0, ["wasm is used"])
    assert bench.memory == {}


def test_what_cannot_be_opened_gives_way_and_nothing_is_remembered() -> None:
    bench = Bench()
    bench.add_failing("webgpu", DeviceError("This browser has no WebGPU.", "Old.", "Update it."))
    bench.add("wasm", call_ms=2.0)
    assert bench.choose().name == "wasm"
    assert bench.log == [
        "webgpu is not used: This browser has no WebGPU.",
        "a sample of work takes 2.00 ms on wasm",
        "wasm is used",
    ]
    assert bench.memory == {}


def test_a_remembered_player_that_fails_now_gives_way() -> None:
    bench = Bench()
    bench.add("wasm", call_ms=2.0)
    bench.add("webgpu", call_ms=1.0)
    assert bench.choose().name == "webgpu"
    bench.candidates.pop()
    bench.add_failing("webgpu", DeviceError("No adapter."))
    assert bench.choose().name == "wasm"
    assert bench.log == ["webgpu is not used: No adapter.", "wasm is used"]


def test_a_program_that_does_not_fit_the_fastest_goes_to_the_next() -> None:
    bench = Bench()
    bench.add("webgpu", call_ms=1.0, limit=1 << 21)
    bench.add("wasm", call_ms=2.0)
    assert bench.choose().name == "wasm"
    assert bench.log[1:] == ["webgpu is not used: The buffer w needs too much.", "wasm is used"]


def test_when_none_can_be_used_every_reason_is_told() -> None:
    bench = Bench()
    bench.add_failing("webgpu", DeviceError("No adapter."))
    bench.add_failing("wasm", DeviceError("No SIMD.", "", "Update the browser."))
    with pytest.raises(DeviceError, match=r"^No adapter\. No SIMD\. .*Update the browser\.$"):
        bench.choose()
    bench.candidates.pop()
    with pytest.raises(DeviceError, match=r"^No adapter\.$"):
        bench.choose()
    refused = AdmissionError("The kernel add was refused.")
    bench.candidates.clear()
    bench.add_failing("webgpu", refused)
    bench.add_failing("wasm", refused)
    with pytest.raises(AdmissionError):
        bench.choose()


def test_a_player_lost_while_measured_counts_as_slow() -> None:
    bench = Bench()
    bench.add("webgpu", call_ms=1.0)
    bench.add("wasm", call_ms=2.0)

    async def lost(plans: Sequence[str], read: str) -> bytes:
        raise DeviceLost("The GPU was lost.")

    async def opening(log: Callable[[str], None]) -> Opened:
        opened = await whole(log)
        opened.player.run = lost  # type: ignore[method-assign]
        return opened

    whole = bench.candidates[0].open
    bench.candidates[0] = Candidate("webgpu", opening)
    assert bench.choose().name == "wasm"
    assert "webgpu is not used: The GPU was lost." in bench.log


def test_a_speed_that_opening_told_is_not_measured_again() -> None:
    bench = Bench()
    bench.add("webgpu", call_ms=1.0, known_ms=0.25)
    bench.add("wasm", call_ms=2.0)
    assert bench.choose().runs == 0
    assert bench.log[0] == "a sample of work takes 0.25 ms on webgpu, 2.00 ms on wasm"


@pytest.mark.parametrize("call_ms", [0.004, 0.02, 1.0, 30.0, 120.0])
@pytest.mark.parametrize("latency_ms", [0.1, 80.0])
def test_times_are_right_whatever_a_read_back_costs(call_ms: float, latency_ms: float) -> None:
    """Firefox needs 80 ms a map.  A start measures three times, in at most 1.5 s together."""
    clock = Clock()
    player = TimedPlayer("webgpu", clock, call_ms, latency_ms)
    measured_ms = asyncio.run(sample_ms(player, clock))
    assert measured_ms == pytest.approx(call_ms, rel=1e-6)
    assert clock.now_ms <= 500.0
