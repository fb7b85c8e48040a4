"""A GPU that is lost in a room: the device opens another one and goes on to the same bits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from memory_room import Device, Wire, room_settings

from daisychain.cluster import effects, events
from daisychain.errors import DeviceError, DeviceLost
from daisychain.room import replay
from daisychain.room.run import Run


def run_room(play: Callable[[Wire], Awaitable[None]]) -> None:
    async def go() -> None:
        world = Wire(room_settings())
        try:
            await play(world)
        finally:
            world.close()

    asyncio.run(go())


async def join(world: Wire, name: str) -> Device:
    device = await world.add(name)
    device.host.give(events.Run())
    return device


async def until_steps(world: Wire, devices: list[Device], more: int) -> None:
    """So many more common steps of exactly these devices."""
    names = tuple(sorted(d.me for d in devices))

    def full(device: Device) -> int:
        return sum(log.roster == names for log in device.steps())

    wanted = {d.me: full(d) + more for d in devices}
    await world.until(lambda: all(full(d) >= wanted[d.me] for d in devices), 60)


def notices(device: Device) -> list[str]:
    return [e.code for e in device.seen if isinstance(e, effects.Notice)]


@pytest.mark.parametrize(("name", "plan"), [("bbbb", "grad 1"), ("aaaa", "update")])
def test_a_member_comes_back_with_the_state_of_the_others(name: str, plan: str) -> None:
    """Lost in the middle of a gradient, and with a decided step not yet applied (the leader)."""

    async def play(world: Wire) -> None:
        devices = [await join(world, "aaaa"), await join(world, "bbbb")]
        await until_steps(world, devices, 2)
        device = world.devices[name]
        device.lose(plan)
        await world.until(lambda: "device-lost" in notices(device))
        await until_steps(world, devices, 3)
        assert notices(device).count("device-lost") == 1
        logs = [{log.step: log.start_hash for log in d.steps()} for d in devices]
        common = logs[0].keys() & logs[1].keys()
        assert all(logs[0][step] == logs[1][step] for step in common)
        await world.check_against_solo(returned=device)

    run_room(play)


def test_alone_it_goes_on_from_its_last_complete_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "SNAPSHOT_EVERY_STEPS", 2)

    async def play(world: Wire) -> None:
        first = await join(world, "aaaa")
        await until_steps(world, [first], 3)
        first.lose("update")
        await world.until(lambda: "device-lost" in notices(first))
        await until_steps(world, [first], 2)
        second = await join(world, "bbbb")
        await until_steps(world, [first, second], 2)
        world.kill("bbbb")
        await until_steps(world, [first], 2)
        first.lose("grad")
        await until_steps(world, [first], 3)
        assert notices(first).count("device-lost") == 2
        steps = [log.step for log in first.steps()]
        assert steps == list(range(1, len(steps) + 1))
        await world.check_against_solo()

    run_room(play)


def test_a_device_that_is_lost_again_and_again_leaves() -> None:
    async def play(world: Wire) -> None:
        devices = [await join(world, "aaaa"), await join(world, "bbbb")]
        await until_steps(world, devices, 1)
        devices[1].maker.doomed = "begin"
        devices[1].lose("grad")
        await world.until(lambda: "device-failed" in notices(devices[1]), 60)
        assert "lost 4 times" in str(devices[1].host.failure)
        assert devices[1].node.core.mode is effects.Mode.LEFT
        await until_steps(world, devices[:1], 2)

        async def look(run: Run) -> str:
            return await run.replica.weights_hash()

        with pytest.raises(DeviceError, match="not on this device"):
            await devices[1].host.between(look)
        assert await devices[0].host.between(look)

    run_room(play)


def test_a_device_whose_program_stumbles_says_so_and_leaves() -> None:
    async def play(world: Wire) -> None:
        devices = [await join(world, "aaaa"), await join(world, "bbbb")]
        await until_steps(world, devices, 1)
        run = devices[1].host.run
        assert run is not None

        async def stumble(*_: object) -> None:
            raise AttributeError("no attribute 'buffer'")

        run.reducer.load = stumble  # type: ignore[method-assign]
        await world.until(lambda: "device-failed" in notices(devices[1]))
        assert "The program has stumbled: AttributeError" in str(devices[1].host.failure)
        assert devices[1].node.core.mode is effects.Mode.LEFT
        await until_steps(world, devices[:1], 2)

    run_room(play)


def test_a_device_that_had_stepped_aside_comes_back_from_a_loss_too() -> None:
    async def play(world: Wire) -> None:
        devices = [await join(world, "aaaa"), await join(world, "bbbb")]
        await until_steps(world, devices, 2)
        device, core = devices[1], devices[1].node.core
        await world.until(lambda: core.attempt is not None and core.attempt.guard is None)
        assert core.attempt is not None
        device.host.give(events.ComputeFailed(*core.attempt.key, "The data does not come."))
        assert core.mode is effects.Mode.AWAY

        async def lose(run: Run) -> None:
            raise DeviceLost("The GPU was lost.")

        with pytest.raises(DeviceLost):
            await device.host.between(lose)
        await until_steps(world, devices, 2)

    run_room(play)
