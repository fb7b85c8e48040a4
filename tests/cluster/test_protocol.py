"""The step protocol by example: proposals, failover, partitions, deadlines, the log, the clock."""

from __future__ import annotations

import pytest
from cluster_faults import check_replicas, settle
from cluster_world import World, with_settings
from toy_device import Device, mix

from daisychain.cluster import events
from daisychain.cluster.effects import Mode
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.messages import Envelope
from daisychain.cluster.step_messages import Propose


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


def test_solo_is_the_room_of_one() -> None:
    world = running(1, until=20)
    device = world.devices["a"]
    assert world.posted == 0
    assert device.node.core.leads
    assert [log.roster for log in device.logs] == [("a",)] * 20
    check_replicas(world)


def test_a_run_continues_where_another_ended() -> None:
    world = World(7)
    device = Device(world, "a")
    world.devices["a"] = device
    device.step, device.cursor, device.weights = 0, 100, 77
    device.carry_out(device.node.found(world.layout, device.weights_hash(), step=0, cursor=100))
    world.single_lineage = False
    device.give(events.Run())
    world.run(2000)
    assert device.logs[0].next_cursor == 101
    assert device.step > 3


def test_weights_equal_those_of_a_solo_run_over_the_same_slices() -> None:
    world = running(4, until=6)
    weights = mix(7)
    for step in range(1, world.steps + 1):
        first = world.decided[step - 1].cursor if step > 1 else 0
        total = sum(mix(weights, k) for k in range(first, world.decided[step].cursor))
        weights = mix(weights, total & ((1 << 64) - 1))
        assert weights == world.decided[step].weights


def test_the_log_is_the_same_on_every_device() -> None:
    world = running(3, until=8)
    world.run(1000)
    logs = [{log.step: log for log in device.logs} for device in world.alive()]
    common = set(logs[0]) & set(logs[1]) & set(logs[2])
    assert len(common) > 3
    for step in common:
        assert logs[0][step] == logs[1][step] == logs[2][step]
        log = logs[0][step]
        assert [row.id for row in log.contributions] == list(log.roster)
        assert all(row.tokens == 8 * row.micro and row.exchange_ms for row in log.contributions)


def test_the_batch_is_the_sum_and_follows_the_measured_speed() -> None:
    world = World(7, settings=with_settings(max_micro_batches=8))
    world.room(3)
    world.devices["c"].micro_ms = 100
    assert world.run_until(lambda: world.steps > 8 and len(roster(world)) == 3, 60_000)
    shares = {row.id: row.micro for row in world.devices["a"].logs[-1].contributions}
    assert shares == {"a": 1, "b": 1, "c": 4}
    cursors = [world.decided[step].cursor for step in (world.steps - 1, world.steps)]
    assert cursors[1] - cursors[0] == 6


def test_a_fixed_batch_is_kept() -> None:
    world = running(3, until=6, total_micro_batches=12)
    for step in range(2, world.steps):
        assert world.decided[step].cursor - world.decided[step - 1].cursor == 12


@pytest.mark.parametrize("mode", [Exchange.INT8, Exchange.INT4, Exchange.INT16])
def test_the_exchange_mode_is_agreed(mode: Exchange) -> None:
    seen = set()
    world = World(7, settings=with_settings(exchange=mode))
    world.on_post = lambda _s, _t, what: (
        seen.add(what.message.exchange)
        if isinstance(what, Envelope) and isinstance(what.message, Propose)
        else None
    )
    world.room(2)
    world.run(3000)
    assert seen == {mode}


def test_the_last_step_ends_the_run() -> None:
    world = World(7, settings=with_settings(last_step=5))
    world.room(2)
    world.run(20_000)
    assert world.steps == 5
    assert "finished" in codes(world.devices["a"])


def test_pause_and_resume_by_the_leader() -> None:
    world = running(2)
    world.devices["a"].give(events.Pause())
    world.run(3000)
    steps = world.steps
    world.run(20_000)
    assert world.steps == steps
    assert [d.mode for d in world.alive()] == [Mode.MEMBER, Mode.MEMBER]
    world.devices["a"].give(events.Run())
    settle(world)
    assert roster(world) == ("a", "b")


