"""What people are told about links: the table's rows, and why two devices do not connect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from daisychain.cluster.identity import Member
from daisychain.cluster.links import Link
from daisychain.cluster.neighbours import Neighbours
from daisychain.cluster.signalling import Signalling
from daisychain.platform.rtc import BulkPlane


@dataclass(frozen=True)
class LinkReport:
    """One row of the link table; ``way`` is direct, relayed (TURN), forwarded or none.

    It is ``unknown`` in a link's first second.
    """

    id: str
    name: str
    way: str
    state: str
    rtt_ms: float | None
    megabytes_per_s: float
    connections: int
    sent_bytes: int
    received_bytes: int
    restarts: int
    candidates: str


def report_rows(
    members: Iterable[Member], neighbours: Neighbours, bulk: BulkPlane
) -> list[LinkReport]:
    """A row for each of these members."""
    rows = []
    for member in members:
        known = neighbours.by_id.get(member.id)
        routed = neighbours.routing.next_hop(member.id) is not None
        traffic = bulk.traffic(member.id)
        rows.append(_row(member, known.link if known else None, routed, traffic))
    return rows


def _row(
    member: Member, link: Link | None, routed: bool, traffic: Mapping[str, float]
) -> LinkReport:
    if link is None or not link.up:
        way = "forwarded" if routed else "none"
    elif not link.path.local:
        way = "unknown"
    else:
        way = "relayed" if "relay" in (link.path.local, link.path.remote) else "direct"
    return LinkReport(
        id=member.id,
        name=member.name,
        way=way,
        state=link.state if link else "none",
        rtt_ms=link.rtt_ms if link else None,
        megabytes_per_s=traffic["megabytesPerSecond"],
        connections=link.connections if link else 0,
        sent_bytes=int(traffic["sentBytes"]),
        received_bytes=int(traffic["receivedBytes"]),
        restarts=link.restarts if link else 0,
        candidates=f"{link.path.local}-{link.path.remote}" if link and link.path.local else "",
    )


def dropped_counters(
    bulk: BulkPlane, neighbours: Neighbours, signalling: Signalling | None
) -> dict[str, int]:
    """Everything that was dropped, by channel and reason."""
    counters = {f"bulk {reason}": count for reason, count in bulk.dropped().items()}
    counters["control malformed"] = neighbours.malformed
    counters["control foreign"] = sum(known.link.dropped for known in neighbours.by_id.values())
    if signalling is not None:
        counters["signal unopened"] = signalling.sealer.unopened
        counters["signal replayed"] = signalling.sealer.replayed
        counters["signal malformed"] = signalling.malformed
        counters["signal overflow"] = signalling.overflowed + sum(
            relay.dropped_messages for relay in signalling.relays()
        )
    return counters


def why_unreachable(
    me: str, other: str, routed: bool, network_denied: bool, relay_only: bool
) -> str:
    """The sentence for two devices between which no connection came about."""
    if relay_only:
        return (
            f"{me} and {other} cannot connect: this device goes through its TURN relay alone, and "
            "that does not answer or does not let it in. Look at the TURN relay under All settings."
        )
    if network_denied:
        return (
            f"{me} may not reach {other}, because this browser does not allow the page to use "
            "devices of the local network. Allow it in the site's permissions."
        )
    meanwhile = "Other members pass their data on meanwhile. " if routed else ""
    return (
        f"{me} and {other} cannot connect to each other directly. {meanwhile}"
        "Put both on the same Wi-Fi; or leave the room, enter a TURN relay in the settings of one "
        "of them, and come back."
    )
