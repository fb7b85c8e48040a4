"""Drawing and telling seldom, however often something changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Refresher:
    """Calls ``draw`` soon after ``mark``, at most once in ``interval_s``."""

    interval_s = 0.2  # a drawing takes up to 20 ms, in which no step begins (docs/EXPERIMENTS.md)

    def __init__(self, draw: Callable[[], None]) -> None:
        self._draw = draw
        self._last_s = -self.interval_s
        self._waiting: asyncio.TimerHandle | None = None

    def mark(self, eager: bool = False) -> None:
        """Something has changed; if ``eager``, the first change after a pause is not put off."""
        if self._waiting is not None:
            return
        delay_s = max(0.0, self._last_s + self.interval_s - time.monotonic())
        if eager and not delay_s:
            self.now()
        else:
            self._waiting = asyncio.get_running_loop().call_later(delay_s, self.now)

    def now(self) -> None:
        """Draws at once."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        self._last_s = time.monotonic()
        self._draw()
