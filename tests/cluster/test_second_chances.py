"""A device that was too slow for the room is tried again; one that always is costs little."""

from __future__ import annotations

import pytest
from cluster_faults import check_replicas
from toy_device import FAST_TIMES

from daisychain.cluster.admission import HOLDS_IN_FIRST_STEPS, OUTSIDE_A_MS_HELD
from daisychain.cluster.fields import Reason
from daisychain.cluster.joining import REFUSALS
from tests.cluster.test_hostile import with_holder
from tests.cluster.test_membership import roster, running


def test_who_was_slow_for_some_minutes_comes_in_again() -> None:
    world = running(3)
    device, lead = world.devices["b"], world.devices["a"].node.core.lead
    assert lead is not None
    device.micro_ms = 10_000_000
    world.run(120_000)
    assert roster(world) == ("a", "c")
    assert device.notices[-1].text == REFUSALS[Reason.DEADLINE]
    device.micro_ms, device.work = 400, None
    longest_ms = OUTSIDE_A_MS_HELD * lead.held_ms["b"]
    assert world.run_until(lambda: "b" in roster(world), longest_ms)
    world.run(20_000)
    assert roster(world) == ("a", "b", "c")
    check_replicas(world)


@pytest.mark.parametrize("way", ["silent", "creeping", "asking"])
def test_who_is_always_slow_costs_a_bounded_share_of_the_time(way: str) -> None:
    world, usual = with_holder(way)
    world.run(60_000)
    start, time_ms = world.steps, 600_000
    world.run(time_ms)
    lost_ms = time_ms - (world.steps - start) * 20_000 // usual
    a_try_ms = HOLDS_IN_FIRST_STEPS * FAST_TIMES.hold_ms
    assert lost_ms < time_ms // OUTSIDE_A_MS_HELD + a_try_ms
    check_replicas(world)
