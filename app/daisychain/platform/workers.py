"""The data Worker in the page, behind ``daisychain.data.port.DataPort``."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from typing import Any

from daisychain.data.opening import OwnFile
from daisychain.data.port import (
    ChunkRequest,
    DataFile,
    Fetched,
    Ids,
    JsonAnswer,
    PortFailure,
    TokenBlock,
    Tokens,
    TokenTable,
)
from daisychain.data.slices import Footer, RowGroup
from daisychain.errors import DaisyChainError, DataError
from daisychain.platform.worker_link import WorkerLink

KEEP_BYTES = 1 << 28
"""Row groups kept by the browser from one visit to the next, packed."""
HOLD_BYTES = 1 << 26
"""Row groups held in the Worker's memory, unpacked."""

MOST_ENDS = 10
"""A Worker that the browser ends is replaced, but not for ever."""

TRY_AGAIN = (
    "Check the connection and try again; if that does not help, the site was copied incompletely."
)
CLOSE_TABS = "Close other tabs if this device is short of memory."


class JsTokens:
    """A typed array of token ids that stays in JavaScript."""

    def __init__(self, values: Any) -> None:
        self.values = values
        self._length = int(values.length)

    def __len__(self) -> int:
        return self._length

    def ids(self, start: int, end: int) -> Sequence[int]:
        part = self.values.slice(start, end)
        return array("H" if part.BYTES_PER_ELEMENT == 2 else "I", part.to_bytes())

    def part(self, start: int, end: int) -> JsTokens:
        return JsTokens(self.values.subarray(start, end))


def own_file(file: Any) -> OwnFile:
    """A File of the page's picker or of a drop."""
    return OwnFile(str(file.name), int(file.size), DataFile(handle=file))


async def kept_bytes() -> int:
    """How much text the browser keeps from earlier visits."""
    port = WorkerPort()
    try:
        return await port.cached_bytes()
    finally:
        port.close()


async def clear_kept() -> None:
    """Forget the text that the browser keeps."""
    port = WorkerPort()
    try:
        await port.clear_cache()
    finally:
        port.close()


