"""Hosts with real arithmetic in one process: equal replicas whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

import pytest
from memory_room import Device, Wire, room_settings

from daisychain.cluster import effects, events, wire
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.reduce_plan import Kind
from daisychain.players.oracle import OraclePlayer
from daisychain.players.player import Piece, PieceResult


def run_room(play: Callable[[Wire], Awaitable[None]], **changed: object) -> None:
    async def go() -> None:
        world = Wire(room_settings(**changed))
        try:
            await play(world)
        finally:
            world.close()

    asyncio.run(go())


async def start(world: Wire, *names: str) -> list[Device]:
    devices = [await world.add(name) for name in names]
    devices[0].host.give(events.Run())
    for device in devices[1:]:
        device.host.give(events.Run())
    return devices


def agree(devices: list[Device], steps: int) -> None:
    """The weights' hashes that the steps started from are equal on all devices."""
    logs = [{log.step: log for log in d.steps()} for d in devices]
    common = set.intersection(*(set(log) for log in logs))
    assert len(common) >= steps, sorted(common)
    for step in common:
        assert len({log[step].start_hash for log in logs}) == 1
        assert len({log[step].reduced_hash for log in logs}) == 1


def test_three_devices_train_in_step() -> None:
    async def play(world: Wire) -> None:
        devices = await start(world, "aaaa", "bbbb", "cccc")
        await world.until(lambda: all(len(d.steps()) >= 6 for d in devices))
        agree(devices, 4)
        last = devices[0].steps()[-1]
        assert len(last.roster) == 3
        assert len(last.contributions) == 3
        assert all(c.tokens > 0 for c in last.contributions)

    run_room(play)


def test_gradients_leave_while_the_rest_is_computed() -> None:
    """The last bucket is not computed before the first one came back reduced."""

    async def play(world: Wire) -> None:
        devices = await start(world, "aaaa", "bbbb")
        await world.until(lambda: all(len(d.steps()) >= 2 for d in devices))
        reduced, held = asyncio.Event(), 0

        def look(origin: str, peer: str, header: bytes, data: bytes) -> bytes:
            frame = wire.decode_flow_header(header)
            if (frame.kind, frame.bucket, peer) == (Kind.GRADIENT_DOWN, 0, "aaaa"):
                reduced.set()
            return data

        async def run_pieces(pieces: Sequence[Piece]) -> AsyncGenerator[PieceResult, None]:
            nonlocal held
            reduced.clear()
            results = OraclePlayer.run_pieces(player, pieces)
            for _ in pieces[:-1]:
                yield await anext(results)
            await reduced.wait()
            held += 1
            yield await anext(results)

        world.tamper = look
        assert devices[0].host.run is not None
        player = devices[0].host.run.replica.player
        player.run_pieces = run_pieces
        at = devices[0].steps()[-1].step
        await world.until(lambda: all(d.steps()[-1].step >= at + 4 for d in devices))
        assert held >= 3
        agree(devices, 5)
        await world.check_against_solo()

    run_room(play, exchange=Exchange.INT16)


@pytest.mark.parametrize("mode", [Exchange.INT8, Exchange.INT4])
def test_a_late_joiner_gets_the_state_and_the_bits(mode: Exchange) -> None:
    async def play(world: Wire) -> None:
        devices = await start(world, "aaaa", "bbbb")
        await world.until(lambda: all(len(d.steps()) >= 3 for d in devices))
        late = await world.add("cccc")
        late.host.give(events.Run())
        await world.until(lambda: len(late.steps()) >= 3)
        agree([*devices, late], 3)
        assert "cccc" in devices[0].steps()[-1].roster
        await world.check_against_solo()

    run_room(play, exchange=mode)


def test_who_was_away_for_a_part_of_a_step_is_sent_it_and_fetches_nothing() -> None:
    async def play(world: Wire) -> None:
        leader, _, device = await start(world, "aaaa", "bbbb", "cccc")
        fetched: list[effects.Effect] = []

        async def fetch(effect: effects.FetchState) -> None:
            fetched.append(effect)

        async def begins(roster: int) -> None:
            """Until so many compute a step that begins where the device stands."""
            while not (
                leader.node.core.attempt is not None
                and leader.node.core.attempt.guard is None
                and len(leader.node.core.attempt.roster) == roster
                and leader.node.core.committed == device.node.core.committed
            ):
                await asyncio.sleep(0)

        await world.until(lambda: len(device.steps()) >= 2)
        device.host._fetch_state = fetch  # type: ignore[method-assign]
        await begins(3)
        device.host.give(events.Away("hidden"))
        await begins(2)
        step = leader.node.core.committed.step + 1  # type: ignore[union-attr]
        device.host.give(events.Back())
        await world.until(lambda: device.steps()[-1].step > step + 1)
        assert fetched == []
        assert step not in {log.step for log in device.steps()}
        await world.check_against_solo()

    run_room(play)


