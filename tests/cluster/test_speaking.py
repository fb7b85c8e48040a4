"""In whose name a message may come over which link: whoever is linked to us speaks for itself."""

from __future__ import annotations

import pytest
from cluster_faults import check_replicas
from toy_device import FAST_TIMES

from daisychain.cluster import events
from daisychain.cluster.effects import Mode
from daisychain.cluster.fields import Reason
from daisychain.cluster.messages import Envelope, Message
from daisychain.cluster.room_messages import Leave
from daisychain.cluster.step_messages import Abort
from daisychain.cluster.vote_messages import Stop
from tests.cluster.test_membership import roster, running

FORGED = "in another's name"


@pytest.mark.parametrize("kind", ["stop", "leave", "abort"])
def test_a_member_cannot_speak_for_one_that_is_linked_to_us(kind: str) -> None:
    world = running(3)
    world.run(2_000)
    victim = world.devices["c"]
    at = victim.node.core.committed
    assert at is not None
    messages: dict[str, Message] = {
        "stop": Stop(at.step, Reason.GUARD, ("a",)),
        "leave": Leave(victim.node.core.promised, at.step, "", "closed"),
        "abort": Abort(at.step + 1, victim.node.core.promised, Reason.LOST, ()),
    }
    victim.give(events.Received("b", Envelope("a", "c", 7, messages[kind])))
    # Nor does it pass such a message on.
    victim.give(events.Received("b", Envelope("a", "d", 7, messages[kind])))
    assert victim.node.core.dropped[FORGED] == 2
    assert victim.mode is Mode.MEMBER
    assert not victim.node.core.left
    step = world.steps
    world.run(3_000)
    assert world.steps > step + 2
    assert roster(world) == ("a", "b", "c")


def test_what_was_under_way_when_the_link_came_up_still_counts() -> None:
    world = running(3)
    world.cut("a", "c")
    world.run(5_000)
    world.mend("a", "c")
    core = world.devices["c"].node.core
    at = core.committed
    assert at is not None
    world.devices["c"].give(
        events.Received("b", Envelope("a", "c", 7, Abort(9, 9, Reason.LOST, ())))
    )
    world.run(3_000)
    assert core.dropped[FORGED] == 0
    world.devices["c"].give(
        events.Received("b", Envelope("a", "c", 7, Abort(9, 9, Reason.LOST, ())))
    )
    assert core.dropped[FORGED] == 1


@pytest.mark.parametrize(("first", "second"), [("a", "c"), ("c", "a"), ("b", "c")])
def test_a_link_that_is_open_at_one_end_only_stops_nobody(first: str, second: str) -> None:
    """The end that noticed sends through the third; the other end hears it so, after a while."""
    world = running(3)
    world.run(2_000)
    world.half_open(first, second, 10_000)
    world.run(FAST_TIMES.suspect_ms + 500)
    core = world.devices[second].node.core
    message = Abort(9, 9, Reason.LOST, ())
    between = next(me for me in "abc" if me not in (first, second))
    forged = core.dropped[FORGED]
    world.devices[second].give(events.Received(between, Envelope(first, second, 7, message)))
    assert core.dropped[FORGED] == forged
    step = world.steps
    world.run(30_000)
    assert world.steps > step + 20
    check_replicas(world)
