"""A lane of work: actions that take time, one after the other, in the order given."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from daisychain.errors import DaisyChainError, ProgramError

Action = Callable[[Any], Awaitable[None]]


class Lane:
    """``failed(error, subject)`` deals with an action's error; then the lane goes on.

    Any other exception than a DaisyChainError comes to it as a ProgramError: a lane that ended
    without a word would leave its device waiting for ever.
    """

    def __init__(self, failed: Callable[[DaisyChainError, Any], Awaitable[None]]) -> None:
        self._failed = failed
        self._queue: asyncio.Queue[tuple[Action, Any]] = asyncio.Queue()
        self._task = asyncio.ensure_future(self._work())

    def add(self, action: Action, subject: Any) -> None:
        """Queues ``action(subject)``."""
        self._queue.put_nowait((action, subject))

    def close(self) -> None:
        """Ends what is under way and drops the rest."""
        self._task.cancel()

    async def _work(self) -> None:
        while True:
            action, subject = await self._queue.get()
            try:
                await action(subject)
            except DaisyChainError as error:
                await self._failed(error, subject)
            except Exception as mistake:
                traceback.print_exception(mistake)
                told = ProgramError(mistake)
                told.__cause__ = mistake
                await self._failed(told, subject)
            await asyncio.sleep(0)  # a player that never waits must not starve links and timers
