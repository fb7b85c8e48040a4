"""Continuous verification over oracles: faults are found, costs are bounded, no bit changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from daisychain.errors import DeviceError, DeviceLost
from daisychain.plan import Call, Program, ProgramBuilder
from daisychain.players.oracle import OraclePlayer
from daisychain.players.player import PieceResult
from daisychain.players.verify import MAX_OPERAND_BYTES, KernelWrong, VerifiedPlayer

READ_MS = 3.0


class Device(OraclePlayer):
    """An oracle that stops between calls and takes time; ``fault`` disturbs it after a call."""

    name = "webgpu"

    def __init__(self) -> None:
        super().__init__()
        self.kernels = ["fill", "add"]
        self.wait_ms = 0.0
        self.now_ms = 0.0
        self.run_ms = 20.0
        self.fault: Callable[[Call], None] = lambda call: None

    def execute(self, call: Call) -> None:
        super().execute(call)
        self.fault(call)

    async def run(self, plans: Sequence[str], read: str) -> bytes:
        self.now_ms += self.run_ms
        return await super().run(plans, read)

    async def run_part(self, plans: Sequence[str], read: str, first: int, last: int) -> bytes:
        calls = [call for plan in plans for call in self.program.plans[plan]]
        for call in calls[first:last]:
            self.execute(call)
        self.now_ms += self.run_ms * (last - first) / len(calls) + READ_MS
        return await self.read(read)

    async def read_many(self, buffers: Sequence[str]) -> list[bytes]:
        self.now_ms += READ_MS
        return await super().read_many(buffers)


class Checker:
    """The CPU player, as another oracle."""

    is_closed = False
    error: DeviceError | None = None

    async def run_call(
        self, call: Call, buffers: Mapping[str, bytes], scalars: bytes
    ) -> dict[str, bytes]:
        if self.error:
            raise self.error
        oracle = OraclePlayer()
        await oracle.load(Program(program().buffers, {"call": (call,)}, len(scalars) // 4))
        for name, data in buffers.items():
            oracle.write(name, data)
        oracle.write_scalars(0, memoryview(scalars).cast("I").tolist())
        await oracle.run(["call"], call.buffers[0])
        written = {call.buffers[-1]: await oracle.read(call.buffers[-1])}
        return written | {"scalars": await oracle.read_scalars()}

    def close(self) -> None:
        self.is_closed = True


def program() -> Program:
    """x = 5; total = a + b; twice = a + a."""
    builder = ProgramBuilder()
    x = builder.buffer("x", "u32", 40)
    a, b, total, twice = (builder.buffer(n, "i32", 40) for n in ("a", "b", "total", "twice"))
    words = {f"{v}_{w}": builder.scalar() for v in ("x", "y", "out") for w in ("max", "exp")}
    builder.begin("main")
    builder.call("fill", x, count=40, bits=5)
    builder.call("add", a, b, total, count=40, **words)
    builder.call("add", a, a, twice, count=40, **words)
    return builder.build()


class World:
    """A verified player and all that it talks to."""

    def __init__(self, choose: Callable[[int], int] = lambda n: 1, share: float = 1e12) -> None:
        self.device, self.checker = Device(), Checker()
        self.opened, self.wrong = 0, 0
        self.log: list[str] = []
        self.open_error: DeviceError | None = None

        async def open_checker() -> Checker:
            self.opened += 1
            self.device.now_ms += 100.0
            if self.open_error:
                raise self.open_error
            return self.checker

        def on_wrong() -> None:
            self.wrong += 1

        self.player = VerifiedPlayer(
            self.device,
            open_checker,
            on_wrong,
            self.log.append,
            lambda: self.device.now_ms,
            choose,
            share,
        )
        asyncio.run(self.player.load(program()))
        data = np.arange(40, dtype=np.int32).tobytes()
        self.player.write("a", data)
        self.player.write("b", data)
        first = program().scalar_words - 6
        self.player.write_scalars(first, [39, 0, 39, 0, 0, 0])

    def run(self, times: int = 1) -> bytes:
        contents = b""
        for _ in range(times):
            contents = asyncio.run(self.player.run(["main"], "twice"))
        return contents


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_run_in_pieces_is_checked_in_one_of_them(index: int) -> None:
    async def pieces(player: VerifiedPlayer) -> list[PieceResult]:
        wanted = [(["main"], ["total"]), (["main"], ["twice", "total"]), (["main"], ["x"])]
        return [result async for result in player.run_pieces(wanted)]

    checked, plain = World(choose=lambda n: index), World(share=0.0)
    for _ in range(2):
        assert asyncio.run(pieces(checked.player)) == asyncio.run(pieces(plain.player))
    assert checked.player.checks == 1
    if index == 2:  # the call that is checked then is the one that writes "twice"
        flip(checked, "add", "twice", 7)
        asyncio.run(pieces(checked.player))
        with pytest.raises(KernelWrong):
            asyncio.run(pieces(checked.player))


def flip(world: World, kernel: str, buffer: str, element: int) -> None:
    """From now on the device disturbs an element after each call of the kernel."""

    def fault(call: Call) -> None:
        if call.kernel == kernel:
            world.device.array(buffer)[element] ^= 1

    world.device.fault = fault


@pytest.mark.parametrize("index", [0, 1, 2])
def test_any_call_can_be_checked_and_no_bit_changes(index: int) -> None:
    checked, plain = World(choose=lambda n: index), World(share=0.0)
    for _ in range(4):
        assert checked.run() == plain.run()
    assert checked.player.checks == 2  # every second run, the first after an ordinary one
    assert plain.player.checks == plain.opened == 0
    assert asyncio.run(checked.player.read_scalars()) == asyncio.run(plain.player.read_scalars())


def test_a_wrong_element_ends_the_device_and_is_named() -> None:
    world = World()
    world.run()
    flip(world, "add", "total", 7)
    with pytest.raises(KernelWrong, match=r"The GPU's kernel add went wrong .*\(total: element 7"):
        world.run()
    assert world.wrong == 1
    assert issubclass(KernelWrong, DeviceLost)  # the session goes on from its last step


def test_a_wrong_scalar_word_is_found() -> None:
    world = World(choose=lambda n: 0)
    world.run()

    def fault(call: Call) -> None:
        if call.kernel == "fill":
            world.device.scalars[3] ^= 4

    world.device.fault = fault
    with pytest.raises(KernelWrong, match=r"kernel fill went wrong .*\(scalars: element 3 is"):
        world.run()


def test_a_fault_elsewhere_is_found_by_chance() -> None:
    calls = iter([0, 2])
    world = World(choose=lambda n: next(calls))
    world.run()
    flip(world, "add", "twice", 0)
    world.run(2)
    with pytest.raises(KernelWrong, match="kernel add went wrong"):
        world.run()


def test_checks_take_their_share_of_the_time_and_no_more() -> None:
    world = World(share=0.02)
    world.run(1500)
    ordinary_ms = 1500 * world.device.run_ms
    extra_ms = world.device.now_ms - ordinary_ms - 100.0  # beside opening the CPU player once
    assert world.player.checks >= 5
    assert extra_ms <= 0.02 * ordinary_ms


def test_without_a_cpu_player_training_goes_on_unchecked() -> None:
    world = World()
    world.open_error = DeviceError("No SIMD.")
    world.run(5)
    assert world.opened == 1
    assert world.log == ["webgpu is not checked while it trains: No SIMD."]


def test_a_cpu_player_that_dies_ends_the_checks_only() -> None:
    world = World()
    world.checker.error = DeviceError("The worker died.")
    plain = World(share=0.0)
    assert world.run(5) == plain.run(5)
    assert world.log == ["webgpu is no longer checked: The worker died."]


def test_closing_closes_both() -> None:
    world = World()
    world.run(2)
    world.player.close()
    assert world.checker.is_closed


def test_calls_with_large_operands_are_not_chosen() -> None:
    builder = ProgramBuilder()
    big = builder.buffer("big", "u32", MAX_OPERAND_BYTES // 4 + 1)
    small = builder.buffer("small", "u32", 8)
    builder.begin("main")
    builder.call("fill", big, count=8, bits=1)
    builder.call("fill", small, count=8, bits=1)
    offered: list[int] = []

    def choose(count: int) -> int:
        offered.append(count)
        return 0

    world = World(choose)
    asyncio.run(world.player.load(builder.build()))

    async def alone(call: Call, buffers: Mapping[str, bytes], scalars: bytes) -> dict[str, bytes]:
        assert call.buffers == ("small",)
        return {}

    world.checker.run_call = alone  # type: ignore[method-assign]
    for _ in range(2):
        asyncio.run(world.player.run(["main"], "small"))
    assert offered == [1]
