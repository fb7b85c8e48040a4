"""Well-formed messages from anybody, at any time, with any values: dropped or harmless."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest
from cluster_faults import check_replicas, settle
from cluster_world import World, with_settings
from toy_device import FAST_TIMES, ONE_BUCKET, Device, hex128

from daisychain.cluster import events, wire
from daisychain.cluster.effects import Mode
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.fields import Malformed, Phase, Reason, checks
from daisychain.cluster.messages import Envelope, Message
from daisychain.cluster.room_messages import Admit, Beat, Join, Leave, Synced
from daisychain.cluster.step_messages import Exchanged, Share
from daisychain.cluster.times import Times
from daisychain.cluster.vote_messages import Stop

NUMBERS = (0, 1, 2, 3, 31, 32, 64, 96, 97, 2**31, 2**32 - 1)
ALL_TYPES = list(get_args(Message))
TYPES = [kind for kind in get_args(Message) if kind not in (Leave, Stop)]


def random_value(pick: random.Random, hint: str) -> Any:
    """A plain value that often passes the check of a field."""
    ids = ("a", "b", "c", "z", "")
    digest = hex128(pick.randrange(4))
    match hint:
        case "bool":
            return pick.random() < 0.5
        case "Count" | "Total" | "Positive" | "MicroBatches" | "Level":
            return pick.choice(NUMBERS)
        case "Id" | "NoOrId":
            return pick.choice(ids)
        case "Hash" | "NoOrHash":
            return pick.choice((digest, ""))
        case "FooterPart":
            return pick.randrange(9)
        case "Label" | "SettingsText" | "FooterText":
            return "x"
        case "Phase":
            return pick.choice(list(Phase)).value
        case "Reason":
            return pick.choice(list(Reason)).value
        case "Exchange":
            return pick.choice(list(Exchange)).value
        case "Ids" | "Roster":
            return pick.sample(("a", "b", "c", "z"), pick.randrange(5))
        case "Hashes":
            return [digest] * pick.randrange(3)
        case "Scalars" | "LinkMasks":
            return [pick.choice(NUMBERS) for _ in range(pick.randrange(4))]
        case "Shares":
            cursor = pick.choice((0, 1, 2, 3, 4))
            names = pick.sample(("a", "b", "c", "z"), pick.randrange(1, 4))
            return [[name, 1, cursor + i] for i, name in enumerate(names)]
        case "ExchangedList":
            return [[1, 2, 3]] * pick.randrange(4)
    raise AssertionError(hint)


def random_message(
    pick: random.Random, types: Sequence[type[Message]] = tuple(TYPES)
) -> Message | None:
    kind = pick.choice(types)
    hints = list(kind.__annotations__.values())
    values = [random_value(pick, hint) for hint in hints]
    try:
        return kind(*(check(v) for check, v in zip(checks(kind), values, strict=True)))
    except Malformed:
        return None


def test_the_generator_reaches_every_type() -> None:
    pick = random.Random(0)
    made = {type(message) for _ in range(30_000) if (message := random_message(pick)) is not None}
    assert made == set(TYPES)
    assert isinstance(Share("a", 1, 0), Share)
    assert isinstance(Exchanged(1, 2, 3), Exchanged)


@pytest.mark.parametrize("seed", range(16))
def test_messages_of_strangers_change_nothing(seed: int) -> None:
    """A linked device that was never let in sends 300 random messages, under any name."""
    pick = random.Random(seed)
    world = World(seed, layout=ONE_BUCKET)
    world.settings, world.welcoming = with_settings(approve_all=False), False
    world.add("a", founder=True).give(events.Run())
    world.devices["a"].node.core.known.update("bc")
    for name in ("b", "c"):
        world.add(name).give(events.Run())
    world.run(700)
    steps = world.steps
    assert steps > 0
    for device in world.alive():
        device.give(events.LinkUp("z"))
    for _ in range(300):
        message = random_message(pick)
        if message is not None:
            target = pick.choice("abc")
            source = pick.choice("azbc")
            envelope = Envelope(source, target, pick.randrange(9), message)
            world.devices[target].give(events.Received("z", envelope))
        world.run(pick.randrange(10))
    world.run(1000)
    assert world.steps > steps + 2
    check_replicas(world)


@pytest.mark.parametrize("seed", range(24))
def test_messages_of_members_never_break_a_replica(seed: int) -> None:
    """A member sends random messages beside its own, some in another's name: no exception, and no
    fork, and nobody takes the others' names for them.

    Progress is not promised here: a member may stop the room by claiming a drift.
    """
    pick = random.Random(seed)
    world = World(seed, layout=ONE_BUCKET)
    world.room(3)
    world.run(1_500)
    forged = 0
    for _ in range(120):
        message = random_message(pick, ALL_TYPES)
        if message is not None:
            link, target = pick.sample("abc", 2)
            source = link if pick.randrange(3) else pick.choice("abcz")
            core = world.devices[target].node.core
            dropped = core.dropped.total()
            linked = source in core.peers and core.peers[source].linked
            data = wire.encode(Envelope(source, target, 8, message))
            world.devices[target].give(events.Received(link, wire.decode(data)))
            if source != link and linked and core.mode is not Mode.LEFT:
                forged += 1
                assert core.dropped.total() == dropped + 1
        world.run(pick.randrange(20))
    assert forged
    world.run(3000)
    check_replicas(world)


def test_a_flood_of_peers_is_bounded() -> None:
    world = World(1, layout=ONE_BUCKET)
    world.room(2)
    world.run(500)
    core = world.devices["a"].node.core
    for i in range(1000):
        world.devices["a"].give(events.LinkUp(f"x{i}"))
    assert len(core.peers) <= 64
    for i in range(1000):
        leave = Envelope(f"y{i}", "a", 3, Leave(0, 0, "", "x"))
        world.devices["a"].give(events.Received("b", leave))
    assert len(core.peers) <= 64
    assert len(core.left) <= 2
    settle(world)


class Holder(Device):
    """A device that was let in and wants the room to wait for it, in one of these ways.

    ``loading``: it says for ever that it loads.  ``asking``: it does so and asks anew now and then.
    ``creeping``: it loads for as long as nobody waits, then gains a step as late as it may.
    ``silent``: it is up to date and does not answer the proposal of its first step.
    """

    way = "loading"
    beats = 0
    admitted = held = -1
    acted_ms = -1

    def give(self, event: events.Event) -> None:
        if isinstance(event, events.Received) and isinstance(event.envelope.message, Admit):
            self.admitted, self.held = event.envelope.message.step, -1
            if self.way == "silent":
                self.claim(self.admitted)
        if not isinstance(event, events.Tick):
            return
        self.beats += 1
        beat = Beat(self.beats, 0, "a", 0, "", Phase.JOINING, 9_000, ("a", "b"), (), "z", "toy")
        for name in "ab":
            self.world.post("z", name, Envelope("z", name, 8, beat))
        quiet_ms = self.world.now - self.acted_ms if self.acted_ms >= 0 else 1 << 40
        if self.way == "creeping" and self.admitted >= 0 and self.held < self.world.steps - 2:
            self.creep(quiet_ms)
        elif quiet_ms > {"loading": 1 << 39, "asking": 15_000}.get(self.way, 1_400):
            self.acted_ms = self.world.now
            self.say(Join("z", "toy", 0, 0, "", "", 0, ""))

    def creep(self, quiet_ms: int) -> None:
        if self.held < 0 and self.world.steps >= self.admitted + FAST_TIMES.backlog_steps - 1:
            self.claim(self.admitted)
        elif self.held >= 0 and quiet_ms > 1_400:
            self.claim(self.held + 1)

    def claim(self, step: int) -> None:
        self.held, self.acted_ms = step, self.world.now
        self.say(Synced(step, hex128(self.world.decided[step].weights, -1)))

    def say(self, message: Message) -> None:
        self.world.post("z", "a", Envelope("z", "a", 8, message))


class Lobby(World):
    """A room of two that has begun to train, with a holder at its door."""

    def make(self, me: str) -> Device:
        return Holder(self, me) if me == "z" else super().make(me)


def with_holder(way: str, times: Times = FAST_TIMES) -> tuple[Lobby, int]:
    """A room of two at whose door a holder has just come, and its usual steps in 20 s."""
    world = Lobby(3, times, layout=ONE_BUCKET)
    world.room(2)
    world.run(2_000)
    start = world.steps
    world.run(20_000)
    usual = world.steps - start
    holder = world.add("z")
    assert isinstance(holder, Holder)
    holder.way = way
    return world, usual


# The silent one: four holds, and one try more (12 s) once it has been outside for a moment.
@pytest.mark.parametrize(
    ("way", "holds"), [("loading", 1), ("asking", 1), ("creeping", 1), ("silent", 6)]
)
def test_nobody_who_comes_in_holds_the_room_for_long(way: str, holds: int) -> None:
    times = replace(FAST_TIMES, loading_limit_ms=1 << 30)
    world, usual = with_holder(way, times)
    start = world.steps
    world.run(12 * times.hold_ms)
    paced = usual * 12 * times.hold_ms // 20_000
    held_ms = (paced - (world.steps - start)) * 20_000 // usual
    assert holds * times.hold_ms * 3 // 4 < held_ms < holds * times.hold_ms * 5 // 4
    start = world.steps
    world.run(20_000)
    assert world.steps - start >= usual - 2
    check_replicas(world)


def test_who_only_says_that_it_is_loading_is_dropped() -> None:
    world = Lobby(3, layout=ONE_BUCKET)
    world.room(2)
    world.run(2_000)
    world.add("z")
    lead = world.devices["a"].node.core.lead
    assert lead is not None
    assert world.run_until(lambda: "z" in lead.joiners, 5_000)
    patience_ms = FAST_TIMES.loading_limit_ms + FAST_TIMES.transfer_stall_ms
    assert world.run_until(lambda: "z" not in lead.joiners, patience_ms + 1_000)
