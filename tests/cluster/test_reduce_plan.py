"""Who sends what: everything once, all reachable, and no more bytes than promised."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.cluster import wire
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.layout import SMALLEST_BUCKET, model_layout
from daisychain.cluster.messages import Envelope
from daisychain.cluster.reduce_plan import (
    HEADER_BYTES,
    SHORTEST_ROW,
    Kind,
    Layout,
    ReducePlan,
    Rows,
    framed_bytes,
    make_plan,
)
from daisychain.cluster.step_messages import (
    Began,
    Commit,
    Computed,
    Exchanged,
    Guard,
    Propose,
    Share,
)
from daisychain.errors import ClusterError
from daisychain.model.config import ModelConfig, parameters
from daisychain.settings import PRESETS, swiglu_width

BYTES_A_PARAMETER = 2.1


def preset_config(name: str) -> ModelConfig:
    values = PRESETS[name]
    width, heads = int(values["width"]), int(values["heads"])
    layers, context = int(values["layers"]), int(values["context"])
    return ModelConfig(width, layers, heads, heads, swiglu_width(width), context)


def preset(name: str) -> Layout:
    return model_layout(preset_config(name))


def mesh(count: int) -> tuple[tuple[str, ...], dict[str, set[str]]]:
    names = tuple(f"{i:016x}" for i in range(count))
    return names, {name: set(names) - {name} for name in names}


def control_bytes(plan: ReducePlan) -> int:
    """The leader's control messages of one step, which are the most that anybody sends."""
    names, count = plan.members, len(plan.members)
    digest, big = "f" * 32, 10**12
    shares = tuple(Share(name, 1, big + i) for i, name in enumerate(names))
    row = Exchanged(99_999, 10**8, 10**8)
    sent = [
        Propose(
            10**6,
            10**6,
            10**6,
            10**6,
            digest,
            digest,
            10**9,
            plan.mode,
            big,
            shares,
            (2**32 - 1,) * count,
            (),
        ),
        Began(10**6, 10**6),
        Computed(10**6, 10**6, 99_999, 10**9, 99_999, digest),
        Guard(10**6, 10**6, digest, (2**31,) * 4, 99_999, 10**8, 10**8),
        Commit(10**6, 10**6, digest, 99_999, (row,) * count),
    ]
    each = sum(len(wire.encode(Envelope(names[0], names[-1], 8, message))) for message in sent)
    return each * (count - 1)


@pytest.mark.parametrize("name", sorted(PRESETS))
@pytest.mark.parametrize("count", [2, 3, 4, 8, 16, 32])
def test_traffic_stays_below_the_promise(name: str, count: int) -> None:
    """Everything counted: exponents, both directions, frame headers, the leader's messages."""
    layout = preset(name)
    plan = make_plan(layout, *mesh(count), Exchange.INT8)
    control = control_bytes(plan)
    for traffic in plan.traffic():
        assert traffic.sent + control <= BYTES_A_PARAMETER * layout.elements
        assert traffic.received + control <= BYTES_A_PARAMETER * layout.elements


def test_the_other_modes_cost_what_they_should() -> None:
    layout = preset("small")
    worst = {
        mode: max(t.sent for t in make_plan(layout, *mesh(8), mode).traffic()) / layout.elements
        for mode in (Exchange.INT4, Exchange.INT8, Exchange.INT16)
    }
    assert worst[Exchange.INT4] < 1.4 < worst[Exchange.INT8] < 1.8 < worst[Exchange.INT16] < 3.6


