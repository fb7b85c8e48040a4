"""What a host tells the state machine; `protocol` explains how, `effects` is the other way.

All are frozen; none holds bulk bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from daisychain.cluster.effects import WorkKind
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.messages import Envelope
from daisychain.cluster.reduce_plan import Flow, Layout
from daisychain.cluster.roster import ROOM_MEMBERS


@dataclass(frozen=True)
class Settings:
    """What the room agreed on, as far as the protocol needs it.

    ``learning_rate_bits`` maps a step to the binary32 bits of its learning rate; only the leader
    calls it.  ``text`` is what a joiner's host needs to build the same run (opaque here).
    ``total_micro_batches`` fixes the batch of a step; None lets it grow with the devices.
    ``last_step`` 0 means no end.  ``exchange_alone`` quantises even in a room of one.
    """

    learning_rate_bits: Callable[[int], int]
    text: str = ""
    exchange: Exchange = Exchange.INT8
    exchange_alone: bool = False
    total_micro_batches: int | None = None
    max_micro_batches: int = 16
    max_members: int = ROOM_MEMBERS
    last_step: int = 0
    approve_all: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; due at least every 500 ms, late or missing ones do no harm."""


@dataclass(frozen=True, slots=True)
class LinkUp:
    """Control and bulk channels to ``peer`` are open."""

    peer: str


@dataclass(frozen=True, slots=True)
class Coming:
    """``device`` is on its way in and will be let in without anybody being asked.

    A founder that has not made its first step waits a little for it (`Times.first_step_hold_ms`).
    """

    device: str


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The link to ``peer`` is closed for good (not merely disturbed)."""

    peer: str


@dataclass(frozen=True, slots=True)
class Received:
    """A decoded control message came over the link to ``link``."""

    link: str
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class Run:
    """The person at this device starts or resumes training."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The person at this device pauses: a leader pauses the room, a member steps aside."""


@dataclass(frozen=True, slots=True)
class Away:
    """The page is frozen, hidden too long or gives up for now; links stay."""

    why: str


@dataclass(frozen=True, slots=True)
class Back:
    """The page is alive again: take part as soon as possible."""


@dataclass(frozen=True, slots=True)
class Quit:
    """The page closes or the person leaves the room for good."""

    why: str


@dataclass(frozen=True, slots=True)
class Kick:
    """The host of the room removes ``peer``, to which it closes all ways; a leader bans it, too."""

    peer: str


@dataclass(frozen=True, slots=True)
class Approve:
    """The answer to `AskApproval`."""

    peer: str
    accept: bool


@dataclass(frozen=True, slots=True)
class ContinueAlone:
    """The person decides to go on without the devices that are out of reach.

    If those go on too, there are two runs; the one with fewer steps gives up when they meet.
    """


@dataclass(frozen=True, slots=True)
class Rename:
    """This device's name changes."""

    name: str


@dataclass(frozen=True, slots=True)
class BucketReady:
    """The gradient of ``bucket`` is summed and its row exponents are known."""

    step: int
    epoch: int
    bucket: int


@dataclass(frozen=True, slots=True)
class ComputeDone:
    """All micro-batches are done.

    ``loss`` is the sum over the tokens in units of 2**-16; ``raw_hash`` hashes the summed
    gradient before quantisation.
    """

    step: int
    epoch: int
    tokens: int
    loss: int
    compute_ms: int
    raw_hash: str


@dataclass(frozen=True, slots=True)
class ComputeFailed:
    """This device cannot do its part now (no data, say): it steps aside, for a while."""

    step: int
    epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class StateLost:
    """The device and the weights on it are gone; this one stays out until `Back`.

    It then loads the state from a member like a newcomer.
    """

    why: str


@dataclass(frozen=True, slots=True)
class WorkDone:
    """The effect `Work` with the same fields is done."""

    step: int
    epoch: int
    work: WorkKind
    bucket: int


@dataclass(frozen=True, slots=True)
class FlowReceived:
    """All bytes of ``flow`` are here and checked."""

    step: int
    epoch: int
    flow: Flow


@dataclass(frozen=True, slots=True)
class ReducedHashed:
    """Answer to `HashReduced`: hash of the reduced gradient and the optimizer's scalars.

    ``scalars`` (binary32 bits, at most 16) are what `Apply` will bring back; all members must
    arrive at the same ones.  The byte counts are this attempt's bulk frames, headers included.
    """

    step: int
    epoch: int
    reduced_hash: str
    scalars: tuple[int, ...]
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class Applied:
    """Answer to `Apply`: the weights of ``step`` and their hash."""

    step: int
    weights_hash: str


@dataclass(frozen=True, slots=True)
class StateHashed:
    """Answer to `HashState`."""

    step: int
    state_hash: str


@dataclass(frozen=True, slots=True)
class StateLoaded:
    """Answer to `FetchState`: the state is here, hashed by this device, and can be trained on."""

    step: int
    state_hash: str
    weights_hash: str
    layout: Layout
    settings: Settings


@dataclass(frozen=True, slots=True)
class StateProgress:
    """`FetchState` gets on (bytes come in, kernels compile); due every few seconds."""


@dataclass(frozen=True, slots=True)
class PlanWanted:
    """`FetchState` needs the data plan that hashes so; may be repeated until it has come."""

    source: str
    plan_hash: str


@dataclass(frozen=True, slots=True)
class FooterWanted:
    """Ask the leader for a part of a footer's text; `FooterCame` is the answer, if there is one."""

    file: int
    part: int


@dataclass(frozen=True, slots=True)
class FooterRead:
    """Answer to `ServeFooter`."""

    peer: str
    file: int
    part: int
    parts: int
    text: str


@dataclass(frozen=True, slots=True)
class StateFailed:
    """Answer to `FetchState`: this device cannot build the run or take the state in.

    That is nobody else's doing: bytes that do not come or are wrong the node notices by itself.
    """

    step: int
    why: str


@dataclass(frozen=True, slots=True)
class CatchUpReceived:
    """All bytes of the CATCH_UP flow of ``step`` are here and checked."""

    step: int


@dataclass(frozen=True, slots=True)
class LeavesRead:
    """Answer to `ReadLeaves`: the 128-bit hash of each 64 KiB of the weights, in layout order."""

    step: int
    leaves: tuple[str, ...]


Event = (
    Tick
    | LinkUp
    | Coming
    | LinkDown
    | Received
    | Run
    | Pause
    | Away
    | Back
    | Quit
    | Kick
    | Approve
    | ContinueAlone
    | Rename
    | BucketReady
    | ComputeDone
    | ComputeFailed
    | StateLost
    | WorkDone
    | FlowReceived
    | ReducedHashed
    | Applied
    | StateHashed
    | StateLoaded
    | StateProgress
    | PlanWanted
    | FooterWanted
    | FooterRead
    | StateFailed
    | CatchUpReceived
    | LeavesRead
)
