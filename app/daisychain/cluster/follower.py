"""What every member does about its leader: answer proposals, obey aborts, notice its loss."""

from __future__ import annotations

from daisychain.cluster import attempt as steps
from daisychain.cluster import election, halting, joining
from daisychain.cluster.effects import Mode
from daisychain.cluster.fields import Phase, Reason
from daisychain.cluster.leader import next_epoch, take_lead
from daisychain.cluster.roster import quorum
from daisychain.cluster.state import Committed, Core
from daisychain.cluster.step_messages import Abort, Propose
from daisychain.errors import ClusterError

ACTIVE = (Phase.COMPUTE, Phase.GUARD)


def on_propose(core: Core, source: str, proposal: Propose) -> None:
    """A leader asks this device to take part in an attempt."""
    if core.me not in proposal.roster or source not in proposal.roster:
        core.dropped["not in the roster"] += 1
        return
    if core.mode in (Mode.HALTED, Mode.LEFT):
        return
    if core.mode is Mode.AWAY or proposal.epoch <= core.left_epoch or _is_outside(core, source):
        steps.decline(core, source, proposal, Reason.FAILED)
        return
    if core.me in core.roster and core.is_absurd(proposal.epoch):
        core.dropped["absurd epoch"] += 1
        return
    core.note_epoch(proposal.epoch)
    if core.has_ended(proposal.step, proposal.epoch):
        core.dropped["proposal of an ended attempt"] += 1
        return
    if not may_follow(core, source, proposal.epoch, proposal.mandate):
        steps.decline(core, source, proposal, Reason.PROMISED)
        return
    if source != core.me:
        core.lead = None
    core.election = None
    core.promised, core.leader = proposal.epoch, source
    core.leader_lost_ms, core.bound_ms = -1, core.now
    attempt = core.attempt
    if attempt is not None and attempt.key == (proposal.step, proposal.epoch):
        if attempt.proposal == proposal:
            steps.tell_began(core, attempt)
        return
    core.held = (source, proposal)
    consider(core)


def _is_outside(core: Core, source: str) -> bool:
    """True for a device that gave up its vote, as long as this leader has not let it in again."""
    admitted = core.joining is not None and core.joining.leader == source
    return core.me in core.left and not admitted


def may_follow(core: Core, source: str, epoch: int, mandate: int) -> bool:
    """True if following ``source`` breaks no promise: it is the leader, or was elected since."""
    if source == core.leader or core.leader == "":
        return epoch >= core.promised
    return mandate > core.promised


def consider(core: Core) -> None:
    """Begin the held proposal as soon as this device stands where it starts from."""
    if core.held is None:
        return
    source, proposal = core.held
    at, attempt = core.committed, core.attempt
    if (
        attempt is not None
        and attempt.guard is not None
        and proposal.step == attempt.proposal.step + 1
        and (proposal.previous_epoch, proposal.previous_hash)
        == (attempt.proposal.epoch, attempt.guard.reduced_hash)
    ):
        steps.commit(core)
        return
    if at is None or (core.mode is Mode.JOINING and at.step < proposal.step - 1):
        return
    if proposal.step <= at.step:
        core.held = None
        steps.decline(core, source, proposal, Reason.AHEAD)
    elif proposal.step > at.step + 1 or not _follows(at, proposal):
        core.held = None
        steps.decline(core, source, proposal, Reason.BEHIND)
        joining.start(core)
    elif at.weights_hash:
        core.held = None
        _begin(core, source, proposal, at)


def _follows(at: Committed, proposal: Propose) -> bool:
    return (proposal.previous_epoch, proposal.previous_hash, proposal.cursor) == (
        at.epoch,
        at.reduced_hash,
        at.cursor,
    )


def _begin(core: Core, source: str, proposal: Propose, at: Committed) -> None:
    if proposal.weights_hash != at.weights_hash:
        if core.me in at.roster:
            halting.drifted(core, source, at.step, proposal.weights_hash)
        else:
            steps.decline(core, source, proposal, Reason.STATE)
            joining.wrong_weights(core)
        return
    steps.abort(core)
    core.vote = None
    for peer in set(proposal.banned).difference(proposal.roster):
        core.banned.setdefault(peer, core.now)
    try:
        steps.begin(core, source, proposal)
    except ClusterError as error:
        core.notice("plan", str(error))
        steps.decline(core, source, proposal, Reason.FAILED)
        return
    if core.mode is not Mode.JOINING:
        core.become(Mode.MEMBER)