def test_a_room_of_one_sends_nothing() -> None:
    plan = make_plan(preset("nano"), ("a",), {}, Exchange.INT8)
    assert list(plan.flows()) == []
    assert plan.traffic()[0].sent == 0


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_layout_of_the_model(name: str) -> None:
    """Every parameter once, from the output to the embedding, in buckets worth a message."""
    layout, config = preset(name), preset_config(name)
    whole = sorted(Rows.of(p.name, p.rows, p.cols).name for p in parameters(config))
    assert sorted(tensor.name for tensor in layout.tensors) == whole
    sizes = [sum(tensor.elements for tensor in bucket) for bucket in layout.buckets]
    assert len(sizes) == {"nano": 1, "tiny": 1, "small": 4, "medium": 9}[name]
    assert min(sizes) >= SMALLEST_BUCKET
    assert layout.buckets[0][0].name == "model.norm.weight"
    assert layout.buckets[-1][-1].name == "model.embed_tokens.weight"
    assert layout.names(0, 1) == ("model.embed_tokens.weight",)
    assert layout.names(layout.elements - 1, 1) == ("model.norm.weight",)
    assert layout.names(layout.elements, 9) == ()


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 30), st.integers(1, 200)), min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 9),
    st.sampled_from([Exchange.INT8, Exchange.INT4, Exchange.INT16]),
)
def test_shards_cover_every_row_once(
    shapes: list[list[tuple[int, int]]], count: int, mode: Exchange
) -> None:
    layout = Layout(
        tuple(
            tuple(Rows(f"{b}.{i}", *shape) for i, shape in enumerate(bucket))
            for b, bucket in enumerate(shapes)
        )
    )
    plan = make_plan(layout, *mesh(count), mode)
    for bucket, starts in enumerate(layout.row_starts):
        row = element = 0
        for owner in plan.owners:
            shard = plan.shard(bucket, owner)
            assert (shard.first_row, shard.first_element) == (row, element)
            row, element = row + shard.rows, element + shard.elements
            assert starts[row] == element
        assert (row, element) == (len(starts) - 1, starts[-1])
    flows = list(plan.flows())
    assert len(flows) == len(set(flows)) == 4 * len(layout.buckets) * count * (count - 1)
    received = sum(framed_bytes(size) for i in range(count) for size in plan.incoming(i).values())
    assert (
        received == sum(t.received for t in plan.traffic()) == sum(t.sent for t in plan.traffic())
    )


def test_short_rows_are_merged() -> None:
    assert Rows.of("a", 24, 8) == Rows("a", 3, 64)
    assert Rows.of("a", 7, 8) == Rows("a", 1, 56)
    assert Rows.of("a", 10, 64) == Rows("a", 10, 64)
    for rows, columns in itertools.product(range(1, 40), (1, 8, 40, 63, 64, 65)):
        merged = Rows.of("a", rows, columns)
        assert merged.elements == rows * columns
        assert merged.columns >= SHORTEST_ROW or merged.rows == 1
    with pytest.raises(ClusterError):
        Rows.of("a", 0, 4)


LAYOUT = Layout(((Rows("w", 64, 64), Rows("n", 1, 64)),))


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 9), st.integers(0, 2**32))
def test_frames_find_their_way_through_any_connected_graph(count: int, seed: int) -> None:
    names, _ = mesh(count)
    pick = random.Random(seed)
    links: dict[str, set[str]] = {name: set() for name in names}
    for i in range(1, count):
        pairs = [(i, pick.randrange(i))]
        pairs += [(i, j) for j in range(i) if pick.random() < 0.4]
        for a, b in pairs:
            links[names[a]].add(names[b])
            links[names[b]].add(names[a])
    plan = make_plan(LAYOUT, names, links, Exchange.INT8)
    for flow in plan.flows():
        here, hops = flow.origin, 0
        while here != flow.target:
            there = plan.next_hop(here, flow.target)
            assert names[there] in links[names[here]]
            here, hops = there, hops + 1
            assert hops < count


def test_one_missing_link_is_shared_among_relays() -> None:
    names, links = mesh(8)
    links[names[0]].discard(names[7])
    links[names[7]].discard(names[0])
    whole = make_plan(LAYOUT, *mesh(8), Exchange.INT8)
    plan = make_plan(LAYOUT, names, links, Exchange.INT8)
    most = max(t.sent for t in plan.traffic())
    assert most < 1.35 * max(t.sent for t in whole.traffic())


def test_a_star_lets_the_hub_own_everything() -> None:
    names, _ = mesh(6)
    links = {name: {names[2]} for name in names}
    links[names[2]] = set(names) - {names[2]}
    plan = make_plan(LAYOUT, names, links, Exchange.INT8)
    assert plan.owners == (2,)
    leaf = plan.traffic()[0]
    assert leaf.sent < 1.05 * LAYOUT.elements + 8 * HEADER_BYTES


def test_two_parts_that_cannot_meet_are_refused() -> None:
    names, links = mesh(4)
    for a, b in itertools.product((0, 1), (2, 3)):
        links[names[a]].discard(names[b])
        links[names[b]].discard(names[a])
    with pytest.raises(ClusterError, match="No chain of links"):
        make_plan(LAYOUT, names, links, Exchange.INT8)
    with pytest.raises(ClusterError):
        make_plan(LAYOUT, (), {}, Exchange.INT8)
    with pytest.raises(ClusterError):
        make_plan(LAYOUT, ("a", "a"), {"a": {"a"}}, Exchange.INT8)


def test_state_is_no_flow_of_a_step() -> None:
    plan = make_plan(LAYOUT, *mesh(2), Exchange.INT8)
    flow = next(plan.flows())
    with pytest.raises(ClusterError):
        plan.flow_bytes(type(flow)(Kind.STATE, 0, 0, 1))
    assert plan.catch_up_bytes == LAYOUT.elements + 65
