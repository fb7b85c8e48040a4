"""The step protocol as a pure state machine: events and a clock in, effects out.

    node = Node(me, name, kind, settings, times)      # then found(...) or join()
    for effect in node.handle(event, now_ms): ...     # never blocks, never raises on peers' input

`Node` does no I/O and holds no tensor.  The *host* (the session with its links and device) owns
those; `events` lists what it may say (events) and what it is asked to do (effects).

What a host must keep to
------------------------
1. **Order.**  Carry effects out in the order given.  Effects that take time (`BeginAttempt`,
   `Work`, `HashReduced`, `Apply`, `HashState`, `KeepState`, `FetchState`, `ReadLeaves`) are
   started in that order on the device and answered by their event when done.  `Send` goes to the
   ordered control channel, `SendFlow` to the bulk channels.
2. **Clock.**  ``now_ms`` is monotonic whole milliseconds.  Give `Tick` every 500 ms or oftener; a
   throttled page may be late, which only delays what this device notices.
3. **Attempts.**  `BeginAttempt` names (step, epoch), the `ReducePlan` and this device's share:
   micro-batches for slices ``share.first`` .. ``first + micro - 1`` of the run's global numbering.
   Compute them in that order, sum, and as the backward pass finishes each bucket give
   `BucketReady`; after the last, `ComputeDone`.  Give the answers of an attempt only until
   `AbortAttempt` or `Apply`; late ones are ignored.  An attempt of the same step with the same
   slices may reuse a gradient that is already computed (same weights, same slice: same bits).
4. **Exchange** (absent when ``proposal.exchange`` is ``none``: the reduced gradient is then this
   device's own).  For each bucket the node asks `Work` and `SendFlow`; the host gives `WorkDone`
   and `FlowReceived`.  `exchange` defines the arithmetic, `reduce_plan` the ranges and sizes,
   `wire` and `reassembly` the frames.  Frames of no open attempt are dropped; that is safe, since
   senders wait until a receiver has opened it.  A frame for another member is passed on to
   ``plan.next_hop(me, frame.target)`` unread.
5. **Residuals.**  `Work` computes new residuals beside the old ones; `Apply` makes them valid,
   `AbortAttempt` drops them.  Owner residuals are zeroed when ``plan.shards`` or ``plan.owners``
   differ from those of the last applied step.
6. **Guard.**  `HashReduced` is answered with the hash over the reduced gradient (exponent and
   mantissa bytes of every bucket in order) and the optimizer's scalars for ``tokens`` tokens.
   The reduced gradient is kept until `Apply` or `AbortAttempt`, however long that takes.
7. **Apply** updates the weights once, from step - 1 to step, and is answered with the hash of the
   weights.  It cannot be refused: a device that cannot apply must `Quit`, or give `StateLost` and
   come in again.
8. **Joining.**  `FetchState` builds the run from the room's settings and loads the state of a step
   (the initial weights for step 0); frames come from ``source``, which also has the room's data
   plan: give `PlanWanted`, the source's host gets `ServePlan`.  CATCH_UP flows of following
   steps come on the same link afterwards, for steps up to 2 * `Times.longest_backlog` ahead; give
   `CatchUpReceived` for each.  `StateFailed` is for failures of this device's own, see
   `joining.state_failed`.  `AwaitSteps` announces the same where the state is here already.
   On the source, `KeepState` sets a consistent copy aside, `ServeState` sends it, `SendCatchUp`
   sends the reduced gradient of the step just committed.
   While it trains, a member may ask the leader for footers of the run's data: give `FooterWanted`
   and wait a bounded time for `FooterCame`; answer `ServeFooter` with `FooterRead`.
9. **Links.**  `LinkUp` when all channels to a peer are open both ways, `LinkDown` when the link is
   closed or failed for good.  Control messages are decoded by `wire.decode`; what it refuses is
   counted by the host and never reaches the node.  Close links on `CloseLink`.
10. **Ids** are unique for each page load, see `roster`.

Calls for the page: `Run`, `Pause`, `Away`, `Back`, `Quit`, `Kick`, `Approve`, `ContinueAlone`,
`Rename`; `Notice`, `AskApproval`, `ModeChanged`, `Log`, `Halted` come back.  ``node.members()``
describes everybody for the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from daisychain.cluster import (
    admission,
    attempt,
    election,
    events,
    follower,
    footers,
    halting,
    joining,
    leader,
    messages,
    peers,
    room_messages,
    step_messages,
    vote_messages,
)
from daisychain.cluster.effects import Effect, Mode
from daisychain.cluster.events import Event, Settings
from daisychain.cluster.fields import Reason
from daisychain.cluster.reduce_plan import Layout
from daisychain.cluster.roster import is_id
from daisychain.cluster.state import NO_STATE_HASH, Committed, Core
from daisychain.cluster.times import Times
from daisychain.errors import ClusterError

DEFAULT_TIMES = Times()


@dataclass(frozen=True)
class MemberView:
    """One row of the table of devices; ``weights_hash`` is that of ``step``, empty if not known."""

    id: str
    name: str
    kind: str
    state: str
    step: int
    weights_hash: str
    linked: bool
    leader: bool
    in_roster: bool


class Node:
    """One device's half of the protocol; see the module's text."""

    def __init__(
        self,
        me: str,
        name: str,
        kind: str,
        settings: Settings,
        times: Times = DEFAULT_TIMES,
        now_ms: int = 0,
    ) -> None:
        if not is_id(me):
            raise ClusterError(f"{me!r} is no device id.")
        self.core = Core(me, name, kind, settings, times, now=now_ms)

    def found(
        self, layout: Layout, weights_hash: str, step: int = 0, cursor: int = 0
    ) -> list[Effect]:
        """Start a room of one from these weights; solo training is just this.

        ``step`` and ``cursor`` (the next slice) continue an earlier run.
        """
        core = self.core
        core.layout = layout
        core.committed = Committed(step, 0, "", weights_hash, cursor, (core.me,))
        core.hashes[step] = weights_hash
        leader.take_lead(core, leader.next_epoch(core), mandate=0)
        return self._finish()

    def resume(self, layout: Layout, weights_hash: str, step: int, cursor: int) -> list[Effect]:
        """Come back with the state of a checkpoint; if the room stands there, nothing is loaded."""
        core = self.core
        core.layout = layout
        core.committed = Committed(step, 0, "", weights_hash, cursor, ())
        core.hashes[step] = weights_hash
        return self.join()

    def join(self) -> list[Effect]:
        """Ask whoever leads the room, as soon as there are links."""
        joining.start(self.core)
        return self._finish()

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take in one event at ``now_ms``; what the host is to do, in order."""
        core = self.core
        core.now = max(core.now, now_ms)
        if core.mode is Mode.LEFT:
            return []
        _HANDLERS[type(event)](core, event)
        return self._finish(settle=type(event) not in _BULK)

    def members(self) -> list[MemberView]:
        """This device and every other one heard of, lowest id first."""
        core = self.core
        rows = [self._view(core.me, core.name, core.kind, str(core.mode), True)]
        for device, peer in core.peers.items():
            beat = peer.beat
            state = str(beat.phase) if beat and core.heard(device) else "silent"
            name, kind = (beat.name, beat.kind) if beat else ("", "")
            rows.append(self._view(device, name, kind, state, peer.linked))
        return sorted(rows, key=lambda row: row.id)

    def _view(self, device: str, name: str, kind: str, state: str, linked: bool) -> MemberView:
        core = self.core
        peer = core.peers.get(device)
        told = core.committed if device == core.me else peer.beat if peer else None
        step, weights_hash = (told.step, told.weights_hash) if told else (0, "")
        leads, member = device == core.leader, device in core.roster
        return MemberView(device, name, kind, state, step, weights_hash, linked, leads, member)

    def _finish(self, settle: bool = True) -> list[Effect]:
        core = self.core
        _deliver_local(core)
        if settle:
            leader.settle(core)
            _deliver_local(core)
        effects, core.effects = core.effects, []
        return effects


