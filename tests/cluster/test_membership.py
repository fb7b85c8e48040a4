"""Coming in and being removed: approval, state transfer, wrong sources, what it costs others."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from cluster_faults import check_replicas, settle
from cluster_world import World, with_settings
from toy_device import FAST_TIMES, Device

from daisychain.cluster import effects, events
from daisychain.cluster.effects import Mode
from daisychain.cluster.messages import Envelope
from daisychain.cluster.room_messages import Admit, Beat, Join, Leave
from daisychain.cluster.times import Times


def running(size: int, times: Times = FAST_TIMES, **settings: object) -> World:
    world = World(7, times, with_settings(**settings))
    world.room(size)
    assert world.run_until(
        lambda: world.steps >= 4 and len(world.decided[world.steps].roster) == size, 30_000
    )
    return world


def newcomer(world: World, name: str) -> Device:
    """A device that asks only when everybody knows its links, so that any may serve it."""
    world.devices["a"].give(events.Pause())
    world.run(1_500)
    device = world.add(name)
    core = device.node.core
    core.joining, wait = None, core.joining
    world.run(2_500)
    core.joining = wait
    world.devices["a"].give(events.Run())
    return device


def roster(world: World) -> tuple[str, ...]:
    return world.decided[world.steps].roster


def codes(device: Device) -> list[str]:
    return [notice.code for notice in device.notices]


def admits(world: World) -> list[tuple[str, Admit]]:
    """Every Admit that is posted from now on, with its joiner."""
    found: list[tuple[str, Admit]] = []

    def watch(source: str, link: str, what: object) -> None:
        if isinstance(what, Envelope) and isinstance(what.message, Admit):
            found.append((what.target, what.message))

    world.on_post = watch
    return found


def commit_times(world: World) -> list[int]:
    times: list[int] = []
    applied = world.applied

    def note(device: Device, effect: effects.Apply, *rest: object) -> None:
        if effect.step not in world.decided:
            times.append(world.now)
        applied(device, effect, *rest)  # type: ignore[arg-type]

    world.applied = note  # type: ignore[method-assign]
    return times


def test_a_newcomer_costs_the_others_at_most_one_step() -> None:
    world = running(2)
    times = commit_times(world)
    world.run(3_000)
    usual = max(b - a for a, b in itertools.pairwise(times))
    del times[:]
    world.add("c").give(events.Run())
    assert world.run_until(lambda: roster(world) == ("a", "b", "c"), 10_000)
    world.run(1_000)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert max(gaps) <= 2 * usual
    check_replicas(world)


@pytest.mark.parametrize("state_steps", [6, 20])
def test_a_newcomer_that_catches_up_is_not_waited_for(state_steps: int) -> None:
    """Its state takes as long as many steps; what they reduce comes behind it, two a step."""
    world = running(2, times=replace(FAST_TIMES, backlog_bytes=1 << 20, transfer_stall_ms=20_000))
    times = commit_times(world)
    world.run(3_000)
    usual = max(b - a for a, b in itertools.pairwise(times))
    bulk, free = world.post_bulk, 0

    def wire(source: str, target: str, what: tuple[object, ...]) -> None:
        nonlocal free
        takes = state_steps * usual if what[0] == "state" else usual // 2
        free = max(free, world.now) + takes
        world.at(free, bulk, source, target, what)

    world.post_bulk = wire  # type: ignore[method-assign]
    del times[:]
    world.add("c").give(events.Run())
    assert world.run_until(lambda: roster(world) == ("a", "b", "c"), 5 * state_steps * usual)
    assert len(times) > state_steps
    assert max(b - a for a, b in itertools.pairwise(times)) < 2 * usual
    check_replicas(world)


def test_a_newcomer_whose_source_missed_steps_asks_again() -> None:
    """The leader, its source, steps aside in its first step: it comes back and feeds it again, but
    the steps made meanwhile are missing."""
    world = running(3)
    newcomer = world.add("d")
    newcomer.give(events.Run())
    assert world.run_until(lambda: newcomer.node.core.attempt is not None, 5_000)
    world.devices["a"].give(events.Away("hidden"))
    before = world.steps
    assert world.run_until(lambda: world.steps > before + 2, 10_000)
    world.devices["a"].give(events.Back())
    assert world.run_until(lambda: "d" in roster(world), 15_000)
    check_replicas(world)


def test_who_steps_aside_in_a_step_is_not_told_that_it_is_lost() -> None:
    world = running(3)
    device = world.devices["b"]
    assert world.run_until(lambda: device.node.core.attempt is not None, 2_000)
    device.give(events.Pause())
    assert world.run_until(lambda: roster(world) == ("a", "c"), 10_000)
    assert device.mode is Mode.AWAY
    assert codes(device) == []


def test_few_steps_are_kept_for_a_newcomer_that_fetches_nothing() -> None:
    """It asks to come in and is heard of, but does nothing more."""
    world = running(2)
    post, asked = world.post, False

    def only_beats(source: str, link: str, envelope: Envelope) -> None:
        nonlocal asked
        asks = isinstance(envelope.message, Join) and not asked
        if source != "c" or asks or isinstance(envelope.message, Beat):
            asked |= asks
            post(source, link, envelope)

    world.post = only_beats  # type: ignore[method-assign]
    world.add("c").give(events.Run())
    members = [world.devices[name] for name in "ab"]
    assert world.run_until(lambda: any(d.node.core.feeds for d in members), 10_000)
    most = 4 * FAST_TIMES.longest_backlog(1) + 1
    until = world.steps + most + 10
    assert world.run_until(lambda: world.steps >= until, 60_000)
    assert not any(d.queued or d.node.core.feeds for d in members)


def test_the_room_trains_on_while_a_large_state_travels() -> None:
    """The state takes 2 s; meanwhile steps are committed, and the newcomer catches up."""
    world = running(2)
    bulk = world.post_bulk

    def slow(source: str, target: str, what: tuple[object, ...]) -> None:
        if what[0] == "state":
            world.at(world.now + 1_500, bulk, source, target, what)
        else:
            world.at(world.now + 1_500, bulk, source, target, what)

    world.post_bulk = slow  # type: ignore[method-assign]
    before = world.steps
    world.add("c").give(events.Run())
    assert world.run_until(lambda: "c" in roster(world), 15_000)
    assert world.steps >= before + 4
    check_replicas(world)


def test_the_first_state_is_made_not_sent() -> None:
    world = World(7)
    world.add("a", founder=True)
    device = world.add("b")
    world.run(1_000)
    assert device.mode is Mode.JOINING
    assert device.node.core.committed is not None
    assert world.devices["a"].kept == {}
    world.devices["a"].give(events.Run())
    world.run(2_000)
    assert roster(world) == ("a", "b")
    assert world.decided[1].roster == ("a", "b")


def test_a_newcomers_first_step_may_take_longer_than_its_patience() -> None:
    world = World(7)
    for name in "ab":
        world.add(name, founder=name == "a").micro_ms = 2 * world.times.join_retry_ms
    world.run(500)
    world.devices["a"].give(events.Run())
    assert world.run_until(lambda: world.steps == 1, 2_000 + 2 * world.times.join_retry_ms)
    assert roster(world) == ("a", "b")


def test_the_host_is_asked_and_may_refuse() -> None:
    world = World(7, settings=with_settings(approve_all=False))
    world.add("a", founder=True).give(events.Run())
    asked: list[effects.AskApproval] = []
    world.devices["a"].do_AskApproval = asked.append  # type: ignore[method-assign]
    newcomer = world.add("b")
    world.run(6_000)
    assert [ask.peer for ask in asked] == ["b"]
    assert roster(world) == ("a",)
    world.devices["a"].give(events.Approve("b", False))
    world.run(3_000)
    assert "refused" in codes(newcomer)
    assert len(asked) == 1
    world.devices["a"].give(events.Approve("b", True))
    assert world.run_until(lambda: roster(world) == ("a", "b"), 10_000)


def test_approval_outlives_the_leader_that_gave_it() -> None:
    world = World(7, settings=with_settings(approve_all=False))
    for name in "abcd":
        world.add(name, founder=name == "a").give(events.Run())
    assert world.run_until(lambda: world.steps and len(roster(world)) == 4, 10_000)
    world.devices["c"].give(events.Away("frozen"))
    world.run(500)
    world.crash("a")
    world.run(5_000)
    world.welcoming = False
    world.devices["c"].give(events.Back())
    assert world.run_until(lambda: roster(world) == ("b", "c", "d"), 10_000)


def test_a_full_room_refuses() -> None:
    world = running(2, max_members=2)
    newcomer = world.add("c")
    world.run(4_000)
    assert roster(world) == ("a", "b")
    assert "refused" in codes(newcomer)
    world.devices["b"].give(events.Quit("closed"))
    world.devices["b"].live = False
    assert world.run_until(lambda: roster(world) == ("a", "c"), 10_000)


def test_a_source_with_a_wrong_state_is_replaced_by_another() -> None:
    """The bytes are not those hashed: the joiner refuses them and gets the state elsewhere."""
    world = running(3)
    for name in "bc":
        world.devices[name].serve_wrong = True
    found = admits(world)
    newcomer(world, "d")
    assert world.run_until(lambda: roster(world) == ("a", "b", "c", "d"), 30_000)
    assert [admit.source for _, admit in found][-1] == "a"
    assert len(found) == 3
    assert "state" in codes(world.devices["d"])
    check_replicas(world)


def test_a_source_that_lies_about_its_hash_is_not_used() -> None:
    world = running(3)
    for name in "bc":
        device = world.devices[name]
        device.state_hash = lambda: "f" * 32  # type: ignore[method-assign]
    found = admits(world)
    newcomer(world, "d")
    assert world.run_until(lambda: roster(world) == ("a", "b", "c", "d"), 30_000)
    assert {admit.source for _, admit in found} == {"a"}
    assert "source" in codes(world.devices["a"])


def test_a_source_that_dies_is_replaced() -> None:
    world = running(3)
    found = admits(world)
    world.post_bulk = lambda *_: None  # type: ignore[method-assign]
    newcomer(world, "d")
    assert world.run_until(lambda: bool(found), 5_000)
    first = found[0][1].source
    del world.post_bulk  # type: ignore[method-assign]
    assert first != "a"
    world.crash(first, notice=True)
    assert world.run_until(lambda: "d" in roster(world), 20_000)
    assert found[-1][1].source != first
    check_replicas(world)


def test_a_transfer_that_stalls_is_tried_elsewhere() -> None:
    world = running(3)
    found = admits(world)
    world.devices["b"].do_ServeState = lambda effect: None  # type: ignore[method-assign]
    world.devices["c"].do_ServeState = lambda effect: None  # type: ignore[method-assign]
    newcomer(world, "d")
    assert world.run_until(lambda: "d" in roster(world), 30_000)
    assert found[-1][1].source == "a"


def test_wrong_catch_up_gradients_keep_a_newcomer_out_and_hurt_nobody() -> None:
    world = running(3)
    bulk = world.post_bulk

    def wrong(source: str, target: str, what: tuple[object, ...]) -> None:
        if what[0] == "catch-up" and source != "a":
            what = (what[0], what[1], 12345)
        bulk(source, target, what)

    world.post_bulk = wrong  # type: ignore[method-assign]
    checked = world.applied
    world.applied = lambda device, *rest: (  # type: ignore[method-assign]
        None if device.me == "d" and "d" not in rest[4] else checked(device, *rest)
    )
    newcomer(world, "d")
    assert world.run_until(lambda: "d" in roster(world), 30_000)
    assert world.devices["a"].mode is Mode.MEMBER
    check_replicas(world)


def test_kick_removes_for_good() -> None:
    world = running(3)
    world.devices["a"].give(events.Kick("c"))
    assert world.run_until(lambda: roster(world) == ("a", "b"), 10_000)
    assert world.devices["c"].mode is Mode.LEFT
    world.run(5_000)
    assert roster(world) == ("a", "b")
    assert not world.linked("a", "c")


def test_a_kicked_leader_candidate_of_two_leaves_the_room_alive() -> None:
    world = World(7)
    world.add("b", founder=True).give(events.Run())
    world.add("a").give(events.Run())
    assert world.run_until(lambda: world.steps > 3 and len(roster(world)) == 2, 10_000)
    leader = next(d for d in world.alive() if d.node.core.leads)
    other = "a" if leader.me == "b" else "b"
    leader.give(events.Kick(other))
    assert world.run_until(lambda: roster(world) == (leader.me,), 10_000)


def test_only_the_leader_kicks() -> None:
    world = running(3)
    world.devices["b"].give(events.Kick("c"))
    world.run(3_000)
    assert roster(world) == ("a", "b", "c")
    assert not world.devices["b"].notices


def test_a_member_may_train_alone_after_the_others_leave_and_take_newcomers() -> None:
    world = running(3)
    for name in "ab":
        world.devices[name].give(events.Quit("closed"))
        world.devices[name].live = False
        world.run(100)
    settle(world)
    assert roster(world) == ("c",)
    cursor = world.decided[world.steps].cursor
    world.add("d").give(events.Run())
    assert world.run_until(lambda: roster(world) == ("c", "d"), 10_000)
    assert world.decided[world.steps].cursor > cursor


def test_a_member_with_the_same_state_needs_no_download() -> None:
    world = running(3)
    world.devices["a"].give(events.Pause())
    world.run(2_000)
    found = admits(world)
    world.devices["c"].give(events.Away("frozen"))
    world.run(500)
    world.devices["c"].give(events.Back())
    world.run(1_500)
    world.devices["a"].give(events.Run())
    assert world.run_until(lambda: "c" in roster(world) and len(roster(world)) == 3, 10_000)
    assert all(admit.state_hash == "" for _, admit in found)
    assert all(not device.kept for device in world.alive())


def test_a_device_that_comes_back_with_a_drifted_replica_stops_the_room() -> None:
    world = running(3)
    world.devices["a"].give(events.Pause())
    world.run(2_000)
    world.cut("a", "c")
    world.cut("b", "c")
    world.run(4_000)
    core = world.devices["c"].node.core
    world.devices["c"].flipped = 150
    assert core.committed is not None
    core.committed = replace(core.committed, weights_hash=world.devices["c"].weights_hash())
    core.hashes[core.committed.step] = world.devices["c"].weights_hash()
    world.mend_all()
    world.devices["a"].give(events.Run())
    world.run(10_000)
    for device in world.alive():
        assert device.mode is Mode.HALTED
        assert device.halted is not None
        assert device.halted.devices == ("c",)


def test_a_late_leave_is_not_taken_for_news() -> None:
    """The farewell of a device that is back and votes again arrives at last: it still votes."""
    world = running(3)
    late: list[tuple[str, str, Envelope]] = []
    post = world.post

    def hold(source: str, link: str, envelope: Envelope) -> None:
        if isinstance(envelope.message, Leave):
            late.append((source, link, envelope))
        else:
            post(source, link, envelope)

    world.post = hold  # type: ignore[method-assign]
    core = world.devices["a"].node.core
    assert world.run_until(lambda: core.attempt is None, 5_000)
    world.devices["c"].give(events.Away("frozen"))
    world.devices["c"].give(events.Back())
    step = world.steps
    assert world.run_until(
        lambda: world.steps > step + 2 and roster(world) == ("a", "b", "c"), 20_000
    )
    world.run(300)
    assert [link for _, link, _ in late] == ["a", "b"]
    for source, link, envelope in late:
        world.devices[link].give(events.Received(source, envelope))
        assert world.devices[link].node.core.left == set()


def test_how_far_a_newcomer_may_be_behind() -> None:
    times = Times()
    assert times.backlog(1_000_000, []) == 8, "nothing is known"
    assert times.backlog(1_000_000, [100] * 5) == 8, "more than a link carries"
    assert times.backlog(1_000_000, [100, 600, 600]) == 64
    assert times.backlog(9_000_000, [4_400]) == 8, "its bytes would fill the memory"
    assert times.backlog(4_000_000, [4_400]) == 16
    assert times.longest_hold_ms(14_000_000) == 60_000
    assert times.longest_hold_ms(108_000_000) == 216_000, "so long it takes at 4 Mbit/s"


def test_who_has_trained_with_the_others_may_be_waited_for_again() -> None:
    world = running(2)
    bulk = world.post_bulk

    def slow(source: str, target: str, what: tuple[object, ...]) -> None:
        world.at(world.now + 2_500, bulk, source, target, what)

    world.post_bulk = slow  # type: ignore[method-assign]
    lead = world.devices["a"].node.core.lead
    assert lead is not None
    world.times = replace(FAST_TIMES, transfer_stall_ms=10_000)
    world.add("c").give(events.Run())
    assert world.run_until(lambda: "c" in roster(world), 30_000)
    assert lead.held_ms["c"] > 0
    world.run(10_000)
    assert lead.held_ms["c"] == 0
