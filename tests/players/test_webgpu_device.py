"""``app/js/webgpu_player.js`` and the Python player on real devices, with a small kernel.

The kernels' own bit-equality tests are in tests/kernels.
"""

from __future__ import annotations

import asyncio
import struct

import pytest
from webgpu_harness import BrowserDevice, run_program

from daisychain.errors import DeviceError, DeviceLost
from daisychain.plan import Program, ProgramBuilder
from daisychain.players.webgpu import CompileError, WebGPUPlayer

pytestmark = pytest.mark.browser

FILL = """
struct Params { count: u32, bits: u32 }
@group(0) @binding(0) var<storage, read_write> scalars: array<u32>;
@group(0) @binding(1) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < params.count) { out[id.x] += params.bits + scalars[0]; }
}
"""


def fill_program(count: int = 1000) -> Program:
    builder = ProgramBuilder()
    builder.buffer("x", "u32", count)
    builder.buffer("y", "u32", 5)
    builder.begin("both")
    builder.call("fill", "x", count=count, bits=7)
    builder.call("fill", "y", count=5, bits=9)
    builder.begin("only_y")
    builder.call("fill", "y", count=4, bits=1)
    return builder.build()


@pytest.fixture(params=["chromium", "firefox"])
def device(request: pytest.FixtureRequest) -> BrowserDevice:
    shared: BrowserDevice = request.getfixturevalue(f"{request.param}_device")
    shared.reopen()
    return shared


def words(data: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def test_plans_run_in_order_in_one_submit(device: BrowserDevice) -> None:
    after = run_program(
        device,
        fill_program(),
        {"y": struct.pack("<5I", 1, 2, 3, 4, 5)},
        {0: 100},
        ["both", "only_y"],
        lambda _: FILL,
    )
    assert words(after["x"]) == [107] * 1000
    assert words(after["y"]) == [211, 212, 213, 214, 114]
    assert words(after["scalars"])[0] == 100


def test_contents_come_back_whole(device: BrowserDevice) -> None:
    """Downloads of several buffers, the large one in more than one chunk."""
    count = (1 << 20) + 1024
    program = fill_program(count)

    async def scenario() -> None:
        player = WebGPUPlayer(device, lambda _: FILL)
        await player.load(program)
        data = struct.pack("<Q", 0x0123456789ABCDEF) * (count // 2)
        player.write("x", data)
        player.write("y", struct.pack("<2I", 8, 9), 4)
        y, x = await player.read_many(["y", "x"])
        assert words(y) == [0, 8, 9, 0, 0]
        assert x == data
        assert await player.read("y") == y
        before = device.counters()
        pieces = [(["only_y"], ["y", "x"]), (["both"], ["y"])]
        (first, scalars), (second, _) = [r async for r in player.run_pieces(pieces)]
        assert [words(first[0]), first[1], len(scalars)] == [[1, 9, 10, 1, 0], data, 64]
        assert words(second[0]) == [10, 18, 19, 10, 9]
        after = device.counters()
        assert [after[n] - before[n] for n in ("submits", "readBacks", "dispatches")] == [2, 2, 3]

    asyncio.run(scenario())


def test_nothing_grows_over_200_runs(device: BrowserDevice) -> None:
    async def scenario() -> None:
        player = WebGPUPlayer(device, lambda _: FILL)
        await player.load(fill_program())
        await player.run(["both"], "y")
        before = device.counters()
        for run in range(200 if "SwiftShader" in device.info else 20):
            player.write_scalars(0, [run])
            await player.run(["both", "only_y"], "y")
        after = device.counters()
        runs = after["submits"] - before["submits"]
        assert runs == after["readBacks"] - before["readBacks"] == run + 1
        assert after["dispatches"] - before["dispatches"] == 3 * runs
        assert after["buffers"] == before["buffers"]
        assert after["bufferBytes"] == before["bufferBytes"]
        params = 3 * 256
        staging = 32
        assert after["bufferBytes"] == 64 + 4000 + 32 + params + staging

    asyncio.run(scenario())


def test_a_device_lost_in_mid_run_is_told_and_a_fresh_one_goes_on(device: BrowserDevice) -> None:
    async def scenario() -> None:
        player = WebGPUPlayer(device, lambda _: FILL)
        await player.load(fill_program())
        with pytest.raises(DeviceLost, match="The GPU was lost"):
            await device.lose_in_run(["both"], "y")
        with pytest.raises(DeviceLost):
            await player.run(["both"], "y")
        with pytest.raises(DeviceLost):
            await player.load(fill_program())
        device.reopen()
        await player.load(fill_program())
        assert words(await player.run(["both"], "y")) == [9] * 5

    asyncio.run(scenario())


def test_a_shader_that_does_not_compile_is_named(device: BrowserDevice) -> None:
    player = WebGPUPlayer(device, lambda _: FILL.replace("params.bits", "params.bats"))
    with pytest.raises(CompileError, match=r"The kernel fill does not compile .*line \d+.*bats"):
        asyncio.run(player.load(fill_program()))


def test_a_shader_that_does_not_fit_its_signature_is_named(device: BrowserDevice) -> None:
    wrong = FILL.replace("storage, read_write> out", "storage, read> out").replace("+=", "; //")
    player = WebGPUPlayer(device, lambda _: wrong)
    with pytest.raises(CompileError, match="The kernel fill does not compile"):
        asyncio.run(player.load(fill_program()))


def test_too_much_memory_is_one_sentence(device: BrowserDevice) -> None:
    player = WebGPUPlayer(device, lambda _: FILL)
    with pytest.raises(DeviceError, match=r"The buffer x needs \d+ MiB, but this GPU allows"):
        asyncio.run(player.load(fill_program(1 << 31)))
    assert device.counters()["buffers"] == 0
