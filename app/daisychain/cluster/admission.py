"""How others come in: the leader admits and picks a source, the source serves the state.

The room trains on while a newcomer loads: the source keeps a copy of the state of one step, and
passes on the reduced gradient of each later step, which the newcomer applies as everybody did.
"""

from __future__ import annotations

from daisychain.cluster import halting
from daisychain.cluster.effects import (
    AskApproval,
    CloseLink,
    HashState,
    KeepState,
    Mode,
    ServePlan,
    ServeState,
    StopServing,
)
from daisychain.cluster.events import StateHashed
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.fields import Reason
from daisychain.cluster.room_messages import (
    Admit,
    Fetch,
    FetchFailed,
    FetchPlan,
    Join,
    Refuse,
    Snapshot,
    StateHash,
    Synced,
)
from daisychain.cluster.roster import MAX_MEMBERS
from daisychain.cluster.state import Core, Joiner, Lead

HOLDS_IN_FIRST_STEPS = 4
"""A device whose first steps were given up for as many times its longest hold stays outside..."""
OUTSIDE_A_MS_HELD = 10
"""... for as many milliseconds as make good for one: so it costs the room a tenth of the time at
most, however often it comes."""

# -------------------------------------------------------------------------------- the leader


def on_join(core: Core, source: str, message: Join) -> None:
    """A device asks to take part, or to take part again."""
    lead, at = core.lead, core.committed
    if lead is None or at is None or core.mode not in (Mode.MEMBER, Mode.PAUSED):
        core.dropped["join while not leading"] += 1
        return
    if source in core.banned:
        core.send(source, Refuse(Reason.KICKED))
        core.do(CloseLink(source))
        return
    if source not in core.known and not core.settings.approve_all:
        if source not in core.asked and len(core.asked) < 2 * MAX_MEMBERS:
            core.asked.add(source)
            core.do(AskApproval(source, message.name, message.kind))
        return
    core.note_epoch(message.after_epoch)
    note_leaver(core, source, message.after_epoch, message.step, message.bound)
    attempt = core.attempt
    if attempt is not None and source in attempt.roster:
        if message.step >= at.step and source not in attempt.began:
            core.send(source, attempt.proposal)
            return
        if message.step >= at.step:
            return
    others = set(at.roster) | set(lead.joiners)
    held_ms = lead.held_ms[source]
    if source not in at.roster and held_ms >= HOLDS_IN_FIRST_STEPS * core.longest_hold_ms():
        core.send(source, Refuse(Reason.DEADLINE))
        return
    if source not in others and len(others) >= core.settings.max_members:
        core.send(source, Refuse(Reason.FULL))
        return
    same = bool(message.weights_hash) and (
        (message.step, message.epoch, message.reduced_hash) == (at.step, at.epoch, at.reduced_hash)
    )
    if same and at.weights_hash and message.weights_hash != at.weights_hash:
        if source in at.roster:
            halting.drifted(core, source, at.step, message.weights_hash)
            return
        same = False
    if source in at.roster and source not in core.left:
        if same:
            lead.left_out.discard(source)
            return
        lead.left_out.add(source)
        core.look_around = True
    known = lead.joiners.get(source)
    if known is not None and not same and _is_being_hashed(core, known):
        known.after_epoch = max(known.after_epoch, message.after_epoch)
        return
    joiner = Joiner(message.name, message.kind, core.now, message.after_epoch)
    joiner.synced_step = at.step if same else -1
    lead.joiners[source] = joiner
    admit_waiting(core, lead)


def note_leaver(core: Core, source: str, epoch: int, step: int, bound: str) -> None:
    """Count a voter out for the next step, unless it may have voted on that before it left."""
    at = core.committed
    if at is None or source not in at.roster or epoch < at.epoch or step > at.step:
        return
    if step < at.step or not bound or (bound == core.me and core.leads):
        core.left.add(source)


