"""A step as each member goes through it: begin, compute, exchange, guard, then commit or abort.

The exchange of a bucket is driven by four sets of members (`state.Bucket`), each filled by the
flows of one kind; when a set is full the next local work is asked for, and when that is done its
result is sent.  A flow waits until its receiver has said `Began`, so no frame meets closed books.
"""

from __future__ import annotations

from daisychain.cluster.effects import (
    AbortAttempt,
    Apply,
    BeginAttempt,
    Contribution,
    HashReduced,
    Log,
    Mode,
    SendCatchUp,
    SendFlow,
    StopServing,
    Work,
    WorkKind,
)
from daisychain.cluster.events import (
    BucketReady,
    ComputeDone,
    FlowReceived,
    ReducedHashed,
    WorkDone,
)
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.fields import Reason
from daisychain.cluster.reduce_plan import Flow, Kind, ReducePlan, make_plan
from daisychain.cluster.room_messages import CatchUp
from daisychain.cluster.state import HISTORY, Attempt, Bucket, Committed, Core
from daisychain.cluster.step_messages import (
    Began,
    Commit,
    Computed,
    Decline,
    Exchanged,
    Guard,
    Propose,
)


def plan_of(core: Core, proposal: Propose) -> ReducePlan:
    """The reduce plan of a proposal; ClusterError if its members cannot reach each other."""
    assert core.layout is not None
    roster = proposal.roster
    links = {
        member: [peer for j, peer in enumerate(roster) if proposal.links[i] >> j & 1]
        for i, member in enumerate(roster)
    }
    return make_plan(core.layout, roster, links, proposal.exchange)


def begin(core: Core, leader: str, proposal: Propose) -> None:
    """Start on a proposal that has passed all checks."""
    plan = plan_of(core, proposal)
    roster = proposal.roster
    me = roster.index(core.me)
    buckets = 0 if proposal.exchange is Exchange.NONE else len(plan.layout.buckets)
    deadline = core.times.step_deadline_ms(core.step_ms)
    core.attempt = Attempt(
        proposal,
        leader,
        plan,
        me,
        core.now,
        core.now + 2 * deadline + core.times.suspect_ms,
        roster,
        [Bucket() for _ in range(buckets)],
        buckets,
        began={core.me},
    )
    core.running = True  # whoever succeeds the leader goes on
    core.do(BeginAttempt(proposal, plan, me, proposal.shares[me]))
    tell_began(core, core.attempt)
    early, core.early = list(core.early), type(core.early)(maxlen=core.early.maxlen)
    for source, message in early:
        match message:
            case Began():
                on_began(core, source, message)
            case Computed():
                on_computed(core, source, message)


def tell_began(core: Core, attempt: Attempt) -> None:
    """Tell all members of the attempt that frames may come."""
    others = tuple(member for member in attempt.roster if member != core.me)
    core.broadcast(others, Began(*attempt.key))


def on_began(core: Core, source: str, message: Began) -> None:
    """A member opened its books: what waited for it goes out."""
    attempt = _attempt_of(core, source, message)
    if attempt is None or source in attempt.began:
        return
    attempt.began.add(source)
    waiting, attempt.waiting = attempt.waiting, []
    for flow in waiting:
        _send_flow(core, attempt, flow)


def on_computed(core: Core, source: str, message: Computed) -> None:
    """A member's part of the step is done and what it was made of."""
    attempt = _attempt_of(core, source, message)
    if attempt is not None and source not in attempt.computed:
        attempt.computed[source] = message
        _hash_when_complete(core, attempt)


def compute_done(core: Core, event: ComputeDone) -> None:
    """This device's micro-batches are done."""
    attempt = core.attempt
    if attempt is None or attempt.key != (event.step, event.epoch) or attempt.computed_ms:
        return
    attempt.computed_ms = core.now
    done = Computed(
        event.step, event.epoch, event.tokens, event.loss, event.compute_ms, event.raw_hash
    )
    core.broadcast(attempt.roster, done)


def bucket_ready(core: Core, event: BucketReady) -> None:
    """The row exponents of a bucket are known here: they go to the owners."""
    attempt = core.attempt
    if attempt is None or attempt.key != (event.step, event.epoch):
        return
    if event.bucket >= len(attempt.buckets) or attempt.buckets[event.bucket].ready:
        return
    bucket = attempt.buckets[event.bucket]
    bucket.ready = True
    bucket.exponents |= 1 << attempt.me
    _send_flows(core, attempt, Kind.EXPONENTS_UP, event.bucket, attempt.plan.owners)
    _advance(core, attempt, event.bucket)


