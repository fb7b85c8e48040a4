"""Control messages of elections and of stopping; see `messages`."""

from __future__ import annotations

from dataclasses import dataclass

from daisychain.cluster.fields import (
    Count,
    Hash,
    Hashes,
    Ids,
    Level,
    NoOrHash,
    NoOrId,
    Positive,
    Reason,
    Roster,
)


@dataclass(frozen=True, slots=True)
class Query:
    """Candidate to the last committed roster: promise me ``epoch`` and say what you hold."""

    epoch: Positive


@dataclass(frozen=True, slots=True)
class Status:
    """Answer to Query: whether I promised, my last commit, and my vote on the step after it.

    A vote names an attempt (``vote_step``, ``vote_attempt``) and its reduced gradient.  It was
    given at ``vote_epoch``: the attempt's own if by being prepared, a later one if by Adopt.
    ``holds`` says that the gradient is here.  ``vote_step`` is 0 without a vote.
    """

    granted: bool
    epoch: Count
    leader: NoOrId
    step: Count
    step_epoch: Count
    reduced_hash: NoOrHash
    roster: Ids
    vote_step: Count
    vote_epoch: Count
    vote_attempt: Count
    vote_hash: NoOrHash
    vote_roster: Ids
    holds: bool


@dataclass(frozen=True, slots=True)
class Adopt:
    """Candidate to those that promised: the attempt that may have been committed shall stand."""

    epoch: Count
    step: Count
    attempt: Count
    reduced_hash: Hash
    roster: Roster


@dataclass(frozen=True, slots=True)
class Adopted:
    """Answer to Adopt: my vote is given."""

    epoch: Count


@dataclass(frozen=True, slots=True)
class TakeOver:
    """A candidate that lacks the last step asks one that has it to stand instead."""

    epoch: Count


@dataclass(frozen=True, slots=True)
class Drift:
    """To all: at ``step`` my weights are not those of the proposal.  Everybody stops."""

    step: Count
    weights_hash: Hash


@dataclass(frozen=True, slots=True)
class Tree:
    """To all, after Drift: hashes of the children of one node of my weights' hash tree."""

    step: Count
    weights_hash: Hash
    level: Level
    index: Count
    hashes: Hashes


@dataclass(frozen=True, slots=True)
class Stop:
    """Leader to all: training cannot go on because of ``devices``."""

    step: Count
    reason: Reason
    devices: Ids
