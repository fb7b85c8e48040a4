"""Copying a text, with a word about it for a while."""

from __future__ import annotations

import asyncio

from daisychain.platform.dom import Dom, Node

SAID_FOR_S = 3.0


class Copier:
    """Fills the clipboard."""

    def __init__(self, dom: Dom) -> None:
        self._dom = dom
        self._tasks: set[asyncio.Task[None]] = set()

    def copy(self, text: str, done: str, said: Node) -> None:
        """Copies ``text`` and shows ``done`` in ``said``, or that it cannot be."""
        task = asyncio.ensure_future(self._copy(text, done, said))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _copy(self, text: str, done: str, said: Node) -> None:
        copied = await self._dom.copy_text(text)
        said.text(done if copied else "The browser does not allow copying here")
        await asyncio.sleep(SAID_FOR_S)
        said.text("")
