"""What the state machine asks of its host; `protocol` explains how, `events` is the other way.

All are frozen; none holds bulk bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from daisychain.cluster.exchange import Exchange
from daisychain.cluster.messages import Envelope
from daisychain.cluster.reduce_plan import Flow, ReducePlan
from daisychain.cluster.step_messages import Propose, Share


class WorkKind(StrEnum):
    """Local arithmetic on one bucket; see `exchange`."""

    MERGE_EXPONENTS = "merge-exponents"
    """Owner: agree the exponents of the own shard from all members' ones."""
    QUANTISE = "quantise"
    """Quantise the bucket at the agreed exponents, new residuals set aside."""
    REDUCE = "reduce"
    """Owner: sum the own shard over all members and quantise it again."""


class Mode(StrEnum):
    """Where this device stands."""

    JOINING = "joining"
    MEMBER = "member"
    PAUSED = "paused"
    """Too few members of the last roster are in reach to decide anything."""
    AWAY = "away"
    HALTED = "halted"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Send:
    """Send a control message over the link to ``link``."""

    link: str
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class BeginAttempt:
    """Open the books for an attempt and compute ``share``.

    Frames of (proposal.step, proposal.epoch) may come from now on: `reassembly.awaited_flows`
    of ``plan`` says which; frames for other members go to ``plan.next_hop``.
    """

    proposal: Propose
    plan: ReducePlan
    me: int
    share: Share


@dataclass(frozen=True, slots=True)
class AbortAttempt:
    """Forget the attempt: drop its frames and gradients, restore the residuals."""

    step: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SendFlow:
    """Send the bytes of ``flow`` towards ``plan.next_hop(me, flow.target)``."""

    step: int
    epoch: int
    flow: Flow


@dataclass(frozen=True, slots=True)
class Work:
    """Do ``work`` on ``bucket`` and answer with `WorkDone`."""

    step: int
    epoch: int
    work: WorkKind
    bucket: int


@dataclass(frozen=True, slots=True)
class HashReduced:
    """Every bucket is reduced: hash it, work out the scalars for ``tokens`` tokens."""

    step: int
    epoch: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Apply:
    """Update the weights of ``step`` - 1 with the reduced gradient; residuals take effect.

    With ``catch_up`` the gradient is the one received for this step in mode ``exchange``.
    Answer with `Applied`.
    """

    step: int
    epoch: int
    lr_bits: int
    scalars: tuple[int, ...]
    exchange: Exchange
    catch_up: bool


@dataclass(frozen=True, slots=True)
class Contribution:
    """A row of the live log: what one member did in a committed step.

    The last three are 0 on a device that missed the commit message and inferred the decision.
    """

    id: str
    micro: int
    tokens: int
    loss: int
    compute_ms: int
    raw_hash: str
    exchange_ms: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Log:
    """A committed step, for the live log; ``contributions`` in roster order."""

    step: int
    epoch: int
    roster: tuple[str, ...]
    contributions: tuple[Contribution, ...]
    start_hash: str
    reduced_hash: str
    next_cursor: int
    step_ms: int


@dataclass(frozen=True, slots=True)
class HashState:
    """Hash weights and optimizer state of ``step`` (the current one) and answer `StateHashed`."""

    step: int


@dataclass(frozen=True, slots=True)
class KeepState:
    """Set a copy of the whole state of ``step`` (the current one) aside for ``joiner``."""

    joiner: str
    step: int


@dataclass(frozen=True, slots=True)
class ServeState:
    """Stream the copy kept for ``joiner`` (STATE frames); this opens its queue of catch-ups."""

    joiner: str
    step: int


@dataclass(frozen=True, slots=True)
class ServePlan:
    """Send ``joiner`` the room's data plan (a PLAN flow) if it is here and hashes so."""

    joiner: str
    plan_hash: str


@dataclass(frozen=True, slots=True)
class ServeFooter:
    """Read a part of a footer's text for ``peer`` and answer with `FooterRead`, empty for what
    this device does not serve."""

    peer: str
    file: int
    part: int


@dataclass(frozen=True, slots=True)
class FooterCame:
    """The answer to `FooterWanted`; ``parts`` is 0 if there is nobody who tells it."""

    file: int
    part: int
    parts: int
    text: str


@dataclass(frozen=True, slots=True)
class SendCatchUp:
    """Queue the reduced gradient of the step just committed for ``joiner`` (a CATCH_UP flow).

    Keep a copy until it is sent: after `ServeState`, or at once if no state was kept.
    """

    joiner: str
    step: int


@dataclass(frozen=True, slots=True)
class StopServing:
    """Drop everything kept for ``joiner``."""

    joiner: str


@dataclass(frozen=True, slots=True)
class FetchState:
    """Build the run from ``settings_text`` and get the state of ``step``.

    It comes as STATE frames from ``source``; for step 0 it is the initial weights, made here, and
    its hash is theirs, since all else is zero.
    CATCH_UP frames of later steps follow on the same link.  Any state held before stays in use
    until `UseState`.  Answer with `StateLoaded` or `StateFailed`.
    """

    source: str
    step: int
    settings_text: str


@dataclass(frozen=True, slots=True)
class AwaitSteps:
    """The state of ``step`` is here: await CATCH_UP frames of later steps from ``source``.

    Any fetch that is under way is given up.
    """

    source: str
    step: int
    settings_text: str


@dataclass(frozen=True, slots=True)
class UseState:
    """The state of `StateLoaded` is right: it replaces any other one, with zero residuals.

    It comes as an answer to `StateLoaded`; without it, drop that state.
    """

    step: int


@dataclass(frozen=True, slots=True)
class ReadLeaves:
    """Hash each 64 KiB of the weights and answer with `LeavesRead`."""

    step: int


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Ask the person whether ``peer`` may join; answer with `Approve`."""

    peer: str
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Close the link to ``peer``: it was removed."""

    peer: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a person should read; ``code`` is stable, ``text`` is a sentence."""

    code: str
    text: str
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModeChanged:
    """This device now stands at ``mode``."""

    mode: Mode


@dataclass(frozen=True, slots=True)
class Halted:
    """Training has stopped for good: ``devices`` are to blame as far as can be known.

    ``first_byte`` and ``bytes`` give the range of the weights in which replicas differ, and
    ``tensors`` the tensors in it; ``bytes`` is 0 if no range is known.
    """

    step: int
    text: str
    devices: tuple[str, ...]
    first_byte: int
    bytes: int
    tensors: tuple[str, ...]


Effect = (
    Send
    | BeginAttempt
    | AbortAttempt
    | SendFlow
    | Work
    | HashReduced
    | Apply
    | Log
    | HashState
    | KeepState
    | ServeState
    | ServePlan
    | ServeFooter
    | FooterCame
    | SendCatchUp
    | StopServing
    | FetchState
    | AwaitSteps
    | UseState
    | ReadLeaves
    | AskApproval
    | CloseLink
    | Notice
    | ModeChanged
    | Halted
)
