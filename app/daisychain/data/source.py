"""Token sources: what the trainer asks for batches, and the one that keeps its tokens in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Protocol

from daisychain.data.cursor import sequence_range, window_count, window_start
from daisychain.data.port import DataPort, Ids, TokenBlock, Tokens
from daisychain.data.tokenizer import Tokenizer
from daisychain.errors import DataError

Cursor = dict[str, object]
"""JSON-able: what identifies a source, for checkpoints."""


@dataclass(frozen=True)
class HeldoutBatch:
    """One batch of held-out text, rows * T inputs and targets each."""

    ids: Ids
    targets: Ids
    tokens: int
    bytes: int
    """UTF-8 bytes of text behind the targets: bits a byte = nats / (bytes * ln 2)."""


@dataclass(frozen=True)
class SourceStatus:
    """What the page shows of a source."""

    buffered_tokens: int
    """Tokens ready to train on without waiting."""
    waiting: str = ""
    """What it waits for, in words; empty when it does not wait."""
    notice: str = ""
    """What the person should know, for instance that the fallback is in use."""
    received_bytes: int = 0


class TokenSource(Protocol):
    """Batches of training and held-out text; (seed, step, micro-batch) alone picks the tokens."""

    name: str
    tokenizer: Tokenizer
    context: int
    """T: inputs a row; targets are the same tokens one place on."""

    async def batch(self, step: int, micro_batch: int, rows: int) -> tuple[Ids, Ids]:
        """Inputs and targets, u32, rows * T each.  Raises DataError."""

    def heldout_batches(self, rows: int, limit: int | None = None) -> AsyncIterator[HeldoutBatch]:
        """Held-out batches, at most ``limit``, the same ones each time; none without a text."""

    @property
    def heldout_bytes_per_token(self) -> float:
        """Exact over all held-out windows; 0.0 when nothing is held out or it is not loaded yet."""

    def status(self) -> SourceStatus:
        """For the page."""

    def cursor(self) -> Cursor:
        """A small record for checkpoints."""

    def restore(self, cursor: Cursor) -> None:
        """Check a checkpoint's record against this source.  Raises DataError if they differ."""

    def close(self) -> None:
        """Stop background work and the Worker."""


class Heldout:
    """Held-out text in memory: windows in their order, cut into batches."""

    def __init__(self, tokens: Tokens | None, context: int, tokenizer: Tokenizer) -> None:
        self._tokens, self._context, self._tokenizer = tokens, context, tokenizer
        self.windows = window_count(len(tokens), context) if tokens is not None else 0
        self._byte_counts: dict[tuple[int, int], int] = {}

    @property
    def bytes_per_token(self) -> float:
        count = self.windows * self._context
        return self._text_bytes(0, self.windows) / count if count else 0.0

    def _text_bytes(self, first: int, end: int) -> int:
        """Bytes of text behind the targets of some windows."""
        key = (first, end)
        assert self._tokens is not None
        if key not in self._byte_counts:
            ids = self._tokens.ids(first * self._context + 1, end * self._context + 1)
            self._byte_counts[key] = self._tokenizer.text_bytes(ids)
        return self._byte_counts[key]

    def batches(self, rows: int, limit: int | None) -> Iterable[HeldoutBatch]:
        """Whole batches; one that starts again from the front if there is not even one."""
        if self._tokens is None or not self.windows:
            return
        count = max(self.windows // rows, 1)
        for number in range(count if limit is None else min(count, limit)):
            first = number * rows
            places = [(first + i) % self.windows for i in range(rows)]
            ids, targets = read_windows(self._tokenizer.port, self._tokens, places, self._context)
            if first + rows <= self.windows:
                text_bytes = self._text_bytes(first, first + rows)
            else:
                text_bytes = sum(self._text_bytes(place, place + 1) for place in places)
            yield HeldoutBatch(ids, targets, rows * self._context, text_bytes)


def read_windows(
    port: DataPort, tokens: Tokens, places: Iterable[int], context: int
) -> tuple[Ids, Ids]:
    """Inputs and targets of the windows at these places."""
    starts = [place * context for place in places]
    ids = port.gather([(tokens, start) for start in starts], context)
    return ids, port.gather([(tokens, start + 1) for start in starts], context)


class WindowSource:
    """A text that fits in memory: the embedded corpus, or a file of the person's own."""

    def __init__(
        self,
        name: str,
        tokenizer: Tokenizer,
        train: TokenBlock,
        heldout: Heldout,
        *,
        seed: int,
        context: int,
        micro_batches: int = 1,
        notice: str = "",
    ) -> None:
        """``micro_batches`` is the most that one step of the run has."""
        self.name, self.tokenizer, self.context = name, tokenizer, context
        self.notice = notice
        self._train, self._heldout = train, heldout
        self._seed, self._micro_batches = seed, micro_batches
        self.windows = window_count(len(train.tokens), context)
        if not self.windows:
            raise DataError(
                f"{name} has only {len(train.tokens)} tokens.",
                f"One row of context {context} needs {context + 1}.",
                "Choose a longer text or a shorter context.",
            )

    async def batch(self, step: int, micro_batch: int, rows: int) -> tuple[Ids, Ids]:
        if not 0 <= micro_batch < self._micro_batches:
            raise DataError(f"Micro-batch {micro_batch} is not among {self._micro_batches} a step.")
        indexes = sequence_range(step, micro_batch, self._micro_batches, rows)
        places = [window_start(self._seed, index, self.windows)[1] for index in indexes]
        return read_windows(self.tokenizer.port, self._train.tokens, places, self.context)

    async def heldout_batches(
        self, rows: int, limit: int | None = None
    ) -> AsyncIterator[HeldoutBatch]:
        for batch in self._heldout.batches(rows, limit):
            yield batch

    @property
    def heldout_bytes_per_token(self) -> float:
        return self._heldout.bytes_per_token

    def status(self) -> SourceStatus:
        return SourceStatus(len(self._train.tokens), notice=self.notice)

    def cursor(self) -> Cursor:
        return {
            "source": self.name,
            "tokenizer": self.tokenizer.name,
            "seed": self._seed,
            "context": self.context,
            "micro_batches": self._micro_batches,
            "tokens": len(self._train.tokens),
            "bytes": self._train.bytes,
        }

    def restore(self, cursor: Cursor) -> None:
        check_cursor(self.cursor(), cursor)

    def close(self) -> None:
        self.tokenizer.port.close()


def check_cursor(own: Cursor, other: Cursor) -> None:
    """Raise DataError naming the first fact in which a checkpoint's record differs."""
    for key, value in own.items():
        if other.get(key) != value:
            raise DataError(
                f"The checkpoint's data differ in {key}: {other.get(key)!r} there, {value!r} here.",
                "Going on would train on other text than the run began with.",
                "Choose the data, seed and context of the checkpoint.",
            )
