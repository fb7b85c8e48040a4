"""Drift stops training everywhere and names the device and the tensor range."""

from __future__ import annotations

import random

import pytest
from cluster_world import World
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_device import LEAVES, TOY_LAYOUT, Device, hex128, leaves_of

from daisychain.cluster import events
from daisychain.cluster.effects import Halted, Mode
from daisychain.cluster.hashtree import RANGE_BYTES, HashTree, first_difference, minority
from daisychain.cluster.reduce_plan import Layout, Rows

WEIGHTS = Layout(((Rows("first", 100, 16384), Rows("second", LEAVES - 100, 16384)),))


def running(size: int) -> World:
    world = World(7, layout=WEIGHTS)
    world.room(size)
    assert world.run_until(
        lambda: world.steps >= 4 and len(world.decided[world.steps].roster) == size, 30_000
    )
    return world


def verdicts(world: World) -> set[Halted]:
    found = set()
    for device in world.alive():
        assert device.mode is Mode.HALTED, device.me
        assert device.halted is not None, device.me
        found.add(device.halted)
    return found


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("culprit", ["a", "b", "c"])
@pytest.mark.parametrize("leaf", [0, 63, 64, 150, 199])
def test_one_flipped_weight_halts_all_and_is_found(size: int, culprit: str, leaf: int) -> None:
    world = running(size)
    world.devices[culprit].flipped = leaf
    world.run(10_000)
    (verdict,) = verdicts(world)
    assert verdict.devices == (culprit,)
    assert (verdict.first_byte, verdict.bytes) == (leaf * RANGE_BYTES, RANGE_BYTES)
    assert verdict.tensors == (("first",) if leaf < 100 else ("second",))
    assert culprit in verdict.text
    steps = {device.step for device in world.alive()}
    assert max(steps) - min(steps) <= 1
    world.run(10_000)
    assert {device.step for device in world.alive()} == steps


def test_of_two_both_are_named() -> None:
    world = running(2)
    world.devices["b"].flipped = 7
    world.run(10_000)
    (verdict,) = verdicts(world)
    assert verdict.devices == ("a", "b")
    assert verdict.first_byte == 7 * RANGE_BYTES


def test_a_device_that_lies_about_its_weights_hash_is_named() -> None:
    """Its weights are right, so no range differs; its claim alone is odd."""
    world = running(3)
    world.devices["b"].lie = lambda value: hex128(666, int(value[:8], 16))
    world.run(10_000)
    (verdict,) = verdicts(world)
    assert verdict.devices == ("b",)
    assert verdict.bytes == 0


def test_a_device_that_dies_during_the_search_does_not_hold_it_up() -> None:
    world = running(4)
    world.devices["d"].flipped = 9
    assert world.run_until(
        lambda: any(d.mode is Mode.HALTED for d in world.alive() if d.me != "c"), 10_000
    )
    world.crash("c")
    world.run(15_000)
    for verdict in verdicts(world):
        assert "d" in verdict.devices
        assert verdict.first_byte == 9 * RANGE_BYTES


def test_a_halted_room_admits_nobody_and_trains_no_more() -> None:
    world = running(3)
    world.devices["b"].flipped = 1
    world.run(8_000)
    steps = world.steps
    newcomer = world.add("d")
    for device in world.alive():
        device.give(events.Run())
    world.run(15_000)
    assert world.steps == steps
    assert newcomer.mode is Mode.JOINING


def test_a_stale_device_is_not_taken_for_a_drifted_one() -> None:
    world = running(3)
    world.cut("a", "c")
    world.cut("b", "c")
    world.run(6_000)
    world.mend_all()
    assert world.run_until(lambda: len(world.decided[world.steps].roster) == 3, 20_000)
    assert all(device.halted is None for device in world.alive())


# ------------------------------------------------------------------------------------- trees


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9000), st.integers(0, 2**32))
def test_the_tree_leads_to_the_differing_leaf(count: int, seed: int) -> None:
    pick = random.Random(seed)
    leaves = [f"{pick.getrandbits(128):032x}" for _ in range(count)]
    wrong = pick.randrange(count)
    other = list(leaves)
    other[wrong] = "0" * 32
    a, b = HashTree(leaves), HashTree(other)
    index, rounds = 0, 0
    for level in range(a.top, -1, -1):
        child = first_difference({"a": a.children(level, index), "b": b.children(level, index)})
        assert child is not None
        index = index * 64 + child
        rounds += 1
        assert len(a.children(level, index // 64)) <= 64
    assert index == wrong
    assert rounds <= 3


def test_majorities() -> None:
    assert minority({"a": 1, "b": 1, "c": 2}) == ("c",)
    assert minority({"a": 1, "b": 2}) == ("a", "b")
    assert minority({"a": 1, "b": 1, "c": 2, "d": 2}) == ("a", "b", "c", "d")
    assert minority({"a": 1, "b": 1}) == ()
    assert minority({}) == ()
    assert first_difference({"a": ("x",), "b": ("x", "y")}) == 1
    assert first_difference({}) is None


def test_toy_leaves_are_as_many_as_the_layout_says() -> None:
    assert WEIGHTS.elements * 4 == LEAVES * RANGE_BYTES
    assert len(leaves_of(1, None)) == LEAVES
    assert (
        Device(World(1, layout=TOY_LAYOUT), "a").weights_hash()
        == Device(World(1, layout=TOY_LAYOUT), "b").weights_hash()
    )
