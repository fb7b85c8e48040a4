"""Who sends which byte range to whom in a step: a pure function of layout, members and links.

Every member computes the same plan from the same proposal.  The parameters are cut into *buckets*
(the parts of the backward pass that finish together, in that order), each bucket into *shards* of
whole rows, one for each *owner*.  Four flows carry a bucket:

    EXPONENTS_UP    every member -> owner     its row exponents of the owner's shard
    EXPONENTS_DOWN  owner -> every member     the agreed exponents
    GRADIENT_UP     every member -> owner     quantised mantissas of the owner's shard
    GRADIENT_DOWN   owner -> every member     row exponents, then mantissas, of the reduced shard

All members own equal shards when every pair is linked.  If some pair is not, frames are forwarded
along shortest paths, or only the members that reach everybody directly own shards: whichever
loads the busiest device less.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise

from daisychain.cluster.exchange import Exchange
from daisychain.cluster.roster import MAX_MEMBERS, distances, next_hop
from daisychain.errors import ClusterError

FRAME_BYTES = 65_536
"""A bulk frame, header included."""
HEADER_BYTES = 32
PAYLOAD_BYTES = FRAME_BYTES - HEADER_BYTES
SHORTEST_ROW = 64
"""Rows are merged until they have this many elements, which bounds the cost of exponents."""
MAX_ELEMENTS = 1 << 31


class Kind(IntEnum):
    """What a bulk frame carries."""

    EXPONENTS_UP = 1
    EXPONENTS_DOWN = 2
    GRADIENT_UP = 3
    GRADIENT_DOWN = 4
    STATE = 5
    """A chunk of a state snapshot for a joiner; bucket and range are the sender's business."""
    CATCH_UP = 6
    """The whole reduced gradient of a committed step, for a joiner: bucket after bucket, each
    as its row exponents, then its mantissas."""
    PLAN = 7
    """The room's data plan for a joiner, see ``data.sharing``."""


SERVED = (Kind.STATE, Kind.CATCH_UP, Kind.PLAN)
"""What belongs to no attempt but to one who comes in."""


