"""Child elements that come and go while the others stay, with their focus, where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from daisychain.platform.dom import Node


class Rooted(Protocol):
    """Something with an element of its own."""

    @property
    def root(self) -> Node: ...


Item = TypeVar("Item", bound=Rooted)


class Keyed(Generic[Item]):
    """Items by key under one parent; new ones come last."""

    def __init__(self, parent: Node, make: Callable[[str], Item]) -> None:
        self._parent, self._make = parent, make
        self.items: dict[str, Item] = {}

    def draw(self, keys: Sequence[str]) -> dict[str, Item]:
        """Makes what is missing, removes what is not named; returns the items."""
        for key in [key for key in self.items if key not in keys]:
            self.items.pop(key).root.remove()
        for key in keys:
            if key not in self.items:
                self.items[key] = self._make(key)
                self._parent.append(self.items[key].root)
        return self.items
