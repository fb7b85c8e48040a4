"""A simulated device of `cluster_world`: the real state machine over a toy model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from daisychain.cluster import effects, events
from daisychain.cluster.effects import Mode, WorkKind
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.protocol import Node
from daisychain.cluster.reduce_plan import Flow, Kind, Layout, ReducePlan, Rows
from daisychain.cluster.times import Times

if TYPE_CHECKING:
    from cluster_world import World

MASK = (1 << 64) - 1
LEAVES = 200

FAST_TIMES = Times(
    suspect_ms=2_500,
    deadline_floor_ms=3_000,
    first_deadline_ms=4_000,
    first_step_hold_ms=1_000,
    backlog_bytes=0,
    election_ms=400,
    rejoin_ms=1_200,
    join_retry_ms=1_200,
    return_ms=4_000,
    longest_return_ms=16_000,
    transfer_stall_ms=2_000,
    loading_limit_ms=20_000,
    hold_ms=6_000,
    halt_wait_ms=1_500,
)
TOY_LAYOUT = Layout(((Rows("head", 4, 64),), (Rows("body", 6, 64), Rows("norm", 1, 64))))
ONE_BUCKET = Layout(((Rows("head", 4, 64), Rows("body", 6, 64), Rows("norm", 1, 64)),))


def mix(*numbers: int) -> int:
    """A 64-bit hash of integers."""
    h = 0x9E3779B97F4A7C15
    for number in numbers:
        h = ((h ^ (number & MASK)) * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) & MASK
        h ^= h >> 29
    return h


def hex128(*numbers: int) -> str:
    """A 128-bit hash as the protocol writes it."""
    return f"{mix(1, *numbers):016x}{mix(2, *numbers):016x}"


def leaves_of(weights: int, flipped: int | None) -> tuple[str, ...]:
    """Leaf hashes of the toy weights; ``flipped`` is a leaf that differs."""
    return tuple(
        blake2b(f"{weights} {i} {i == flipped}".encode(), digest_size=16).hexdigest()
        for i in range(LEAVES)
    )


@dataclass
class Decided:
    """What a committed step is, as first seen on any device."""

    epoch: int
    reduced_hash: str
    weights: int
    cursor: int
    roster: tuple[str, ...]


@dataclass
class Work:
    """A toy host's books for one attempt."""

    begun: effects.BeginAttempt
    gradient: int = 0
    parts: dict[tuple[int, int], int] = field(default_factory=dict)
    came: dict[tuple[int, int], int] = field(default_factory=dict)
    sums: dict[tuple[int, int], int] = field(default_factory=dict)


