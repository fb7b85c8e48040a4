"""The memory of one device in the protocol, and the few helpers that every part of it uses.

`protocol.Node` owns one `Core`; `attempt`, `leader`, `election`, `joining` and `halting` are
functions over it.  Nothing here reads a clock or does I/O: ``core.now`` is set by the node, and
effects collect in ``core.effects``.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from daisychain.cluster.effects import Effect, Mode, ModeChanged, Notice, Send
from daisychain.cluster.events import Settings
from daisychain.cluster.fields import Phase
from daisychain.cluster.hashtree import HashTree
from daisychain.cluster.messages import Envelope, Message
from daisychain.cluster.reduce_plan import Flow, Layout, ReducePlan
from daisychain.cluster.room_messages import Beat, CatchUp
from daisychain.cluster.roster import MAX_MEMBERS, next_hop, symmetric
from daisychain.cluster.schedule import Speeds
from daisychain.cluster.step_messages import Computed, Guard, Propose
from daisychain.cluster.times import Times
from daisychain.cluster.vote_messages import Status
from daisychain.cluster.wire import MAX_HOPS
from daisychain.model.config import STATE_BYTES

SILENT_MS = -(1 << 40)
MAX_PEERS = 2 * MAX_MEMBERS
HISTORY = 16
"""Steps of which the weights hash is remembered."""
EPOCH_LEAP = 1 << 20
NO_STATE_HASH = (-1, "")
MAX_EARLY = 4 * MAX_MEMBERS
"""Messages kept that belong to an attempt whose proposal has not come yet."""


@dataclass(slots=True)
class Peer:
    """Another device, linked or only heard of: lately over whatever way, and over its own link."""

    linked: bool = False
    linked_ms: int = 0
    heard_ms: int = 0
    direct_ms: int = SILENT_MS
    beat: Beat | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The last applied step; ``weights_hash`` is empty until the host has applied it."""

    step: int
    epoch: int
    reduced_hash: str
    weights_hash: str
    cursor: int
    roster: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Vote:
    """A promise that an attempt shall stand, given at ``epoch``; see `election`."""

    step: int
    epoch: int
    attempt: int
    reduced_hash: str
    roster: tuple[str, ...]

    @property
    def value(self) -> tuple[int, int, str]:
        """What the vote is for, whenever it was given."""
        return self.step, self.attempt, self.reduced_hash


@dataclass(slots=True)
class Bucket:
    """Progress of one bucket; sets of members are bit masks over the roster."""

    ready: bool = False
    exponents: int = 0
    agreed: int = 0
    gradients: int = 0
    sums: int = 0
    merging: bool = False
    quantising: bool = False
    quantised: bool = False
    reducing: bool = False
    done: bool = False


@dataclass(slots=True)
class Attempt:
    """A step under way, as any member sees it.  ``guard`` is set once it is prepared."""

    proposal: Propose
    leader: str
    plan: ReducePlan
    me: int
    started_ms: int
    deadline_ms: int
    roster: tuple[str, ...]
    buckets: list[Bucket]
    open_buckets: int
    began: set[str] = field(default_factory=set)
    waiting: list[Flow] = field(default_factory=list)
    computed: dict[str, Computed] = field(default_factory=dict)
    computed_ms: int = 0
    hashing: bool = False
    guard: Guard | None = None

    @property
    def key(self) -> tuple[int, int]:
        """(step, epoch), which names the attempt."""
        return self.proposal.step, self.proposal.epoch

    @property
    def vote(self) -> Vote | None:
        """The vote that being prepared amounts to."""
        if self.guard is None:
            return None
        step, epoch = self.key
        return Vote(step, epoch, epoch, self.guard.reduced_hash, self.roster)


@dataclass(slots=True)
class Joiner:
    """A device on its way in, as the leader sees it.

    ``synced_step`` is -1 until it holds any state of this run; ``expected`` is the hash that the
    state must have; ``progress_ms`` is when it last made progress or said that it is loading,
    ``gained_ms`` when it was given a source or gained a step; ``after_epoch``: see
    `room_messages.Join`.  ``lag`` is by how much it was behind the room's step ``lag_step`` when it
    had loaded.
    """

    name: str
    kind: str
    progress_ms: int
    after_epoch: int = 0
    gained_ms: int = 0
    source: str = ""
    step: int = 0
    copied: bool = False
    expected: str = ""
    source_hash: str = ""
    admitted: bool = False
    synced_step: int = -1
    lag: int = 0
    lag_step: int = 0


