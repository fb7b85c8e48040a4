"""A member that lies, while other things go wrong: no exception, no fork, and no storm of messages.

Progress is not promised: a member may stop the room.  `Leave` is left out: a member that tells some
that it has left, and others that it has not, gives up its vote and casts it, and a room whose links
break then may part.  Both parts find that out when they meet.
"""

from __future__ import annotations

import random

import pytest
from cluster_faults import check_replicas, heal, inject, random_faults
from cluster_world import World
from toy_device import ONE_BUCKET

from daisychain.cluster import events
from daisychain.cluster.fields import Reason
from daisychain.cluster.messages import Envelope, Message
from daisychain.cluster.room_messages import Leave
from daisychain.cluster.step_messages import Abort
from daisychain.cluster.vote_messages import Query
from tests.cluster.test_hostile import ALL_TYPES, random_message
from tests.cluster.test_membership import running

SCHEDULES, LIES = 400, 20
LIE_TYPES = [kind for kind in ALL_TYPES if kind is not Leave]


def lie(world: World, pick: random.Random, liar: str) -> None:
    """Random messages of a device to those that it is linked to, within 3 s, a part in others'
    names."""
    for _ in range(LIES):
        message = random_message(pick, LIE_TYPES)
        others = [d.me for d in world.alive() if d.me != liar and world.linked(d.me, liar)]
        if message is None or not others or not world.devices[liar].live:
            continue
        target = pick.choice(others)
        source = liar if pick.randrange(4) else pick.choice(sorted(world.devices))
        envelope = Envelope(source, target, 8, message)
        world.at(world.now + pick.randrange(3_000), world._deliver, liar, target, envelope)


@pytest.mark.parametrize("part", range(4))
def test_seeded_schedules_with_a_liar(part: int) -> None:
    for seed in range(part, SCHEDULES, 4):
        pick = random.Random(seed)
        size, faults = pick.choice((3, 3, 3, 4, 5)), random_faults(pick)
        world = World(seed, layout=ONE_BUCKET)
        world.room(size)
        world.run(300 + world.random.randrange(300))
        liar = chr(97 + pick.randrange(size))
        for fault in faults:
            lie(world, pick, liar)
            world.run(fault.wait_ms)
            inject(world, fault)
        lie(world, pick, liar)
        world.on_post = lambda *_, w=world: pytest.fail("a storm") if w.posted > 50_000 else None
        world.run(4_000)
        heal(world)
        world.run(8_000)
        check_replicas(world)


@pytest.mark.parametrize(
    "message",
    [
        Abort(2**32 - 1, 2**32 - 1, Reason.LOST, ()),
        Abort(2**32 - 1, 128, Reason.LOST, ()),
        Abort(0, 2**20, Reason.LOST, ()),
        Query(2**32 - 1),
    ],
)
def test_absurd_numbers_of_a_leader_that_is_gone_bind_nobody(message: Message) -> None:
    """They neither use up the epochs, nor make its successors propose in vain for ever."""
    world = running(3)
    world.run(2_000)
    for name in "bc":
        world.devices[name].give(events.Received("a", Envelope("a", name, 8, message)))
    world.crash("a", notice=True)
    step, posted = world.steps, world.posted
    world.on_post = lambda *_: pytest.fail("a storm") if world.posted > posted + 5_000 else None
    assert world.run_until(lambda: world.steps > step + 5, 20_000)
    assert all(world.devices[name].node.core.promised < 2**21 for name in "bc")
    check_replicas(world)
