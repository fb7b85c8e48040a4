"""A new leader: it collects promises and settles what became of the last attempt.

Voters are the last committed roster.  A leader commits only when every member of the attempt is
prepared, and an attempt's members always include a quorum of the voters.  So the successor, which
asks a quorum, knows: if one of them belongs to the attempt and is not prepared, nobody has
committed it and nobody will (the promises keep it so): the step is repeated.  If all are prepared
alike, it may have been committed, so it stands: those that promised vote for it at the new epoch
(Adopt), and then it is committed, by those that hold its gradient.  A vote by Adopt binds every
later successor.  This is single-decree Paxos for each step, with the prepared members as the first
round's acceptors.

An epoch is 32 * round + the leader's index in its roster, so no two leaders ever use the same.
"""

from __future__ import annotations

from collections.abc import Callable

from daisychain.cluster import attempt as steps
from daisychain.cluster import joining
from daisychain.cluster.effects import Mode
from daisychain.cluster.leader import next_epoch, take_lead
from daisychain.cluster.roster import quorum
from daisychain.cluster.state import Core, Election, Vote
from daisychain.cluster.vote_messages import Adopt, Adopted, Query, Status, TakeOver


def stand(core: Core) -> None:
    """Ask every voter in reach for its promise."""
    voters = (member for member in core.roster if member not in core.left)
    asked = tuple(member for member in voters if core.alive(member))
    core.lead = None
    core.stood_ms = core.now
    core.election = Election(next_epoch(core), asked, core.now + core.times.election_ms)
    others = tuple(member for member in asked if member != core.me)
    core.broadcast(others, Query(core.election.epoch))
    _count(core, core.election)


def on_query(core: Core, source: str, message: Query) -> None:
    """A candidate asks for a promise: give it, unless there is a leader that is well."""
    core.note_epoch(message.epoch)
    if core.committed is None or source not in core.known:
        core.dropped["query from outside"] += 1
        return
    if core.is_absurd(message.epoch):
        core.dropped["absurd epoch"] += 1
        return
    if core.mode in (Mode.HALTED, Mode.LEFT, Mode.AWAY) or core.me in core.left:
        return
    content = core.leader not in ("", source) and core.mode is not Mode.PAUSED
    content = content and core.leader_lost_ms < 0 and core.alive(core.leader)
    content = content and (core.leads or core.leader != core.me)
    standing = core.election is not None and core.me < source
    if message.epoch <= core.promised or content or standing or source not in core.roster:
        core.send(source, _status(core, core.promised, granted=False))
        return
    bind(core, source, message.epoch)
    if core.attempt is not None and core.attempt.guard is None:
        steps.abort(core)
    core.send(source, _status(core, message.epoch, granted=True))


def bind(core: Core, leader: str, epoch: int) -> None:
    """Promise to follow ``leader`` from ``epoch`` on, and nobody with a lower one."""
    core.promised, core.leader = epoch, leader
    core.note_epoch(epoch)
    core.lead = core.election = core.held = None
    core.leader_lost_ms = -1
    core.stood_ms = core.bound_ms = core.now


def _status(core: Core, epoch: int, granted: bool) -> Status:
    at, attempt, vote = core.committed, core.attempt, core.vote
    assert at is not None
    prepared = attempt.vote if attempt is not None else None
    if vote is None or vote.step != at.step + 1:
        vote = prepared
    cast = vote or Vote(0, 0, 0, "", ())
    return Status(
        granted,
        epoch,
        core.leader,
        at.step,
        at.epoch,
        at.reduced_hash,
        at.roster,
        cast.step,
        cast.epoch,
        cast.attempt,
        cast.reduced_hash,
        cast.roster,
        holds=prepared is not None and cast.value == prepared.value,
    )


def on_status(core: Core, source: str, message: Status) -> None:
    """An answer to this device's candidacy."""
    core.note_epoch(message.epoch)
    standing = core.election
    if standing is None or source not in standing.asked:
        core.dropped["status unasked"] += 1
    elif not message.granted:
        _refused(core, standing, source, message)
    elif message.epoch == standing.epoch:
        standing.answers[source] = message
        _count(core, standing)


def _refused(core: Core, standing: Election, source: str, message: Status) -> None:
    """No promise: do without this voter, or follow the leader that it knows of."""
    at = core.committed
    assert at is not None
    if standing.value is not None:
        return
    known = core.peers.get(message.leader)
    if known is not None and known.beat is not None and known.beat.leader == message.leader:
        core.election, core.stood_ms = None, core.now
        if message.step > at.step or core.me not in message.roster:
            joining.start(core)
        return
    standing.refused.add(source)
    _count(core, standing)


def tick(core: Core) -> None:
    """Decide with the answers that have come in time."""
    standing = core.election
    if standing is None or core.now < standing.until_ms:
        return
    if standing.value is None:
        _decide(core, standing)
    else:
        _settle(core, standing)