# ----------------------------------------------------------------------------------- messages


def _deliver_local(core: Core) -> None:
    while core.local:
        dispatch(core, core.me, core.local.popleft())


def dispatch(core: Core, source: str, message: messages.Message) -> None:
    """Hand a message to the part of the protocol that it is for."""
    _RECEIVERS[type(message)](core, source, message)


def _on_commit(core: Core, source: str, message: step_messages.Commit) -> None:
    if not attempt.on_commit(core, source, message):
        leader.stop(core, Reason.GUARD, (source,))


def _on_refuse(core: Core, source: str, message: room_messages.Refuse) -> None:
    if joining.refused(core, source, message):
        leader.leave(core, "removed")
        core.become(Mode.LEFT)


def _on_stop(core: Core, source: str, message: vote_messages.Stop) -> None:
    if core.committed is None or source not in core.roster or core.halting is not None:
        core.dropped["stop from outside"] += 1
    else:
        halting.stop(core, message)


_RECEIVERS: dict[type, Callable[[Core, str, Any], None]] = {
    room_messages.Beat: peers.on_beat,
    room_messages.Leave: peers.on_leave,
    room_messages.Join: admission.on_join,
    room_messages.Refuse: _on_refuse,
    room_messages.Snapshot: admission.on_snapshot,
    room_messages.StateHash: admission.on_state_hash,
    room_messages.Admit: joining.on_admit,
    room_messages.Fetch: admission.on_fetch,
    room_messages.FetchPlan: admission.on_fetch_plan,
    room_messages.FetchFooter: footers.on_fetch_footer,
    room_messages.FooterIs: footers.on_footer_is,
    room_messages.FetchFailed: admission.on_fetch_failed,
    room_messages.CatchUp: joining.on_catch_up,
    room_messages.Synced: admission.on_synced,
    step_messages.Propose: follower.on_propose,
    step_messages.Began: attempt.on_began,
    step_messages.Decline: leader.on_decline,
    step_messages.Computed: attempt.on_computed,
    step_messages.Guard: leader.on_guard,
    step_messages.Commit: _on_commit,
    step_messages.Abort: follower.on_abort,
    vote_messages.Query: election.on_query,
    vote_messages.Status: election.on_status,
    vote_messages.Adopt: election.on_adopt,
    vote_messages.Adopted: election.on_adopted,
    vote_messages.TakeOver: election.on_take_over,
    vote_messages.Drift: halting.on_drift,
    vote_messages.Tree: halting.on_tree,
    vote_messages.Stop: _on_stop,
}


