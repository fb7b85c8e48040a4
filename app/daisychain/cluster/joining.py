"""This device's own way in: ask, fetch the state, catch up, and be ready for a proposal.

A device that held weights before keeps them, and its promises, until the new state is loaded and
has the hash that the leader named.
"""

from __future__ import annotations

from daisychain.cluster import attempt as steps
from daisychain.cluster.effects import Apply, AwaitSteps, FetchState, Mode, UseState
from daisychain.cluster.events import PlanWanted, StateFailed, StateLoaded
from daisychain.cluster.fields import Reason
from daisychain.cluster.room_messages import (
    Admit,
    CatchUp,
    Fetch,
    FetchFailed,
    FetchPlan,
    Join,
    Refuse,
    Synced,
)
from daisychain.cluster.roster import MAX_MEMBERS
from daisychain.cluster.state import Committed, Core, Joining
from daisychain.cluster.step_messages import Propose
from daisychain.cluster.times import MOST_BACKLOG_STEPS

OWN_FAILURES = 3
"""A device that fails so often in a row, by its own doing, to take the room's state in gives up."""
REFUSALS = {
    Reason.DEADLINE: "This device was too slow for the room, which trains on without it; "
    "it will be tried again in some minutes.",
    Reason.FULL: "The room is full; this device comes in as soon as another one leaves.",
}
"""What a person reads where the reason's name does not say it."""


def start(core: Core, abandon: bool = False) -> None:
    """Begin to ask for admission; with ``abandon`` any promise to an earlier room is void."""
    if core.mode in (Mode.HALTED, Mode.LEFT):
        return
    if core.attempt is not None and (abandon or core.attempt.guard is None):
        steps.abort(core)
    core.lead, core.election, core.held = None, None, None
    if core.joining is not None:
        _tell_failure(core, core.joining, core.me)  # whoever feeds this device need not go on
    if abandon:
        core.promised, core.leader, core.vote = 0, "", None
    core.joining = Joining(core.now, progress_ms=core.now)
    core.become(Mode.JOINING)
    ask(core)


def ask(core: Core) -> None:
    """Ask every leader in reach, unless this device rests after a failure of its own."""
    joining, at = core.joining, core.committed
    if joining is None or core.now < core.rest_until_ms:
        return
    joining.asked_ms = core.now
    held = (at.step, at.epoch, at.reduced_hash, at.weights_hash) if at else (0, 0, "", "")
    leaders = sorted(
        {
            peer.beat.leader
            for peer in core.peers.values()
            if peer.beat is not None and peer.beat.leader not in ("", core.me)
        }
    )
    for leader in leaders[:MAX_MEMBERS]:
        joining.asked.add(leader)
        core.send(leader, Join(core.name, core.kind, *held, core.left_epoch, core.bound))


def tick(core: Core) -> None:
    """Ask again if nothing happens; give a stalled transfer up."""
    joining, times = core.joining, core.times
    if joining is None or core.mode is not Mode.JOINING:
        return
    if core.attempt is not None or core.held is not None:
        _watch_step(core, joining)
        return
    quiet = core.now - max(joining.asked_ms, joining.progress_ms)
    if joining.source and not joining.loaded:
        if not core.alive(joining.source) or not progress_left_ms(core):
            _failed(core, joining)
    elif core.me in core.roster and _has_weights(core) and _in_vain(core, joining):
        core.joining, core.idle_ms = None, core.now
        core.become(Mode.MEMBER)
    elif not joining.loaded:
        if quiet >= times.join_retry_ms:
            ask(core)
    elif quiet >= (times.transfer_stall_ms if joining.queue else times.join_retry_ms):
        start(core)


def _watch_step(core: Core, joining: Joining) -> None:
    """This device takes part in its first step: wait for it, unless the leader is lost or a step
    before it does not come."""
    late = core.attempt is not None and core.now >= core.attempt.deadline_ms
    quiet = core.now - joining.progress_ms
    if (
        core.held is not None
        and core.alive(core.leader)
        and _misses_step_before(core, core.held[1])
    ):
        if quiet >= core.times.transfer_stall_ms:
            steps.decline(core, *core.held, Reason.BEHIND)
            start(core)
    elif core.alive(core.leader) and not late:
        joining.progress_ms = core.now
    elif quiet >= core.times.join_retry_ms:
        start(core)


