"""Links, heartbeats and the forwarding of control messages."""

from __future__ import annotations

from daisychain.cluster import attempt as steps
from daisychain.cluster import follower, joining
from daisychain.cluster.admission import note_leaver, stop_feeding
from daisychain.cluster.effects import CloseLink, Mode, Send
from daisychain.cluster.fields import Phase, Reason
from daisychain.cluster.messages import Envelope, Message
from daisychain.cluster.room_messages import Beat, Leave, Refuse
from daisychain.cluster.roster import MAX_MEMBERS, is_id
from daisychain.cluster.state import MAX_PEERS, SILENT_MS, Core, Peer


def link_up(core: Core, device: str) -> None:
    """The channels to a device are open."""
    if not is_id(device) or device == core.me:
        core.dropped["strange link"] += 1
        return
    peer = _peer(core, device)
    if peer is None:
        core.do(CloseLink(device))
        return
    peer.linked, peer.linked_ms, peer.heard_ms = True, core.now, core.now
    if device in core.banned:
        core.banned[device] = core.now
        core.send(device, Refuse(Reason.KICKED))
        return
    _beat_to(core, device)
    if core.joining is not None and not core.joining.source:
        joining.ask(core)


def link_down(core: Core, device: str) -> None:
    """The channels to a device are closed."""
    core.look_around = True
    if device in core.peers:
        core.peers[device].linked, core.peers[device].direct_ms = False, SILENT_MS
        if device in core.banned or core.way_to(device) is None:
            core.peers[device].heard_ms = SILENT_MS


def _peer(core: Core, device: str) -> Peer | None:
    """The device's record; a stale one makes room for it, None if there is no room."""
    if device not in core.peers:
        if len(core.peers) >= MAX_PEERS:
            stale = [
                name
                for name, peer in core.peers.items()
                if not peer.linked and not core.heard(name) and name not in core.roster
            ]
            if not stale:
                core.dropped["too many peers"] += 1
                return None
            del core.peers[stale[0]]
        core.peers[device] = Peer(heard_ms=SILENT_MS)
    return core.peers[device]


def receive(core: Core, link: str, envelope: Envelope) -> Message | None:
    """Books who was heard; passes on what is for others; the message if it is for this device."""
    source = envelope.source
    relayed = link != source
    if link not in core.peers or source == core.me or (relayed and not _trusted(core, link)):
        core.dropped["strange link"] += 1
        return None
    if link in core.banned and not isinstance(envelope.message, Leave):
        core.dropped["banned"] += 1
        return None
    if relayed and core.speaks_for_itself(source):
        core.dropped["in another's name"] += 1
        return None
    if envelope.target != core.me:
        _forward(core, link, envelope)
        return None
    peer = _peer(core, source)
    if peer is None:
        return None
    peer.heard_ms = core.now
    if not relayed:
        peer.direct_ms = core.now
    return envelope.message


def _trusted(core: Core, link: str) -> bool:
    """True if messages of others may come through ``link``: it was let into the room."""
    return core.committed is None or link in core.known


def _forward(core: Core, link: str, envelope: Envelope) -> None:
    hop = core.way_to(envelope.target)
    if hop is None or hop == link or envelope.hops == 0:
        core.dropped["cannot forward"] += 1
        return
    onward = Envelope(envelope.source, envelope.target, envelope.hops - 1, envelope.message)
    core.do(Send(hop, onward))


# --------------------------------------------------------------------------------- heartbeats


def beat(core: Core) -> None:
    """Tell every linked peer how this device is."""
    core.beat_ms = core.now
    core.sequence += 1
    for device, peer in core.peers.items():
        if peer.linked:
            _beat_to(core, device)


def _beat_to(core: Core, device: str) -> None:
    at = core.committed
    message = Beat(
        core.sequence,
        core.promised,
        core.leader if core.leader != core.me or core.leads else "",
        at.step if at else 0,
        at.weights_hash if at else "",
        _phase(core),
        joining.progress_left_ms(core),
        tuple(sorted(name for name, peer in core.peers.items() if peer.linked))[:MAX_MEMBERS],
        steps.waiting_for(core),
        core.name,
        core.kind,
    )
    core.send(device, message)


def _phase(core: Core) -> Phase:
    if core.mode in (Mode.AWAY, Mode.LEFT):
        return Phase.LEFT
    if core.mode is Mode.MEMBER:
        if core.attempt is None:
            return Phase.IDLE
        return Phase.COMPUTE if core.attempt.guard is None else Phase.GUARD
    return Phase(core.mode.value)


def on_beat(core: Core, source: str, message: Beat) -> None:
    """Note how a peer is, pass it on to those that are not linked to it."""
    peer = core.peers[source]
    if peer.beat is not None and message.sequence <= peer.beat.sequence:
        return
    peer.beat = message
    if source in core.known:
        core.note_epoch(message.epoch)
    for device, other in core.peers.items():
        if other.linked and device != source and device not in message.links:
            core.do(Send(device, Envelope(source, device, 1, message)))
    if follower.leads(core, source):
        _meet_leader(core, source, message)


def _meet_leader(core: Core, source: str, message: Beat) -> None:
    """Another device leads: join it if it has the better claim."""
    if core.joining is not None:
        if not core.joining.source and source not in core.joining.asked:
            joining.ask(core)
        return
    at = core.committed
    stuck = core.mode is Mode.PAUSED
    if at is None or (core.lead is None and not stuck) or source == core.me:
        return
    fresh = core.known <= {core.me}  # nobody else has ever trained in this room
    theirs, mine = (message.step, source), (at.step, core.me)
    ahead = theirs[0] > mine[0] or (theirs[0] == mine[0] and theirs[1] < mine[1])
    if source in core.roster:
        if message.epoch > core.promised or stuck:
            joining.start(core)
    elif ahead and (fresh or source in core.known):
        core.notice("merged", "Another room with this code is ahead; joining it.", (source,))
        joining.start(core, abandon=True)
    elif ahead:
        core.notice("other room", "Another device leads a room with this code.", (source,))


def on_leave(core: Core, source: str, message: Leave) -> None:
    """A peer goes on purpose: it neither works nor votes until it is taken in again."""
    core.look_around = True
    core.peers[source].heard_ms = SILENT_MS
    core.peers[source].beat = None
    note_leaver(core, source, message.epoch, message.step, message.bound)
    if core.lead is not None:
        core.lead.joiners.pop(source, None)
    stop_feeding(core, source)
    if source in core.banned:
        core.do(CloseLink(source))
    follower.tick(core)


def tick(core: Core) -> None:
    """Send heartbeats when due; close what is left of removed devices."""
    core.look_around = True
    if core.now - core.beat_ms >= core.times.beat_ms:
        beat(core)
        for device in core.banned:
            if core.leads and core.present(device):
                core.send(device, Refuse(Reason.KICKED))
    for joiner in tuple(core.feeds):
        if not core.alive(joiner):
            stop_feeding(core, joiner)
    for device, since in core.banned.items():
        peer = core.peers.get(device)
        if peer is not None and peer.linked and core.now - since >= core.times.suspect_ms:
            core.do(CloseLink(device))