def _count(core: Core, standing: Election) -> None:
    answered = {core.me, *standing.answers, *standing.refused}
    if answered.issuperset(standing.asked):
        _decide(core, standing)


def _decide(core: Core, standing: Election) -> None:
    if standing.value is not None or core.promised >= standing.epoch:
        return
    answers = standing.answers
    answers[core.me] = _status(core, standing.epoch, granted=True)
    last = max(answers.values(), key=lambda status: (status.step, status.step_epoch))
    if not _catch_up(core, last):
        _hand_over(core, standing, lambda status: status.step == last.step)
        return
    if not quorum(answers, last.roster, core.left):
        core.election = None
        return
    answers[core.me] = _status(core, standing.epoch, granted=True)
    votes = [status for status in answers.values() if status.vote_step == last.step + 1]
    newest = max(votes, key=lambda status: status.vote_epoch, default=None)
    if newest is None or not _may_be_committed(newest, answers):
        core.vote = None
        steps.abort(core)
        take_lead(core, standing.epoch)
    elif answers[core.me].holds and _vote_of(answers[core.me]).value == _vote_of(newest).value:
        _adopt(core, standing, _vote_of(newest))
    else:
        wanted = _vote_of(newest).value
        _hand_over(core, standing, lambda s: s.holds and _vote_of(s).value == wanted)


def _vote_of(status: Status) -> Vote:
    return Vote(
        status.vote_step,
        status.vote_epoch,
        status.vote_attempt,
        status.vote_hash,
        status.vote_roster,
    )


def _may_be_committed(newest: Status, answers: dict[str, Status]) -> bool:
    if newest.vote_epoch != newest.vote_attempt:
        return True
    return all(
        _vote_of(answers[member]) == _vote_of(newest)
        for member in newest.vote_roster
        if member in answers
    )


def _catch_up(core: Core, last: Status) -> bool:
    """Apply the prepared attempt if another member is known to have committed it."""
    at, attempt = core.committed, core.attempt
    assert at is not None
    value = (last.step, last.step_epoch, last.reduced_hash)
    prepared = attempt.vote if attempt is not None else None
    if prepared is not None and prepared.value == value:
        steps.commit(core)
        return True
    return (at.step, at.epoch, at.reduced_hash) == value


def _hand_over(core: Core, standing: Election, fit: Callable[[Status], bool]) -> None:
    able = sorted(m for m, status in standing.answers.items() if m != core.me and fit(status))
    core.election = None
    if able:
        core.send(able[0], TakeOver(standing.epoch))
    else:
        core.notice("undecided", "The last step is undecided until another device returns.")


def _adopt(core: Core, standing: Election, vote: Vote) -> None:
    standing.value = Vote(vote.step, standing.epoch, vote.attempt, vote.reduced_hash, vote.roster)
    standing.until_ms = core.now + core.times.election_ms
    core.vote = standing.value
    standing.votes.add(core.me)
    message = Adopt(standing.epoch, *vote.value, vote.roster)
    core.broadcast(tuple(m for m in standing.answers if m != core.me), message)
    if len(standing.votes) == len(standing.answers):
        _settle(core, standing)


def on_adopt(core: Core, source: str, message: Adopt) -> None:
    """Vote for an attempt at the candidate's epoch; its gradient need not be here."""
    at = core.committed
    silent = at is None or core.me in core.left
    if at is None or silent or source != core.leader or message.epoch != core.promised:
        core.dropped["adopt without promise"] += 1
        return
    vote = Vote(message.step, message.epoch, message.attempt, message.reduced_hash, message.roster)
    prepared = core.attempt.vote if core.attempt is not None else None
    if prepared is not None and prepared.value != vote.value:
        steps.abort(core)
    core.vote = vote
    core.send(source, Adopted(message.epoch))


def on_adopted(core: Core, source: str, message: Adopted) -> None:
    """A vote for the attempt that this candidate wants to stand."""
    standing = core.election
    if standing is None or standing.value is None or message.epoch != standing.epoch:
        core.dropped["adopted unasked"] += 1
        return
    if source in standing.answers:
        standing.votes.add(source)
    if len(standing.votes) == len(standing.answers):
        _settle(core, standing)


def _settle(core: Core, standing: Election) -> None:
    core.election = None
    value = standing.value.value if standing.value is not None else None
    prepared = core.attempt.vote if core.attempt is not None else None
    if core.promised >= standing.epoch or prepared is None or prepared.value != value:
        return
    if quorum(standing.votes, core.roster, core.left):
        steps.commit(core)
        take_lead(core, standing.epoch)


def on_take_over(core: Core, source: str, message: TakeOver) -> None:
    """A candidate that lacks the last step asks this device to stand instead."""
    if source != core.leader or message.epoch != core.promised or core.leads:
        core.dropped["take-over out of turn"] += 1
    elif core.mode in (Mode.MEMBER, Mode.PAUSED) and core.me in core.roster:
        stand(core)