def flow_received(core: Core, event: FlowReceived) -> None:
    """All bytes of a flow of this attempt are here."""
    attempt, flow = core.attempt, event.flow
    if attempt is None or attempt.key != (event.step, event.epoch):
        return
    if flow.target != attempt.me or flow.bucket >= len(attempt.buckets):
        core.dropped["strange flow"] += 1
        return
    bucket, origin = attempt.buckets[flow.bucket], 1 << flow.origin
    match flow.kind:
        case Kind.EXPONENTS_UP:
            bucket.exponents |= origin
        case Kind.EXPONENTS_DOWN:
            bucket.agreed |= origin
        case Kind.GRADIENT_UP:
            bucket.gradients |= origin
        case Kind.GRADIENT_DOWN:
            bucket.sums |= origin
    _advance(core, attempt, flow.bucket)


def work_done(core: Core, event: WorkDone) -> None:
    """A piece of local arithmetic is done: its result goes out."""
    attempt = core.attempt
    if attempt is None or attempt.key != (event.step, event.epoch):
        return
    bucket, me = attempt.buckets[event.bucket], 1 << attempt.me
    everybody = tuple(range(len(attempt.roster)))
    match event.work:
        case WorkKind.MERGE_EXPONENTS:
            bucket.agreed |= me
            kind, targets = Kind.EXPONENTS_DOWN, everybody
        case WorkKind.QUANTISE:
            bucket.quantised = True
            bucket.gradients |= me
            kind, targets = Kind.GRADIENT_UP, attempt.plan.owners
        case WorkKind.REDUCE:
            bucket.sums |= me
            kind, targets = Kind.GRADIENT_DOWN, everybody
    _send_flows(core, attempt, kind, event.bucket, targets)
    _advance(core, attempt, event.bucket)


def _send_flows(
    core: Core, attempt: Attempt, kind: Kind, bucket: int, targets: tuple[int, ...]
) -> None:
    """One flow to each of ``targets``, each member beginning with another one of them."""
    later = sum(target < attempt.me for target in targets)
    for target in targets[later:] + targets[:later]:
        _send_flow(core, attempt, Flow(kind, bucket, attempt.me, target))


def _send_flow(core: Core, attempt: Attempt, flow: Flow) -> None:
    if flow.target == attempt.me:
        return
    if attempt.roster[flow.target] in attempt.began:
        core.do(SendFlow(*attempt.key, flow))
    else:
        attempt.waiting.append(flow)


def _advance(core: Core, attempt: Attempt, number: int) -> None:
    bucket, plan = attempt.buckets[number], attempt.plan
    if not bucket.ready:
        return
    everybody = (1 << len(plan.members)) - 1
    owners = plan.owner_mask
    owner = owners >> attempt.me & 1
    if owner and not bucket.merging and bucket.exponents == everybody:
        bucket.merging = True
        core.do(Work(*attempt.key, WorkKind.MERGE_EXPONENTS, number))
    if not bucket.quantising and bucket.agreed == owners:
        bucket.quantising = True
        core.do(Work(*attempt.key, WorkKind.QUANTISE, number))
    if owner and bucket.quantised and not bucket.reducing and bucket.gradients == everybody:
        bucket.reducing = True
        core.do(Work(*attempt.key, WorkKind.REDUCE, number))
    if bucket.quantised and not bucket.done and bucket.sums == owners:
        bucket.done = True
        attempt.open_buckets -= 1
        _hash_when_complete(core, attempt)


def _hash_when_complete(core: Core, attempt: Attempt) -> None:
    everybody = len(attempt.computed) == len(attempt.roster)
    if everybody and attempt.open_buckets == 0 and not attempt.hashing:
        attempt.hashing = True
        tokens = sum(done.tokens for done in attempt.computed.values())
        core.do(HashReduced(*attempt.key, tokens))


def reduced_hashed(core: Core, event: ReducedHashed) -> None:
    """The reduced gradient is hashed: this device is prepared and says so to the leader."""
    attempt = core.attempt
    if attempt is None or attempt.key != (event.step, event.epoch) or attempt.guard is not None:
        return
    attempt.guard = Guard(
        event.step,
        event.epoch,
        event.reduced_hash,
        event.scalars,
        core.now - attempt.computed_ms,
        event.sent_bytes,
        event.received_bytes,
    )
    core.send(attempt.leader, attempt.guard)


def abort(core: Core) -> None:
    """Drop the attempt, if there is one; nothing of it is ever applied."""
    if core.attempt is not None:
        core.do(AbortAttempt(*core.attempt.key))
        core.ended = max(core.ended, core.attempt.key)
        core.attempt = None
        core.idle_ms = core.now


def commit(core: Core, exchanged: tuple[Exchanged, ...] = (), step_ms: int = 0) -> None:
    """Apply the prepared attempt; ``exchanged`` is empty if the decision was inferred."""
    attempt, before = core.attempt, core.committed
    assert attempt is not None
    assert attempt.guard is not None
    assert before is not None
    proposal, guard = attempt.proposal, attempt.guard
    roster = proposal.roster
    core.attempt, core.joining, core.idle_ms = None, None, core.now
    core.become(Mode.MEMBER)
    core.do(Apply(*attempt.key, proposal.lr_bits, guard.scalars, proposal.exchange, catch_up=False))
    applied(core, attempt.key, guard.reduced_hash, proposal.next_cursor, roster)
    core.left.clear()
    core.bound = ""
    core.step_ms.append(step_ms or core.now - attempt.started_ms)
    rows = _contributions(attempt, exchanged)
    for row in rows:
        core.speeds.observe(row.id, row.micro, row.compute_ms)
    core.do(
        Log(
            *attempt.key,
            roster,
            rows,
            before.weights_hash,
            guard.reduced_hash,
            proposal.next_cursor,
            core.step_ms[-1],
        )
    )
    feed(core, proposal, guard)


