"""Frames back into flows: bounded memory, any order, duplicates ignored, missing peers named.

A `Ledger` knows beforehand which flows may come and how large each is, so no header can make it
allocate more.  Hosts that keep payloads elsewhere (JavaScript memory, a GPU) use it alone; a
`Reassembler` also keeps the bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from daisychain.cluster.fields import Malformed
from daisychain.cluster.reduce_plan import Flow, Kind, ReducePlan
from daisychain.cluster.wire import Frame, decode_frame, frame_count
from daisychain.errors import ClusterError


class Verdict(StrEnum):
    """What became of a frame."""

    STORED = "stored"
    COMPLETE = "complete"
    """Stored, and its flow has all its bytes now."""
    DUPLICATE = "duplicate"
    OUT_OF_STEP = "out-of-step"
    UNEXPECTED = "unexpected"
    """No flow that this device awaits: wrong sender, kind, bucket, range or size."""
    MALFORMED = "malformed"


@dataclass(frozen=True)
class Awaited:
    """The tensor range and the payload size that a flow must have."""

    first: int
    total: int


def awaited_flows(plan: ReducePlan, me: int) -> dict[Flow, Awaited]:
    """All flows that member ``me`` awaits in a step."""
    return {flow: Awaited(plan.first(flow), size) for flow, size in plan.incoming(me).items()}


class Ledger:
    """Which frames of the awaited flows of one (step, epoch) have come."""

    def __init__(
        self, step: int, epoch: int, flows: Mapping[Flow, Awaited], limit_bytes: int
    ) -> None:
        """ClusterError if the flows together exceed ``limit_bytes``."""
        self.step, self.epoch, self.flows = step, epoch, dict(flows)
        self.total = sum(awaited.total for awaited in self.flows.values())
        if self.total > limit_bytes:
            raise ClusterError(
                f"A step would bring {self.total} bytes.",
                f"This device agreed to {limit_bytes}.",
                "Choose a smaller preset.",
            )
        self.verdicts: Counter[Verdict] = Counter()
        self._come: dict[Flow, int] = {}
        self._left = {flow: frame_count(awaited.total) for flow, awaited in self.flows.items()}

    def accept(self, frame: Frame) -> Verdict:
        """Books one intact frame; only STORED and COMPLETE frames have a place to go."""
        verdict = self._judge(frame)
        self.verdicts[verdict] += 1
        return verdict

    def _judge(self, frame: Frame) -> Verdict:
        if (frame.step, frame.epoch) != (self.step, self.epoch):
            return Verdict.OUT_OF_STEP
        flow = flow_of(frame)
        awaited = self.flows.get(flow)
        if awaited is None or (frame.first, frame.total) != (awaited.first, awaited.total):
            return Verdict.UNEXPECTED
        come, bit = self._come.get(flow, 0), 1 << frame.sequence
        if come & bit:
            return Verdict.DUPLICATE
        self._come[flow] = come | bit
        self._left[flow] -= 1
        return Verdict.STORED if self._left[flow] else Verdict.COMPLETE

    def missing(self) -> dict[Flow, int]:
        """Flows that are not complete, and how many of their frames have not come."""
        return {flow: left for flow, left in self._left.items() if left}

    def missing_origins(self) -> tuple[int, ...]:
        """The members whose bytes have not all come, as roster indices."""
        return tuple(sorted({flow.origin for flow in self.missing()}))


class Reassembler(Ledger):
    """A ledger that keeps the payloads until they are taken."""

    def __init__(
        self, step: int, epoch: int, flows: Mapping[Flow, Awaited], limit_bytes: int
    ) -> None:
        super().__init__(step, epoch, flows, limit_bytes)
        self._bytes: dict[Flow, bytearray] = {}

    def add(self, data: bytes | memoryview) -> tuple[Verdict, Flow | None]:
        """Takes one frame as it came; the flow is given with STORED and COMPLETE."""
        try:
            frame, payload = decode_frame(data)
        except Malformed:
            self.verdicts[Verdict.MALFORMED] += 1
            return Verdict.MALFORMED, None
        verdict = self.accept(frame)
        if verdict not in (Verdict.STORED, Verdict.COMPLETE):
            return verdict, None
        flow = flow_of(frame)
        if flow not in self._bytes:
            self._bytes[flow] = bytearray(frame.total)
        self._bytes[flow][frame.offset : frame.offset + frame.length] = payload
        return verdict, flow

    def take(self, flow: Flow) -> bytes:
        """The bytes of a complete flow, once; ClusterError if they are not all here."""
        if self._left.get(flow, 1):
            raise ClusterError(f"The transfer {flow} is not complete.")
        return bytes(self._bytes.pop(flow, b""))


def flow_of(frame: Frame) -> Flow:
    """The flow to which a frame belongs."""
    return Flow(Kind(frame.kind), frame.bucket, frame.origin, frame.target)
