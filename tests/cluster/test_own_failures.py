"""A newcomer that fails by its own doing, and what coming in costs those who are inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from cluster_faults import check_replicas
from cluster_world import World
from toy_device import FAST_TIMES, ONE_BUCKET, Device

from daisychain.cluster import effects, events, wire
from daisychain.cluster.effects import Mode
from daisychain.cluster.joining import OWN_FAILURES
from daisychain.cluster.messages import Envelope
from daisychain.cluster.room_messages import Admit, Join, Leave
from tests.cluster.test_membership import roster, running

WHY = "The Hub cannot be reached, so that this device has no text to train on; join again later."


class Unable(Device):
    """It cannot build the run; after ``failures`` times it can."""

    failures = 1 << 30

    def do_FetchState(self, effect: effects.FetchState) -> None:
        if self.failures:
            self.failures -= 1
            self.later(5, events.StateFailed(effect.step, WHY))
        else:
            super().do_FetchState(effect)


class Counting(World):
    """A world that counts the effects of all devices; ``z`` is unable."""

    def __init__(self) -> None:
        super().__init__(1, layout=ONE_BUCKET)
        self.asked: Counter[tuple[str, type[effects.Effect]]] = Counter()
        self.room(3)
        self.run(2_000)

    def make(self, me: str) -> Device:
        device = Unable(self, me) if me == "z" else Device(self, me)
        carry_out = device.carry_out

        def counted(wanted: Iterable[effects.Effect]) -> None:
            wanted = list(wanted)
            self.asked.update((me, type(effect)) for effect in wanted)
            carry_out(wanted)

        device.carry_out = counted  # type: ignore[method-assign]
        return device

    def times_asked(self, kind: type[effects.Effect], of: str = "abc") -> int:
        return sum(self.asked[me, kind] for me in of)


def test_a_newcomer_that_cannot_build_the_run_rests_and_gives_up() -> None:
    world = Counting()
    newcomer = world.add("z")
    start, step = world.now, world.steps
    said: list[Leave] = []

    def hear(source: str, link: str, what: object) -> None:
        if source == "z" and isinstance(what, Envelope) and isinstance(what.message, Leave):
            said.append(what.message)
            assert wire.decode(wire.encode(what)) == what

    world.on_post = hear
    assert world.run_until(lambda: newcomer.mode is Mode.LEFT, 60_000)
    world.run(100)
    # A pause after each failure but the last, the second one twice as long.
    assert world.now - start >= 3 * FAST_TIMES.join_retry_ms
    assert world.times_asked(effects.FetchState, "z") == OWN_FAILURES
    assert world.times_asked(effects.KeepState) == OWN_FAILURES
    assert world.times_asked(effects.HashState) <= 2 * OWN_FAILURES
    assert newcomer.notices[-1].text.endswith(WHY)
    assert said
    lead = world.devices["a"].node.core.lead
    assert lead is not None
    assert not lead.distrust
    assert not lead.joiners
    assert not any(world.devices[me].kept or world.devices[me].node.core.feeds for me in "abc")
    world.run(5_000)
    assert world.steps > step + 10
    check_replicas(world)


def test_who_fails_once_or_twice_comes_in_then() -> None:
    world = Counting()
    newcomer = world.add("z")
    assert isinstance(newcomer, Unable)
    newcomer.failures = OWN_FAILURES - 1
    newcomer.give(events.Run())
    assert world.run_until(lambda: "z" in roster(world), 60_000)
    assert newcomer.node.core.own_failures == 0
    check_replicas(world)


def test_nothing_is_kept_for_a_newcomer_that_rests() -> None:
    world = Counting()
    newcomer = world.add("z")
    assert world.run_until(lambda: newcomer.node.core.own_failures == 1, 10_000)
    world.run(100)
    assert not any(world.devices[me].kept for me in "abc")
    newcomer.give(events.StateProgress())  # a host that goes on saying so delays nothing
    assert world.run_until(
        lambda: newcomer.node.core.own_failures == 2, FAST_TIMES.join_retry_ms + 2_000
    )


@pytest.mark.parametrize("pause_ms", [1, 50])
def test_asking_again_and_again_costs_one_hash_a_step(pause_ms: int) -> None:
    world = running(2)
    leader = world.devices["a"]
    hashed: list[int] = []
    for device in world.alive():
        device.do_HashState = lambda effect, d=device: (  # type: ignore[method-assign]
            hashed.append(effect.step) if d.me == "a" else None,
            Device.do_HashState(d, effect),
        )
    start = world.steps
    leader.give(events.LinkUp("z"))
    for _ in range(4_000 // pause_ms):
        join = Join("z", "toy", 0, 0, "", "", 0, "")
        leader.give(events.Received("z", Envelope("z", "a", 1, join)))
        world.run(pause_ms)
    assert len(hashed) == len(set(hashed))
    assert world.steps > start + 2
    check_replicas(world)


def test_who_asks_twice_before_it_is_admitted_is_served_once() -> None:
    """Its second link comes up while the state is being hashed."""
    world = running(2)
    kept: list[str] = []
    for device in world.alive():
        device.do_HashState = lambda effect, d=device: d.later(  # type: ignore[method-assign]
            200, events.StateHashed(effect.step, d.state_hash())
        )
        device.do_KeepState = lambda effect, d=device: (  # type: ignore[method-assign]
            kept.append(effect.joiner),
            Device.do_KeepState(d, effect),
        )
    admitted: list[int] = []

    def hear(source: str, link: str, what: object) -> None:
        if isinstance(what, Envelope) and isinstance(what.message, Admit):
            admitted.append(what.message.step)

    world.on_post = hear
    world.cut("a", "c")
    world.cut("b", "c")
    newcomer = world.add("c")
    world.mend("a", "c")
    assert world.run_until(lambda: bool(kept), 5_000)
    world.mend("b", "c")
    newcomer.give(events.Run())
    assert world.run_until(lambda: "c" in roster(world), 20_000)
    assert kept == ["c"]
    assert len(admitted) == 1
    check_replicas(world)
