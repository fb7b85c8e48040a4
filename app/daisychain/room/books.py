"""The books of a room's host: what an attempt has made and received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from daisychain.cluster import effects, wire
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.reduce_plan import Flow, Kind, Layout, ReducePlan
from daisychain.room.replica import state_hash


@dataclass
class Attempt:
    """The books of one attempt."""

    begun: effects.BeginAttempt
    proposed: dict[int, bytes] = field(default_factory=dict)
    received: dict[Flow, Any] = field(default_factory=dict)
    agreed: dict[tuple[int, int], bytes] = field(default_factory=dict)
    outgoing: dict[tuple[int, int], Any] = field(default_factory=dict)
    reduced: dict[int, Any] = field(default_factory=dict)
    sent_bytes: int = 0
    received_bytes: int = 0
    computed_ms: float = 0.0
    """When the last gradient was there."""

    @property
    def key(self) -> tuple[int, int]:
        return self.begun.proposal.step, self.begun.proposal.epoch

    @property
    def plan(self) -> ReducePlan:
        return self.begun.plan

    @property
    def mode(self) -> Exchange:
        return self.begun.proposal.exchange

    @property
    def slices(self) -> range:
        """This device's share."""
        share = self.begun.share
        return range(share.first, share.first + share.micro)

    def header(self, flow: Flow, first: int, total: int) -> bytes:
        """What names a flow of this attempt to the byte pump."""
        step, epoch = self.key
        return wire.flow_header(
            wire.Frame(
                flow.kind, step, epoch, flow.bucket, flow.origin, flow.target, first, total, 0
            )
        )

    def take(self, kind: Kind, bucket: int) -> dict[int, Any]:
        """What came of one kind for a bucket, by origin; it is needed once."""
        flows = [flow for flow in self.received if flow.kind is kind and flow.bucket == bucket]
        return {flow.origin: self.received.pop(flow) for flow in flows}

    def flow_data(self, flow: Flow) -> Any:
        """The bytes of a flow that this device sends."""
        match flow.kind:
            case Kind.EXPONENTS_UP:
                shard = self.plan.shard(flow.bucket, flow.target)
                proposed = self.proposed[flow.bucket]
                return proposed[shard.first_row : shard.first_row + shard.rows]
            case Kind.EXPONENTS_DOWN:
                return self.agreed[flow.bucket, self.begun.me]
            case Kind.GRADIENT_UP:
                return self.outgoing[flow.bucket, flow.target]
            case _:
                return self.reduced[flow.bucket]


def squares_hash(squares: Sequence[tuple[int, int]]) -> str:
    """Stands for a gradient that does not travel: its tensors' exact sums of squares."""
    return state_hash([repr(list(squares)).encode()])


def state_header(step: int, index: int, size: int) -> bytes:
    """Names one buffer of a state."""
    return wire.flow_header(wire.Frame(Kind.STATE, step, 0, index, 0, 0, 0, size, 0))


def catch_up_header(step: int, size: int) -> bytes:
    """Names the reduced gradient of a step for a joiner."""
    return wire.flow_header(wire.Frame(Kind.CATCH_UP, step, 0, 0, 0, 0, 0, size, 0))


def plan_header(size: int) -> bytes:
    """Names the room's data plan for a joiner."""
    return wire.flow_header(wire.Frame(Kind.PLAN, 0, 0, 0, 0, 0, 0, size, 0))


def whole_bytes(layout: Layout, mode: Exchange) -> int:
    """Payload of a CATCH_UP flow."""
    return mode.down_bytes(layout.elements, layout.rows)
