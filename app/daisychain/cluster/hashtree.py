"""A tree over the hashes of a replica's 64 KiB ranges: finds where two replicas differ.

Level 0 holds the leaves, one 128-bit hash for each `RANGE_BYTES` of the weights in layout order,
computed on the device; a node of level n hashes up to 64 children of level n - 1 with BLAKE2b.
The tree is built only when replicas are known to differ; each step compares one root hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from daisychain.cluster.fields import TREE_FANOUT

RANGE_BYTES = 65_536


class HashTree:
    """The tree over ``leaves`` (hexadecimal hashes in order); an empty list counts as one leaf."""

    def __init__(self, leaves: Sequence[str]) -> None:
        self.levels: list[tuple[str, ...]] = [tuple(leaves)]
        while len(self.levels[-1]) > TREE_FANOUT:
            below = self.levels[-1]
            self.levels.append(
                tuple(
                    blake2b(
                        "".join(below[i : i + TREE_FANOUT]).encode(), digest_size=16
                    ).hexdigest()
                    for i in range(0, len(below), TREE_FANOUT)
                )
            )

    @property
    def top(self) -> int:
        """The level whose nodes all fit one message."""
        return len(self.levels) - 1

    def children(self, level: int, index: int) -> tuple[str, ...]:
        """The nodes of ``level`` under node ``index`` of the level above (0 above the top)."""
        if not 0 <= level < len(self.levels):
            return ()
        return self.levels[level][index * TREE_FANOUT : (index + 1) * TREE_FANOUT]


def first_difference(answers: Mapping[str, Sequence[str]]) -> int | None:
    """Index of the first child on which not all devices agree; None if they agree on all."""
    rows = list(answers.values())
    for i in range(max(map(len, rows), default=0)):
        if len({row[i] if i < len(row) else "" for row in rows}) > 1:
            return i
    return None


def minority(claims: Mapping[str, object]) -> tuple[str, ...]:
    """Devices that differ from the majority's claim; all of them if no claim has a majority."""
    votes = Counter(claims.values()).most_common(1)
    if not votes or 2 * votes[0][1] <= len(claims):
        return tuple(sorted(claims))
    return tuple(sorted(device for device, claim in claims.items() if claim != votes[0][0]))
