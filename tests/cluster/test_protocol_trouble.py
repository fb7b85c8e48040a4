"""The step protocol with slow, hidden, half-dead and wrong devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_faults import check_replicas, settle
from cluster_world import World, with_settings
from toy_device import FAST_TIMES, Device, hex128, mix

from daisychain.cluster import events
from daisychain.cluster.effects import Mode
from daisychain.cluster.messages import Envelope
from daisychain.cluster.protocol import Node
from daisychain.cluster.reduce_plan import Flow, Kind
from daisychain.cluster.step_messages import Propose
from daisychain.errors import ClusterError


def running(size: int, until: int = 3, **settings: object) -> World:
    """A room whose last committed step has all its devices."""
    world = World(7, settings=with_settings(**settings))
    world.room(size)
    everybody = tuple(chr(97 + i) for i in range(size))

    def complete() -> bool:
        return world.steps >= until and world.decided[world.steps].roster == everybody

    assert world.run_until(complete, 30_000)
    return world


def roster(world: World) -> tuple[str, ...]:
    return world.decided[world.steps].roster


def codes(device: Device) -> list[str]:
    return [notice.code for notice in device.notices]


# ------------------------------------------------------------------------- slow, hidden, half


def test_a_peer_lost_after_half_its_payload_aborts_the_step_on_all() -> None:
    world = running(3)
    sent = 0

    def watch(source: str, link: str, what: object) -> None:
        nonlocal sent
        if source == "c" and isinstance(what, Flow) and what.kind is Kind.GRADIENT_UP:
            sent += 1
            if sent == 2:
                world.on_post = None
                world.crash("c", notice=True)

    world.on_post = watch
    assert world.run_until(lambda: not world.devices["c"].live, 5_000)
    step = world.steps
    settle(world)
    assert world.decided[step + 1].roster == ("a", "b")


def test_a_link_that_opens_late_delays_the_first_step_only() -> None:
    """b reaches c two seconds late; until then a forwards, and all replicas agree."""
    world = World(7)
    world.cuts.add(frozenset("bc"))
    world.room(3)
    world.at(2_000, world.mend, "b", "c")
    assert world.run_until(lambda: world.steps >= 6 and len(roster(world)) == 3, 20_000)
    check_replicas(world)


def test_fast_peers_wait_for_a_slow_one_instead_of_losing_their_frames() -> None:
    """Proposals reach c late, when the others have long computed: the step just takes longer."""
    world = running(3)
    for device in world.alive():
        device.micro_ms = 20
    post = world.post

    def late(source: str, link: str, envelope: Envelope) -> None:
        slow = link == "c" and isinstance(envelope.message, Propose)
        world.at(world.now + (400 if slow else 0), post, source, link, envelope)

    world.post = late  # type: ignore[method-assign]
    step = world.steps
    assert world.run_until(lambda: world.steps >= step + 5, 5 * 1_000)
    assert roster(world) == ("a", "b", "c")
    assert "deadline" not in codes(world.devices["a"])


def test_a_graph_without_one_link_is_forwarded_for_good() -> None:
    world = World(7)
    world.cuts.update({frozenset("bc"), frozenset("bd")})
    world.room(4)
    assert world.run_until(lambda: world.steps >= 6 and len(roster(world)) == 4, 20_000)


def test_a_chain_of_devices_trains_and_survives_its_end() -> None:
    world = World(7)
    world.cuts.update(frozenset(pair) for pair in ("ac", "ad", "bd"))
    world.room(4)
    assert world.run_until(lambda: world.steps >= 6 and len(roster(world)) == 4, 40_000)
    world.crash("d")
    settle(world)
    assert roster(world) == ("a", "b", "c")


def test_a_device_whose_timers_run_once_a_minute_is_dropped_and_comes_back() -> None:
    """A hidden tab: no heartbeats, nothing computed; the others go on without it by name."""
    world = running(3)
    hidden = world.devices["c"]
    hidden.live = False
    world.run(FAST_TIMES.suspect_ms + 3_000)
    assert roster(world) == ("a", "b")
    at = hidden.step
    hidden.live = True
    hidden.work = None
    core = hidden.node.core
    core.attempt = None
    world._tick(hidden)
    assert world.run_until(lambda: roster(world) == ("a", "b", "c"), 30_000)
    assert hidden.step > at
    check_replicas(world)


def test_freeze_leaves_on_purpose_and_resume_comes_back_without_a_fork() -> None:
    world = running(3)
    world.devices["b"].give(events.Away("frozen"))
    world.run(2_000)
    assert roster(world) == ("a", "c")
    world.run(2_000)
    world.devices["b"].give(events.Back())
    assert world.run_until(lambda: roster(world) == ("a", "b", "c"), 20_000)
    check_replicas(world)


def test_a_slow_device_gets_less_work_before_it_is_left_out() -> None:
    world = running(3, total_micro_batches=12)
    world.devices["b"].micro_ms = 1_500
    assert world.run_until(
        lambda: (
            world.devices["a"].logs[-1].contributions[1].micro < 4
            and len(roster(world)) == 3
            and world.steps > 8
        ),
        60_000,
    )
    assert "deadline" in codes(world.devices["a"])


def test_a_device_that_does_nothing_is_left_out_after_a_retry() -> None:
    world = running(3)
    world.devices["c"].micro_ms = 10_000_000
    settle(world)
    assert world.run_until(lambda: roster(world) == ("a", "b"), 60_000)


def test_a_leader_that_does_nothing_hands_over() -> None:
    world = running(3)
    world.devices["a"].micro_ms = 10_000_000
    assert world.run_until(lambda: roster(world) == ("b", "c"), 60_000)
    assert world.devices["a"].mode is Mode.AWAY


def test_a_leader_that_is_too_slow_does_not_hand_over_to_one_without_a_vote() -> None:
    """b lost its state and gave up its vote; it is back and linked, but nobody without a."""
    world = running(2)
    world.devices["a"].micro_ms = 12_000
    world.run(500)
    world.devices["b"].lose_state()
    world.devices["b"].give(events.Back())
    world.run(20_000)
    assert world.devices["a"].mode is Mode.MEMBER
    world.devices["a"].micro_ms = 400
    assert world.run_until(lambda: len(roster(world)) == 2 and world.steps > 5, 200_000)


def test_a_device_without_data_stays_out_until_it_is_back() -> None:
    world = running(3)
    device = world.devices["b"]
    assert world.run_until(lambda: device.work is not None, 2_000)
    assert device.work is not None
    key = device._key()
    device.give(events.ComputeFailed(*key, "The data does not come."))
    world.run(3_000)
    assert roster(world) == ("a", "c")
    device.give(events.Back())
    assert world.run_until(lambda: len(roster(world)) == 3, 20_000)


def test_leave_on_purpose_is_noticed_at_once() -> None:
    world = running(2)
    at = world.now
    world.devices["a"].give(events.Quit("closed"))
    world.devices["a"].live = False
    step = world.steps
    assert world.run_until(lambda: world.steps > step + 1, FAST_TIMES.suspect_ms + 2_000)
    assert roster(world) == ("b",)
    assert world.now - at < FAST_TIMES.suspect_ms


def test_residuals_belong_to_committed_steps_only() -> None:
    """What a device keeps over from its attempts is what its committed steps left, no more."""
    world = running(3, until=5)
    world.crash("c")
    settle(world)
    world.run(3_000)
    for device in world.alive():
        expected = 0
        for log in device.logs:
            expected = mix(expected, log.step, log.epoch)
        assert device.residual == expected


# --------------------------------------------------------------------------------- the guard


def flip_once(world: World, name: str, times: int = 1) -> None:
    """The device sends a wrong reduced shard to one peer, ``times`` times."""
    left = [times]

    def corrupt(flow: Flow, value: int) -> int:
        if flow.kind is Kind.GRADIENT_DOWN and flow.bucket == 0 and left[0]:
            left[0] -= 1
            return value ^ 1
        return value

    world.devices[name].corrupt = corrupt


def test_one_flipped_bit_in_a_reduced_gradient_repeats_the_step() -> None:
    world = running(3)
    flip_once(world, "b")
    step = world.steps
    settle(world)
    assert roster(world) == ("a", "b", "c")
    assert "guard" in codes(world.devices["a"])
    assert world.steps > step


def test_a_device_that_keeps_hashing_wrong_is_removed() -> None:
    world = running(3)

    def wrong(flow: Flow, value: int) -> int:
        return value

    device = world.devices["c"]
    device.corrupt = wrong
    give = device.give

    def lying(event: events.Event) -> None:
        if isinstance(event, events.ReducedHashed):
            event = replace(event, reduced_hash=hex128(event.step, 99))
        give(event)

    device.give = lying  # type: ignore[method-assign]
    settle(world)
    assert world.run_until(lambda: roster(world) == ("a", "b"), 30_000)
    assert device.mode is Mode.LEFT
    assert not device.live or device.step < world.steps


def test_of_two_devices_that_keep_disagreeing_nobody_can_tell() -> None:
    world = running(2)
    flip_once(world, "b", times=1_000_000)
    step = world.steps
    world.run(10_000)
    assert world.steps <= step + 1
    for device in world.alive():
        assert device.mode is Mode.HALTED
        assert device.halted is not None
        assert device.halted.devices == ("a", "b")


def test_ids_are_checked() -> None:
    with pytest.raises(ClusterError):
        Node("A!", "", "", with_settings())


def test_members_describe_everybody() -> None:
    world = running(3)
    world.devices["b"].give(events.Rename("Ben's phone"))
    world.run(2_000)
    rows = world.devices["a"].node.members()
    assert [row.id for row in rows] == ["a", "b", "c"]
    assert rows[1].name == "Ben's phone"
    assert [row.leader for row in rows] == [True, False, False]
    assert all(row.in_roster for row in rows)