def approve(core: Core, peer: str, accept: bool) -> None:
    """The person's answer about a joiner; it asks again soon, and is then let in."""
    core.asked.discard(peer)
    if accept:
        core.known.add(peer)
    else:
        core.asked.add(peer)
        core.send(peer, Refuse(Reason.NOT_APPROVED))


def admit_waiting(core: Core, lead: Lead) -> None:
    """Give every waiting joiner a source, once the current state is known.

    Not during a step of a room of one: its gradient is exact and large, and is not passed on.
    """
    at, attempt = core.committed, core.attempt
    alone = attempt is not None and attempt.proposal.exchange is Exchange.NONE
    if at is None or not at.weights_hash or alone:
        return
    for name, joiner in lead.joiners.items():
        if joiner.source:
            continue
        joiner.source = _least_busy(core, lead, name)
        joiner.step, joiner.copied = at.step, at.step > 0 and joiner.synced_step != at.step
        joiner.progress_ms = joiner.gained_ms = core.now
        joiner.expected = joiner.source_hash = ""
        core.send(joiner.source, Snapshot(at.step, name, joiner.copied))
        if at.step == 0:
            joiner.expected = at.weights_hash
        if joiner.synced_step == at.step or at.step == 0:
            _send_admit(core, name, joiner)
        else:
            joiner.expected = _state_hash(core, at.step)
            _compare(core, name, joiner)


def _is_being_hashed(core: Core, joiner: Joiner) -> bool:
    """True for one that waits for hashes of the current state: asking again makes it no faster."""
    at = core.committed
    assert at is not None
    waits = bool(joiner.source) and not joiner.admitted
    return waits and joiner.step == at.step and core.alive(joiner.source)


def _state_hash(core: Core, step: int) -> str:
    """The hash of the current state, empty until it is known: it is asked for once a step, however
    many come in, and however often."""
    if core.state_hash[0] != step:
        core.state_hash = step, ""
        core.do(HashState(step))
    return core.state_hash[1]


def _least_busy(core: Core, lead: Lead, name: str) -> str:
    """The member with the fewest joiners and the lightest load; at best linked to the joiner."""
    feeding = [other.source for other in lead.joiners.values()]
    links = core.links()
    members = [m for m in core.roster if core.alive(m) and m not in lead.left_out and m != name]
    good = [member for member in members if member not in lead.distrust.get(name, ())]

    def load(member: str) -> tuple[bool, int, bool, int, str]:
        return (
            name not in links.get(member, ()),
            feeding.count(member),
            member == core.me,
            -(core.speeds.micro_ms(member) or 0),
            member,
        )

    return min(good or [core.me], key=load)


def state_hashed(core: Core, event: StateHashed) -> None:
    """This device's whole state is hashed: for the joiners that it admits or serves."""
    if core.state_hash[0] == event.step:
        core.state_hash = event.step, event.state_hash
    for name, joiner in tuple(core.lead.joiners.items()) if core.lead else ():
        if joiner.step == event.step and joiner.source and not joiner.expected:
            joiner.expected = event.state_hash
            _compare(core, name, joiner)
    if event.step in core.hashing and core.leader:
        core.hashing.discard(event.step)
        core.send(core.leader, StateHash(event.step, event.state_hash))


def on_state_hash(core: Core, source: str, message: StateHash) -> None:
    """A source's hash of the state that it would serve."""
    if core.lead is None:
        return
    for name, joiner in tuple(core.lead.joiners.items()):
        if joiner.source == source and joiner.step == message.step and not joiner.source_hash:
            joiner.source_hash = message.state_hash
            _compare(core, name, joiner)


def _compare(core: Core, name: str, joiner: Joiner) -> None:
    assert core.lead is not None
    if joiner.admitted or not joiner.expected:
        return
    if joiner.source == core.me or joiner.source_hash == joiner.expected:
        _send_admit(core, name, joiner)
    elif joiner.source_hash:
        core.notice(
            "source", "A device would serve a wrong state; another one does.", (joiner.source,)
        )
        _distrust(core.lead, name, joiner.source)
        joiner.source = ""
        admit_waiting(core, core.lead)