@dataclass(slots=True)
class Lead:
    """What only the leader keeps.

    ``mandate`` is the epoch at which it was elected; ``distrust`` names for each joiner the
    sources that failed it.  ``holding``: the joiners for which the room waits since ``settled_ms``;
    ``held_ms``: how long it has waited so far for each device outside, however often that asked to
    come in, and in first steps that were given up for it; made good by steps and by staying outside
    (up to ``forgiven_ms``).
    """

    mandate: int
    guards: dict[str, Guard] = field(default_factory=dict)
    expired: int = 0
    disagreed: int = 0
    left_out: set[str] = field(default_factory=set)
    newcomers: set[str] = field(default_factory=set)
    joiners: dict[str, Joiner] = field(default_factory=dict)
    distrust: dict[str, set[str]] = field(default_factory=dict)
    holding: tuple[str, ...] = ()
    settled_ms: int = 0
    forgiven_ms: int = 0
    held_ms: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Election:
    """A candidacy of this device; ``value`` is the attempt that it wants to stand."""

    epoch: int
    asked: tuple[str, ...]
    until_ms: int
    answers: dict[str, Status] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    value: Vote | None = None
    votes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Joining:
    """This device's own way in; ``source`` is empty until it is admitted."""

    asked_ms: int
    asked: set[str] = field(default_factory=set)
    leader: str = ""
    source: str = ""
    step: int = 0
    expected: str = ""
    weights_hash: str = ""
    loaded: bool = False
    pending: Committed | None = None
    synced_step: int = -1
    progress_ms: int = 0
    queue: dict[int, CatchUp] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Halting:
    """The search for what differs; ``claims`` are weights hashes, ``trees`` tree nodes."""

    step: int
    until_ms: int
    participants: frozenset[str]
    claims: dict[str, str] = field(default_factory=dict)
    tree: HashTree | None = None
    trees: dict[str, dict[tuple[int, int], tuple[str, ...]]] = field(default_factory=dict)
    level: int = -1
    index: int = 0
    finished: bool = False