def on_abort(core: Core, source: str, message: Abort) -> None:
    """The leader gives an attempt up."""
    if source != core.leader:
        core.dropped["abort not from the leader"] += 1
        return
    if core.is_absurd(message.epoch):
        core.dropped["absurd epoch"] += 1
        return
    if core.held is not None and core.held[1].epoch <= message.epoch:
        core.held = None
    if core.attempt is not None and core.attempt.key == (message.step, message.epoch):
        steps.abort(core)
    core.ended = max(core.ended, (message.step, message.epoch))
    if core.me in message.lost and core.mode is not Mode.AWAY:  # else it stepped aside by itself
        core.notice("left out", f"The step goes on without this device: {message.reason}.")


def tick(core: Core) -> None:
    """Notice a lost leader, a stalled attempt, or that the room goes on without this device."""
    if core.committed is None or core.mode not in (Mode.MEMBER, Mode.PAUSED):
        return
    if core.leads:
        return
    attempt = core.attempt
    stalled = attempt is not None and core.now >= attempt.deadline_ms
    if core.alive(core.leader) and not stalled and in_office(core):
        core.leader_lost_ms = -1
        _passed_over(core)
        return
    if core.leader_lost_ms < 0:
        core.leader_lost_ms = core.now
        if attempt is not None and attempt.guard is None:
            steps.abort(core)
    _succeed(core)


def in_office(core: Core) -> bool:
    """False if the device that this one promised to follow does not lead."""
    if core.leader == core.me:
        return core.leads
    peer = core.peers.get(core.leader)
    beat = peer.beat if peer is not None else None
    grace = core.times.beat_ms + 2 * core.times.election_ms
    if beat is None or core.now - core.bound_ms < grace:
        return True
    return beat.leader == core.leader and beat.phase is not Phase.PAUSED


def _passed_over(core: Core) -> None:
    peer = core.peers.get(core.leader)
    if peer is None or peer.beat is None or core.attempt is not None or core.held is not None:
        return
    assert core.committed is not None
    going = peer.beat.phase in ACTIVE or peer.beat.step > core.committed.step
    if not going:
        core.idle_ms = core.now
    elif core.now - core.idle_ms >= core.times.rejoin_ms and core.committed.weights_hash:
        joining.start(core)


def _succeed(core: Core) -> None:
    """Stand for election if it is this device's turn; pause if too few are in reach."""
    voters = [member for member in core.roster if member not in core.left]
    present = [member for member in voters if core.alive(member)]
    stuck = core.mode is Mode.PAUSED
    able = [m for m in core.roster if core.alive(m)] if stuck else present  # one that left, too
    if any(leads(core, member) for member in able if member != core.leader):
        joining.start(core)
        return
    if core.me not in voters or not quorum(present, core.roster, core.left):
        core.stand_still(tuple(member for member in voters if member not in present))
        if not voters and _is_first_of_all(core):
            core.left.discard(core.me)
            take_lead(core, next_epoch(core))
        return
    if core.election is not None:
        return
    rank = [member for member in present if member != core.leader or member == core.me]
    turn = rank.index(core.me) * 2 * core.times.election_ms
    if core.now - max(core.leader_lost_ms, core.stood_ms) >= turn:
        election.stand(core)


def _is_first_of_all(core: Core) -> bool:
    """Whether this device may lead a room in which every voter of the last step gave up its vote.

    All of them have to be here again, bound by none, and none further on or elsewhere: then nobody
    has decided a later step, and of those that stand furthest only the lowest one takes the lead.
    """
    at = core.committed
    if at is None or not at.weights_hash or core.bound or core.vote is not None:
        return False
    for member in core.roster:
        if member == core.me:
            continue
        beat = core.peers[member].beat if member in core.peers and core.alive(member) else None
        if beat is None or beat.phase is not Phase.PAUSED or beat.step > at.step:
            return False
        if beat.step == at.step and (member < core.me or beat.weights_hash != at.weights_hash):
            return False
    return True


def leads(core: Core, peer: str) -> bool:
    """True if ``peer``, another device, says that it leads a room that is not stuck."""
    beat = core.peers[peer].beat if peer in core.peers else None
    return beat is not None and beat.leader == peer and beat.phase in (*ACTIVE, Phase.IDLE)