class WorkerPort:
    """One data Worker; calls may overlap, each has its own answer.

    When the browser ends the Worker, the calls under way fail with kind ``ended``; the next one
    opens another Worker, with the same tokenizer.
    """

    def __init__(self) -> None:
        self._link: WorkerLink | None = None
        self._opening: asyncio.Future[WorkerLink] | None = None
        self._is_open = False
        self._tokenizer: dict[str, Any] = {}
        self._ends = 0
        self._closed: PortFailure | None = None

    async def load_tokenizer(self, file: DataFile, max_bytes: int) -> TokenTable:
        wanted = {"source": _source(file), "maxBytes": max_bytes}
        table = await self._call("tokenizer", **wanted)
        self._tokenizer = wanted
        added = {str(name): int(token) for name, token in table.added.to_py()}
        ends, ordinary = array("I", table.ends.to_bytes()), frozenset(table.ordinary.to_py())
        return TokenTable(table.bytes.to_bytes(), ends, added, ordinary)

    async def encode(self, text: str) -> list[int]:
        answer = await self._call("encode", text=text)
        return list(answer.ids.to_py())

    async def read_file(
        self, file: DataFile, kind: str, column: str, separator: int, max_bytes: int
    ) -> TokenBlock:
        block = await self._call(
            "file",
            source=_source(file),
            kind=kind,
            column=column,
            separator=separator,
            maxBytes=max_bytes,
        )
        return TokenBlock(JsTokens(block.tokens), int(block.documents), int(block.bytes))

    def gather(self, picks: Sequence[tuple[Tokens, int]], length: int) -> Ids:
        import js

        out = js.Uint32Array.new(len(picks) * length)
        for row, (tokens, start) in enumerate(picks):
            assert isinstance(tokens, JsTokens)
            out.set(tokens.values.subarray(start, start + length), row * length)
        return out

    async def read_json(self, file: DataFile, max_bytes: int) -> JsonAnswer:
        answer = await self._call("json", source=_source(file), maxBytes=max_bytes)
        return JsonAnswer(str(answer.text), str(answer.next))

    async def read_footer(
        self, file: DataFile, file_bytes: int, column: str, guess_bytes: int, max_bytes: int
    ) -> Fetched:
        answer = await self._call(
            "footer",
            source=_source(file),
            fileBytes=file_bytes,
            column=column,
            guess=guess_bytes,
            maxBytes=max_bytes,
        )
        groups = tuple(RowGroup(**group) for group in answer.groups.to_py())
        footer = Footer(str(answer.column), bool(answer.optional), groups)
        return Fetched(footer, str(answer.url), int(answer.received))

    async def read_rows(
        self, file: DataFile, chunk: ChunkRequest, first: int, last: int, separator: int, least: int
    ) -> Fetched:
        group = {
            "start": chunk.start,
            "end": chunk.end,
            "rows": chunk.rows,
            "codec": chunk.codec,
            "optional": chunk.optional,
            "fileBytes": chunk.file_bytes,
            "maxBytes": chunk.max_unpacked_bytes,
        }
        limits = {"key": chunk.cache_key, "keepBytes": KEEP_BYTES, "holdBytes": HOLD_BYTES}
        answer = await self._call(
            "rows",
            source=_source(file),
            group=group,
            limits=limits,
            first=first,
            last=last,
            separator=separator,
            least=least,
        )
        block = TokenBlock(JsTokens(answer.tokens), int(answer.documents), int(answer.bytes))
        return Fetched(block, str(answer.url), int(answer.received))

    async def wait(self, seconds: float, wakes: bool) -> None:
        await self._call("wait", ms=seconds * 1000.0, wakes=wakes)

    async def cached_bytes(self) -> int:
        return int((await self._call("cachedBytes")).bytes)

    async def clear_cache(self) -> None:
        await self._call("clearCache")

    def close(self) -> None:
        if self._closed is None:
            self._close(PortFailure("closed", "the data Worker was closed"))

    def _close(self, failure: PortFailure) -> None:
        self._closed = failure
        if self._link is not None:
            self._link.end(failure)

    async def _call(self, operation: str, **arguments: Any) -> Any:
        if self._closed is not None:
            raise self._closed
        opening = self._opening
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception())):
            opening = self._opening = asyncio.ensure_future(self._open())
        link = await asyncio.shield(opening)
        return await link.ask(operation, **arguments)

    async def _open(self) -> WorkerLink:
        """A Worker that has the tokenizer, if one was loaded before."""
        self._is_open = False
        link = self._link = WorkerLink("data_worker", self._describe, self._on_end)
        try:
            await link.start()
            self._is_open = True
            if self._tokenizer:
                await link.ask("tokenizer", **self._tokenizer)
        except DataError as error:
            link.end(error)
            raise
        return link

    def _on_end(self, error: DaisyChainError) -> None:
        self._opening, self._ends = None, self._ends + 1
        if self._ends == MOST_ENDS:
            often = (
                f"the browser ended the data Worker {MOST_ENDS} times, perhaps for want of memory"
            )
            self._close(PortFailure("closed", often, do=CLOSE_TABS))

    def _describe(self, name: str, message: str, **facts: Any) -> PortFailure:
        """The Worker's own failures have a kind for a name; an Error is its end."""
        if name == "Error":
            kind, do = ("ended", CLOSE_TABS) if self._is_open else ("closed", TRY_AGAIN)
            return PortFailure(kind, f"the data Worker failed ({message})", do=do)
        return PortFailure(
            name,
            message,
            host=str(facts.get("host") or ""),
            status=int(facts.get("status") or 0),
            retry_after=str(facts.get("retryAfter") or ""),
        )


def _source(file: DataFile) -> dict[str, Any]:
    """The Worker lives under js/, so addresses are made absolute against the page first."""
    import js

    if file.handle is not None:
        return {"blob": file.handle}
    return {"url": js.URL.new(file.url, js.document.baseURI).href}
