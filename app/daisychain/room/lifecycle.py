"""When a device takes part: the person pauses it, the browser freezes or closes its page.

A frozen page runs nothing and answers nobody.  It says farewell while it can, so that the others go
on at once, and comes back by itself, unless the person had paused it.  So does a page that closes;
without that the others would have to count it among the voters.
"""

from __future__ import annotations

from collections.abc import Callable

from daisychain.cluster import events
from daisychain.platform import on_page_event

RETURN_S = 10.0
"""Who waits for too few others may find them again for so long, before it is to go on alone."""


class Lifecycle:
    """Turns what the person and the browser want into events of the step protocol.

    ``is_paused`` is what the person wants.
    """

    def __init__(self, give: Callable[[events.Event], None]) -> None:
        self._give = give
        self.is_paused = False
        self._stop_listening = on_page_event(self._page_event)

    def pause(self) -> None:
        """The leader pauses the room; another member steps aside."""
        self.is_paused = True
        self._give(events.Pause())

    def resume(self) -> None:
        """Go on, or come back."""
        self.is_paused = False
        self._give(events.Run())

    def close(self) -> None:
        """Listens no more."""
        self._stop_listening()

    def _page_event(self, name: str) -> None:
        if name == "freeze":
            self._give(events.Away("frozen"))
        elif name == "pagehide":
            self._give(events.Quit("closed"))
        elif name == "resume" and not self.is_paused:
            self._give(events.Back())
