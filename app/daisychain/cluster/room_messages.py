"""Control messages of the room: heartbeats, coming in, going; see `messages`."""

from __future__ import annotations

from dataclasses import dataclass

from daisychain.cluster.exchange import Exchange
from daisychain.cluster.fields import (
    Count,
    FooterPart,
    FooterText,
    Hash,
    Id,
    Ids,
    Label,
    NoOrHash,
    NoOrId,
    Phase,
    Reason,
    Roster,
    Scalars,
    SettingsText,
    Total,
)


@dataclass(frozen=True, slots=True)
class Beat:
    """Heartbeat: alive, where in the run, linked to whom; relayed to those not linked to it.

    ``weights_hash`` is that of ``step``; empty while the sender applies it.
    """

    sequence: Count
    epoch: Count
    leader: NoOrId
    step: Count
    weights_hash: NoOrHash
    phase: Phase
    busy_ms: Count
    links: Ids
    waiting: Ids
    name: Label
    kind: Label


@dataclass(frozen=True, slots=True)
class Join:
    """A device asks the leader to take part.

    A device that already holds weights says which: its last committed step, the epoch and reduced
    gradient of that commit, and the hash of the weights.  It takes part only in attempts after
    ``after_epoch``; if that is later than its last commit it gave up its vote, as `Leave` says.
    """

    name: Label
    kind: Label
    step: Count
    epoch: Count
    reduced_hash: NoOrHash
    weights_hash: NoOrHash
    after_epoch: Count
    bound: NoOrId


@dataclass(frozen=True, slots=True)
class Refuse:
    """The leader turns a joiner away, or tells a member that it is out."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Leader to source: feed ``joiner`` every step committed after ``step``.

    With ``copy`` also keep the whole state (weights and optimizer) of ``step`` for it, and answer
    with its hash.
    """

    step: Count
    joiner: Id
    copy: bool


@dataclass(frozen=True, slots=True)
class StateHash:
    """Source to leader: hash of its whole state at ``step``."""

    step: Count
    state_hash: Hash


@dataclass(frozen=True, slots=True)
class Admit:
    """Leader to joiner: where to fetch the state of ``step`` and what it must hash to.

    ``mandate`` as in Propose.

    ``state_hash`` is empty if the joiner holds that state already.  The state of step 0 is made
    from the settings, not fetched.
    """

    step: Count
    epoch: Count
    mandate: Count
    source: Id
    reduced_hash: NoOrHash
    weights_hash: Hash
    state_hash: NoOrHash
    cursor: Total
    roster: Roster
    settings: SettingsText


@dataclass(frozen=True, slots=True)
class Fetch:
    """Joiner to source: I am ready, send the state of ``step``."""

    step: Count


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """Joiner to source: send the room's data plan that hashes so; it comes as a PLAN flow."""

    plan_hash: Hash


@dataclass(frozen=True, slots=True)
class FetchFooter:
    """Member to leader: tell what the footer of a file of the room's data says, part by part."""

    file: Count
    part: FooterPart


@dataclass(frozen=True, slots=True)
class FooterIs:
    """Leader to member: one of the ``parts`` of a footer's text; none of it if that is 0."""

    file: Count
    part: FooterPart
    parts: FooterPart
    text: FooterText


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """Joiner to leader and source: the state from ``source`` did not come or was wrong.

    One that names itself failed by its own doing: it asks again later, nothing is kept for it.
    ``step`` is that of the state: what is served since is another one.
    """

    source: Id
    step: Count


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Source to joiner: a step committed after the snapshot; its gradient follows as a flow."""

    step: Count
    epoch: Count
    lr_bits: Count
    exchange: Exchange
    scalars: Scalars
    reduced_hash: Hash
    cursor: Total
    roster: Roster


@dataclass(frozen=True, slots=True)
class Synced:
    """Joiner to leader and source: it holds the weights of ``step``."""

    step: Count
    weights_hash: Hash


@dataclass(frozen=True, slots=True)
class Leave:
    """I go on purpose (closed, frozen, left); do not wait for me.

    I have voted up to ``step``, my last committed one, and take part in no attempt up to ``epoch``
    again.  My vote for later steps is given up; but if ``bound`` names a device, I may have helped
    it to decide the next one, and only that device knows better.
    """

    epoch: Count
    step: Count
    bound: NoOrId
    why: Label
