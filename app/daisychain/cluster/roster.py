"""Who is in the room, who may decide, and how two members reach each other.

A device id is 1 to 16 characters of ``[0-9a-z]``, chosen by the device and unique for each page
load (a reloaded page must not come back under the id whose promises it has forgotten).  Ids are
ordered as text; "lowest" below means the first in that order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

MAX_MEMBERS = 32
"""As many members messages and plans have room for."""
ROOM_MEMBERS = 16
"""As many devices a room takes in: its door, the lobby, and its leader go by it."""
ID = re.compile(r"[0-9a-z]{1,16}\Z")


def is_id(text: str) -> bool:
    """True for a well-formed device id."""
    return ID.match(text) is not None


def quorum(present: Collection[str], roster: Collection[str], left: Collection[str] = ()) -> bool:
    """True if ``present`` may decide for ``roster``, ``left`` having gone on purpose.

    A majority of those that did not leave decides; of an even split, the half with the lowest id.
    Two disjoint sets can never both be a quorum of one roster, even if they know of different
    leavers: their sizes would have to add up to more than the members that are left.
    """
    voters = set(roster).difference(left)
    if not voters:
        return False
    here = len(voters.intersection(present))
    return 2 * here > len(voters) or (2 * here == len(voters) and min(voters) in present)


Node = TypeVar("Node", int, str)
"""A member as its id, or as its index in a step's roster."""


def distances(links: Mapping[Node, Collection[Node]], target: Node) -> dict[Node, int]:
    """Number of hops from every member that can reach ``target``; links count both ways."""
    found = {target: 0}
    edge = [target]
    while edge:
        nearer, edge = edge, []
        for node in nearer:
            for neighbour in links.get(node, ()):
                if neighbour not in found:
                    found[neighbour] = found[node] + 1
                    edge.append(neighbour)
    return found


def symmetric(links: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """The links that both ends report (a half-open link carries nothing yet)."""
    sets = {node: set(peers) for node, peers in links.items()}
    return {
        node: frozenset(peer for peer in peers if node in sets.get(peer, ()))
        for node, peers in sets.items()
    }


def next_hop(
    links: Mapping[Node, Collection[Node]], here: Node, target: Node, spread: int = 0
) -> Node | None:
    """The neighbour of ``here`` that is one hop nearer to ``target``; None if there is no way.

    ``spread`` chooses among equals, so that different pairs are forwarded by different members.
    """
    if target in links.get(here, ()):
        return target
    hops = distances(links, target)
    if here not in hops:
        return None
    nearer = sorted(n for n in links[here] if hops.get(n, -1) == hops[here] - 1)
    return nearer[spread % len(nearer)]
