"""Seeded schedules of faults for the toy world, and what must hold at the end of each."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from cluster_world import Trouble, World
from toy_device import Device

from daisychain.cluster import events
from daisychain.cluster.effects import Mode
from daisychain.cluster.roster import quorum

KINDS = (
    "crash",
    "crash leader",
    "close",
    "cut",
    "split",
    "trouble",
    "away",
    "quit",
    "late",
    "slow",
    "reborn",
    "kick",
    "lost",
    "half-open",
    "no data",
)


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong ``wait_ms`` after the one before, on the ``pick``-th device."""

    wait_ms: int
    kind: str
    pick: int
    other: int


def random_faults(random: Random, most: int = 3) -> list[Fault]:
    """A short list of faults."""
    return [
        Fault(
            random.randrange(4000 if random.randrange(4) == 0 else 600),
            random.choice(KINDS),
            random.randrange(8),
            random.randrange(1, 256),
        )
        for _ in range(1 + random.randrange(most))
    ]


def inject(world: World, fault: Fault) -> None:
    """Let a fault happen now."""
    live = world.alive()
    if not live:
        return
    device = live[fault.pick % len(live)]
    match fault.kind:
        case "crash":
            world.crash(device.me)
        case "crash leader":
            leader = next((d for d in live if d.node.core.leads), device)
            world.crash(leader.me, notice=fault.other % 2 == 0)
        case "close":
            world.crash(device.me, notice=True)
        case "cut":
            other = live[(fault.pick + fault.other) % len(live)]
            if other is not device:
                world.cut(device.me, other.me)
        case "half-open":
            other = live[(fault.pick + fault.other) % len(live)]
            if other is not device:
                world.half_open(device.me, other.me, 40 * fault.other)
        case "no data":
            if (attempt := device.node.core.attempt) is not None:
                device.give(events.ComputeFailed(*attempt.key, "The data does not come."))
        case "split":
            groups: tuple[list[str], list[str]] = ([], [])
            for i, name in enumerate(sorted(world.devices)):
                groups[fault.other >> i & 1].append(name)
            world.split(groups)
        case "trouble":
            world.trouble = Trouble(fault.other % 37, fault.other % 30, fault.other % 25)
        case "away":
            device.give(events.Away("hidden"))
            world.at(world.now + fault.other * 10, device.give, events.Back())
        case "quit":
            device.give(events.Quit("closed"))
            device.live = False
            for peer in world.alive():
                world.at(world.now + world.latency_ms + 1, peer.give, events.LinkDown(device.me))
        case "late":
            world.add(chr(97 + len(world.devices))).give(events.Run())
        case "slow":
            device.micro_ms = 50 * fault.other
        case "reborn":
            world.crash(device.me, notice=True)
            name = chr(97 + len(world.devices))
            world.at(world.now + 10 * fault.other, _reborn, world, name)
        case "lost":
            if device.mode not in (Mode.LEFT, Mode.HALTED):
                device.lose_state()
            world.at(world.now + fault.other * 10, device.give, events.Back())
        case "kick":
            other = live[(fault.pick + fault.other) % len(live)]
            device.give(events.Kick(other.me))


def _reborn(world: World, name: str) -> None:
    if name not in world.devices:
        world.add(name).give(events.Run())


def heal(world: World) -> None:
    """Everything that still lives is well connected again."""
    world.trouble = Trouble()
    world.mend_all()
    for device in world.alive():
        device.micro_ms = 400
        if device.mode is Mode.AWAY:
            device.give(events.Back())


def can_decide(world: World) -> bool:
    """True if those that live are enough to go on, by what the last committed step says."""
    devices = [d for d in world.alive() if d.node.core.committed is not None]
    devices = [d for d in devices if d.mode not in (Mode.LEFT, Mode.HALTED)]
    if not devices:
        return False
    last = max(devices, key=lambda d: d.node.core.committed.step)  # type: ignore[union-attr]
    roster = last.node.core.roster
    left = set().union(*(d.node.core.left for d in devices))
    here = {d.me for d in devices if d.me in roster and d.mode is not Mode.AWAY}
    # Who was removed may not have heard of it, and those who know do not decide with it.
    removed = {me for d in devices for me in d.node.core.banned}
    return quorum(here - left - removed, roster)


def run_schedule(world: World, size: int, faults: list[Fault]) -> None:
    """A room of ``size`` devices lives through ``faults``; checks all invariants."""
    world.room(size)
    world.run(300 + world.random.randrange(300))
    for fault in faults:
        world.run(fault.wait_ms)
        inject(world, fault)
    world.run(1000)
    heal(world)
    settle(world)


def settle(world: World, limit_ms: int = 60_000) -> None:
    """After the faults: a live majority goes on, and ends up with one and the same replica."""
    before = world.steps
    halted = [d for d in world.alive() if d.mode is Mode.HALTED]
    assert not halted, f"{halted[0].halted}"
    expected = can_decide(world)

    def together() -> bool:
        if world.steps < before + 1:
            return False
        live = [d for d in world.alive() if d.mode not in (Mode.LEFT, Mode.AWAY)]
        ahead = {d.me for d in live if d.step >= world.steps - 1}
        # Who removed those that may decide, which did not hear of it, waits by itself.
        return bool(ahead) and all(
            d.me in ahead or ahead <= d.node.core.banned.keys() for d in live
        )

    done = world.run_until(together, limit_ms if expected else 2_000)
    if expected:
        assert done, "a live majority makes no progress: " + "; ".join(map(describe, world.alive()))
    check_replicas(world)


def check_replicas(world: World) -> None:
    """Each device's replica is that of its step."""
    for device in world.devices.values():
        if device.step and device.flipped is None and not device.stateless:
            assert device.weights == world.decided[device.step].weights


def describe(device: Device) -> str:
    """A device in words, for a failed test."""
    core = device.node.core
    attempt = core.attempt.key if core.attempt else None
    return (
        f"{device.me} {core.mode} step {device.step} roster {core.roster} left {core.left} "
        f"leader {core.leader} promised {core.promised} attempt {attempt} "
        f"joining {core.joining is not None} leads {core.leads} vote {core.vote}"
    )