# ------------------------------------------------------------------------------------- events


def _received(core: Core, event: events.Received) -> None:
    message = peers.receive(core, event.link, event.envelope)
    if message is not None:
        dispatch(core, event.envelope.source, message)


def _tick(core: Core, event: events.Tick) -> None:
    if core.mode is Mode.AWAY and 0 <= core.return_ms <= core.now:
        _back(core, events.Back())
    peers.tick(core)
    halting.tick(core)
    election.tick(core)
    follower.tick(core)
    joining.tick(core)
    leader.tick(core)


def _link_up(core: Core, event: events.LinkUp) -> None:
    peers.link_up(core, event.peer)


def _coming(core: Core, event: events.Coming) -> None:
    admission.coming(core, event.device)


def _link_down(core: Core, event: events.LinkDown) -> None:
    peers.link_down(core, event.peer)
    follower.tick(core)


def _run(core: Core, event: events.Run) -> None:
    core.running = True
    _back(core, events.Back())


def _pause(core: Core, event: events.Pause) -> None:
    core.running = False
    if core.leads:
        core.notice("paused", "Training is paused.")
    else:
        _away(core, events.Away("paused"))


def _away(core: Core, event: events.Away) -> None:
    core.return_ms = -1  # whatever took it away brings it back
    core.state_hash = NO_STATE_HASH  # a device that is lost answers nothing that it was asked
    if core.mode not in (Mode.HALTED, Mode.AWAY):
        leader.leave(core, event.why)
        core.become(Mode.AWAY)
        peers.beat(core)