# ---------------------------------------------------------------------------------- failover


def test_the_lowest_survivor_takes_over_with_a_higher_epoch() -> None:
    world = running(4)
    before = world.decided[world.steps].epoch
    world.crash("a")
    settle(world)
    assert world.devices["b"].node.core.leads
    assert roster(world) == ("b", "c", "d")
    assert world.decided[world.steps].epoch > before
    assert [d.me for d in world.alive() if d.node.core.leads] == ["b"]


def test_a_successor_goes_on_without_being_told_to() -> None:
    world = World(7)
    world.room(3, run=False)
    world.run(500)
    world.devices["a"].give(events.Run())
    assert world.run_until(lambda: world.steps > 1 and len(roster(world)) == 3, 10_000)
    world.crash("a")
    settle(world)
    assert world.run_until(lambda: roster(world) == ("b", "c"), 10_000)


def test_leaders_fall_one_after_another() -> None:
    world = running(5)
    for name in "abc":
        world.crash(name, notice=True)
        settle(world)
    assert roster(world) == ("d", "e")
    world.devices["d"].give(events.Quit("closed"))
    settle(world)
    assert roster(world) == ("e",)
    world.add("f").give(events.Run())
    assert world.run_until(lambda: roster(world) == ("e", "f"), 10_000)


def test_a_leader_that_dies_after_committing_alone_is_followed() -> None:
    """All are prepared, the leader commits and vanishes with its message: the step stands."""
    world = running(3)
    step = world.steps

    def watch(source: str, link: str, what: object) -> None:
        message = what.message if isinstance(what, Envelope) else None
        if type(message).__name__ == "Commit" and world.devices["a"].node.core.committed:
            world.on_post = None
            world.crash("a")

    world.on_post = watch
    assert world.run_until(lambda: not world.devices["a"].live, 10_000)
    alone = world.devices["a"]
    assert alone.node.core.committed is not None
    decided = alone.node.core.committed
    assert decided.step > step
    settle(world)
    assert world.decided[decided.step].reduced_hash == decided.reduced_hash
    assert world.decided[decided.step].roster == ("a", "b", "c")


def test_a_vote_by_adopt_binds_the_next_candidate() -> None:
    """b adopts the step that a may have committed, and dies too; c and d keep to it."""
    world = running(5)
    lost: list[int] = []

    def watch(source: str, link: str, what: object) -> None:
        name = type(what.message).__name__ if isinstance(what, Envelope) else ""
        if name == "Commit" and source == "a":
            lost.append(world.devices["a"].node.core.committed.step)  # type: ignore[union-attr]
            world.crash("a")
        elif name == "Adopted":
            world.on_post = None
            world.crash("b")

    world.on_post = watch
    assert world.run_until(lambda: not world.devices["b"].live, 20_000)
    world.on_post = None
    settle(world)
    assert lost[0] in world.decided
    assert "a" in world.decided[lost[0]].roster


# --------------------------------------------------------------------------------- partitions


def test_the_majority_goes_on_and_the_minority_says_so() -> None:
    world = running(5)
    world.split(["ab", "cde"])
    world.run(12_000)
    steps = world.steps
    assert roster(world) == ("c", "d", "e")
    for name in "ab":
        assert world.devices[name].mode is Mode.PAUSED
        assert "no quorum" in codes(world.devices[name])
        told = next(n.text for n in world.devices[name].notices if n.code == "no quorum")
        assert "go on without them" in told
    world.mend_all()
    settle(world)
    assert world.steps > steps
    assert world.run_until(lambda: len(roster(world)) == 5, 20_000)


def test_an_even_split_goes_to_the_lowest_id() -> None:
    world = running(4)
    world.split(["ad", "bc"])
    world.run(10_000)
    assert roster(world) == ("a", "d")
    assert {world.devices[name].mode for name in "bc"} == {Mode.PAUSED}


