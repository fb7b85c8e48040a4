"""Control messages of a step: propose, compute, guard, commit, abort; see `messages`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from daisychain.cluster.exchange import Exchange
from daisychain.cluster.fields import (
    Count,
    Hash,
    Id,
    Ids,
    LinkMasks,
    Malformed,
    MicroBatches,
    NoOrHash,
    NoOrId,
    Positive,
    Reason,
    Scalars,
    Total,
    many,
    record,
)
from daisychain.cluster.roster import MAX_MEMBERS


def distinct(ids: Iterable[str]) -> None:
    """Raises Malformed if an id appears twice."""
    seen = list(ids)
    if len(set(seen)) != len(seen):
        raise Malformed("A roster names a device twice.")


@dataclass(frozen=True, slots=True)
class Share:
    """One member's part of a step: ``micro`` micro-batches, from slice number ``first`` on."""

    id: Id
    micro: MicroBatches
    first: Total


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What one member spent on the exchange of a step."""

    exchange_ms: Count
    sent_bytes: Total
    received_bytes: Total


Shares = Annotated[tuple[Share, ...], many(record(Share), MAX_MEMBERS, 1)]
ExchangedList = Annotated[tuple[Exchanged, ...], many(record(Exchanged), MAX_MEMBERS, 1)]


@dataclass(frozen=True, slots=True)
class Propose:
    """Leader to roster: attempt ``step`` under ``epoch``.

    ``mandate`` is the epoch at which the leader was elected, 0 for the room's founder.
    ``previous_epoch`` and ``previous_hash`` name the last commit, so a member that missed its
    Commit can still apply it.  ``links`` holds for each member the bit mask of the members it is
    linked to; all compute the reduce plan from it.
    """

    step: Positive
    epoch: Positive
    mandate: Count
    previous_epoch: Count
    previous_hash: NoOrHash
    weights_hash: Hash
    lr_bits: Count
    exchange: Exchange
    cursor: Total
    shares: Shares
    links: LinkMasks
    banned: Ids

    def __post_init__(self) -> None:
        distinct(share.id for share in self.shares)
        if len(self.links) != len(self.shares):
            raise Malformed("A proposal has not one row of links for each member.")
        at = self.cursor
        for share in self.shares:
            if share.first != at:
                raise Malformed("The slices of a proposal leave a gap or overlap.")
            at += share.micro

    @property
    def roster(self) -> tuple[str, ...]:
        """Ids of the members, in the order of the plan."""
        return tuple(share.id for share in self.shares)

    @property
    def next_cursor(self) -> int:
        """Number of the first slice that this step leaves over."""
        return self.cursor + sum(share.micro for share in self.shares)


@dataclass(frozen=True, slots=True)
class Began:
    """Member to roster: I hold this proposal; frames of the attempt may come."""

    step: Count
    epoch: Count


@dataclass(frozen=True, slots=True)
class Decline:
    """Member to leader: I cannot take part, and why; what I hold instead."""

    step: Count
    epoch: Count
    reason: Reason
    at_step: Count
    at_epoch: Count
    leader: NoOrId


@dataclass(frozen=True, slots=True)
class Computed:
    """Member to roster: my gradient is summed; what it was made of.

    ``loss`` is the sum over its tokens in units of 2**-16; ``raw_hash`` is the hash of the summed
    gradient before quantisation, which lets anybody recompute and audit it.
    """

    step: Count
    epoch: Count
    tokens: Count
    loss: Total
    compute_ms: Count
    raw_hash: Hash


@dataclass(frozen=True, slots=True)
class Guard:
    """Member to leader: hash of the reduced gradient and the scalars that I would apply.

    After this the member is *prepared*: it keeps the gradient until it learns the decision.
    """

    step: Count
    epoch: Count
    reduced_hash: Hash
    scalars: Scalars
    exchange_ms: Count
    sent_bytes: Total
    received_bytes: Total


@dataclass(frozen=True, slots=True)
class Commit:
    """Leader to roster: all agree, apply.  ``exchanged`` is in roster order."""

    step: Count
    epoch: Count
    reduced_hash: Hash
    step_ms: Count
    exchanged: ExchangedList


@dataclass(frozen=True, slots=True)
class Abort:
    """Leader to roster: this attempt is void; ``lost`` are left out of the next one."""

    step: Count
    epoch: Count
    reason: Reason
    lost: Ids