def _misses_step_before(core: Core, proposal: Propose) -> bool:
    """True if the proposal starts from a step whose gradient is not here."""
    at = core.committed
    return at is not None and bool(at.weights_hash) and at.step < proposal.step - 1


def progress_left_ms(core: Core) -> int:
    """How much longer this device may show no progress; 0 if it neither loads nor catches up."""
    joining, at = core.joining, core.committed
    if joining is None or not joining.source:
        return 0
    if joining.loaded and not joining.queue and at is not None and at.weights_hash:
        return 0
    return max(0, core.times.transfer_stall_ms - (core.now - joining.progress_ms))


def _has_weights(core: Core) -> bool:
    """False if this device lost them: then it has nowhere to go back to."""
    return core.committed is not None and bool(core.committed.weights_hash)


def _in_vain(core: Core, joining: Joining) -> bool:
    """True if a device with a vote should rather go back and help to find a leader."""
    waited = core.now - joining.progress_ms
    return not joining.source and waited >= 2 * core.times.join_retry_ms


def on_admit(core: Core, source: str, message: Admit) -> None:
    """The leader lets this device in and names the state to load."""
    joining, at = core.joining, core.committed
    if joining is None or core.mode is not Mode.JOINING or source not in joining.asked:
        core.dropped["admitted unasked"] += 1
        return
    if joining.source and (joining.leader, joining.source, joining.step) == (
        source,
        message.source,
        message.step,
    ):
        if not joining.loaded and message.step:  # the source may have set the state aside anew
            core.send(message.source, Fetch(message.step))
        return
    if core.bound not in ("", source) and at is not None and message.step <= at.step:
        core.dropped["admitted against a vote"] += 1
        return
    if _free_to_go(core, message):
        core.promised = 0
    elif source != core.leader and message.mandate <= core.promised:
        core.dropped["admitted against a promise"] += 1
        return
    joining.leader, joining.source, joining.step = source, message.source, message.step
    joining.expected, joining.weights_hash = message.state_hash, message.weights_hash
    joining.progress_ms = core.now
    joining.queue.clear()
    joining.received.clear()
    core.leader = source
    attempt = core.attempt
    if (
        attempt is not None
        and attempt.guard is not None
        and (attempt.key, attempt.guard.reduced_hash)
        == ((message.step, message.epoch), message.reduced_hash)
    ):
        steps.commit(core)
        return
    held = (at.step, at.epoch, at.reduced_hash, at.weights_hash) if at else None
    if held == (message.step, message.epoch, message.reduced_hash, message.weights_hash):
        joining.loaded = True
        core.do(AwaitSteps(message.source, message.step, message.settings))
        _synced(core, joining)
    elif not message.state_hash:
        joining.source = ""
        ask(core)
    else:
        joining.loaded = False
        joining.pending = Committed(
            message.step,
            message.epoch,
            message.reduced_hash,
            message.weights_hash,
            message.cursor,
            message.roster,
        )
        core.do(FetchState(message.source, message.step, message.settings))
        if message.step:
            core.send(message.source, Fetch(message.step))


def _free_to_go(core: Core, message: Admit) -> bool:
    """True if no vote of this device counts where it goes: promises are for one step's decision."""
    at = core.committed
    voter = core.me in core.roster
    return at is None or not voter or message.step > at.step or core.leader == ""


def state_loaded(core: Core, event: StateLoaded) -> None:
    """The host has a state; it counts only if it has the hash that the leader named."""
    joining = core.joining
    if joining is None or joining.pending is None or joining.pending.step != event.step:
        return
    right = (joining.expected, joining.weights_hash) == (event.state_hash, event.weights_hash)
    if not right:
        core.notice("state", "A device served a wrong state; it was not used.", (joining.source,))
        _failed(core, joining)
        return
    steps.abort(core)
    core.do(UseState(event.step))
    core.settings, core.layout = event.settings, event.layout
    core.committed, joining.pending = joining.pending, None
    core.known.update(core.roster)
    core.left, core.vote, core.bound = {core.me}, None, ""
    core.hashes, core.state_hash = {event.step: event.weights_hash}, (event.step, event.state_hash)
    core.own_failures = 0
    joining.loaded, joining.progress_ms = True, core.now
    catch_up(core)


def state_progress(core: Core) -> None:
    """The host is still at it."""
    if core.joining is not None and core.joining.source:
        core.joining.progress_ms = core.now


