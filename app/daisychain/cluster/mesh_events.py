"""Settings of the mesh, what it tells the session, and the rows of its report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from daisychain.cluster import lobby
from daisychain.cluster.identity import Member
from daisychain.cluster.links import LinkSettings
from daisychain.cluster.roster import ROOM_MEMBERS
from daisychain.cluster.signalling import RelayState
from daisychain.cluster.transports import TransportTiming


@dataclass(frozen=True)
class MeshSettings:
    """How this device meets others; ``relays`` are addresses as in the setting ``relay``."""

    relays: tuple[str, ...] = ("/relay",)
    links: LinkSettings = field(default_factory=LinkSettings)
    relay_timing: TransportTiming = field(default_factory=TransportTiming)
    approve_all: bool = False
    max_members: int = ROOM_MEMBERS
    tick_ms: float = 250.0
    seek_ms: float = 2_000.0
    seek_anybody_ms: float = 15_000.0
    guest_ms: float = 15_000.0
    first_retry_ms: float = 2_000.0
    longest_retry_ms: float = 30_000.0
    farewell_ms: float = 300.0


@dataclass(frozen=True)
class Coming:
    """Host: a device looks for this room and will be let in without being asked about."""

    id: str


@dataclass(frozen=True)
class LinkUp:
    """Control messages and bulk data can go to and come from this member."""

    member: Member


@dataclass(frozen=True)
class LinkDown:
    """The link to a member ended; it may come back."""

    id: str
    reason: str


@dataclass(frozen=True)
class Control:
    """A control message of a linked member."""

    peer: str
    text: str


@dataclass(frozen=True)
class Bulk:
    """An awaited flow is complete: its header and its bytes (a Uint8Array in the page)."""

    peer: str
    header: bytes
    data: Any


@dataclass(frozen=True)
class Unreachable:
    """No connection to a device came about; ``sentence`` says what to do.  It is tried again."""

    id: str
    sentence: str


@dataclass(frozen=True)
class RelaysChanged:
    """A relay came or went."""

    relays: tuple[RelayState, ...]


MeshEvent = lobby.Event | Coming | LinkUp | LinkDown | Control | Bulk | Unreachable | RelaysChanged