def _distrust(lead: Lead, joiner: str, source: str) -> None:
    lead.distrust.setdefault(joiner, set()).add(source)


def _send_admit(core: Core, name: str, joiner: Joiner) -> None:
    at = core.committed
    assert at is not None
    assert core.lead is not None
    if at.step != joiner.step:
        joiner.source = ""
        return
    joiner.admitted, joiner.progress_ms = True, core.now
    core.send(
        name,
        Admit(
            at.step,
            at.epoch,
            core.lead.mandate,
            joiner.source,
            at.reduced_hash,
            at.weights_hash,
            joiner.expected,
            at.cursor,
            at.roster,
            core.settings.text,
        ),
    )


def on_synced(core: Core, source: str, message: Synced) -> None:
    """A joiner holds the weights of a step: check them.

    One that this device does not wait for, because it leads no more or gave the joiner up, asks
    again: the feed of its source goes on, so nothing else would tell it.
    """
    if core.lead is None or source not in core.lead.joiners:
        core.send(source, Refuse(Reason.JOIN))
        return
    joiner = core.lead.joiners[source]
    wanted = core.hashes.get(message.step)
    if wanted is not None and wanted != message.weights_hash:
        _distrust(core.lead, source, joiner.source)
        joiner.source, joiner.synced_step, joiner.admitted = "", -1, False
        admit_waiting(core, core.lead)
    elif message.step > joiner.synced_step:
        if joiner.synced_step < joiner.step and core.committed is not None:
            joiner.lag_step = core.committed.step
            joiner.lag = joiner.lag_step - message.step
        joiner.synced_step, joiner.progress_ms = message.step, core.now
        joiner.gained_ms = core.now


def on_fetch_failed(core: Core, source: str, message: FetchFailed) -> None:
    """A joiner got no state, or a wrong one: try another source; if it was this one, stop.

    If it was the joiner's own doing, nobody is blamed, and nothing is kept for it until it asks.
    """
    if message.source in (source, core.me) and core.feeds.get(source, 0) <= message.step:
        stop_feeding(core, source)
    if message.source == source:
        if core.lead is not None:
            core.lead.joiners.pop(source, None)
        return
    if core.lead is None or message.source not in core.roster:
        return
    if source not in core.lead.joiners and source not in core.lead.distrust:
        return
    _distrust(core.lead, source, message.source)
    joiner = core.lead.joiners.get(source)
    if joiner is not None and joiner.source == message.source:
        joiner.source, joiner.admitted = "", False
        admit_waiting(core, core.lead)


def ready(core: Core, lead: Lead) -> list[str]:
    """The joiners that can take part in the next step."""
    at = core.committed
    assert at is not None
    return [
        name
        for name, joiner in lead.joiners.items()
        if joiner.admitted and joiner.synced_step >= max(0, at.step - 1) and core.alive(name)
    ]


def coming(core: Core, device: str) -> None:
    """A device will ask to take part soon."""
    if len(core.coming) < MAX_MEMBERS:
        core.coming.add(device)


def holds_first_step(core: Core, lead: Lead) -> bool:
    """True while a founder's first step waits for those that are coming in; for a while at most."""
    at = core.committed
    assert at is not None
    if at.step or at.roster != (core.me,):
        return False
    awaited = (core.coming | lead.joiners.keys()).difference(core.banned, ready(core, lead))
    if awaited and core.hold_ms < 0:
        core.hold_ms = core.now
    return bool(awaited) and core.now - core.hold_ms < core.times.first_step_hold_ms


def count_holds(core: Core, lead: Lead) -> None:
    """Book for how long the room has waited for joiners that fall behind."""
    for name in lead.holding:
        lead.held_ms[name] += core.now - lead.settled_ms
    lead.holding, lead.settled_ms = (), core.now
    _forgive(core, lead)