def plan_wanted(core: Core, event: PlanWanted) -> None:
    """The host cannot build the run before it has the room's data plan."""
    if core.joining is not None and core.joining.source == event.source:
        core.send(event.source, FetchPlan(event.plan_hash))


def state_failed(core: Core, event: StateFailed) -> bool:
    """This device failed by its own doing; True if that was once too often.

    It blames nobody, has nothing kept for it, and rests for longer each time before it asks again.
    """
    joining = core.joining
    if joining is None or joining.pending is None or joining.pending.step != event.step:
        return False
    _tell_failure(core, joining, core.me)
    core.own_failures += 1
    core.rest_until_ms = core.now + (core.times.join_retry_ms << core.own_failures - 1)
    core.joining = Joining(core.now, progress_ms=core.now)
    if core.own_failures < OWN_FAILURES:
        return False
    core.notice("gave up", f"This device tried {OWN_FAILURES} times and left the room. {event.why}")
    return True


def _failed(core: Core, joining: Joining) -> None:
    """The source failed this device: the leader finds another one."""
    _tell_failure(core, joining, joining.source)
    core.joining = Joining(core.now, joining.asked, progress_ms=core.now)


def _tell_failure(core: Core, joining: Joining, blamed: str) -> None:
    for device in sorted({joining.leader, joining.source} - {""}):
        core.send(device, FetchFailed(blamed, joining.step))


def wrong_weights(core: Core) -> None:
    """What this joiner caught up to is not what the room holds: its source misled it."""
    joining = core.joining
    if joining is not None:
        core.notice("state", "A device served a wrong state; it was not used.", (joining.source,))
        _failed(core, joining)
        core.committed = None


def on_catch_up(core: Core, source: str, message: CatchUp) -> None:
    """A step that the room committed while this device was loading."""
    joining = core.joining
    if joining is None or source != joining.source or message.step <= joining.step:
        core.dropped["catch-up unasked"] += 1
        return
    if len(joining.queue) <= 2 * MOST_BACKLOG_STEPS:
        joining.queue[message.step] = message
        catch_up(core)


def catch_up_received(core: Core, step: int) -> None:
    """The reduced gradient of a step is here."""
    if core.joining is not None:
        core.joining.received.add(step)
        catch_up(core)


def catch_up(core: Core) -> None:
    """Apply the next step that is complete, or report that this device is up to date."""
    joining, at = core.joining, core.committed
    if joining is None or not joining.loaded or at is None or not at.weights_hash:
        return
    following = joining.queue.get(at.step + 1)
    if following is None or following.step not in joining.received:
        _synced(core, joining)
        return
    del joining.queue[following.step]
    joining.received.discard(following.step)
    joining.progress_ms = core.now
    steps.abort(core)
    core.do(
        Apply(
            following.step,
            following.epoch,
            following.lr_bits,
            following.scalars,
            following.exchange,
            catch_up=True,
        )
    )
    key = (following.step, following.epoch)
    steps.applied(core, key, following.reduced_hash, following.cursor, following.roster)
    core.left = {core.me}


def _synced(core: Core, joining: Joining) -> None:
    at = core.committed
    assert at is not None
    if at.step != joining.synced_step:  # what comes behind a gap is no progress
        joining.synced_step, joining.progress_ms = at.step, core.now
    core.send(joining.leader, Synced(at.step, at.weights_hash))
    core.notice_end(at.step)


def refused(core: Core, source: str, message: Refuse) -> bool:
    """The leader does not want this device; True if that is for good.

    One that led, and was away, may find that another leads and has removed it.  A leader that does
    not know it for a joiner (any more) wants to be asked again.
    """
    if message.reason is Reason.JOIN:
        _ask_again(core, source)
        return False
    was_asked = core.joining is not None and source in core.joining.asked
    succeeded = core.me in core.left and source in core.roster
    if source != core.leader and not was_asked and not succeeded:
        core.dropped["refused by a stranger"] += 1
        return False
    if message.reason is not Reason.KICKED:  # of that the door tells
        usual = f"The room did not let this device in: {message.reason}."
        core.notice("refused", REFUSALS.get(message.reason, usual), (source,))
    return message.reason in (Reason.KICKED, Reason.GUARD)


def _ask_again(core: Core, leader: str) -> None:
    joining = core.joining
    if joining is None or joining.leader != leader:
        core.dropped["refused by a stranger"] += 1
    elif core.attempt is None and core.held is None:
        start(core)
