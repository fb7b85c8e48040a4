"""What the data package needs from outside: fetching, unpacking and tokenizing behind one face.

In the page ``daisychain.platform.workers`` implements it with the data Worker
(app/js/data_worker.js); tests implement it with pyarrow, tokenizers and the standard library.
Token ids stay where they are made (a typed array in the page) and are only handed on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from daisychain.errors import DataError

Ids = Any
"""Flat u32 ids: a JavaScript Uint32Array in the page, an ``array('I')`` in CPython."""


class Tokens(Protocol):
    """A stream of token ids."""

    def __len__(self) -> int: ...

    def ids(self, start: int, end: int) -> Sequence[int]:
        """A part of the stream as Python integers."""

    def part(self, start: int, end: int) -> Tokens:
        """A part of the stream, not copied."""


@dataclass(frozen=True)
class DataFile:
    """Where the bytes of a file are: an address, or a File that the person chose."""

    url: str = ""
    handle: Any = None


@dataclass(frozen=True)
class TokenBlock:
    """Tokenized documents, each preceded by the separator token."""

    tokens: Tokens
    documents: int
    bytes: int
    """UTF-8 bytes of the documents' text, separators not counted."""


@dataclass(frozen=True)
class JsonAnswer:
    """The text of an API's answer, and the address of its next page or an empty text."""

    text: str
    next_page: str


@dataclass(frozen=True)
class Fetched:
    """A result together with how it was had."""

    value: Any
    url: str
    """The address that answered in the end, after redirects; empty if nothing was fetched."""
    received_bytes: int


@dataclass(frozen=True)
class ChunkRequest:
    """One row group's text column, as the footer describes it."""

    start: int
    end: int
    rows: int
    codec: str
    optional: bool
    file_bytes: int
    max_unpacked_bytes: int
    cache_key: str
    """Names the chunk in the browser's cache; empty if it is not to be kept there."""


@dataclass(frozen=True)
class TokenTable:
    """The vocabulary as bytes: token i is ``data[ends[i - 1]:ends[i]]``."""

    data: bytes = field(repr=False)
    ends: Sequence[int] = field(repr=False)
    added: Mapping[str, int]
    ordinary: frozenset[int] = frozenset()
    """Ids of added tokens that stand for text, such as runs of spaces; the others are special."""


class PortFailure(DataError):
    """One attempt that failed; ``kind`` says how (app/js/data/fetch.js lists the kinds; ``ended``
    if the browser ended the Worker, ``closed`` if there is none any more)."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        do: str = "",
        host: str = "",
        status: int = 0,
        retry_after: str = "",
    ) -> None:
        super().__init__(f"{message[:1].upper()}{message[1:].rstrip('.')}.", do=do)
        self.kind, self.host, self.status, self.retry_after = kind, host, status, retry_after


class DataPort(Protocol):
    """One data Worker.  Every method raises PortFailure; none of them tries twice."""

    async def load_tokenizer(self, file: DataFile, max_bytes: int) -> TokenTable:
        """Load a tokenizer.json, which all other methods then use."""

    async def encode(self, text: str) -> list[int]:
        """Ids of a text; names of special tokens in it become those tokens."""

    async def read_file(
        self, file: DataFile, kind: str, column: str, separator: int, max_bytes: int
    ) -> TokenBlock:
        """Tokenize a whole file of kind ``parquet``, ``jsonl`` or ``text``."""

    def gather(self, picks: Sequence[tuple[Tokens, int]], length: int) -> Ids:
        """``length`` tokens of each stream from each start on, end to end."""

    async def read_json(self, file: DataFile, max_bytes: int) -> JsonAnswer:
        """An answer of the Hub's API."""

    async def read_footer(
        self, file: DataFile, file_bytes: int, column: str, guess_bytes: int, max_bytes: int
    ) -> Fetched:
        """The Footer (daisychain.data.slices) of a parquet file; one request if it fits the guess.

        An empty ``column`` means ``text`` or else the first text column.
        """

    async def read_rows(
        self, file: DataFile, chunk: ChunkRequest, first: int, last: int, separator: int, least: int
    ) -> Fetched:
        """The TokenBlock of rows ``first`` to ``last``, with at least ``least`` tokens."""

    async def wait(self, seconds: float, wakes: bool) -> None:
        """Sleep; if it ``wakes``, no longer than until the device is online again."""

    async def cached_bytes(self) -> int:
        """Size of the row groups kept by the browser."""

    async def clear_cache(self) -> None:
        """Drop the row groups kept by the browser."""

    def close(self) -> None:
        """Stop the Worker; pending calls fail."""
