"""The whole exchange with real bytes: frames, reassembly, arithmetic, residuals, lost devices.

`Exchanger` is a host that does with plain integers what a page does with kernels.  Whatever the
room lives through, each committed step must reduce to what the NumPy oracle makes of the
contributions and of the residuals that committed steps left behind, to the bit.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import oracle_exchange as oracle
import pytest
from cluster_world import World, with_settings
from toy_device import Device

from daisychain.cluster import effects, events
from daisychain.cluster.effects import WorkKind
from daisychain.cluster.exchange import (
    NO_EXPONENT,
    Exchange,
    Row,
    agree,
    align,
    pack,
    quantise,
    reduce_row,
    row_exponent,
    unpack,
)
from daisychain.cluster.reassembly import Reassembler, Verdict, awaited_flows
from daisychain.cluster.reduce_plan import (
    PAYLOAD_BYTES,
    Flow,
    Kind,
    Layout,
    ReducePlan,
    Rows,
    framed_bytes,
)
from daisychain.cluster.wire import Frame, encode_header, frame_count

LAYOUT = Layout(((Rows("head", 5, 8), Rows("norm", 1, 8)), (Rows("embedding", 7, 6),)))
COLUMNS = [[t.columns for t in bucket for _ in range(t.rows)] for bucket in LAYOUT.buckets]
EXPONENT = -40
RowTable = dict[tuple[int, int], Row]
"""Rows by bucket and row number."""


def gradient(weights: int, first: int, micro: int) -> RowTable:
    """The summed gradient of some slices: ints of very different sizes from row to row."""
    table = {}
    for b, columns in enumerate(COLUMNS):
        for r, size in enumerate(columns):
            total = [0] * size
            for k in range(first, first + micro):
                pick = random.Random(f"{weights} {k} {b} {r}")
                scale = 1 << pick.randrange(26)
                total = [t + pick.randint(-scale, scale) for t in total]
            table[b, r] = Row(tuple(total), EXPONENT)
    return table


def signed(data: bytes) -> list[int]:
    return [(byte ^ 128) - 128 for byte in data]


@dataclass
class Books:
    """One attempt with all its bytes."""

    begun: effects.BeginAttempt
    inbox: Reassembler
    rows: RowTable
    agreed: dict[tuple[int, int], int] = field(default_factory=dict)
    sent: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    up: RowTable = field(default_factory=dict)
    down: RowTable = field(default_factory=dict)
    reduced: dict[tuple[int, int], tuple[tuple[int, ...], int]] = field(default_factory=dict)
    bytes_out: int = 0
    bytes_in: int = 0


class Exchanger(Device):
    """A host with real exchange bytes."""

    def __init__(self, world: World, me: str) -> None:
        super().__init__(world, me)
        self.books: Books | None = None
        self.up = self.zeros()
        self.down = self.zeros()
        self.cut: tuple[object, ...] = ()
        self.passed_on = 0

    @staticmethod
    def zeros() -> RowTable:
        return {
            (b, r): Row.zeros(size)
            for b, columns in enumerate(COLUMNS)
            for r, size in enumerate(columns)
        }

    def owned(self, plan: ReducePlan, bucket: int, owner: int) -> list[tuple[int, int]]:
        shard = plan.shard(bucket, owner)
        return [(bucket, r) for r in range(shard.first_row, shard.first_row + shard.rows)]

    def do_BeginAttempt(self, effect: effects.BeginAttempt) -> None:
        proposal, plan, share = effect.proposal, effect.plan, effect.share
        key = (proposal.step, proposal.epoch)
        inbox = Reassembler(*key, awaited_flows(plan, effect.me), 1 << 20)
        rows = {
            at: align(row, self.up[at])
            for at, row in gradient(self.weights, share.first, share.micro).items()
        }
        assert self.books is None
        self.books = Books(effect, inbox, rows)
        ms = self.micro_ms * share.micro
        for bucket in range(len(COLUMNS)):
            self.later(ms - 10 * (2 - bucket), events.BucketReady(*key, bucket))
        self.later(ms, events.ComputeDone(*key, share.micro, 1, ms, "0" * 32))

    def do_AbortAttempt(self, effect: effects.AbortAttempt) -> None:
        assert self.books is not None
        self.books = None

    def payload(self, books: Books, flow: Flow) -> bytes:
        plan, me = books.begun.plan, books.begun.me
        mode = plan.mode
        limit = mode.up_limit(len(plan.members))
        if flow.kind is Kind.EXPONENTS_UP:
            rows = self.owned(plan, flow.bucket, flow.target)
            return bytes(row_exponent(books.rows[at], limit) & 255 for at in rows)
        if flow.kind is Kind.EXPONENTS_DOWN:
            rows = self.owned(plan, flow.bucket, me)
            return bytes(books.agreed[at] & 255 for at in rows)
        if flow.kind is Kind.GRADIENT_UP:
            rows = self.owned(plan, flow.bucket, flow.target)
            return pack(mode, [q for at in rows for q in books.sent[at]])
        rows = self.owned(plan, flow.bucket, me)
        exponents = bytes(books.reduced[at][1] & 255 for at in rows)
        down = Exchange.INT8 if mode is Exchange.INT4 else mode
        return exponents + pack(down, [q for at in rows for q in books.reduced[at][0]])

    def do_SendFlow(self, effect: effects.SendFlow) -> None:
        books, flow = self.books, effect.flow
        assert books is not None
        plan, data = books.begun.plan, self.payload(books, flow)
        assert len(data) == plan.flow_bytes(flow)
        frames = []
        for i in range(frame_count(len(data))):
            part = data[i * PAYLOAD_BYTES : (i + 1) * PAYLOAD_BYTES]
            head = Frame(
                flow.kind,
                effect.step,
                effect.epoch,
                flow.bucket,
                flow.origin,
                flow.target,
                plan.first(flow),
                len(data),
                i,
            )
            frames.append(encode_header(head, part) + part)
        books.bytes_out += sum(map(len, frames))
        assert sum(map(len, frames)) == framed_bytes(len(data))
        key = (effect.step, effect.epoch)
        self.world.post_flow(self.me, plan, key, flow, frames)  # type: ignore[arg-type]

    def flow_came(self, key: tuple[int, int], flow: Flow, value: Any) -> None:
        if not self.live or self.books is None:
            return
        for frame in value:
            self.books.bytes_in += len(frame)
            verdict, whole = self.books.inbox.add(frame)
            if verdict is Verdict.COMPLETE:
                assert whole == flow
                self.give(events.FlowReceived(*key, flow))
                if self.books is None:
                    return

    def take(self, books: Books, kind: Kind, bucket: int, origin: int) -> bytes:
        return books.inbox.take(Flow(kind, bucket, origin, books.begun.me))

    def do_Work(self, effect: effects.Work) -> None:
        books, bucket = self.books, effect.bucket
        assert books is not None
        plan, me = books.begun.plan, books.begun.me
        others = [i for i in range(len(plan.members)) if i != me]
        limit = plan.mode.up_limit(len(plan.members))
        if effect.work is WorkKind.MERGE_EXPONENTS:
            mine = self.owned(plan, bucket, me)
            told = [[row_exponent(books.rows[at], limit) for at in mine]]
            told += [signed(self.take(books, Kind.EXPONENTS_UP, bucket, i)) for i in others]
            books.agreed.update(zip(mine, agree(told), strict=True))
        elif effect.work is WorkKind.QUANTISE:
            for owner in plan.owners:
                rows = self.owned(plan, bucket, owner)
                if owner != me:
                    told = signed(self.take(books, Kind.EXPONENTS_DOWN, bucket, owner))
                    books.agreed.update(zip(rows, told, strict=True))
                for at in rows:
                    books.sent[at], books.up[at] = quantise(books.rows[at], books.agreed[at], limit)
        else:
            self.reduce(books, bucket, others)
        self.later(1, events.WorkDone(effect.step, effect.epoch, effect.work, bucket))

    def reduce(self, books: Books, bucket: int, others: list[int]) -> None:
        plan, me = books.begun.plan, books.begun.me
        mine = self.owned(plan, bucket, me)
        elements = plan.shard(bucket, me).elements
        parts = [[q for at in mine for q in books.sent[at]]]
        for i in others:
            data = self.take(books, Kind.GRADIENT_UP, bucket, i)
            parts.append(list(unpack(plan.mode, data, elements)))
        total = [sum(column) for column in zip(*parts, strict=True)] if elements else []
        cut = (plan.members, plan.owners, plan.mode)
        for at in mine:
            size = COLUMNS[bucket][at[1]]
            row, total = total[:size], total[size:]
            left = self.down[at] if self.cut == cut else Row.zeros(size)
            mantissas, exponent, books.down[at] = reduce_row(plan.mode, row, books.agreed[at], left)
            books.reduced[at] = mantissas, exponent

    def do_HashReduced(self, effect: effects.HashReduced) -> None:
        books = self.books
        assert books is not None
        plan, me = books.begun.plan, books.begun.me
        down = Exchange.INT8 if plan.mode is Exchange.INT4 else plan.mode
        for bucket in range(len(COLUMNS)):
            for owner in plan.owners:
                if owner == me:
                    continue
                data = self.take(books, Kind.GRADIENT_DOWN, bucket, owner)
                rows = self.owned(plan, bucket, owner)
                exponents = signed(data[: len(rows)])
                values = list(unpack(down, data[len(rows) :], plan.shard(bucket, owner).elements))
                for at, exponent in zip(rows, exponents, strict=True):
                    size = COLUMNS[bucket][at[1]]
                    books.reduced[at] = tuple(values[:size]), exponent
                    del values[:size]
        text = repr(sorted(books.reduced.items())).encode()
        digest = hashlib.blake2b(text, digest_size=16).hexdigest()
        done = events.ReducedHashed(
            effect.step, effect.epoch, digest, (effect.tokens,), books.bytes_out, books.bytes_in
        )
        self.later(1, done)

    def do_Apply(self, effect: effects.Apply) -> None:
        at = self.node.core.committed
        assert at is not None
        assert effect.step == self.step + 1
        if effect.catch_up:
            reduced = self.catch_ups.pop(effect.step)
        else:
            books = self.books
            assert books is not None
            plan = books.begun.plan
            self.up.update(books.up)
            cut = (plan.members, plan.owners, plan.mode)
            self.down = books.down if self.cut != cut else {**self.down, **books.down}
            self.down = {**self.zeros(), **self.down}
            self.cut = cut
            reduced = int.from_bytes(
                hashlib.blake2b(repr(sorted(books.reduced.items())).encode()).digest()[:8], "big"
            )
            assert isinstance(self.world, ExchangeWorld)
            self.world.check(books, self.weights, effect.step)
        self.books = None
        self.weights = hash((self.weights, reduced)) & ((1 << 64) - 1)
        self.step, self.cursor = effect.step, at.cursor
        self.reduced[effect.step] = reduced
        self.later(2, events.Applied(effect.step, self.weights_hash()))

    def do_UseState(self, effect: effects.UseState) -> None:
        self.step, self.weights, self.cursor = self.loaded
        self.up, self.down, self.cut = self.zeros(), self.zeros(), ()
        assert isinstance(self.world, ExchangeWorld)
        self.world.up[self.me] = {}


class ExchangeWorld(World):
    """A world of exchangers, and the oracle that follows their committed steps."""

    def __init__(self, seed: int, mode: Exchange) -> None:
        super().__init__(
            seed, layout=LAYOUT, settings=with_settings(exchange=mode, exchange_alone=True)
        )
        self.up: dict[str, dict[tuple[int, int], tuple[Any, int]]] = {}
        self.down: dict[tuple[int, int], tuple[Any, int]] = {}
        self.cut: tuple[object, ...] = ()
        self.checked: dict[int, dict[tuple[int, int], tuple[tuple[int, ...], int]]] = {}
        self.traffic: list[float] = []

    def make(self, me: str) -> Device:
        return Exchanger(self, me)

    def check(self, books: Books, weights: int, step: int) -> None:
        """Equal on all devices, and what the oracle says."""
        if step in self.checked:
            assert self.checked[step] == books.reduced
            return
        self.checked[step] = dict(books.reduced)
        self.steps_seen = step
        plan, proposal = books.begun.plan, books.begun.proposal
        mode, count = plan.mode, len(plan.members)
        cut = (plan.members, plan.owners, mode)
        if self.cut != cut:
            self.down, self.cut = {}, cut
        parts = {s.id: gradient(weights, s.first, s.micro) for s in proposal.shares}
        for at in books.reduced:
            size = COLUMNS[at[0]][at[1]]
            none = (np.zeros(size, np.int64), 0)
            rows = {
                who: oracle.align(
                    np.array(g[at].mantissas), EXPONENT, *self.residual(who, at, none)
                )
                for who, g in parts.items()
            }
            limit = mode.up_limit(count)
            agreed = max(oracle.exponent(*row, limit) for row in rows.values())
            total = np.zeros(size, np.int64)
            for who, row in rows.items():
                q, rest, e = oracle.quantise(*row, agreed, limit)
                self.up.setdefault(who, {})[at] = (rest, e)
                total += q
            if mode is Exchange.INT16:
                expected = (tuple(total.tolist()), agreed if total.any() else NO_EXPONENT)
            else:
                start = 0 if agreed == NO_EXPONENT else agreed
                row = oracle.align(total, start, *self.down.get(at, none))
                exponent = oracle.exponent(*row, 127)
                q, rest, e = oracle.quantise(*row, exponent, 127)
                self.down[at] = (rest, e)
                expected = (tuple(q.tolist()), exponent)
            assert books.reduced[at] == expected, f"step {step}, row {at}"

    def residual(self, who: str, at: tuple[int, int], none: tuple[Any, int]) -> tuple[Any, int]:
        return self.up.get(who, {}).get(at, none)

    @property
    def steps(self) -> int:
        return max(self.checked, default=0)


def room(size: int, mode: Exchange, seed: int = 3) -> ExchangeWorld:
    world = ExchangeWorld(seed, mode)
    world.room(size)
    return world


def full(world: ExchangeWorld, size: int, step: int) -> bool:
    return world.steps >= step and len(world.alive()[0].node.core.roster) == size


@pytest.mark.parametrize("mode", [Exchange.INT8, Exchange.INT4, Exchange.INT16])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_step_is_the_oracles(size: int, mode: Exchange) -> None:
    world = room(size, mode)
    assert world.run_until(lambda: full(world, size, 8), 20_000)
    assert len({device.weights for device in world.alive() if device.step == world.steps}) == 1


def test_what_is_sent_is_what_the_plan_says() -> None:
    world = room(4, Exchange.INT8)
    assert world.run_until(lambda: full(world, 4, 5), 20_000)
    world.run(1_000)
    log = world.devices["a"].logs[-1]
    plan = next(d.books.begun.plan for d in world.alive() if isinstance(d, Exchanger) and d.books)
    for row, traffic in zip(log.contributions, plan.traffic(), strict=True):
        assert (row.sent_bytes, row.received_bytes) == (traffic.sent, traffic.received)


@pytest.mark.parametrize("mode", [Exchange.INT8, Exchange.INT4])
def test_frames_are_forwarded_when_two_cannot_meet(mode: Exchange) -> None:
    world = ExchangeWorld(3, mode)
    world.cuts.update({frozenset("bc"), frozenset("cd")})
    world.room(4)
    assert world.run_until(lambda: full(world, 4, 6), 30_000)


@pytest.mark.parametrize("seed", range(12))
def test_residuals_survive_aborted_steps(seed: int) -> None:
    """A device vanishes at a random message: the step is repeated with the old residuals."""
    world = room(4, Exchange.INT8, seed)
    assert world.run_until(lambda: full(world, 4, 3), 20_000)
    start, after = world.posted, random.Random(seed).randrange(200)
    victim = "abcd"[seed % 4]

    def watch(source: str, link: str, what: object) -> None:
        if world.posted - start > after and source == victim:
            world.on_post = None
            world.crash(victim, notice=True)

    world.on_post = watch
    step = world.steps
    assert world.run_until(lambda: not world.devices[victim].live, 10_000)
    assert world.run_until(lambda: world.steps > step + 3, 20_000)
    world.add("e").give(events.Run())
    assert world.run_until(lambda: "e" in world.alive()[0].node.core.roster, 20_000)
    assert world.run_until(lambda: world.steps > step + 8, 20_000)


def test_flipped_frames_and_duplicates_do_not_reach_the_sum() -> None:
    world = room(3, Exchange.INT8)
    assert world.run_until(lambda: full(world, 3, 3), 20_000)
    post = world.post_flow
    pick = random.Random(1)

    def noisy(source: str, plan: ReducePlan, key: Any, flow: Flow, value: Any) -> None:
        bad = bytearray(value[0])
        bad[pick.randrange(len(bad))] ^= 1 << pick.randrange(8)
        frames = [bytes(bad), value[0][:-1], *value, value[0]]
        post(source, plan, key, flow, frames)  # type: ignore[arg-type]

    world.post_flow = noisy  # type: ignore[method-assign, assignment]
    step = world.steps
    assert world.run_until(lambda: world.steps > step + 4, 20_000)
    assert len({device.weights for device in world.alive() if device.step == world.steps}) == 1
