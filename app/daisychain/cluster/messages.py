"""The control messages of a room, as frozen dataclasses whose fields know their limits.

`fields` has the field types; `wire` turns a message into JSON and back by them, so that whatever
comes out of `wire.decode` is well-formed and bounded.  Hashes are 32 lower-case hexadecimal
digits (128 bits).  A *step* counts applied updates: step s turns weights s-1 into weights s.  An
*epoch* numbers attempts: an attempt is named by (step, epoch).
"""

from __future__ import annotations

from dataclasses import dataclass

from daisychain.cluster.room_messages import (
    Admit,
    Beat,
    CatchUp,
    Fetch,
    FetchFailed,
    FetchFooter,
    FetchPlan,
    FooterIs,
    Join,
    Leave,
    Refuse,
    Snapshot,
    StateHash,
    Synced,
)
from daisychain.cluster.step_messages import Abort, Began, Commit, Computed, Decline, Guard, Propose
from daisychain.cluster.vote_messages import (
    Adopt,
    Adopted,
    Drift,
    Query,
    Status,
    Stop,
    TakeOver,
    Tree,
)

Message = (
    Beat
    | Join
    | Refuse
    | Snapshot
    | StateHash
    | Admit
    | Fetch
    | FetchFailed
    | FetchPlan
    | FetchFooter
    | FooterIs
    | CatchUp
    | Synced
    | Propose
    | Began
    | Decline
    | Computed
    | Guard
    | Commit
    | Abort
    | Query
    | Status
    | Adopt
    | Adopted
    | TakeOver
    | Drift
    | Tree
    | Stop
    | Leave
)


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message under way: ``source`` wrote it for ``target``, ``hops`` forwardings remain."""

    source: str
    target: str
    hops: int
    message: Message
