"""The tokenizer's face: text to ids in the Worker, ids to text here.

A byte-level vocabulary is a table of bytes, so decoding is joining them; a code point may lie
across tokens, which is why generation uses the incremental decoder.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from daisychain.data.port import DataFile, DataPort, PortFailure, TokenTable
from daisychain.errors import DataError

END_OF_TEXT_NAMES = ("<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "</s>", "<eos>")
"""Names that tokenizers give to the token between documents, the most usual first."""

MAX_TOKENIZER_BYTES = 1 << 26
MAX_VOCABULARY_TOKENS = 1 << 18


class TokenBytes(Protocol):
    """What decoding needs of a tokenizer."""

    @property
    def special(self) -> frozenset[int]:
        """Ids that stand for no text."""

    def token_bytes(self, token: int) -> bytes:
        """The bytes that one token stands for."""


class IncrementalDecoder:
    """Text of ids that arrive one by one; never shows half a character."""

    def __init__(self, tokenizer: TokenBytes) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """What can be shown now; empty while a character is incomplete."""
        if token in self._tokenizer.special:
            return self._decoder.decode(b"", final=True)
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def flush(self) -> str:
        """The end: an incomplete character becomes U+FFFD."""
        return self._decoder.decode(b"", final=True)


@dataclass(frozen=True)
class Tokenizer:
    """A loaded tokenizer; ``port`` is the Worker that encodes with it, ``file`` its source."""

    port: DataPort
    name: str
    table: TokenTable
    file: DataFile = field(default_factory=DataFile)

    @property
    def size(self) -> int:
        """Ids are below this: the model's vocabulary."""
        return len(self.table.ends)

    @cached_property
    def special(self) -> frozenset[int]:
        """Ids of added tokens that stand for no text: separators, padding and the like."""
        return frozenset(self.table.added.values()) - self.table.ordinary

    @property
    def end_of_text(self) -> int:
        """The token before each document, which also ends a generated text."""
        for name in END_OF_TEXT_NAMES:
            if name in self.table.added:
                return self.table.added[name]
        raise DataError(
            f"The tokenizer {self.name} has no token that separates documents.",
            do=f"Choose one with a special token such as {END_OF_TEXT_NAMES[0]}.",
        )

    async def encode(self, text: str) -> list[int]:
        """Ids of a text.  A lone surrogate counts as U+FFFD."""
        return await self.port.encode(text) if text else []

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids; special tokens are left out, malformed UTF-8 becomes U+FFFD."""
        data = b"".join(self.token_bytes(i) for i in ids if i not in self.special)
        return data.decode("utf-8", "replace")

    def decoder(self) -> IncrementalDecoder:
        """A decoder for ids that arrive one by one."""
        return IncrementalDecoder(self)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that one token stands for."""
        ends = self.table.ends
        if not 0 <= token < len(ends):
            raise DataError(f"Token {token} is not in the vocabulary of {len(ends)} tokens.")
        return self.table.data[ends[token - 1] if token else 0 : ends[token]]

    def text_bytes(self, ids: Iterable[int]) -> int:
        """UTF-8 bytes of text behind ids; special tokens count as none."""
        return sum(map(self._lengths.__getitem__, ids))

    @cached_property
    def _lengths(self) -> list[int]:
        ends = self.table.ends
        lengths = [end - start for start, end in zip((0, *ends), ends, strict=False)]
        for token in self.special:
            lengths[token] = 0
        return lengths


async def load_tokenizer(port: DataPort, name: str, file: DataFile) -> Tokenizer:
    """Load a tokenizer.json into the port; DataError when it is damaged or of another kind."""
    try:
        table = await port.load_tokenizer(file, MAX_TOKENIZER_BYTES)
    except PortFailure as cause:
        if cause.kind == "unsupported":
            reason = cause.what.rstrip(".")
            raise DataError(
                f"The tokenizer {name} is of a kind that cannot be used here ({reason}).",
                do="Choose a byte-level BPE tokenizer.",
            ) from cause
        if cause.kind == "damaged":
            raise DataError(
                f"The tokenizer file of {name} is damaged.",
                str(cause),
                "Load the page again; if that does not help, the site's copy is broken.",
            ) from cause
        raise
    if not 0 < len(table.ends) <= MAX_VOCABULARY_TOKENS:
        raise DataError(f"The tokenizer {name} has {len(table.ends)} tokens.")
    return Tokenizer(port, name, table, file)
