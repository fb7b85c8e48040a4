"""Flows on their way out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from daisychain.errors import DaisyChainError


class Transfers:
    """Starts transfers; one that fails is counted and is otherwise the links' business.

    ``send_bulk(peer, header, data)`` is that of `cluster.mesh.Mesh`.
    """

    def __init__(
        self,
        send_bulk: Callable[[str, bytes, Any], Awaitable[None]],
        dropped: Counter[str],
    ) -> None:
        self._send_bulk, self._dropped = send_bulk, dropped
        self._tasks: set[asyncio.Future[None]] = set()

    def start(self, peer: str, header: bytes, data: Any) -> None:
        """``data`` must stay as it is until it is sent."""
        task = asyncio.ensure_future(self._send(peer, header, data))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Gives up what is under way."""
        for task in tuple(self._tasks):
            task.cancel()

    async def _send(self, peer: str, header: bytes, data: Any) -> None:
        try:
            await self._send_bulk(peer, header, data)
        except DaisyChainError:
            self._dropped["unsent flow"] += 1
