"""A device that steps aside by itself comes back by itself; a person's wish comes first."""

from __future__ import annotations

import pytest
from cluster_faults import check_replicas
from cluster_world import World
from toy_device import FAST_TIMES, ONE_BUCKET, Device

from daisychain.cluster import events
from daisychain.cluster.effects import Mode
from tests.cluster.test_membership import roster, running

FOR_EVER_MS = 10_000_000


def too_late(world: World, leader: Device) -> None:
    """The leader misses deadline after deadline, until it hands over."""
    leader.micro_ms = FOR_EVER_MS
    assert world.run_until(lambda: leader.mode is Mode.AWAY, 60_000)
    leader.micro_ms, leader.work = 400, None


def failed(world: World, device: Device) -> None:
    """Its next step finds no data."""
    core = device.node.core
    assert world.run_until(lambda: core.attempt is not None and core.attempt.guard is None, 60_000)
    assert core.attempt is not None
    device.give(events.ComputeFailed(*core.attempt.key, "The data does not come."))
    assert device.mode is Mode.AWAY


@pytest.mark.parametrize("steps_aside", [too_late, failed])
def test_it_comes_back_by_itself(steps_aside: object) -> None:
    world = running(3)
    world.run(2_000)
    device = world.devices["a" if steps_aside is too_late else "b"]
    steps_aside(world, device)  # type: ignore[operator]
    since = world.now
    assert device.notices[-1].text.endswith("; it comes back by itself in 4 s.")
    assert world.run_until(lambda: device.mode is not Mode.AWAY, 60_000)
    assert FAST_TIMES.return_ms <= world.now - since <= FAST_TIMES.return_ms + 500
    assert world.run_until(lambda: device.me in roster(world), 20_000)
    assert roster(world) == ("a", "b", "c")
    check_replicas(world)


def test_alone_it_goes_on_by_itself() -> None:
    world = running(1)
    device = world.devices["a"]
    failed(world, device)
    step = world.steps
    assert world.run_until(lambda: world.steps > step + 2, FAST_TIMES.return_ms + 5_000)
    assert device.mode is Mode.MEMBER


def test_each_pause_is_twice_as_long_until_it_has_held_out() -> None:
    world = running(3)
    device = world.devices["b"]
    pauses = []
    for _ in range(4):
        failed(world, device)
        since = world.now
        assert world.run_until(lambda: device.mode is not Mode.AWAY, 60_000)
        pauses.append(round((world.now - since) / 1000))
        assert world.run_until(lambda: "b" in roster(world), 20_000)
    assert pauses == [4, 8, 16, 16]
    world.run(2 * FAST_TIMES.longest_return_ms)
    failed(world, device)
    assert device.notices[-1].text.endswith(" in 4 s.")
    check_replicas(world)


@pytest.mark.parametrize("why", [events.Pause(), events.Away("frozen")])
@pytest.mark.parametrize("first", [True, False])
def test_who_is_paused_or_frozen_stays_away(why: events.Event, first: bool) -> None:
    world = running(3)
    device = world.devices["b"]
    if first:
        device.give(why)
        world.run(100)
    else:
        failed(world, device)
        device.give(why)
    world.run(10 * FAST_TIMES.longest_return_ms)
    assert device.mode is Mode.AWAY
    device.give(events.Run())
    assert world.run_until(lambda: "b" in roster(world), 20_000)
    check_replicas(world)


def test_a_wish_to_go_on_is_not_kept_waiting() -> None:
    world = running(3)
    device = world.devices["b"]
    failed(world, device)
    device.give(events.Run())
    assert device.mode is Mode.JOINING
    assert world.run_until(lambda: "b" in roster(world), FAST_TIMES.return_ms)
    check_replicas(world)


def test_the_room_does_not_fork_over_those_that_come_and_go() -> None:
    world = World(5, layout=ONE_BUCKET)
    world.room(4)
    for i in range(30):
        world.run(700 + 137 * i)
        live = [d for d in world.alive() if d.node.core.attempt is not None]
        for device in live[i % 3 : i % 3 + 1]:
            attempt = device.node.core.attempt
            assert attempt is not None
            device.give(events.ComputeFailed(*attempt.key, "The data does not come."))
    assert world.run_until(lambda: roster(world) == ("a", "b", "c", "d"), 120_000)
    check_replicas(world)


@pytest.mark.parametrize("size", [2, 3])
def test_a_room_whose_devices_all_stepped_aside_goes_on(size: int) -> None:
    """Nobody votes then; all are back and stand alike, so the lowest one may lead."""
    world = running(size)
    for device in world.alive():
        assert world.run_until(lambda d=device: d.node.core.attempt is not None, 10_000)
        device.give(events.ComputeFailed(*device.node.core.attempt.key, "no data"))
    assert {device.mode for device in world.alive()} == {Mode.AWAY}
    step = world.steps
    assert world.run_until(lambda: world.steps > step + 3, 60_000)
    assert world.run_until(lambda: len(roster(world)) == size, 20_000)
    check_replicas(world)


def test_of_devices_that_all_stepped_aside_none_leads_while_one_is_gone() -> None:
    """It may have been let in by somebody, and be further on."""
    world = running(3)
    for device in world.alive():
        device.give(events.Away("frozen"))
    world.crash("c")
    step = world.steps
    for device in world.alive():
        device.give(events.Back())
    world.run(30_000)
    assert world.steps == step
    assert {device.mode for device in world.alive()} == {Mode.PAUSED}


def test_who_is_stuck_beside_a_room_that_went_on_without_others_joins_it() -> None:
    world = running(3)
    world.single_lineage = False
    world.split((["a"], ["b", "c"]))
    world.run(8_000)
    world.devices["a"].give(events.ContinueAlone())
    world.run(30_000)
    world.crash("b", notice=True)
    world.run(5_000)
    assert world.devices["c"].mode is Mode.PAUSED
    world.mend_all()
    assert world.run_until(lambda: world.devices["c"].node.core.leader == "a", 20_000)
    assert world.run_until(lambda: "c" in world.devices["a"].node.core.roster, 20_000)


def test_a_leader_that_a_person_paused_does_not_come_back_to_train_by_itself() -> None:
    world = running(3)
    leader = next(d for d in world.alive() if d.node.core.leads)
    assert world.run_until(lambda: leader.node.core.attempt is not None, 10_000)
    leader.give(events.Pause())
    assert leader.node.core.attempt is not None
    leader.give(events.ComputeFailed(*leader.node.core.attempt.key, "no data"))
    world.run(FAST_TIMES.longest_return_ms)
    assert leader.mode is Mode.AWAY
    leader.give(events.Run())
    assert world.run_until(lambda: len(roster(world)) == 3, 20_000)