def test_a_device_vanishes_and_the_others_go_on() -> None:
    async def play(world: Wire) -> None:
        devices = await start(world, "aaaa", "bbbb", "cccc")
        await world.until(lambda: all(len(d.steps()) >= 2 for d in devices))
        world.kill("bbbb")
        seen = len(devices[0].steps())
        rest = [devices[0], devices[2]]
        await world.until(lambda: all(len(d.steps()) >= seen + 3 for d in rest))
        agree(rest, 4)
        assert rest[0].steps()[-1].roster == ("aaaa", "cccc")
        await world.check_against_solo()

    run_room(play)


def test_the_leader_vanishes_and_another_leads() -> None:
    async def play(world: Wire) -> None:
        devices = await start(world, "aaaa", "bbbb", "cccc")
        await world.until(lambda: all(len(d.steps()) >= 2 for d in devices))
        world.kill("aaaa")
        seen = len(devices[1].steps())
        await world.until(lambda: all(len(d.steps()) >= seen + 2 for d in devices[1:]), 60)
        agree(devices[1:], 3)
        await world.check_against_solo()

    run_room(play)


def test_a_flipped_bit_in_a_reduced_gradient_never_forks() -> None:
    async def play(world: Wire) -> None:
        flipped = []

        def tamper(origin: str, peer: str, header: bytes, data: bytes) -> bytes:
            if not flipped and header[3] == 4 and peer == "cccc" and len(data) > 40:
                flipped.append(peer)
                return data[:-1] + bytes((data[-1] ^ 1,))
            return data

        devices = await start(world, "aaaa", "bbbb", "cccc")
        await world.until(lambda: all(len(d.steps()) >= 2 for d in devices))
        world.tamper = tamper
        seen = len(devices[0].steps())
        await world.until(lambda: all(len(d.steps()) >= seen + 3 for d in devices), 60)
        assert flipped
        agree(devices, 4)

    run_room(play)


def test_a_flipped_weight_halts_everybody_and_names_the_device() -> None:
    async def play(world: Wire) -> None:
        devices = await start(world, "aaaa", "bbbb", "cccc")
        await world.until(lambda: all(len(d.steps()) >= 2 for d in devices))
        assert devices[1].host.run is not None
        weights = devices[1].host.run.replica.player.array("weight model.norm.weight")
        weights[3] ^= 1
        halted = lambda d: [e for e in d.seen if isinstance(e, effects.Halted)]  # noqa: E731
        await world.until(lambda: all(halted(d) for d in devices), 60)
        for device in devices:
            (halt,) = halted(device)
            assert halt.devices == ("bbbb",)
            assert "model.norm.weight" in halt.tensors

    run_room(play)


def test_two_devices_that_are_not_linked_train_through_a_third() -> None:
    async def play(world: Wire) -> None:
        world.cuts.add(frozenset(("bbbb", "cccc")))
        devices = await start(world, "aaaa", "bbbb", "cccc")
        await world.until(lambda: all(len(d.steps()) >= 4 for d in devices))
        agree(devices, 3)
        assert len(devices[0].steps()[-1].roster) == 3

    run_room(play)


def test_alone_and_with_others_and_alone_again() -> None:
    async def play(world: Wire) -> None:
        (first,) = await start(world, "aaaa")
        await world.until(lambda: len(first.steps()) >= 2)
        second = await world.add("bbbb")
        second.host.give(events.Run())
        await world.until(lambda: len(second.steps()) >= 2)
        agree([first, second], 2)
        world.kill("bbbb")
        at = first.steps()[-1].step
        await world.until(lambda: first.steps()[-1].step >= at + 3)
        assert [log.step for log in first.steps()] == list(range(1, first.steps()[-1].step + 1))

    run_room(play, exchange=Exchange.INT8)