@dataclass(slots=True)
class Core:
    """Everything that one device remembers.

    ``promised`` and ``leader``: whom this device follows, and from which epoch on; ``seen`` is
    the highest epoch heard of.  ``left``: voters of the last committed roster that gave up their
    vote, by leaving or by coming in anew; ``banned``: who was removed, and when.
    ``coming`` are those that step 1 may wait for, since ``hold_ms``.
    ``hashing``: the steps of which the leader is owed the hash of the whole state; ``state_hash``:
    a step and that hash, empty while the host works it out.
    ``return_ms``: when a device that stepped aside by itself comes back, or last did; -1 where only
    `Back` or `Run` brings it back; ``pause_ms``: for how long it stepped aside last.
    ``own_failures``: how often in a row
    this device failed to take the room's state in; until ``rest_until_ms`` it does not ask.
    ``footers``: who was asked for a file's footer, by file and part.
    ``look_around`` says that a member may have become unable to go on.  ``left_epoch`` and
    ``bound`` are what this device said when it left, see `room_messages.Leave`.
    """

    me: str
    name: str
    kind: str
    settings: Settings
    times: Times
    layout: Layout | None = None
    now: int = 0
    mode: Mode = Mode.JOINING
    running: bool = False
    promised: int = 0
    seen: int = 0
    leader: str = ""
    vote: Vote | None = None
    ended: tuple[int, int] = (0, 0)
    left_epoch: int = 0
    bound: str = ""
    committed: Committed | None = None
    attempt: Attempt | None = None
    held: tuple[str, Propose] | None = None
    lead: Lead | None = None
    election: Election | None = None
    joining: Joining | None = None
    halting: Halting | None = None
    peers: dict[str, Peer] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    banned: dict[str, int] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    coming: set[str] = field(default_factory=set)
    hold_ms: int = -1
    feeds: dict[str, int] = field(default_factory=dict)
    footers: dict[tuple[int, int], str] = field(default_factory=dict)
    hashing: set[int] = field(default_factory=set)
    state_hash: tuple[int, str] = NO_STATE_HASH
    pause_ms: int = 0
    return_ms: int = -1
    own_failures: int = 0
    rest_until_ms: int = 0
    speeds: Speeds = field(default_factory=Speeds)
    step_ms: deque[int] = field(default_factory=lambda: deque(maxlen=64))
    hashes: dict[int, str] = field(default_factory=dict)
    early: deque[tuple[str, Message]] = field(default_factory=lambda: deque(maxlen=MAX_EARLY))
    look_around: bool = False
    idle_ms: int = 0
    leader_lost_ms: int = -1
    stood_ms: int = -1
    bound_ms: int = -1
    beat_ms: int = -1 << 40
    sequence: int = 0
    noticed: set[str] = field(default_factory=set)
    dropped: Counter[str] = field(default_factory=Counter)
    effects: list[Effect] = field(default_factory=list)
    local: deque[Message] = field(default_factory=deque)

    def note_epoch(self, epoch: int) -> None:
        """Remember that ``epoch`` is in use; an absurd one must not use up the numbers."""
        if not self.is_absurd(epoch):
            self.seen = max(self.seen, epoch)

    def is_absurd(self, epoch: int) -> bool:
        """True if no leader can have come so far since this device last heard of one."""
        return epoch - max(self.seen, self.promised) > EPOCH_LEAP

    def has_ended(self, step: int, epoch: int) -> bool:
        """True for an attempt that was given up: whatever comes after it has a higher epoch."""
        return epoch <= self.ended[1] and (step, epoch) <= self.ended

    # ------------------------------------------------------------------------------- sending

    def do(self, effect: Effect) -> None:
        """Ask the host for something."""
        self.effects.append(effect)

    def send(self, target: str, message: Message) -> None:
        """Send along the shortest known way; to this device itself in the same event."""
        if target == self.me:
            self.local.append(message)
            return
        link = self.way_to(target)
        if link is None:
            self.dropped["no way"] += 1
        else:
            self.do(Send(link, Envelope(self.me, target, MAX_HOPS, message)))

    def broadcast(self, targets: tuple[str, ...], message: Message) -> None:
        """Send to each of ``targets``."""
        for target in targets:
            self.send(target, message)

    def notice(self, code: str, text: str, devices: tuple[str, ...] = ()) -> None:
        """Tell the person something, once until the mode changes."""
        if code not in self.noticed:
            self.noticed.add(code)
            self.do(Notice(code, text, devices))

    def notice_end(self, step: int) -> bool:
        """Tell the person, once, if the run is complete at this step; True if it is."""
        last = self.settings.last_step
        if not last or step < last:
            return False
        self.notice("finished", f"All {last} steps are done.")
        return True

    def become(self, mode: Mode) -> None:
        """Change the mode and say so."""
        if mode is not self.mode:
            self.mode = mode
            self.noticed.clear()
            self.do(ModeChanged(mode))

    def stand_still(self, missing: tuple[str, ...]) -> None:
        """Too few voters are in reach to decide anything, which may stay so for good."""
        self.become(Mode.PAUSED)
        self.notice(
            "no quorum",
            "Too few devices of the last step are in reach; this one waits for them. If they will "
            "not come back, go on without them; one that does joins whichever run is further on.",
            missing,
        )

    # ---------------------------------------------------------------------------- who is there

    def links(self) -> dict[str, frozenset[str]]:
        """The links that both ends report, as far as heartbeats tell."""
        mine = [peer for peer, state in self.peers.items() if state.linked]
        told: dict[str, set[str]] = {self.me: set(mine)}
        for peer, state in self.peers.items():
            told[peer] = set(state.beat.links) if state.beat else set()
            told[peer].discard(self.me)
            if state.linked:
                told[peer].add(self.me)
        return symmetric(told)

    def backlog(self) -> int:
        """How many steps a joiner that loads may be behind."""
        return self.times.backlog(self._step_bytes(), self.step_ms)

    def longest_backlog(self) -> int:
        """The most that ``backlog`` gives for this model."""
        return self.times.longest_backlog(self._step_bytes())

    def longest_hold_ms(self) -> int:
        """How long a room with this model waits for one joiner in all."""
        return self.times.longest_hold_ms(STATE_BYTES * self._elements())

    def _step_bytes(self) -> int:
        return self.settings.exchange.down_bytes(self._elements(), 0)

    def _elements(self) -> int:
        return self.layout.elements if self.layout else 0

    def way_to(self, target: str) -> str | None:
        """The neighbour through which ``target`` is reached."""
        peer = self.peers.get(target)
        if peer is not None and peer.linked:
            return target
        return next_hop(self.links(), self.me, target)

    def heard(self, device: str) -> bool:
        """True if ``device`` was heard from lately, or announced to be busy."""
        peer = self.peers.get(device)
        return peer is not None and self.now - peer.heard_ms < self._patience_ms(peer)

    def speaks_for_itself(self, device: str) -> bool:
        """True if ``device`` is linked and uses its link: then nobody else brings its messages.

        What was under way when the link came up may be late; a link may be open at this end only.
        """
        peer = self.peers.get(device)
        if peer is None or not peer.linked or self.now - peer.linked_ms < self.times.beat_ms:
            return False
        return self.now - peer.direct_ms < self._patience_ms(peer)

    def _patience_ms(self, peer: Peer) -> int:
        announced = peer.beat.busy_ms if peer.beat is not None else 0
        return max(self.times.suspect_ms, min(announced, self.times.busy_limit_ms))

    def present(self, device: str) -> bool:
        """True if ``device`` was heard from lately and is in reach."""
        return self.heard(device) and (self.peers[device].linked or self.way_to(device) is not None)

    def alive(self, device: str) -> bool:
        """True if ``device`` is this one, or is present and can take part."""
        if device == self.me:
            return True
        if device in self.banned or self.phase_of(device) in (Phase.LEFT, Phase.HALTED):
            return False
        return self.present(device)

    def phase_of(self, device: str) -> Phase:
        """What ``device`` last said to be doing."""
        peer = self.peers.get(device)
        return peer.beat.phase if peer is not None and peer.beat is not None else Phase.IDLE

    @property
    def roster(self) -> tuple[str, ...]:
        """The roster of the last committed step."""
        return self.committed.roster if self.committed else ()

    @property
    def leads(self) -> bool:
        """True if this device is the leader."""
        return self.lead is not None