def _forgive(core: Core, lead: Lead) -> None:
    """Those that have stayed outside meanwhile may be waited for again for a part of that time."""
    made_good_ms = (core.now - lead.forgiven_ms) // OUTSIDE_A_MS_HELD
    lead.forgiven_ms += made_good_ms * OUTSIDE_A_MS_HELD
    if not made_good_ms:
        return
    outside = lead.held_ms.keys() - lead.joiners.keys() - set(core.roster)
    lead.held_ms -= dict.fromkeys(outside, made_good_ms)


def earn(lead: Lead, roster: tuple[str, ...], step_ms: int) -> None:
    """Those that have made a step together may be waited for again for as long."""
    lead.held_ms -= dict.fromkeys(roster, step_ms)


def backlog_full(core: Core, lead: Lead) -> bool:
    """True while a joiner must not fall back any further; each is waited for so long in all."""
    longest_ms = core.longest_hold_ms()
    lead.holding = tuple(
        name
        for name, joiner in lead.joiners.items()
        if joiner.admitted and core.alive(name) and lead.held_ms[name] < longest_ms
        if _behind(core, joiner) >= _patience(core, joiner)
    )
    return bool(lead.holding)


def _behind(core: Core, joiner: Joiner) -> int:
    at = core.committed
    assert at is not None
    return at.step - max(joiner.step, joiner.synced_step)


def _patience(core: Core, joiner: Joiner) -> int:
    """So many steps behind are too many: one that has loaded must gain one with every step."""
    at = core.committed
    assert at is not None
    if joiner.synced_step < joiner.step:
        return core.backlog()
    return max(2, joiner.lag + 1 - (at.step - joiner.lag_step))


def watch(core: Core, lead: Lead) -> None:
    """Drop joiners that are gone or stuck; give a source to those that have none."""
    at = core.committed
    assert at is not None
    for name, joiner in tuple(lead.joiners.items()):
        beat = core.peers[name].beat if name in core.peers else None
        believed = core.now - joiner.gained_ms <= core.times.loading_limit_ms
        loading = beat is not None and beat.busy_ms > 0 and believed
        if loading or joiner.synced_step == at.step:
            joiner.progress_ms = core.now
        stuck = core.now - joiner.progress_ms > core.times.transfer_stall_ms
        if stuck or not core.alive(name):
            del lead.joiners[name]
        elif joiner.source and not core.alive(joiner.source):
            joiner.source, joiner.admitted = "", False
    admit_waiting(core, lead)


# -------------------------------------------------------------------------------- the source


def on_snapshot(core: Core, source: str, message: Snapshot) -> None:
    """The leader asks this device to serve a joiner from the current state on."""
    at = core.committed
    if source != core.leader or at is None or at.step != message.step:
        core.dropped["snapshot out of step"] += 1
        return
    core.feeds[message.joiner] = message.step
    if message.copy:
        core.do(KeepState(message.joiner, message.step))
        if core.leads:
            return
        if known := _state_hash(core, message.step):
            core.send(source, StateHash(message.step, known))
        else:
            core.hashing.add(message.step)


def on_fetch(core: Core, source: str, message: Fetch) -> None:
    """A joiner is ready for the state kept for it."""
    if core.feeds.get(source) == message.step:
        core.do(ServeState(source, message.step))


def on_fetch_plan(core: Core, source: str, message: FetchPlan) -> None:
    """A joiner that this device feeds asks for the data plan."""
    if source in core.feeds:
        core.do(ServePlan(source, message.plan_hash))
    else:
        core.dropped["plan for a stranger"] += 1


def stop_feeding(core: Core, joiner: str) -> None:
    """Drop what was kept for a joiner that is gone."""
    if core.feeds.pop(joiner, None) is not None:
        core.do(StopServing(joiner))
