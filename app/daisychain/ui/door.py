"""What to check while nobody answers, and while no relay can be reached."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from daisychain.cluster.room_code import format_room_code
from daisychain.platform.dom import Dom
from daisychain.ui import stages

SILENT_S = 15.0
"""Nobody has answered to the code for so long: say what to check."""
UNREACHED_S = 5.0
"""No relay has been up for so long: say so and offer pairing by hand."""


class Patience:
    """Says how long a condition has held, and calls ``later`` when a limit is reached."""

    def __init__(self, later: Callable[[], object]) -> None:
        self._later = later
        self._since: dict[str, float] = {}

    def over(self, name: str, holds: bool, limit_s: float) -> bool:
        """Whether the condition has held for ``limit_s`` without a break."""
        if not holds:
            self._since.pop(name, None)
            return False
        now = time.monotonic()
        if name not in self._since:
            self._since[name] = now
            asyncio.get_running_loop().call_later(limit_s, self._later)
        return now - self._since[name] >= limit_s


class Door:
    """Advice for a device that does not find the others; ``correct()`` asks for another code."""

    def __init__(
        self, dom: Dom, changed: Callable[[], object], correct: Callable[[], object]
    ) -> None:
        self._dom = dom
        self._patience = Patience(changed)
        self._heading, self._list = dom.element("h2"), dom.element("ul")
        self._other = dom.element("button", "Another code", type="button", class_="plain")
        self._other.on("click", lambda _event: correct())
        self._shown: tuple[str, ...] = ()
        self.in_vain = False
        """Whether the room has been looked for as long as it takes where there is one."""
        self.root = dom.element(
            "section",
            self._heading,
            self._list,
            self._other,
            class_="door",
            role="status",
            hidden=True,
        )

    def draw(self, state: Mapping[str, Any]) -> bool:
        """Shows what is to be said; whether pairing by hand is the way on."""
        stage = stages.stage(state)
        cut_off = stage in ("looking", "inside") and not stages.relays_up(state)
        unreached = self._patience.over("relays", cut_off, UNREACHED_S)
        silent = self._patience.over("silence", stage == "looking" and not cut_off, SILENT_S)
        room = state.get("room") or {}
        if unreached:
            self._show(*_unreached(room))
        elif silent:
            self._show(*_silent(room))
        self.in_vain = silent or (unreached and stage == "looking")
        self._other.show(silent)
        self.root.show(unreached or silent)
        return unreached

    def _show(self, *sentences: str) -> None:
        if sentences != self._shown:
            self._shown = sentences
            self._heading.text(sentences[0])
            self._list.replace(*(self._dom.element("li", text) for text in sentences[1:]))


def _silent(room: Mapping[str, Any]) -> tuple[str, ...]:
    code = format_room_code(str(room.get("code") or ""))
    return (
        "Nobody answers yet.",
        f"Is the code right? This device looks for {code}.",
        "Is the room open on the other device, with its screen on and this page in front?",
        "Do both devices have a connection, and was the page opened from the same address?",
    )


def _unreached(room: Mapping[str, Any]) -> tuple[str, ...]:
    relays = [str(relay.get("address")) for relay in room.get("relays") or ()]
    if not relays:
        return (
            "This room has no relay.",
            "Devices come in by hand: one makes an offer, the other answers it.",
        )
    return (
        "No relay can be reached, so devices cannot find each other by the code.",
        f"Tried without end: {', '.join(relays)}.",
        "Check this device's connection, or pair by hand: that needs no relay.",
    )