def _contributions(attempt: Attempt, exchanged: tuple[Exchanged, ...]) -> tuple[Contribution, ...]:
    rows = []
    for i, share in enumerate(attempt.proposal.shares):
        done = attempt.computed[share.id]
        spent = exchanged[i] if exchanged else Exchanged(0, 0, 0)
        rows.append(
            Contribution(
                share.id,
                share.micro,
                done.tokens,
                done.loss,
                done.compute_ms,
                done.raw_hash,
                spent.exchange_ms,
                spent.sent_bytes,
                spent.received_bytes,
            )
        )
    return tuple(rows)


def applied(
    core: Core, key: tuple[int, int], reduced_hash: str, cursor: int, roster: tuple[str, ...]
) -> None:
    """Book a decided step; its weights hash is not known until the host has applied it."""
    core.committed = Committed(*key, reduced_hash, "", cursor, roster)
    core.known.update(roster)


def feed(core: Core, proposal: Propose, guard: Guard) -> None:
    """Pass the step just committed on to the joiners that this device feeds."""
    for joiner, since in tuple(core.feeds.items()):
        stale = proposal.step - since > 4 * core.longest_backlog()
        alone = proposal.exchange is Exchange.NONE  # an exact gradient is not kept
        if joiner in proposal.roster or stale or alone:
            del core.feeds[joiner]
            core.do(StopServing(joiner))
            continue
        told = CatchUp(
            proposal.step,
            proposal.epoch,
            proposal.lr_bits,
            proposal.exchange,
            guard.scalars,
            guard.reduced_hash,
            proposal.next_cursor,
            proposal.roster,
        )
        core.send(joiner, told)
        core.do(SendCatchUp(joiner, proposal.step))


def weights_known(core: Core, step: int, weights_hash: str) -> bool:
    """Book the hash of the weights of ``step``; False if that is not the current step."""
    at = core.committed
    if at is None or at.step != step:
        return False
    core.committed = Committed(
        at.step, at.epoch, at.reduced_hash, weights_hash, at.cursor, at.roster
    )
    core.hashes[step] = weights_hash
    core.hashes.pop(step - HISTORY, None)
    return True


def on_commit(core: Core, source: str, message: Commit) -> bool:
    """The leader's decision; False if it contradicts what this device prepared."""
    attempt = core.attempt
    if attempt is None or attempt.key != (message.step, message.epoch):
        core.dropped["commit out of step"] += 1
        return True
    if source != core.leader or len(message.exchanged) != len(attempt.roster):
        core.dropped["commit not from the leader"] += 1
        return True
    if attempt.guard is None or attempt.guard.reduced_hash != message.reduced_hash:
        return False
    commit(core, message.exchanged, message.step_ms)
    return True


def waiting_for(core: Core) -> tuple[str, ...]:
    """The members whose bytes or messages this device's attempt waits for."""
    attempt = core.attempt
    if attempt is None:
        return ()
    roster = attempt.roster
    everybody, owners = (1 << len(roster)) - 1, attempt.plan.owner_mask
    missing = 0
    for bucket in attempt.buckets:
        if not bucket.ready or bucket.done:
            continue
        if attempt.me in attempt.plan.owners:
            wanted = bucket.gradients if bucket.quantised else bucket.exponents
            missing |= everybody & ~wanted
        missing |= owners & ~(bucket.sums if bucket.quantised else bucket.agreed)
    found = {member for i, member in enumerate(roster) if missing >> i & 1}
    found.update(member for member in roster if member not in attempt.computed)
    found.discard(core.me)
    return tuple(sorted(found))


def decline(core: Core, source: str, proposal: Propose, reason: Reason) -> None:
    """Tell the leader that this device stays out of its attempt, and why."""
    at = core.committed
    core.send(
        source,
        Decline(
            proposal.step,
            proposal.epoch,
            reason,
            at.step if at else 0,
            core.promised,
            core.leader,
        ),
    )


def _attempt_of(core: Core, source: str, message: Began | Computed) -> Attempt | None:
    """The attempt that a member's message is about; what comes too early is kept for a while."""
    attempt = core.attempt
    if attempt is not None and attempt.key == (message.step, message.epoch):
        if source in attempt.roster:
            return attempt
        core.dropped["not in the roster"] += 1
    elif message.epoch >= core.promised and message.step > (
        core.committed.step if core.committed else -1
    ):
        core.early.append((source, message))
    else:
        core.dropped["out of step"] += 1
    return None
