"""Frames back into flows: any order, duplicates, damage, bounded memory, names of the missing."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from daisychain.cluster.exchange import Exchange
from daisychain.cluster.reassembly import Awaited, Ledger, Reassembler, Verdict, awaited_flows
from daisychain.cluster.reduce_plan import (
    PAYLOAD_BYTES,
    Flow,
    Kind,
    Layout,
    ReducePlan,
    Rows,
    make_plan,
)
from daisychain.cluster.wire import Frame, encode_header, frame_count
from daisychain.errors import ClusterError

NAMES = ("a", "b", "c")
LINKS = {name: set(NAMES) - {name} for name in NAMES}
PLAN = make_plan(Layout(((Rows("w", 3000, 4096),),)), NAMES, LINKS, Exchange.INT8)


def frames_of(plan: ReducePlan, flow: Flow, data: bytes, step: int = 5) -> list[bytes]:
    out = []
    for i in range(frame_count(len(data))):
        part = data[i * PAYLOAD_BYTES : (i + 1) * PAYLOAD_BYTES]
        head = Frame(
            flow.kind,
            step,
            64,
            flow.bucket,
            flow.origin,
            flow.target,
            plan.first(flow),
            len(data),
            i,
        )
        out.append(encode_header(head, part) + part)
    return out


def test_a_large_gradient_reordered_with_duplicates_is_exact() -> None:
    """Over 8 MB in frames of 64 KiB, shuffled, some twice."""
    pick = random.Random(1)
    flows = awaited_flows(PLAN, 0)
    book = Reassembler(5, 64, flows, 1 << 25)
    data = {flow: pick.randbytes(awaited.total) for flow, awaited in flows.items()}
    frames = [frame for flow in flows for frame in frames_of(PLAN, flow, data[flow])]
    frames += pick.sample(frames, 20)
    pick.shuffle(frames)
    assert sum(map(len, frames)) > 8_000_000
    done = [flow for verdict, flow in map(book.add, frames) if verdict is Verdict.COMPLETE]
    assert sorted(done) == sorted(flows)
    assert book.verdicts[Verdict.DUPLICATE] == 20
    assert book.missing() == {}
    for flow in flows:
        assert book.take(flow) == data[flow]


def test_the_missing_peer_is_named() -> None:
    flows = awaited_flows(PLAN, 0)
    book = Ledger(5, 64, flows, 1 << 25)
    lost = Flow(Kind.GRADIENT_UP, 0, 2, 0)
    for flow, awaited in flows.items():
        for i in range(frame_count(awaited.total)):
            if flow != lost or i != 7:
                book.accept(
                    Frame(flow.kind, 5, 64, 0, flow.origin, 0, awaited.first, awaited.total, i)
                )
    assert book.missing() == {lost: 1}
    assert [NAMES[i] for i in book.missing_origins()] == ["c"]


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"step": 6}, Verdict.OUT_OF_STEP),
        ({"epoch": 63}, Verdict.OUT_OF_STEP),
        ({"origin": 0}, Verdict.UNEXPECTED),
        ({"origin": 9}, Verdict.UNEXPECTED),
        ({"target": 1}, Verdict.UNEXPECTED),
        ({"bucket": 1}, Verdict.UNEXPECTED),
        ({"kind": Kind.STATE}, Verdict.UNEXPECTED),
        ({"first": 1}, Verdict.UNEXPECTED),
        ({"total": 2_000_000_000}, Verdict.UNEXPECTED),
    ],
)
def test_frames_that_do_not_belong(change: dict[str, int], verdict: Verdict) -> None:
    flows = awaited_flows(PLAN, 0)
    flow, awaited = next((f, a) for f, a in flows.items() if f.kind is Kind.GRADIENT_UP)
    values = {
        "kind": flow.kind,
        "step": 5,
        "epoch": 64,
        "bucket": 0,
        "origin": flow.origin,
        "target": 0,
        "first": awaited.first,
        "total": awaited.total,
        "sequence": 0,
    }
    book = Ledger(5, 64, flows, 1 << 25)
    assert book.accept(Frame(**{**values, **change})) is verdict  # type: ignore[arg-type]
    assert book.accept(Frame(**values)) is Verdict.STORED  # type: ignore[arg-type]


def test_damaged_and_truncated_frames_are_dropped_and_counted() -> None:
    flow = next(f for f in awaited_flows(PLAN, 0) if f.kind is Kind.EXPONENTS_UP)
    book = Reassembler(5, 64, awaited_flows(PLAN, 0), 1 << 25)
    (frame,) = frames_of(PLAN, flow, bytes(PLAN.flow_bytes(flow)))
    flipped = bytearray(frame)
    flipped[40] ^= 1
    for bad in (b"", frame[:20], frame[:-1], frame + b"x", bytes(flipped)):
        assert book.add(bad) == (Verdict.MALFORMED, None)
    with pytest.raises(ClusterError):
        book.take(flow)
    assert book.add(frame) == (Verdict.COMPLETE, flow)
    assert book.verdicts[Verdict.MALFORMED] == 5


def test_no_header_allocates_more_than_was_agreed() -> None:
    with pytest.raises(ClusterError):
        Ledger(5, 64, awaited_flows(PLAN, 0), 1_000_000)
    book = Reassembler(5, 64, awaited_flows(PLAN, 0), 1 << 25)
    tracemalloc.start()
    for kind in Kind:
        for origin in range(3):
            head = Frame(kind, 5, 64, 0, origin, 0, 0, (1 << 32) - 1, 0)
            payload = bytes(PAYLOAD_BYTES)
            book.add(encode_header(head, payload) + payload)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000


def test_an_empty_flow_is_one_empty_frame() -> None:
    flow = Flow(Kind.CATCH_UP, 0, 0, 0)
    book = Reassembler(5, 64, {flow: Awaited(0, 0)}, 0)
    head = Frame(Kind.CATCH_UP, 5, 64, 0, 0, 0, 0, 0, 0)
    assert book.add(encode_header(head, b"")) == (Verdict.COMPLETE, flow)
    assert book.take(flow) == b""
