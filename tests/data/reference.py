"""The reference reader: ``DataPort`` by pyarrow and PyPI tokenizers, in CPython."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq
from tokenizers import Tokenizer as RustTokenizer

from daisychain.data import TokenSource, open_source
from daisychain.data.opening import TOKENIZER_FILE
from daisychain.data.port import DataFile, Ids, PortFailure, TokenBlock, Tokens, TokenTable
from daisychain.data.tokenizer import load_tokenizer
from daisychain.session import micro_batch_rows
from daisychain.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


T = TypeVar("T")


def run_apart(awaitable: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on another thread: Playwright's loop occupies the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, awaitable).result()


class ArrayTokens:
    """Token ids in an array."""

    def __init__(self, ids: Iterable[int]) -> None:
        self.values = array("I", ids)

    def __len__(self) -> int:
        return len(self.values)

    def ids(self, start: int, end: int) -> Sequence[int]:
        return self.values[start:end]

    def part(self, start: int, end: int) -> ArrayTokens:
        return ArrayTokens(self.values[start:end])


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable character of each byte."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in kept]
    return {chr(b): b for b in kept} | {chr(256 + i): b for i, b in enumerate(others)}


@lru_cache
def read_tokenizer(text: str) -> tuple[RustTokenizer, TokenTable]:
    """A tokenizer.json and the bytes of its tokens."""
    tokenizer = RustTokenizer.from_str(text)
    tokens = json.loads(text)["added_tokens"]
    added = {token["content"]: token["id"] for token in tokens}
    ordinary = frozenset(token["id"] for token in tokens if not token["special"])
    alphabet = byte_alphabet()
    parts = [b""] * tokenizer.get_vocab_size()
    for name, token in tokenizer.get_vocab().items():
        parts[token] = name.encode() if name in added else bytes(alphabet[c] for c in name)
    ends, total = [], 0
    for part in parts:
        total += len(part)
        ends.append(total)
    return tokenizer, TokenTable(b"".join(parts), ends, added, ordinary)


def byte_tokenizer() -> str:
    """A tokenizer.json of 258 tokens: the site's own without its merges."""
    spec = json.loads((ROOT / TOKENIZER_FILE).read_text(encoding="utf-8"))
    names = [token["content"] for token in spec["added_tokens"]]
    names += sorted(byte_alphabet(), key=byte_alphabet().__getitem__)
    spec["model"] |= {"vocab": {name: i for i, name in enumerate(names)}, "merges": []}
    return json.dumps(spec)


class ReferencePort:
    """Addresses are paths relative to the repository's root, or absolute ones."""

    tokenizer: RustTokenizer

    def __init__(self) -> None:
        self.blocks: dict[tuple[object, ...], TokenBlock] = {}

    async def load_tokenizer(self, file: DataFile, max_bytes: int) -> TokenTable:
        return self.use_tokenizer((ROOT / file.url).read_text(encoding="utf-8"))

    def use_tokenizer(self, text: str) -> TokenTable:
        """Tokenize with a tokenizer.json from now on."""
        self.tokenizer, table = read_tokenizer(text)
        return table

    async def encode(self, text: str) -> list[int]:
        self.tokenizer.encode_special_tokens = False
        return list(self.tokenizer.encode(text).ids)

    async def read_file(
        self, file: DataFile, kind: str, column: str, separator: int, max_bytes: int
    ) -> TokenBlock:
        key = (file.url, kind, column, separator)
        if key not in self.blocks:
            documents = self._documents(ROOT / file.url, kind, column, max_bytes)
            self.blocks[key] = self.block(documents, separator)
        return self.blocks[key]

    def _documents(self, path: Path, kind: str, column: str, max_bytes: int) -> list[str]:
        if path.stat().st_size > max_bytes:
            raise PortFailure("large", "the file is larger than allowed")
        if kind == "parquet":
            documents = pq.read_table(path, columns=[column or "text"]).column(0).to_pylist()
        elif kind == "jsonl":
            documents = [json.loads(line)[column or "text"] for line in path.open() if line.strip()]
        else:
            documents = [path.read_text(encoding="utf-8")]
        return [text for text in documents if text is not None]

    def block(self, documents: Sequence[str], separator: int) -> TokenBlock:
        """Each document after a separator; names of special tokens are ordinary text."""
        self.tokenizer.encode_special_tokens = True
        ids: list[int] = []
        for encoding in self.tokenizer.encode_batch(list(documents), add_special_tokens=False):
            ids += [separator, *encoding.ids]
        size = sum(len(text.encode()) for text in documents)
        return TokenBlock(ArrayTokens(ids), len(documents), size)

    def gather(self, picks: Sequence[tuple[Tokens, int]], length: int) -> Ids:
        out = array("I")
        for tokens, start in picks:
            out.extend(tokens.ids(start, start + length))
        return out

    def close(self) -> None:
        """Nothing to stop."""


async def open_reference_source(settings: Settings) -> TokenSource:
    """The source of a solo run as the page opens it, read by pyarrow and tokenizers."""
    rows = micro_batch_rows(settings.batch, settings.context)
    return await open_source(
        settings.data,
        seed=settings.seed,
        context=settings.context,
        micro_batches=settings.batch // rows,
        tokenizer=await load_tokenizer(ReferencePort(), "reference", DataFile(TOKENIZER_FILE)),
    )