def test_a_device_that_left_and_returned_has_no_vote_yet() -> None:
    """b and c go on by majority of a, b, c; a cannot, although d is back at its side."""
    world = running(4)
    world.devices["a"].give(events.Pause())
    world.run(2_000)
    world.devices["d"].give(events.Away("frozen"))
    world.run(100)
    world.split(["ad", "bc"])
    world.devices["d"].give(events.Back())
    world.devices["a"].give(events.Run())
    world.run(12_000)
    assert roster(world) == ("b", "c")
    assert world.devices["a"].mode is Mode.PAUSED
    check_replicas(world)


def test_of_two_devices_the_higher_one_waits_or_goes_on_alone_by_hand() -> None:
    world = running(2)
    world.crash("a")
    world.run(10_000)
    device = world.devices["b"]
    assert device.mode is Mode.PAUSED
    world.single_lineage = False
    step = device.step
    device.give(events.ContinueAlone())
    world.run(3_000)
    assert device.step > step + 3
    assert device.node.core.roster == ("b",)


def test_two_runs_that_meet_become_the_longer_one() -> None:
    world = running(2)
    world.single_lineage = False
    world.cut("a", "b")
    world.run(6_000)
    world.devices["b"].give(events.ContinueAlone())
    world.devices["a"].give(events.Pause())
    world.run(20_000)
    assert world.devices["b"].step > world.devices["a"].step
    weights = world.devices["b"].weights
    assert weights != world.devices["a"].weights
    world.devices["a"].give(events.Run())
    world.mend("a", "b")
    world.run(10_000)
    assert "merged" in codes(world.devices["a"])
    assert world.devices["b"].node.core.leads
    assert set(world.devices["b"].node.core.roster) == {"a", "b"}


def test_two_founders_of_one_room_become_one_roster_under_the_lowest_id() -> None:
    world = World(7)
    world.add("b", founder=True)
    world.add("a", founder=True)
    for name in "ab":
        world.devices[name].give(events.Run())
    assert world.run_until(lambda: world.steps and len(roster(world)) == 2, 20_000)
    assert roster(world) == ("a", "b")
    assert world.devices["a"].node.core.leads
    assert not world.devices["b"].node.core.leads


def test_who_was_let_in_by_a_leader_that_yields_goes_with_it() -> None:
    """All stand at the start.  The other leader never heard of the newcomer, and the one that let
    it in goes on to feed it: it follows every step and might do so for ever."""
    world = World(7)
    world.add("b", founder=True)
    newcomer = world.add("c")
    assert world.run_until(lambda: newcomer.node.core.committed is not None, 5_000)
    assert newcomer.mode is Mode.JOINING
    leader = world.add("a", founder=True)
    assert world.run_until(lambda: "b" in leader.node.core.lead.joiners, 5_000)  # type: ignore[union-attr]
    for device in world.devices.values():
        device.give(events.Run())
    assert world.run_until(lambda: world.steps > 0 and len(roster(world)) == 3, 5_000)
    assert leader.node.core.leads


def test_a_founder_makes_its_first_step_with_those_that_are_coming_in() -> None:
    world = World(7)
    founder = world.add("a", founder=True)
    founder.give(events.Run())
    world.run(20)
    assert founder.node.core.attempt is not None, "alone it begins at once"
    founder.give(events.Coming("b"))
    assert founder.node.core.attempt is None
    for name in ("HashState", "KeepState", "ServeState"):
        setattr(founder, f"do_{name}", lambda effect: pytest.fail(f"{effect}: no state moves"))
    world.run(world.times.first_step_hold_ms // 2)
    world.add("b").give(events.Run())
    assert world.run_until(lambda: world.steps > 0, 10_000)
    assert world.decided[1].roster == ("a", "b")


@pytest.mark.parametrize("never", ["comes", "is ready"])
def test_a_founder_waits_for_its_first_step_for_a_while_only(never: str) -> None:
    world = World(7)
    founder = world.add("a", founder=True)
    founder.give(events.Coming("b"))
    founder.give(events.Run())
    if never == "is ready":
        newcomer = world.add("b")
        newcomer.do_FetchState = lambda effect: None
    world.run(world.times.first_step_hold_ms - 100)
    founder.give(events.Coming("c"))  # does not begin the time anew
    assert world.steps == 0
    world.run(1_000)
    assert world.steps > 0
    assert world.decided[1].roster == ("a",)