class Device:
    """A node with its toy host."""

    def __init__(self, world: World, me: str) -> None:
        self.world, self.me = world, me
        self.node = Node(me, me, "toy", world.settings, world.times, world.now)
        self.live = True
        self.step = 0
        self.weights = mix(world.seed)
        self.cursor = 0
        self.residual = 0
        self.flipped: int | None = None
        self.stateless = False
        self.work: Work | None = None
        self.kept: dict[str, tuple[int, int, int]] = {}
        self.serving: dict[str, bool] = {}
        self.queued: dict[str, list[tuple[int, int]]] = {}
        self.reduced: dict[int, int] = {}
        self.alone = False
        self.fetch: effects.FetchState | None = None
        self.loaded = (0, 0, 0)
        self.catch_ups: dict[int, int] = {}
        self.awaited = ("", 0)  # whose steps after which one: what was not announced is dropped
        self.micro_ms = 400
        self.corrupt: Callable[[Flow, int], int] | None = None
        self.lie: Callable[[str], str] | None = None
        self.serve_wrong = False
        self.halted: effects.Halted | None = None
        self.notices: list[effects.Notice] = []
        self.logs: list[effects.Log] = []
        self.begun: set[tuple[int, int]] = set()

    # ------------------------------------------------------------------------- what it hashes

    def weights_hash(self) -> str:
        value = hex128(self.weights, -1 if self.flipped is None else self.flipped)
        return self.lie(value) if self.lie else value

    def state_hash(self) -> str:
        return hex128(self.weights, self.cursor, 7)

    # ------------------------------------------------------------------------ carrying out

    def give(self, event: events.Event) -> None:
        if self.live:
            self.carry_out(self.node.handle(event, self.world.now))

    def later(self, ms: int, event: events.Event) -> None:
        self.world.at(self.world.now + ms, self.give, event)

    def carry_out(self, wanted: Iterable[effects.Effect]) -> None:
        for effect in wanted:
            if self.live:
                getattr(self, "do_" + type(effect).__name__)(effect)

    def lose_state(self) -> None:
        """The weights are gone, unless this device is alone: then it computes them again."""
        if self.node.core.roster == (self.me,):
            self.give(events.Away("lost"))
        else:
            self.weights, self.stateless = mix(self.world.seed, self.step, 13), True
            self.give(events.StateLost("lost"))

    def do_Send(self, effect: effects.Send) -> None:
        self.world.post(self.me, effect.link, effect.envelope)

    def do_BeginAttempt(self, effect: effects.BeginAttempt) -> None:
        proposal, share = effect.proposal, effect.share
        assert proposal.step == self.step + 1, "an attempt that does not follow"
        assert self.work is None, "an attempt begun over another one"
        assert (proposal.step, proposal.epoch) not in self.begun, "an attempt begun twice"
        self.begun.add((proposal.step, proposal.epoch))
        self.work = work = Work(effect)
        slices = range(share.first, share.first + share.micro)
        work.gradient = sum(mix(self.weights, k) for k in slices) & MASK
        key, ms = (proposal.step, proposal.epoch), self.micro_ms * share.micro
        if proposal.exchange is not Exchange.NONE:
            for bucket in range(len(effect.plan.layout.buckets)):
                for owner in effect.plan.owners:
                    work.parts[bucket, owner] = work.gradient * factor(effect.plan, bucket, owner)
                self.later(ms, events.BucketReady(*key, bucket))
        raw = hex128(work.gradient)
        self.later(ms, events.ComputeDone(*key, 8 * share.micro, 5 * share.micro, ms, raw))

    def do_AbortAttempt(self, effect: effects.AbortAttempt) -> None:
        assert self.work is not None
        assert self._key() == (effect.step, effect.epoch)
        self.work = None

    def _key(self) -> tuple[int, int]:
        assert self.work is not None
        proposal = self.work.begun.proposal
        return proposal.step, proposal.epoch

    def do_SendFlow(self, effect: effects.SendFlow) -> None:
        work, flow = self.work, effect.flow
        assert work is not None
        value = 0
        if flow.kind is Kind.GRADIENT_UP:
            value = work.parts[flow.bucket, flow.target]
        elif flow.kind is Kind.GRADIENT_DOWN:
            value = work.sums[flow.bucket, flow.origin]
        if self.corrupt:
            value = self.corrupt(flow, value)
        self.world.post_flow(self.me, work.begun.plan, self._key(), flow, value)

    def flow_came(self, key: tuple[int, int], flow: Flow, value: int) -> None:
        if not self.live or self.work is None or self._key() != key:
            return
        if flow.kind is Kind.GRADIENT_UP:
            self.work.came.setdefault((flow.bucket, flow.origin), value)
        elif flow.kind is Kind.GRADIENT_DOWN:
            self.work.sums.setdefault((flow.bucket, flow.origin), value)
        self.give(events.FlowReceived(*key, flow))

    def do_Work(self, effect: effects.Work) -> None:
        work = self.work
        assert work is not None
        me, bucket = work.begun.me, effect.bucket
        if effect.work is WorkKind.REDUCE:
            came = [v for (b, _), v in work.came.items() if b == bucket]
            assert len(came) == len(work.begun.plan.members) - 1
            work.sums[bucket, me] = (work.parts[bucket, me] + sum(came)) & MASK
        self.later(1, events.WorkDone(effect.step, effect.epoch, effect.work, bucket))

    def do_HashReduced(self, effect: effects.HashReduced) -> None:
        work = self.work
        assert work is not None
        reduced = self._reduced(work)
        plan = work.begun.plan
        agree = all(
            value & MASK == reduced * factor(plan, bucket, owner) & MASK
            for (bucket, owner), value in work.sums.items()
        )
        done = events.ReducedHashed(
            effect.step,
            effect.epoch,
            hex128(reduced, *(() if agree else work.sums.values())),
            (effect.tokens, reduced & 0xFFFFFFFF),
            100,
            100,
        )
        self.later(1, done)

    def _reduced(self, work: Work) -> int:
        if work.begun.proposal.exchange is Exchange.NONE:
            return work.gradient
        return work.sums[0, work.begun.plan.owners[0]] & MASK

    def do_Apply(self, effect: effects.Apply) -> None:
        assert effect.step == self.step + 1, "a step applied twice or out of order"
        if effect.catch_up:
            reduced = self.catch_ups.pop(effect.step)
        else:
            assert self.work is not None
            assert self._key() == (effect.step, effect.epoch)
            reduced = self._reduced(self.work)
            self.residual = mix(self.residual, effect.step, effect.epoch)
        self.work = None
        at = self.node.core.committed
        assert at is not None
        assert at.step == effect.step
        self.world.applied(self, effect, at.reduced_hash, reduced, at.cursor, at.roster)
        self.step, self.cursor = effect.step, at.cursor
        self.weights = mix(self.weights, reduced)
        self.reduced[effect.step] = reduced
        self.alone = effect.exchange is Exchange.NONE
        self.reduced.pop(effect.step - 40, None)
        self.world.at(self.world.now + 2, self._applied, effect.step, self.weights_hash())

    def _applied(self, step: int, weights_hash: str) -> None:
        if not self.stateless:
            self.give(events.Applied(step, weights_hash))

    def do_Log(self, effect: effects.Log) -> None:
        self.logs.append(effect)

    def do_HashState(self, effect: effects.HashState) -> None:
        assert effect.step == self.step
        self.later(1, events.StateHashed(effect.step, self.state_hash()))

    def do_KeepState(self, effect: effects.KeepState) -> None:
        assert effect.step == self.step
        wrong = 1 if self.serve_wrong else 0
        self.kept[effect.joiner] = (self.step, self.weights + wrong, self.cursor)
        self.serving[effect.joiner] = False
        self.queued[effect.joiner] = []

    def do_ServeState(self, effect: effects.ServeState) -> None:
        kept = self.kept.get(effect.joiner)
        if kept is None:  # it asks for what was never set aside
            return
        self.serving[effect.joiner] = True
        self.world.post_bulk(self.me, effect.joiner, ("state", *kept))
        for item in self.queued.pop(effect.joiner, []):
            self.world.post_bulk(self.me, effect.joiner, ("catch-up", *item))

    def do_ServePlan(self, effect: effects.ServePlan) -> None:
        """Toys have no data."""

    def do_ServeFooter(self, effect: effects.ServeFooter) -> None:
        self.give(events.FooterRead(effect.peer, effect.file, effect.part, 0, ""))

    def do_FooterCame(self, effect: effects.FooterCame) -> None:
        raise AssertionError("a toy asks for no footers")

    def do_SendCatchUp(self, effect: effects.SendCatchUp) -> None:
        assert not self.alone, "the gradient of a step alone is not kept"
        item = (effect.step, self.reduced[effect.step])
        if self.serving.get(effect.joiner, True):
            self.world.post_bulk(self.me, effect.joiner, ("catch-up", *item))
        else:
            self.queued[effect.joiner].append(item)

    def do_StopServing(self, effect: effects.StopServing) -> None:
        for table in (self.kept, self.serving, self.queued):
            table.pop(effect.joiner, None)

    def do_FetchState(self, effect: effects.FetchState) -> None:
        self.fetch = effect
        self._expect(effect)
        if effect.step == 0:
            self._load(0, mix(self.world.seed), 0)

    def do_AwaitSteps(self, effect: effects.AwaitSteps) -> None:
        assert effect.step == self.step
        self.fetch = None
        self._expect(effect)

    def _expect(self, effect: effects.FetchState | effects.AwaitSteps) -> None:
        self.awaited = (effect.source, effect.step)
        self.catch_ups.clear()

    def bulk_came(self, source: str, what: tuple[Any, ...]) -> None:
        if not self.live:
            return
        kind, step, *rest = what
        if kind == "catch-up":
            if source == self.awaited[0] and step > self.awaited[1]:
                self.catch_ups[step] = rest[0]
                self.give(events.CatchUpReceived(step))
        elif self.fetch is not None and (self.fetch.source, self.fetch.step) == (source, step):
            self._load(step, *rest)

    def _load(self, step: int, weights: int, cursor: int) -> None:
        self.fetch = None
        loading = (self.step, self.weights, self.cursor)
        self.step, self.weights, self.cursor = step, weights, cursor
        hashes = (self.state_hash() if step else self.weights_hash(), self.weights_hash())
        self.step, self.weights, self.cursor = loading
        self.loaded = (step, weights, cursor)
        loaded = events.StateLoaded(step, *hashes, self.world.layout, self.world.settings)
        self.later(5, loaded)

    def do_UseState(self, effect: effects.UseState) -> None:
        assert self.work is None
        assert self.loaded[0] == effect.step
        self.step, self.weights, self.cursor = self.loaded
        self.flipped, self.residual, self.stateless = None, 0, False

    def do_ReadLeaves(self, effect: effects.ReadLeaves) -> None:
        leaves = leaves_of(self.weights, self.flipped)
        self.later(1, events.LeavesRead(effect.step, leaves))

    def do_AskApproval(self, effect: effects.AskApproval) -> None:
        self.later(50, events.Approve(effect.peer, self.world.welcoming))

    def do_CloseLink(self, effect: effects.CloseLink) -> None:
        """What that tells this device comes behind the effects that are being carried out."""
        self.world.at(self.world.now, self.world.cut, self.me, effect.peer)

    def do_Notice(self, effect: effects.Notice) -> None:
        self.notices.append(effect)

    def do_ModeChanged(self, effect: effects.ModeChanged) -> None:
        pass

    def do_Halted(self, effect: effects.Halted) -> None:
        self.halted = effect

    @property
    def mode(self) -> Mode:
        return self.node.core.mode


def factor(plan: ReducePlan, bucket: int, owner: int) -> int:
    """The odd number by which a shard's toy gradient is told from another's; 1 for the first."""
    return 2 * (bucket * len(plan.owners) + plan.owners.index(owner)) + 1
