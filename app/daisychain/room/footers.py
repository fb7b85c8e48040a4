"""Footers of data files whose turn comes while a room trains: its leader reads them for all.

A member asks the leader and reads the file itself if there is no answer, or one that cannot be
true.  A footer is text in a few control messages; nothing of it is believed before it is checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from daisychain.cluster import effects, events
from daisychain.cluster.fields import FOOTER_PART_CHARACTERS
from daisychain.cluster.protocol import Node
from daisychain.data import StreamSource, TokenSource
from daisychain.data.sharing import footer_text, read_footer_text
from daisychain.data.slices import Footer
from daisychain.errors import DaisyChainError, DataError

ANSWER_WITHIN_MS = 10_000
"""A leader that says nothing for so long is not asked again by this device."""


class Footers:
    """Both sides of the asking, for one host."""

    def __init__(self, node: Node, give: Callable[[events.Event], None]) -> None:
        self._node, self._give = node, give
        self._source: StreamSource | None = None
        self._awaited: dict[tuple[int, int], asyncio.Future[effects.FooterCame]] = {}
        self._distrusted: set[str] = set()
        self._told: dict[tuple[str, int], int] = {}
        self._telling: set[asyncio.Future[None]] = set()

    def use(self, source: TokenSource) -> None:
        """The run's text from now on; only what is streamed has footers."""
        if isinstance(source, StreamSource):
            self._source, source.footer_of = source, self._ask

    def carry_out(self, effect: effects.ServeFooter | effects.FooterCame) -> None:
        """Answers a member, or takes an answer in."""
        if isinstance(effect, effects.ServeFooter):
            task = asyncio.ensure_future(self._tell(effect))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)
        elif (awaited := self._awaited.get((effect.file, effect.part))) and not awaited.done():
            awaited.set_result(effect)

    def close(self) -> None:
        """The source goes on without this room."""
        for task in tuple(self._telling):
            task.cancel()
        if self._source is not None and self._source.footer_of == self._ask:
            self._source.footer_of = None

    async def _ask(self, file: int) -> Footer | None:
        """The leader's answer, None if it has none that can be true."""
        leader = self._node.core.leader
        if self._source is None or leader in self._distrusted:
            return None
        facts = self._source.listing.files[file]
        try:
            async with asyncio.timeout(ANSWER_WITHIN_MS / 1000):
                text = await self._parts(file)
            return read_footer_text(text, facts.path, facts.bytes) if text else None
        except (TimeoutError, DataError):
            self._distrusted.add(leader)
            self._node.core.dropped["footer not told"] += 1
            return None

    async def _parts(self, file: int) -> str:
        text, part, parts = "", 0, 1
        while part < parts:
            key = file, part
            awaited = self._awaited[key] = asyncio.get_running_loop().create_future()
            try:
                self._give(events.FooterWanted(*key))
                answer = await awaited
            finally:
                del self._awaited[key]
            if (part and answer.parts != parts) or (answer.parts and not answer.text):
                raise DataError("A footer that a device told ends before it should.")
            text, part, parts = text + answer.text, part + 1, answer.parts
        return text if parts else ""

    async def _tell(self, asked: effects.ServeFooter) -> None:
        """Each part once to each member, in their order; all else is answered with nothing."""
        text, source, key = "", self._source, (asked.peer, asked.file)
        listed = source is not None and asked.file < len(source.listing.files)
        if source is not None and listed and asked.part == self._told.get(key, 0):
            self._told[key] = asked.part + 1
            text = await self._text(source, asked.file)
        parts = -(-len(text) // FOOTER_PART_CHARACTERS)
        first = asked.part * FOOTER_PART_CHARACTERS
        told = text[first : first + FOOTER_PART_CHARACTERS]
        self._give(events.FooterRead(asked.peer, asked.file, asked.part, parts, told))

    async def _text(self, source: StreamSource, file: int) -> str:
        try:
            footer = await source.footer_for_others(file)
        except DaisyChainError:
            return ""
        return footer_text(footer) if footer else ""