def _back(core: Core, event: events.Back) -> None:
    if core.mode is not Mode.AWAY:
        return
    if core.roster == (core.me,):
        core.left.clear()
        core.bound = ""
        leader.take_lead(core, leader.next_epoch(core), mandate=0)
    else:
        joining.start(core)
    peers.beat(core)


def _quit(core: Core, event: events.Quit) -> None:
    leader.leave(core, event.why)
    core.become(Mode.LEFT)


def _kick(core: Core, event: events.Kick) -> None:
    """Only a leader has to do anything: where the host is another device, the door cuts the removed
    one's links to all, and the leader finds it out of reach."""
    if core.leads:
        leader.kick(core, event.peer)


def _approve(core: Core, event: events.Approve) -> None:
    admission.approve(core, event.peer, event.accept)


def _continue_alone(core: Core, event: events.ContinueAlone) -> None:
    at = core.committed
    if at is None or core.mode is not Mode.PAUSED:
        return
    attempt.abort(core)
    core.vote, core.bound = None, ""
    core.left.clear()
    core.committed = replace(at, roster=(core.me,))
    leader.take_lead(core, leader.next_epoch(core))


def _rename(core: Core, event: events.Rename) -> None:
    core.name = event.name[:64]


def _compute_failed(core: Core, event: events.ComputeFailed) -> None:
    if core.attempt is not None and core.attempt.key == (event.step, event.epoch):
        leader.step_aside(core, event.why, "This device could not compute its part of a step")


def _state_lost(core: Core, event: events.StateLost) -> None:
    _away(core, events.Away(event.why))
    if core.committed is not None:
        core.committed = replace(core.committed, weights_hash="")


def _applied(core: Core, event: events.Applied) -> None:
    if attempt.weights_known(core, event.step, event.weights_hash):
        joining.catch_up(core)
        follower.consider(core)


def _state_progress(core: Core, event: events.StateProgress) -> None:
    joining.state_progress(core)


def _state_failed(core: Core, event: events.StateFailed) -> None:
    if joining.state_failed(core, event):
        _quit(core, events.Quit(event.why))


def _catch_up_received(core: Core, event: events.CatchUpReceived) -> None:
    joining.catch_up_received(core, event.step)


_BULK = (events.BucketReady, events.WorkDone, events.FlowReceived)
"""Events that come in numbers and give the leader nothing to decide."""

_HANDLERS: dict[type, Callable[[Core, Any], None]] = {
    events.Tick: _tick,
    events.LinkUp: _link_up,
    events.Coming: _coming,
    events.LinkDown: _link_down,
    events.Received: _received,
    events.Run: _run,
    events.Pause: _pause,
    events.Away: _away,
    events.Back: _back,
    events.Quit: _quit,
    events.Kick: _kick,
    events.Approve: _approve,
    events.ContinueAlone: _continue_alone,
    events.Rename: _rename,
    events.BucketReady: attempt.bucket_ready,
    events.ComputeDone: attempt.compute_done,
    events.ComputeFailed: _compute_failed,
    events.StateLost: _state_lost,
    events.WorkDone: attempt.work_done,
    events.FlowReceived: attempt.flow_received,
    events.ReducedHashed: attempt.reduced_hashed,
    events.Applied: _applied,
    events.StateHashed: admission.state_hashed,
    events.StateLoaded: joining.state_loaded,
    events.StateProgress: _state_progress,
    events.PlanWanted: joining.plan_wanted,
    events.FooterWanted: footers.wanted,
    events.FooterRead: footers.read,
    events.StateFailed: _state_failed,
    events.CatchUpReceived: _catch_up_received,
    events.LeavesRead: halting.leaves_read,
}
