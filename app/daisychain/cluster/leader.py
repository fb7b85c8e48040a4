"""What the leader alone does: propose, watch the deadline, collect guards, commit or abort."""

from __future__ import annotations

from collections import Counter

from daisychain.cluster import admission, halting, joining
from daisychain.cluster import attempt as steps
from daisychain.cluster.effects import Mode
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.fields import Phase, Reason, as_label
from daisychain.cluster.hashtree import minority
from daisychain.cluster.room_messages import Leave, Refuse
from daisychain.cluster.roster import MAX_MEMBERS, distances, quorum
from daisychain.cluster.schedule import share_out
from daisychain.cluster.state import Attempt, Committed, Core, Lead
from daisychain.cluster.step_messages import (
    Abort,
    Commit,
    Decline,
    Exchanged,
    Guard,
    Propose,
    Share,
)
from daisychain.cluster.vote_messages import Stop


def next_epoch(core: Core) -> int:
    """An epoch above all that were heard of, and that no other leader can choose."""
    index = core.roster.index(core.me)
    used = max(core.seen, core.promised, core.ended[1])
    core.seen = (used // MAX_MEMBERS + 1) * MAX_MEMBERS + index
    return core.seen


def take_lead(core: Core, epoch: int, mandate: int | None = None) -> None:
    """Become the leader under ``epoch``, which is also the mandate unless one is given."""
    core.promised, core.leader = epoch, core.me
    core.seen = max(core.seen, epoch)
    core.lead, core.election, core.joining = Lead(epoch if mandate is None else mandate), None, None
    core.leader_lost_ms, core.beat_ms = -1, -1 << 40
    core.become(Mode.MEMBER)


def step_down(core: Core) -> None:
    """Stop being the leader: somebody has a better claim.

    The epochs that this leader gave itself bind nobody any more; its mandate still does.
    """
    if core.lead is not None:
        core.promised, core.lead = core.lead.mandate, None
        if core.attempt is not None and core.attempt.guard is None:
            steps.abort(core)


def settle(core: Core) -> None:
    """Do whatever is due for the leader now; called after every event."""
    if core.lead is None or core.mode not in (Mode.MEMBER, Mode.PAUSED):
        return
    admission.count_holds(core, core.lead)
    if core.attempt is None:
        admission.admit_waiting(core, core.lead)
        _propose(core, core.lead)
        return
    gone: tuple[str, ...] = ()
    if core.look_around:
        out = core.lead.left_out
        gone = tuple(m for m in core.attempt.roster if m in out or not core.alive(m))
        core.look_around = False
    if gone:
        give_up(core, Reason.LOST, gone)
    elif (
        core.attempt.proposal.step == 1
        and core.attempt.proposal.exchange is Exchange.NONE
        and (core.lead.joiners or admission.holds_first_step(core, core.lead))
    ):
        # A newcomer makes the initial weights by itself: begin again, so that it can take part or
        # at least follow.
        give_up(core, Reason.JOIN, ())
        settle(core)


def tick(core: Core) -> None:
    """Watch the deadline and those who come in."""
    lead, attempt = core.lead, core.attempt
    if lead is None:
        return
    admission.watch(core, lead)
    if attempt is not None and core.now >= _deadline(core, lead, attempt):
        _expired(core, lead, attempt)


def _deadline(core: Core, lead: Lead, attempt: Attempt) -> int:
    """Each deadline of a step that passed in vain doubles the next one."""
    patience = core.times.step_deadline_ms(core.step_ms)
    if lead.newcomers:
        patience = max(patience, core.times.first_deadline_ms)
    return attempt.started_ms + (patience << min(lead.expired, 6))


# ---------------------------------------------------------------------------------- proposing


def _propose(core: Core, lead: Lead) -> None:
    at = core.committed
    if at is None or not at.weights_hash or not core.running or core.layout is None:
        return
    if core.notice_end(at.step):
        return
    if admission.holds_first_step(core, lead):
        return
    out = lead.left_out | core.left
    present = [member for member in at.roster if core.alive(member) and member not in out]
    ready = admission.ready(core, lead)
    links = core.links()
    members = _connected(core.me, [*present, *ready], links)
    if not quorum(members, at.roster, core.left):
        core.stand_still(tuple(member for member in at.roster if member not in members))
        return
    core.become(Mode.MEMBER)
    if admission.backlog_full(core, lead):
        core.notice("backlog", "Waiting for a new device to catch up.", lead.holding)
        return
    members = sorted(members)[: max(len(at.roster), core.settings.max_members)]
    lead.newcomers = {member for member in members if member not in present}
    lead.guards.clear()
    before = max((lead.joiners[member].after_epoch for member in lead.newcomers), default=0)
    ended = core.has_ended(at.step + 1, core.promised)
    if ended or lead.newcomers & core.left or before >= core.promised:
        # An epoch that all accept, and after which nobody takes newcomers' leaving for news.
        core.promised = next_epoch(core)
    proposal = _proposal(core, at, members, links)
    for member in members:
        core.send(member, proposal)


def _connected(me: str, members: list[str], links: dict[str, frozenset[str]]) -> list[str]:
    inside = {m: [peer for peer in links.get(m, ()) if peer in members] for m in members}
    return list(distances(inside, me))


def _proposal(
    core: Core, at: Committed, members: list[str], links: dict[str, frozenset[str]]
) -> Propose:
    settings = core.settings
    micro = share_out(
        members,
        {member: core.speeds.micro_ms(member) for member in members},
        settings.total_micro_batches,
        settings.max_micro_batches,
    )
    shares, cursor = [], at.cursor
    for member in members:
        shares.append(Share(member, micro[member], cursor))
        cursor += micro[member]
    assert core.lead is not None
    alone = len(members) == 1 and not settings.exchange_alone and not core.lead.joiners
    return Propose(
        step=at.step + 1,
        epoch=core.promised,
        mandate=core.lead.mandate,
        previous_epoch=at.epoch,
        previous_hash=at.reduced_hash,
        weights_hash=at.weights_hash,
        lr_bits=settings.learning_rate_bits(at.step + 1),
        exchange=Exchange.NONE if alone else settings.exchange,
        cursor=at.cursor,
        shares=tuple(shares),
        links=tuple(
            sum(1 << j for j, peer in enumerate(members) if peer in links[member])
            for member in members
        ),
        banned=tuple(sorted(core.banned))[:32],
    )


# ----------------------------------------------------------------------------------- deciding


def on_guard(core: Core, source: str, message: Guard) -> None:
    """A member is prepared; if all are, and alike, commit."""
    lead, attempt = core.lead, core.attempt
    if lead is None or attempt is None or attempt.key != (message.step, message.epoch):
        core.dropped["guard out of step"] += 1
        return
    if source not in attempt.roster:
        core.dropped["not in the roster"] += 1
        return
    lead.guards.setdefault(source, message)
    if len(lead.guards) < len(attempt.roster):
        return
    if len({(guard.reduced_hash, guard.scalars) for guard in lead.guards.values()}) > 1:
        _disagreement(core, lead)
    else:
        _commit(core, lead, attempt)


def _commit(core: Core, lead: Lead, attempt: Attempt) -> None:
    guards = [lead.guards[member] for member in attempt.roster]
    message = Commit(
        *attempt.key,
        guards[0].reduced_hash,
        core.now - attempt.started_ms,
        tuple(Exchanged(g.exchange_ms, g.sent_bytes, g.received_bytes) for g in guards),
    )
    core.broadcast(tuple(member for member in attempt.roster if member != core.me), message)
    steps.commit(core, message.exchanged, message.step_ms)
    admission.earn(lead, attempt.roster, message.step_ms)
    lead.expired = lead.disagreed = 0
    lead.left_out.clear()
    for member in attempt.roster:
        lead.joiners.pop(member, None)


def _disagreement(core: Core, lead: Lead) -> None:
    claims = {m: (guard.reduced_hash, guard.scalars) for m, guard in lead.guards.items()}
    odd = minority(claims)
    lead.disagreed += 1
    if lead.disagreed <= core.times.guard_retries:
        core.notice("guard", "The reduced gradients differ; the step is repeated.", odd)
        give_up(core, Reason.GUARD, ())
    elif len(odd) < len(claims) and core.me not in odd:
        for member in odd:
            kick(core, member, Reason.GUARD)
        give_up(core, Reason.GUARD, odd)
    else:
        stop(core, Reason.GUARD, odd)


def stop(core: Core, reason: Reason, devices: tuple[str, ...]) -> None:
    """Stop training on every device."""
    assert core.committed is not None
    message = Stop(core.committed.step, reason, devices)
    core.broadcast(tuple(m for m in core.roster if m != core.me), message)
    halting.stop(core, message)


def kick(core: Core, member: str, reason: Reason = Reason.KICKED) -> None:
    """Remove a device from the room for good."""
    if member == core.me:
        return
    core.send(member, Refuse(reason))
    core.banned[member] = core.now
    core.look_around = True
    if core.lead is not None:
        core.lead.joiners.pop(member, None)


def give_up(core: Core, reason: Reason, lost: tuple[str, ...]) -> None:
    """Abort the attempt on every device and repeat the step without ``lost`` under a new epoch."""
    lead, attempt = core.lead, core.attempt
    if lead is None or attempt is None:
        return
    lead.left_out.update(lost)
    for member in lead.newcomers.intersection(lost):
        lead.joiners.pop(member, None)
        lead.held_ms[member] += core.now - attempt.started_ms
    lead.newcomers.clear()
    message = Abort(*attempt.key, reason, lost)
    core.broadcast(tuple(m for m in attempt.roster if m != core.me), message)
    steps.abort(core)
    core.promised = next_epoch(core)


def _expired(core: Core, lead: Lead, attempt: Attempt) -> None:
    slow = _late(core, lead, attempt)
    lead.expired += 1
    voters = [member for member in core.roster if member not in core.left]
    others = [member for member in voters if member != core.me and core.alive(member)]
    able = quorum(others, core.roster, [core.me, *core.left])
    if slow == (core.me,) and not able:
        return
    core.notice("deadline", "A step took too long and is repeated.", slow)
    for share in attempt.proposal.shares:
        if share.id not in attempt.computed:
            core.speeds.observe(share.id, share.micro, core.now - attempt.started_ms)
    if lead.expired <= core.times.step_retries:
        for member in lead.newcomers.intersection(slow):
            lead.held_ms[member] += core.now - attempt.started_ms
        give_up(core, Reason.DEADLINE, ())
    elif slow == (core.me,):
        give_up(core, Reason.DEADLINE, ())
        step_aside(core, "too slow", "This device took too long for a step that all waited for")
    else:
        give_up(core, Reason.DEADLINE, tuple(member for member in slow if member != core.me))


def _late(core: Core, lead: Lead, attempt: Attempt) -> tuple[str, ...]:
    """Whom the step waits for: whoever has done least, or is waited for by most."""
    roster = attempt.roster
    for done in (attempt.began, attempt.computed):
        missing = tuple(member for member in roster if member not in done)
        if missing:
            return missing
    blamed = Counter(steps.waiting_for(core))
    for member in roster:
        peer = core.peers.get(member)
        if peer is not None and peer.beat is not None and peer.beat.phase is Phase.COMPUTE:
            blamed.update(m for m in peer.beat.waiting if m in roster)
    if blamed:
        most = max(blamed.values())
        return tuple(sorted(member for member, count in blamed.items() if count == most))
    return tuple(member for member in roster if member not in lead.guards)


def leave(core: Core, why: str) -> None:
    """Give up the vote and the lead, if any, and tell everybody."""
    at = core.committed
    if at is not None:
        core.left_epoch = max(core.seen, core.promised)
        if core.me not in core.left:
            core.bound = _bound_to(core, at)
        core.left.add(core.me)
    core.lead = core.election = core.joining = core.held = None
    steps.abort(core)
    farewell = Leave(core.left_epoch, at.step if at else 0, core.bound, as_label(why))
    core.broadcast(tuple(core.peers), farewell)


def step_aside(core: Core, why: str, what_happened: str) -> None:
    """Leave for a while: this device comes back by itself, later if it has just done so.

    ``what_happened`` begins the sentence that tells the person.
    """
    leave(core, why)
    core.become(Mode.AWAY)
    core.beat_ms = -1 << 40
    times, soon = core.times, core.now - core.return_ms < 2 * core.pause_ms
    core.pause_ms = min(2 * core.pause_ms, times.longest_return_ms) if soon else times.return_ms
    core.return_ms = core.now + core.pause_ms if core.running else -1
    again = f"it comes back by itself in {core.pause_ms // 1000} s."
    if not core.running:
        again = "it comes back when training is resumed."
    core.notice("stepped aside", f"{what_happened}; {again}")


def _bound_to(core: Core, at: Committed) -> str:
    """Who may have decided the next step with this device's vote; itself stands for several."""
    attempt, vote = core.attempt, core.vote
    holders = set()
    if attempt is not None and attempt.guard is not None:
        holders.add(attempt.leader)
    if vote is not None and vote.step == at.step + 1:
        holders.add(core.leader)
    holders.discard(core.me)
    return core.me if len(holders) > 1 else next(iter(holders), "")


def on_decline(core: Core, source: str, message: Decline) -> None:
    """A member cannot take part in the attempt: leave it out, or step down if it knows better."""
    lead, attempt = core.lead, core.attempt
    if lead is None or attempt is None or attempt.key != (message.step, message.epoch):
        core.dropped["decline out of step"] += 1
        return
    if source not in attempt.roster or source == core.me:
        core.dropped["not in the roster"] += 1
        return
    if message.reason is Reason.PROMISED and message.leader != core.me:
        core.note_epoch(message.at_epoch)
        step_down(core)
    elif message.reason is Reason.AHEAD and message.at_step >= message.step:
        step_down(core)
        joining.start(core)
    else:
        give_up(core, message.reason, (source,))
