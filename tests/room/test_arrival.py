"""Ways into a room over links that are slow, and what is left of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from unittest.mock import patch

from memory_room import FAST, Device, Wire, room_settings

from daisychain.cluster import effects, events, wire
from daisychain.cluster.effects import Mode
from daisychain.cluster.reduce_plan import SERVED, Kind
from daisychain.cluster.times import Times
from daisychain.room.replica import hash_state
from daisychain.room.run import Run


def play(scene: Callable[[Wire, Device, Device], Awaitable[None]], times: Times = FAST) -> None:
    """A room of two that has made some steps."""

    async def go() -> None:
        world = Wire(room_settings(), times)
        try:
            one, two = [await world.add(name) for name in ("aaaa", "bbbb")]
            for device in (one, two):
                device.host.give(events.Run())
            await world.until(lambda: bool(two.steps()) and one.steps()[-1].step >= 3)
            await scene(world, one, two)
        finally:
            world.close()

    asyncio.run(go())


async def come(world: Wire) -> Device:
    third = await world.add("cccc")
    third.host.give(events.Run())
    return third


def watch(device: Device, see: Callable[[effects.Effect], None]) -> None:
    """``see`` is told of each effect before the host carries it out."""
    carry_out = device.host.carry_out

    def seen(wanted: Iterable[effects.Effect]) -> None:
        for effect in wanted:
            see(effect)
            carry_out([effect])

    device.host.carry_out = seen


def fetches(device: Device) -> list[effects.FetchState]:
    """What it fetches from now on."""
    found: list[effects.FetchState] = []
    watch(device, lambda e: found.append(e) if isinstance(e, effects.FetchState) else None)
    return found


def served(frames: Iterable[wire.Frame]) -> list[wire.Frame]:
    return [frame for frame in frames if frame.kind in SERVED]


def fetching(device: Device) -> list[wire.Frame]:
    """What it awaits of those that let it in."""
    return served(wire.decode_flow_header(name + bytes(8)) for name in device.bulk.awaited)


def test_a_buffer_may_take_longer_than_a_transfer_may_stall() -> None:
    """The embedding's weights, a ninth of the state, need 1.5 times the longest pause."""
    stall_ms = 700
    largest_bytes = 61 * 16 * 4

    async def scene(world: Wire, one: Device, two: Device) -> None:
        speed = largest_bytes / (1.5 * stall_ms / 1000)
        links = [world.slow_down(source, "cccc", speed) for source in ("aaaa", "bbbb")]
        third = await come(world)
        fetched = fetches(third)
        await world.until(lambda: bool(fetching(third)))
        awaited = len(fetching(third))
        await world.until(lambda: len(fetching(third)) < awaited)
        for link in links:
            link.piece_bytes = float(largest_bytes)
        await world.until(lambda: bool(third.steps()))
        assert len(fetched) == 1, "it had to begin again"

    play(scene, replace(FAST, transfer_stall_ms=stall_ms, hold_ms=30_000))


def test_a_source_that_stops_is_given_up() -> None:
    async def scene(world: Wire, one: Device, two: Device) -> None:
        links = [world.slow_down(source, "cccc", 0.0) for source in ("aaaa", "bbbb")]
        third = await come(world)
        fetched = fetches(third)
        await world.until(lambda: bool(fetched))
        stuck = fetched[0].source
        await world.until(lambda: len(fetched) > 1)
        assert fetched[1].source != stuck
        for link in links:
            link.piece_bytes = 1e6
        await world.until(lambda: bool(third.steps()))

    play(scene)


def test_a_step_that_waits_for_the_player_outlives_a_new_fetch() -> None:
    """The page's own work holds the player until this device asks the room again."""

    async def scene(world: Wire, one: Device, two: Device) -> None:
        third = await come(world)
        fetched = fetches(third)
        held: list[asyncio.Future[None]] = []

        def hold(effect: effects.Effect) -> None:
            if isinstance(effect, effects.Apply) and effect.catch_up and not held:
                held.append(third.host.between(pause))

        async def pause(_: Run) -> None:
            await world.until(lambda: len(fetched) > 1)

        watch(third, hold)
        await world.until(lambda: bool(third.steps()) or third.host.failure is not None)
        assert held
        assert third.host.failure is None

    play(scene)


def test_who_takes_part_awaits_no_state_any_more() -> None:
    async def scene(world: Wire, one: Device, two: Device) -> None:
        third = await come(world)
        await world.until(lambda: third.node.core.mode is Mode.MEMBER)
        assert fetching(third) == []

    play(scene)


def test_what_waits_for_one_who_is_gone_is_not_sent() -> None:
    async def scene(world: Wire, one: Device, two: Device) -> None:
        links = [world.slow_down(source, "cccc", 100.0) for source in ("aaaa", "bbbb")]
        await come(world)
        await world.until(lambda: any(len(served(link.waiting())) > 5 for link in links))
        world.kill("cccc")
        await world.until(lambda: not any(served(link.waiting()) for link in links))

    play(scene)


def test_what_waits_of_a_step_that_was_given_up_is_not_sent() -> None:
    async def scene(world: Wire, one: Device, two: Device) -> None:
        link = world.slow_down("aaaa", "bbbb", 100.0)
        gradients = (Kind.GRADIENT_UP, Kind.GRADIENT_DOWN)
        await world.until(lambda: any(f.kind in gradients for f in link.waiting()))
        one.host.give(events.Away("hidden"))
        assert link.waiting() == []

    play(scene)


def test_a_state_is_hashed_once_however_often_it_is_asked_for() -> None:
    async def scene(world: Wire, one: Device, two: Device) -> None:
        one.host.give(events.Pause())
        await world.until(lambda: one.host.node.core.attempt is None)
        at = one.steps()[-1].step
        hashed: list[int] = []

        async def counted(contents: list[bytes]) -> str:
            hashed.append(at)
            return await hash_state(contents)

        with patch("daisychain.room.host.hash_state", counted):
            one.host.carry_out([effects.HashState(at)] * 3)
            await one.host.between(nothing)
        assert hashed == [at]

    async def nothing(_: Run) -> None:
        pass

    play(scene)