@dataclass(frozen=True)
class Rows:
    """A tensor as the exchange sees it: ``rows`` rows of ``columns`` elements."""

    name: str
    rows: int
    columns: int

    @classmethod
    def of(cls, name: str, rows: int, columns: int) -> Rows:
        """A matrix of ``rows`` x ``columns`` (a vector has one row), short rows merged evenly."""
        if rows < 1 or columns < 1:
            raise ClusterError(f"The tensor {name} has no elements.")
        merge = next(
            (n for n in range(1, rows + 1) if rows % n == 0 and n * columns >= SHORTEST_ROW), rows
        )
        return cls(name, rows // merge, columns * merge)

    @property
    def elements(self) -> int:
        """Number of parameters."""
        return self.rows * self.columns


@dataclass(frozen=True)
class Layout:
    """All parameters: buckets in the order in which the backward pass finishes them.

    ``order`` names the tensors in the order of the weights' bytes, for hashes; empty means the
    order of the buckets.
    """

    buckets: tuple[tuple[Rows, ...], ...]
    order: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.buckets or not all(self.buckets) or self.elements > MAX_ELEMENTS:
            raise ClusterError(
                f"A model of {self.elements} parameters in {len(self.buckets)} buckets cannot be "
                "exchanged.",
                do="Choose a smaller preset.",
            )
        if self.order and sorted(self.order) != sorted(t.name for t in self.tensors):
            raise ClusterError("The order of the weights does not name each tensor once.")

    @property
    def tensors(self) -> tuple[Rows, ...]:
        """All tensors, bucket by bucket."""
        return tuple(tensor for bucket in self.buckets for tensor in bucket)

    @property
    def names_by_bucket(self) -> tuple[tuple[str, ...], ...]:
        """Names of the tensors of each bucket."""
        return tuple(tuple(tensor.name for tensor in bucket) for bucket in self.buckets)

    @cached_property
    def elements(self) -> int:
        """Number of parameters."""
        return sum(tensor.elements for tensor in self.tensors)

    @cached_property
    def rows(self) -> int:
        """Number of rows, each with an exponent of its own."""
        return sum(tensor.rows for tensor in self.tensors)

    @cached_property
    def row_starts(self) -> tuple[tuple[int, ...], ...]:
        """For each bucket the element offset of every row, and of the end."""
        return tuple(
            tuple(accumulate((t.columns for t in bucket for _ in range(t.rows)), initial=0))
            for bucket in self.buckets
        )

    def names(self, first: int, count: int) -> tuple[str, ...]:
        """Tensors that hold elements ``first`` .. ``first + count`` of the weights."""
        sizes = {tensor.name: tensor.elements for tensor in self.tensors}
        found, start = [], 0
        for name in self.order or tuple(sizes):
            if start < first + count and first < start + sizes[name]:
                found.append(name)
            start += sizes[name]
        return tuple(found)


@dataclass(frozen=True)
class Shard:
    """Rows of one bucket that one owner reduces; offsets count from the bucket's start."""

    first_row: int
    rows: int
    first_element: int
    elements: int


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """One transfer of a step; ``origin`` and ``target`` index the members of the plan."""

    kind: Kind
    bucket: int
    origin: int
    target: int


@dataclass(frozen=True)
class Traffic:
    """Bytes of a device in a step, frame headers included."""

    sent: int
    received: int


@dataclass(frozen=True)
class ReducePlan:
    """The exchange of one step; see the module's text."""

    layout: Layout
    members: tuple[str, ...]
    links: tuple[tuple[int, ...], ...]
    """For each member the sorted indices of the members it is linked to."""
    mode: Exchange
    owners: tuple[int, ...]
    _hops: dict[tuple[int, int], int] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def owner_mask(self) -> int:
        """The owners as a bit mask over the members."""
        return sum(1 << owner for owner in self.owners)

    @cached_property
    def shards(self) -> tuple[tuple[Shard, ...], ...]:
        """For each bucket the shard of each of ``owners``; a shard may be empty."""
        return shards_of(self.layout, len(self.owners))

    def shard(self, bucket: int, owner: int) -> Shard:
        """The rows of ``bucket`` that member ``owner`` reduces."""
        return self.shards[bucket][self.owners.index(owner)]

    def flow_bytes(self, flow: Flow) -> int:
        """Payload bytes of ``flow``."""
        owner = flow.target if flow.kind in (Kind.EXPONENTS_UP, Kind.GRADIENT_UP) else flow.origin
        shard = self.shard(flow.bucket, owner)
        match flow.kind:
            case Kind.EXPONENTS_UP | Kind.EXPONENTS_DOWN:
                return shard.rows
            case Kind.GRADIENT_UP:
                return self.mode.up_bytes(shard.elements)
            case Kind.GRADIENT_DOWN:
                return self.mode.down_bytes(shard.elements, shard.rows)
        raise ClusterError(f"The transfer {flow} is no part of a step's exchange.")

    def first(self, flow: Flow) -> int:
        """Start of the flow's tensor range: a row for exponents, an element for gradients."""
        up = flow.kind in (Kind.EXPONENTS_UP, Kind.GRADIENT_UP)
        shard = self.shard(flow.bucket, flow.target if up else flow.origin)
        exponents = flow.kind in (Kind.EXPONENTS_UP, Kind.EXPONENTS_DOWN)
        return shard.first_row if exponents else shard.first_element

    @cached_property
    def catch_up_bytes(self) -> int:
        """Payload bytes of a `Kind.CATCH_UP` flow under this plan."""
        return self.mode.down_bytes(self.layout.elements, self.layout.rows)

    def flows(self) -> Iterator[Flow]:
        """Every flow of the step, bucket by bucket."""
        everybody = range(len(self.members))
        for bucket in range(len(self.layout.buckets)):
            for owner in self.owners:
                for other in everybody:
                    if other != owner:
                        yield Flow(Kind.EXPONENTS_UP, bucket, other, owner)
                        yield Flow(Kind.EXPONENTS_DOWN, bucket, owner, other)
                        yield Flow(Kind.GRADIENT_UP, bucket, other, owner)
                        yield Flow(Kind.GRADIENT_DOWN, bucket, owner, other)

    def incoming(self, me: int) -> dict[Flow, int]:
        """The flows that member ``me`` must receive, with their payload bytes."""
        return {flow: self.flow_bytes(flow) for flow in self.flows() if flow.target == me}

    def next_hop(self, here: int, target: int) -> int:
        """The member to which ``here`` hands a frame for ``target``."""
        key = (here, target)
        if key not in self._hops:
            hop = next_hop(dict(enumerate(self.links)), here, target, here + target)
            if hop is None:
                raise ClusterError(f"Member {here} of the step has no way to member {target}.")
            self._hops[key] = hop
        return self._hops[key]

    def traffic(self) -> tuple[Traffic, ...]:
        """What each member sends and receives in the step, forwarded frames included."""
        sent, received = [0] * len(self.members), [0] * len(self.members)
        for flow in self.flows():
            size = framed_bytes(self.flow_bytes(flow))
            here = flow.origin
            while here != flow.target:
                there = self.next_hop(here, flow.target)
                sent[here] += size
                received[there] += size
                here = there
        return tuple(map(Traffic, sent, received))


def shards_of(layout: Layout, owners: int) -> tuple[tuple[Shard, ...], ...]:
    """For each bucket the shards of so many owners."""
    return tuple(_cut(starts, owners) for starts in layout.row_starts)


def framed_bytes(payload: int) -> int:
    """Bytes on the channel of a flow of ``payload`` bytes; an empty flow is one empty frame."""
    return payload + HEADER_BYTES * max(1, -(-payload // PAYLOAD_BYTES))


def make_plan(
    layout: Layout,
    members: tuple[str, ...],
    links: Mapping[str, Collection[str]],
    mode: Exchange,
) -> ReducePlan:
    """The exchange plan of a step; ClusterError if two members cannot reach each other."""
    index = {member: i for i, member in enumerate(members)}
    if not 1 <= len(index) == len(members) <= MAX_MEMBERS:
        raise ClusterError(f"A step cannot have {len(members)} members.")
    table = tuple(
        tuple(sorted(index[peer] for peer in links.get(member, ()) if peer in index))
        for member in members
    )
    return _make_plan(layout, members, table, mode)


@lru_cache(maxsize=64)
def _make_plan(
    layout: Layout, members: tuple[str, ...], links: tuple[tuple[int, ...], ...], mode: Exchange
) -> ReducePlan:
    count = len(members)
    everybody = tuple(range(count))
    equal = ReducePlan(layout, members, links, mode, everybody)
    hubs = tuple(i for i in everybody if len(links[i]) == count - 1)
    if len(hubs) == count:
        return equal
    reached = distances(dict(enumerate(links)), 0)
    if len(reached) < count:
        lost = ", ".join(members[i] for i in everybody if i not in reached)
        raise ClusterError(
            f"No chain of links leads from {members[0]} to {lost}.",
            "They cannot take part in one step.",
        )
    if not hubs:
        return equal
    few = ReducePlan(layout, members, links, mode, hubs)
    return min(equal, few, key=lambda plan: max(max(t.sent, t.received) for t in plan.traffic()))


@lru_cache(maxsize=512)
def _cut(starts: tuple[int, ...], owners: int) -> tuple[Shard, ...]:
    total, last = starts[-1], len(starts) - 1
    edges = [bisect_left(starts, total * k // owners) for k in range(owners)] + [last]
    return tuple(Shard(a, b - a, starts[a], starts[b] - starts[a]) for a, b in pairwise(edges))
