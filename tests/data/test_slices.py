"""Planning without network: which rows feed which sequence."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.data.slices import (
    MAX_CHUNK_BYTES,
    UNIT_BYTES,
    Footer,
    FooterNeeded,
    RowGroup,
    SlicePlan,
    Unit,
    heldout_unit,
    window_place,
)
from daisychain.errors import DataError


def footer(*groups: tuple[int, int]) -> Footer:
    """Row groups of (rows, unpacked bytes), one after the other in the file."""
    placed, at = [], 4
    for rows, unpacked in groups:
        placed.append(RowGroup(rows, at, at + unpacked // 2 + 1, unpacked, "SNAPPY"))
        at = placed[-1].end
    return Footer("text", True, tuple(placed))


def make_plan(footers: dict[int, Footer], *, seed: int = 1, lanes: int = 1) -> SlicePlan:
    return SlicePlan(
        footers,
        files=len(footers),
        seed=seed,
        context=64,
        lanes=lanes,
        tokens_per_kilobyte=240,
    )


shapes = st.lists(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3 * UNIT_BYTES)), min_size=1, max_size=6),
    min_size=1,
    max_size=3,
)


@settings(max_examples=60, deadline=None)
@given(shapes, st.integers(0, 2**64 - 1), st.integers(1, 4))
def test_no_row_twice_in_an_epoch_and_none_lost(
    shape: list[list[tuple[int, int]]], seed: int, lanes: int
) -> None:
    plan = make_plan({i: footer(*groups) for i, groups in enumerate(shape)}, seed=seed, lanes=lanes)
    used: Counter[tuple[int, int, int]] = Counter()
    for lane in range(lanes):
        for file in range(plan.files):
            units, ends = plan.lane_units(0, file, lane)
            assert ends == [sum(u.windows for u in units[: i + 1]) for i in range(len(units))]
            for unit in units:
                used.update((unit.file, unit.group, row) for row in range(unit.first, unit.last))
    held = heldout_unit(plan.footers[0])
    if held is not None:
        used.update((0, held.group, row) for row in range(held.first, held.last))
    every = {
        (file, group, row)
        for file, groups in enumerate(shape)
        for group, (rows, _) in enumerate(groups)
        for row in range(rows)
    }
    assert set(used) == every
    assert set(used.values()) == {1}


@settings(max_examples=60, deadline=None)
@given(shapes, st.integers(0, 2**64 - 1), st.data())
def test_any_place_is_found_alone(
    shape: list[list[tuple[int, int]]], seed: int, data: st.DataObject
) -> None:
    """A device that asks for one sequence gets what a device gets that went through all before."""
    footers = {i: footer(*groups) for i, groups in enumerate(shape)}
    walked = make_plan(footers, seed=seed)
    slices = [walked.locate(0, sequence) for sequence in range(150)]
    sequence = data.draw(st.integers(0, 149))
    assert make_plan(footers, seed=seed).locate(0, sequence) == slices[sequence]
    windows = [(s.epoch, s.unit.rows, s.place) for s in slices]
    assert len(set(windows)) == len(windows)
    assert all(0 <= s.place < s.unit.windows for s in slices)


def test_lanes_share_at_most_the_row_groups_at_their_seams() -> None:
    plan = make_plan({0: footer(*[(1000, 4_000_000)] * 40)}, lanes=4)
    groups = [{unit.group for unit in plan.lane_units(0, 0, lane)[0]} for lane in range(4)]
    shared = sum(len(a & b) for i, a in enumerate(groups) for b in groups[i + 1 :])
    assert shared <= 3
    assert set().union(*groups) == set(range(40))


def test_units_are_half_a_megabyte_within_one_row_group() -> None:
    plan = make_plan({0: footer((1000, 4_000_000))})
    units = list(plan.units(0, 0))
    assert len(units) == 8
    assert [unit.first for unit in units[1:]] == [unit.last for unit in units[:-1]]
    assert units[-1].last == 950
    assert all(abs(unit.windows - 4_000_000 * 0.95 / 8 * 0.24 / 64) < 20 for unit in units)


def test_seeds_and_epochs_order_row_groups_differently() -> None:
    footers = {0: footer(*[(10, 100)] * 30), 1: footer(*[(10, 100)] * 30)}
    orders = {
        tuple(unit.group for unit in make_plan(footers, seed=seed).units(epoch, 1))
        for seed in (1, 2)
        for epoch in (0, 1)
    }
    assert len(orders) == 4
    firsts = {make_plan(footers, seed=seed).file_at(0, 0) for seed in range(20)}
    assert firsts == {0, 1}


def test_footers_are_asked_for_only_when_needed() -> None:
    known = {0: footer((10, 100)), 1: footer((10, 100)), 2: footer((10, 100))}
    footers: dict[int, Footer] = {}
    plan = SlicePlan(footers, files=3, seed=1, context=64, lanes=1, tokens_per_kilobyte=240)
    asked = []
    for sequence in range(3):
        while True:
            try:
                plan.locate(0, sequence)
                break
            except FooterNeeded as needed:
                asked.append(needed.file)
                footers[needed.file] = known[needed.file]
        assert len(asked) == sequence + 1
    assert asked == [plan.file_at(0, position) for position in range(3)]


def test_row_groups_beyond_the_limits_are_left_out() -> None:
    huge = RowGroup(10, 4, 4 + MAX_CHUNK_BYTES + 1, 10, "ZSTD")
    small = RowGroup(10, 4, 100, 200, "ZSTD")
    plan = make_plan({0: Footer("text", True, (huge, small, huge))})
    assert {unit.group for unit in plan.units(0, 0)} == {1}
    with pytest.raises(DataError, match="smaller row groups"):
        make_plan({0: Footer("text", True, (huge, huge))}).locate(0, 0)


def test_too_small_for_its_lanes() -> None:
    with pytest.raises(DataError, match="too small for 4 lanes"):
        make_plan({0: footer((2, 100))}, lanes=4).locate(0, 0)


def test_heldout_rows() -> None:
    assert heldout_unit(footer((1, 10))) is None
    assert heldout_unit(footer((10, 10), (40, 10))) == Unit(0, 1, 38, 40, 0)
    assert heldout_unit(footer((10_000, 10))) == Unit(0, 0, 9744, 10_000, 0)


@given(st.integers(1, 50), st.integers(1, 200), st.integers(0, 5000))
def test_windows_spread_over_the_tokens_there_are(windows: int, context: int, extra: int) -> None:
    tokens = context + 1 + extra
    places = [window_place(i, windows, tokens, context) for i in range(windows)]
    assert places == sorted(places)
    assert places[0] == 0
    assert all(place + context + 1 <= tokens for place in places)
    if windows > 1:
        assert places[-1] == extra


def test_substitutes_are_other_row_groups_nearest_first() -> None:
    plan = make_plan({0: footer(*[(100, 2 * UNIT_BYTES)] * 5)})
    part = plan.locate(0, 0)
    substitutes = plan.substitutes(0, part.epoch, part.unit)
    order = list(dict.fromkeys(unit.group for unit in plan.lane_units(0, 0, 0)[0]))
    assert [unit.group for unit in substitutes] == order[1:]
    assert all(unit.first == 0 for unit in substitutes)


def test_records_survive_and_hostile_ones_name_the_row_group() -> None:
    one = footer((10, 100), (5, 50))
    assert Footer.from_record(one.to_record(), "a.parquet", 10**9) == one
    good = [3, 4, 9, 20, "ZSTD"]
    for record in (None, {}, {"column": "text", "optional": True, "groups": 5}):
        with pytest.raises(DataError, match=r"footer of a\.parquet is malformed"):
            Footer.from_record(record, "a.parquet", 100)
    for group in (
        [1, 2],
        7,
        [1, 9, 4, 1, "ZSTD"],
        [-1, 4, 9, 1, "ZSTD"],
        [True, 4, 9, 2**60, "ZSTD"],
        [3, 4, 101, 20, "ZSTD"],
        [3, 4, 9, 20, 5],
    ):
        record = {"column": "text", "optional": True, "groups": [good, group]}
        with pytest.raises(DataError, match=r"wrong at row group 1 of a\.parquet"):
            Footer.from_record(record, "a.parquet", 100)
