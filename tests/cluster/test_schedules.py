"""The protocol under thousands of seeded schedules of faults; `cluster_faults` has the invariants.

In each: all committed replicas are equal, each step is applied once and in order, every slice is
in exactly one committed step, and what lives goes on if it may decide.
"""

from __future__ import annotations

import random

import pytest
from cluster_faults import KINDS, Fault, heal, random_faults, run_schedule, settle
from cluster_world import Trouble, World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy_device import ONE_BUCKET

EXAMPLES, SCHEDULES_AN_EXAMPLE = 500, 20
SIZES = (2, 2, 2, 2, 3, 3, 3, 3, 4, 5)


def one_schedule(seed: int) -> None:
    pick = random.Random(seed)
    size = pick.choice(SIZES)
    faults = random_faults(pick)
    try:
        run_schedule(World(seed, layout=ONE_BUCKET), size, faults)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {size} devices, {faults}: {error}") from error


# All of a narrow range, whatever the order: of a wide one Hypothesis chooses other seeds when other
# modules are loaded, since it takes constants out of them.
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
@given(st.integers(0, EXAMPLES - 1))
def test_ten_thousand_seeded_schedules(seed: int) -> None:
    for i in range(SCHEDULES_AN_EXAMPLE):
        one_schedule(SCHEDULES_AN_EXAMPLE * seed + i)


faults = st.builds(
    Fault, st.integers(0, 4000), st.sampled_from(KINDS), st.integers(0, 7), st.integers(1, 255)
)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.integers(0, 2**32), st.integers(2, 6), st.lists(faults, min_size=1, max_size=5))
def test_schedules_that_hypothesis_writes(seed: int, size: int, faults: list[Fault]) -> None:
    run_schedule(World(seed), size, faults)


def quiet_world(size: int) -> World:
    world = World(1, layout=ONE_BUCKET)
    world.room(size)
    world.run(500)
    return world


def posts_of_a_quiet_run(size: int) -> int:
    world = quiet_world(size)
    start = world.posted
    world.run(700)
    return world.posted - start


def crash_at(size: int, k: int, notice: bool) -> None:
    world = quiet_world(size)
    start = world.posted

    def watch(source: str, link: str, what: object) -> None:
        if world.posted - start == k + 1:
            world.on_post = None
            world.crash(source, notice)

    world.on_post = watch
    world.run(1500)
    settle(world)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("notice", [True, False])
def test_a_crash_at_every_message(size: int, notice: bool) -> None:
    """The sender of message k vanishes instead of sending it, for every k of two steps."""
    for k in range(posts_of_a_quiet_run(size)):
        crash_at(size, k, notice)


def lose(size: int, k: int) -> None:
    world = quiet_world(size)
    start = world.posted

    def watch(source: str, link: str, what: object) -> None:
        world.trouble = Trouble(drop=100 if world.posted - start == k + 1 else 0)

    world.on_post = watch
    world.run(1500)
    world.on_post = None
    heal(world)
    settle(world)


def test_the_loss_of_every_single_message() -> None:
    """Message k of two steps never arrives; the links stay."""
    for k in range(posts_of_a_quiet_run(3)):
        lose(3, k)
