"""Votes that were given up, and epochs that two leaders chose alike: neither may fork a run."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from cluster_faults import check_replicas, random_faults, run_schedule
from cluster_world import World
from test_protocol import roster, running
from toy_device import ONE_BUCKET

from daisychain.cluster import election, events, leader
from daisychain.cluster.effects import Mode
from daisychain.cluster.messages import Envelope
from daisychain.cluster.roster import MAX_MEMBERS
from daisychain.cluster.state import Core
from daisychain.cluster.step_messages import Commit, Decline, Guard


def paused(size: int) -> World:
    """A room between two steps."""
    world = running(size)
    world.devices["a"].give(events.Pause())
    world.run(2_500)
    return world


@pytest.mark.parametrize("tries", [0, 10])
def test_a_leaver_helps_nobody_who_did_not_hear_of_it(tries: int) -> None:
    """d leaves where only b and c hear it, then it is back at the side of a: b and c decide.

    With ``tries`` the epoch of a is higher than any that d has heard of.
    """
    world = paused(4)
    world.split(["a", "bcd"])
    world.devices["d"].give(events.Away("frozen"))
    world.run(50)
    world.split(["ad", "bc"])
    core = world.devices["a"].node.core
    core.seen += MAX_MEMBERS * tries
    core.promised = leader.next_epoch(core)
    world.devices["d"].give(events.Back())
    world.devices["a"].give(events.Run())
    world.mend("a", "d")
    world.run(20_000)
    assert roster(world) == ("b", "c")
    assert world.devices["a"].mode is Mode.PAUSED
    world.mend_all()
    assert world.run_until(lambda: len(roster(world)) == 4, 30_000)
    check_replicas(world)


def test_a_leaver_that_helped_to_decide_is_not_counted_out() -> None:
    """a and d, half of the room, commit a step; d leaves after its guard, and b and c hear it."""
    world = paused(4)
    step = world.steps
    world.split(["ad", "bc"])

    def leave() -> None:
        world.mend("b", "d")
        world.mend("c", "d")
        world.devices["d"].give(events.Away("closed"))

    def watch(source: str, link: str, what: object) -> None:
        if isinstance(what, Envelope) and isinstance(what.message, Guard) and source == "d":
            world.at(world.now + 1, leave)
        if isinstance(what, Envelope) and isinstance(what.message, Commit) and source == "a":
            world.at(world.now + 1, world.crash, "a")

    world.on_post = watch
    world.devices["a"].give(events.Run())
    world.run(20_000)
    assert (world.steps, roster(world)) == (step + 1, ("a", "d"))
    assert {world.devices[name].mode for name in "bc"} == {Mode.PAUSED}
    assert {world.devices[name].step for name in "bcd"} == {step}


@pytest.mark.parametrize("told", [True, False])
def test_who_lost_its_state_after_it_helped_to_decide_is_not_counted_out(told: bool) -> None:
    """b and c commit a step without a; then b is gone, and c, which lost its state, asks a.

    If c was not ``told`` that the step is decided, it still knows whom it helped.
    """
    world = paused(3)
    step = world.steps
    world.split(["a", "bc"])
    world.devices["a"].give(events.Run())

    def watch(source: str, link: str, what: object) -> None:
        if isinstance(what, Envelope) and isinstance(what.message, Commit) and source == "b":
            world.at(world.now + (50 if told else 0), world.crash, "b")
            world.at(world.now + (60 if told else 1), world.devices["c"].lose_state)

    world.on_post = watch
    assert world.run_until(lambda: world.steps > step, 20_000)
    world.run(500)
    assert world.devices["c"].step == (step + 1 if told else step)
    world.mend("a", "c")
    world.devices["c"].give(events.Back())
    world.run(20_000)
    assert (world.steps, roster(world)) == (step + 1, ("b", "c"))
    assert world.devices["a"].mode is Mode.PAUSED


def test_a_leaver_that_holds_the_last_step_does_not_go_back() -> None:
    """c, d and e commit a step and c and d die: e must not help a and b to another one."""
    world = paused(5)
    step = world.steps
    world.split(["ab", "cde"])
    world.devices["a"].give(events.Run())
    assert world.run_until(lambda: world.devices["e"].step > step, 30_000)
    world.crash("c")
    world.crash("d")
    world.devices["e"].give(events.Away("closed"))
    world.mend_all()
    world.run(100)
    world.devices["e"].give(events.Back())
    last = world.devices["e"].step
    world.run(20_000)
    assert world.devices["e"].step == last
    assert {world.devices[name].step for name in "ab"} == {step}
    check_replicas(world)


def test_two_leaders_with_the_same_epoch_fork_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs tell leaders apart by their index in a roster, and rosters differ: safe without."""

    def blind(core: Core) -> int:
        core.seen = (max(core.seen, core.promised) // MAX_MEMBERS + 1) * MAX_MEMBERS
        return core.seen

    monkeypatch.setattr(leader, "next_epoch", blind)
    monkeypatch.setattr(election, "next_epoch", blind)
    for seed in range(100):
        random = Random(seed)
        run_schedule(World(seed, layout=ONE_BUCKET), 3 + seed % 3, random_faults(random))


def test_who_gave_up_its_vote_takes_no_part_before_the_leader_lets_it_in() -> None:
    """A leader that has not heard of its leaving proposes to it; others do not count its vote."""
    world = World(7)
    c = world.room(3)[2]
    assert world.run_until(lambda: world.steps >= 3 and "c" in world.decided[3].roster, 20_000)
    assert world.run_until(lambda: c.node.core.attempt is not None, 5_000)
    proposal = c.node.core.attempt.proposal
    assert "c" in proposal.roster
    c.give(events.Away("hidden"))
    c.give(events.Back())
    assert c.node.core.joining.source == ""
    sent = []
    world.on_post = lambda source, link, what: sent.append(what.message)
    later = replace(proposal, epoch=proposal.epoch + 3 * MAX_MEMBERS)
    c.give(events.Received("a", Envelope("a", "c", 1, later)))
    assert (c.node.core.attempt, c.node.core.held) == (None, None)
    assert [type(message) for message in sent] == [Decline]
    c.node.core.joining.leader = "a"  # it is let in again
    c.give(events.Received("a", Envelope("a", "c", 1, later)))
    assert c.node.core.attempt is not None
