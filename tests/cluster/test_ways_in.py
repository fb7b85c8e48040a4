"""Ways in that begin in the middle of a step, or lose something on the way, end inside the room."""

from __future__ import annotations

from dataclasses import replace

from cluster_faults import check_replicas
from toy_device import FAST_TIMES, Device

from daisychain.cluster import events
from daisychain.cluster.fields import Reason
from daisychain.cluster.messages import Envelope
from daisychain.cluster.room_messages import Admit, Fetch, FetchFailed
from daisychain.cluster.step_messages import Decline, Propose
from tests.cluster.test_membership import roster, running


def test_who_was_away_for_a_part_of_a_step_catches_up_with_it() -> None:
    """It holds the room's last state, so nothing is fetched; the step under way is made without it,
    and comes to it afterwards."""
    world = running(3)
    device = world.devices["c"]
    leader = world.devices[device.node.core.leader]
    world.run(200)
    assert world.run_until(lambda: begins_with(device, "c") and device.step == world.steps, 2_000)
    device.give(events.Away("hidden"))
    assert world.run_until(lambda: begins_with(leader, "a") and not begins_with(leader, "c"), 2_000)
    step = leader.node.core.attempt.proposal.step  # type: ignore[union-attr]
    assert device.step == step - 1
    device.give(events.Back())
    assert world.run_until(lambda: world.steps >= step + 3, 20_000)
    assert "c" not in world.decided[step].roster
    assert world.decided[step + 1].roster == world.decided[step + 2].roster == ("a", "b", "c")
    check_replicas(world)


def begins_with(device: Device, name: str) -> bool:
    """Whether a step that is not yet reduced is under way on a device, ``name`` taking part."""
    attempt = device.node.core.attempt
    return attempt is not None and attempt.guard is None and name in attempt.roster


def test_a_step_that_never_comes_to_a_newcomer_is_not_waited_for() -> None:
    """Its host let the flow fall, or the link broke under it: it comes in anew."""
    world = running(2)
    bulk, lost = world.post_bulk, list[int]()

    def lossy(source: str, target: str, what: tuple[object, ...]) -> None:
        if what[0] == "catch-up" and not lost:
            lost.append(world.now)
        else:
            bulk(source, target, what)

    world.post_bulk = lossy  # type: ignore[method-assign]
    newcomer = world.add("c")
    newcomer.micro_ms = 50
    newcomer.give(events.Run())
    assert world.run_until(lambda: "c" in roster(world), 60_000)
    assert lost
    assert world.now - lost[0] < 2 * FAST_TIMES.transfer_stall_ms
    check_replicas(world)


def test_a_newcomer_that_the_leader_gave_up_asks_again() -> None:
    """It declined its first step.  Its source feeds it on, so it follows every step, and waits."""
    world = running(2)
    post, declined = world.post, list[int]()

    def decline_once(source: str, link: str, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, Propose) and envelope.target == "c" and not declined:
            declined.append(message.step)
            answer = Decline(message.step, message.epoch, Reason.FAILED, 0, 0, "")
            post("c", source, Envelope("c", source, 1, answer))
        else:
            post(source, link, envelope)

    world.post = decline_once  # type: ignore[method-assign]
    world.add("c").give(events.Run())
    assert world.run_until(lambda: "c" in roster(world), 20_000)
    assert declined
    assert world.steps <= declined[0] + 4
    check_replicas(world)


def test_a_source_whose_steps_do_not_come_feeds_on_nobody() -> None:
    """The newcomer asks again, and is fed by whoever is named then, not by both."""
    world = running(3)
    bulk = world.post_bulk
    deaf_to = list[str]()

    def lossy(source: str, target: str, what: tuple[object, ...]) -> None:
        if what[0] == "catch-up" and not deaf_to:
            deaf_to.append(source)
        if what[0] == "state" or source not in deaf_to:
            bulk(source, target, what)

    world.post_bulk = lossy  # type: ignore[method-assign]
    newcomer = world.add("d")
    newcomer.micro_ms = 50
    newcomer.give(events.Run())
    fed_by = set[str]()

    def sources() -> set[str]:
        return {d.me for d in world.devices.values() if "d" in d.node.core.feeds}

    for _ in range(600):
        world.run(100)
        assert len(sources()) <= 1
        fed_by |= sources()
        if len(fed_by) > 1:
            break
    assert len(fed_by) > 1, fed_by
    check_replicas(world)


def test_who_comes_in_after_the_end_is_told_that_all_is_done() -> None:
    world = running(2, last_step=6)
    assert world.run_until(lambda: world.steps == 6, 20_000)
    world.run(2_000)
    newcomer = world.add("c")
    newcomer.give(events.Run())
    assert world.run_until(lambda: newcomer.step == 6, 10_000)
    world.run(2_000)
    assert [n.code for n in newcomer.notices] == ["finished"]
    assert newcomer.weights == world.devices["a"].weights


def test_a_late_farewell_to_a_source_does_not_end_what_it_serves_now() -> None:
    world = running(3)
    newcomer = world.add("d")
    newcomer.give(events.Run())
    assert world.run_until(lambda: any("d" in d.node.core.feeds for d in world.alive()), 5_000)
    source = next(d for d in world.alive() if "d" in d.node.core.feeds)
    step = source.node.core.feeds["d"]
    late = Envelope("d", source.me, 1, FetchFailed("d", step - 1))
    source.give(events.Received("d", late))
    assert source.node.core.feeds["d"] == step
    source.give(events.Received("d", replace(late, message=FetchFailed("d", step))))
    assert "d" not in source.node.core.feeds


def test_an_admission_that_comes_twice_asks_for_the_state_again() -> None:
    """The source may have set it aside anew, and dropped what was on its way."""
    world = running(3)
    held = list[object]()
    world.post_bulk = lambda *flow: held.append(flow)  # type: ignore[method-assign]
    admitted, asked = list[Envelope](), list[int]()

    def see(_source: str, link: str, what: object) -> None:
        if isinstance(what, Envelope) and isinstance(what.message, Admit):
            admitted.append(what)
        if isinstance(what, Envelope) and isinstance(what.message, Fetch):
            asked.append(what.message.step)

    world.on_post = see
    newcomer = world.add("d")
    newcomer.give(events.Run())
    assert world.run_until(lambda: bool(asked), 5_000)
    newcomer.give(events.Received(admitted[0].source, admitted[0]))
    assert asked == [asked[0]] * 2
