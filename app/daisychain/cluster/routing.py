"""Which neighbour leads to whom: link states told by everybody, shortest path by everybody.

Each member numbers its list of neighbours and floods it; a link counts when both ends list it.
A device that is not in the lists (a newcomer with one link) is answered the way it came.
"""

from __future__ import annotations

from collections.abc import Collection

from daisychain.cluster.roster import MAX_MEMBERS, next_hop, symmetric

MAX_REVISION = 1 << 48


class RoutingTable:
    """What one member knows about the links of the room."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._revision = 0
        self._states: dict[str, tuple[int, frozenset[str]]] = {me: (0, frozenset())}
        self._learned: dict[str, str] = {}

    @property
    def neighbours(self) -> frozenset[str]:
        """Our own links."""
        return self._states[self._me][1]

    @property
    def revision(self) -> int:
        """Number of our own list."""
        return self._revision

    def set_neighbours(self, neighbours: Collection[str], revision: int) -> None:
        """Replace our own list under a higher number."""
        self._revision = max(self._revision + 1, revision)
        self._states[self._me] = (self._revision, frozenset(neighbours))
        gone = [source for source, via in self._learned.items() if via not in neighbours]
        for source in gone:
            del self._learned[source]

    def hear(self, member: str, revision: int, neighbours: Collection[str]) -> bool:
        """Take a member's list; True if it is news, which is then to be passed on."""
        known = self._states.get(member)
        if member == self._me or (known is not None and known[0] >= revision):
            return False
        if known is None and len(self._states) >= 2 * MAX_MEMBERS:
            return False
        self._states[member] = (revision, frozenset(neighbours))
        return True

    def learn(self, source: str, via: str) -> None:
        """Remember the neighbour that brought a message of ``source``."""
        if source != self._me and len(self._learned) < 4 * MAX_MEMBERS:
            self._learned[source] = via

    def forget(self, member: str) -> None:
        """A member left the room."""
        if member != self._me:
            self._states.pop(member, None)
            self._learned.pop(member, None)

    def states(self) -> list[tuple[str, int, frozenset[str]]]:
        """All lists, for a new neighbour."""
        return [(member, *state) for member, state in self._states.items()]

    def next_hop(self, target: str) -> str | None:
        """The neighbour to hand a message for ``target`` to, or None if there is no way."""
        if target == self._me:
            return None
        links = symmetric({member: peers for member, (_, peers) in self._states.items()})
        if target in self.neighbours:
            return target
        hop = next_hop(links, self._me, target, sum(map(ord, self._me + target)))
        learned = self._learned.get(target)
        return hop or (learned if learned in self.neighbours else None)
