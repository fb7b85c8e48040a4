"""The door as the host sees it: who asks to come in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from daisychain.platform.dom import Dom
from daisychain.ui.keyed import Keyed


class Knock:
    """One device that waits, with the host's answer to it."""

    def __init__(self, dom: Dom, answer: Callable[[bool], None]) -> None:
        self._name, self._kind = dom.element("b"), dom.element("small")
        self.accept = dom.element("button", "Accept", type="button", class_="primary")
        self._refuse = dom.element("button", "Refuse", type="button", class_="plain")
        self.accept.on("click", lambda _event: answer(True))
        self._refuse.on("click", lambda _event: answer(False))
        self.root = dom.element(
            "li",
            dom.element("p", self._name, self._kind),
            dom.element("div", self.accept, self._refuse, class_="answers"),
        )

    def draw(self, name: str, kind: str) -> None:
        self._name.text(name)
        self._kind.text(kind)
        self.accept.attribute("aria-label", f"Accept {name}")
        self._refuse.attribute("aria-label", f"Refuse {name}")


class Knocks:
    """All devices that wait; ``answer(id, accepted)`` is the host's decision."""

    def __init__(self, dom: Dom, answer: Callable[[str, bool], None]) -> None:
        self._heading = dom.element("h2", id="knocks-title")
        self._list = dom.element("ul")
        self._items: Keyed[Knock] = Keyed(
            self._list, lambda device: Knock(dom, lambda accepted: answer(device, accepted))
        )
        self._open = dom.element(
            "p",
            "Everybody who has the code or the link comes in without being asked.",
            class_="note",
            role="status",
            hidden=True,
        )
        self._asking = dom.element(
            "div", self._heading, self._list, role="group", aria_labelledby="knocks-title"
        )
        self.root = dom.element("section", self._asking, self._open, class_="knocks", hidden=True)

    def draw(self, waiting: Sequence[Any], everybody: bool) -> None:
        """``waiting`` are the devices at the door; with ``everybody`` none is kept there."""
        items = self._items.draw([str(device["id"]) for device in waiting])
        for device in waiting:
            items[str(device["id"])].draw(str(device["name"]), str(device["kind"]))
        asking = "A device asks" if len(waiting) == 1 else f"{len(waiting)} devices ask"
        self._heading.text(f"{asking} to come in")
        self._asking.show(bool(waiting))
        self._open.show(everybody)
        self.root.show(bool(waiting) or everybody)
