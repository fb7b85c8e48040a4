"""The tables of a room as plain data: who is here, who waits, what each one did in a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import Any

from daisychain.cluster import effects
from daisychain.cluster.fields import Phase
from daisychain.cluster.identity import Member
from daisychain.cluster.mesh import Mesh
from daisychain.cluster.protocol import Node
from daisychain.optim.schedule import Schedule
from daisychain.settings import Settings

REST_MS = 3_000.0
"""A leader may make no step for so long, or for three usual ones, before a device says so."""


def names_of(members: Iterable[Member]) -> dict[str, str]:
    """Names by id; devices that are called alike get a piece of their id, the same on each."""
    known = list(members)
    count = Counter(member.name for member in known)
    return {m.id: f"{m.name} ({m.id[:4]})" if count[m.name] > 1 else m.name for m in known}


def room_row(node: Node | None, mesh: Mesh, stage: str) -> dict[str, Any]:
    """Where this device stands, who is at the door, how others find the way.

    ``lacks_voters`` while the protocol can decide nothing, since too few are in reach.
    """
    knocking = stage == "looking" and mesh.stage == "knocking"
    waiting = mesh.waiting if node is not None else ()
    return {
        "stage": "knocking" if knocking else stage,
        "host": mesh.host if node is not None else "",
        "waiting": [{"id": m.id, "name": m.name, "kind": m.kind} for m in waiting],
        "relays": [{"address": relay.url, "up": relay.state == "up"} for relay in mesh.relays()],
        "lacks_voters": node is not None and node.core.mode is effects.Mode.PAUSED,
    }


def awaits_host(node: Node | None, rest_ms: float, usual_ms: float) -> bool:
    """Whether the device that leads, another one, has paused or waits for a newcomer: it has no
    step under way, ``rest_ms`` after the last one, which took ``usual_ms``."""
    core = node.core if node is not None else None
    if core is None or core.mode is not effects.Mode.MEMBER or core.leads or core.attempt:
        return False
    peer = core.peers.get(core.leader)
    rests = peer is not None and peer.beat is not None and peer.beat.phase is Phase.IDLE
    return rests and rest_ms > max(REST_MS, 3 * usual_ms)


def contribution_rows(entry: effects.Log, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """What each member did in a committed step; the hash is that of its raw gradient."""
    return [
        {
            "id": c.id,
            "name": names.get(c.id, c.id),
            "micro_batches": c.micro,
            "tokens": c.tokens,
            "compute_ms": c.compute_ms,
            "exchange_ms": c.exchange_ms,
            "bytes": c.sent_bytes + c.received_bytes,
            "hash": c.raw_hash,
        }
        for c in entry.contributions
    ]


def step_record(
    entry: effects.Log, names: Mapping[str, str], me: str, settings: Settings
) -> dict[str, Any]:
    """The log's record of a committed step of a run with these settings.

    Its ``tokens`` are those of the whole run, also on a device that came in later: all slices have
    as many, and the cursor counts the slices.
    """
    rows = contribution_rows(entry, names)
    tokens = sum(c.tokens for c in entry.contributions)
    slices = sum(c.micro for c in entry.contributions)
    bits = sum(c.loss for c in entry.contributions) / 65536
    schedule = Schedule(settings.lr, settings.steps, settings.warmup)
    mine = next((row for row in rows if row["id"] == me), {})
    return {
        "step": entry.step,
        "loss": bits * log(2) / tokens if tokens else None,
        "lr": schedule.learning_rate(entry.step - 1),
        "tokens": entry.next_cursor * tokens // max(1, slices),
        "tokens_per_s": tokens * 1000.0 / max(1, entry.step_ms),
        "gpu_ms": mine.get("compute_ms", 0),
        "exchange_ms": mine.get("exchange_ms", 0),
        "ms": entry.step_ms,
        "hash": entry.start_hash,
        "reduced_hash": entry.reduced_hash,
        "members": rows,
    }


def member_rows(node: Node, mesh: Mesh, last: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """This device and the other members, with their share of the last step and their link.

    Step and hash of the weights are what each of them says of itself.
    """
    me = node.core.me
    shares = {row["id"]: row for row in last}
    links = {row.id: row for row in mesh.link_report()}
    known, names = {member.id: member for member in mesh.members}, names_of(mesh.members)
    rows = []
    for view in node.members():
        if view.id not in known and view.id != me:
            continue
        share, link, member = shares.get(view.id, {}), links.get(view.id), known.get(view.id)
        work = ("micro_batches", "tokens", "compute_ms", "exchange_ms", "bytes")
        rows.append(
            {
                "id": view.id,
                "name": names.get(view.id, view.name),
                "kind": member.kind if member else view.kind,
                "me": view.id == me,
                "leader": view.leader,
                "state": view.state,
                "step": view.step,
                "hash": view.weights_hash,
                **{name: share.get(name, 0) for name in work},
                "link": link.way if link else "",
                "rtt_ms": link.rtt_ms if link else None,
            }
        )
    return rows
