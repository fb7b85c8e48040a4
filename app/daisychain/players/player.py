"""What every player offers: it holds a program's buffers and runs its plans."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Protocol

from daisychain.plan import Program

PIECES_AHEAD = 2
"""Pieces that are queued on a device at a time: it never waits for the host in between."""

Piece = tuple[Sequence[str], Sequence[str]]
"""Plans to run, and buffers to read after them."""
PieceResult = tuple[list[Any], bytes]
"""Contents of a piece's buffers (in the page perhaps JavaScript typed arrays), and the scalars."""


class Player(Protocol):
    """Executes plans.  All players give the same bits.

    ``data`` to write is ``bytes`` or, in the browser, a JavaScript typed array.  Narrow buffers
    are read and written in the interleaved layout of ``kernels.catalog``.
    """

    name: str
    """'oracle', 'webgpu' or 'wasm'."""

    wait_ms: float
    """Milliseconds that the last ``run`` waited for the device (the rest was host work)."""

    sample_ms: float | None
    """Milliseconds that one sample of ``players.measure`` takes on it, where that is known."""

    async def load(self, program: Program) -> None:
        """Allocates the program's storages (zeroed), uploads its constants, prepares its kernels.

        Raises DeviceError when a buffer or the whole does not fit the device.
        """

    def write(self, buffer: str, data: Any, offset_bytes: int = 0, give: bool = False) -> None:
        """Queues an upload; later ``run`` calls see it.

        ``give``: a JavaScript typed array may go over instead of being copied; it is not used
        afterwards.
        """

    def write_scalars(self, first_word: int, words: Sequence[int]) -> None:
        """Queues an upload of u32 words into ``scalars``."""

    async def run(self, plans: Sequence[str], read: str) -> bytes:
        """Runs the plans in order, as one command buffer, and returns the buffer ``read`` after.

        Raises DeviceError when the device was lost; nothing of the run may be used then.
        """

    def run_pieces(self, pieces: Sequence[Piece]) -> AsyncGenerator[PieceResult, None]:
        """Runs the pieces in order, each as one command buffer with one read-back, and gives what
        each reads while the device computes the next.

        Nothing else may be asked of the player meanwhile.  Close the iterator (`aclosing`) to leave
        out the pieces that are not queued yet.  Raises DeviceError as ``run`` does.
        """

    async def read(self, buffer: str) -> bytes:
        """The contents of a buffer (for saving, tests and hashes; not for the training loop)."""

    async def read_many(self, buffers: Sequence[str]) -> list[bytes]:
        """The contents of several buffers with as few read-backs as the device allows."""

    async def read_scalars(self) -> bytes:
        """The contents of ``scalars``."""

    def close(self) -> None:
        """Frees everything; the player is unusable afterwards."""


async def queue_ahead(
    start: Callable[[Piece], Awaitable[PieceResult]], pieces: Iterable[Piece]
) -> AsyncGenerator[PieceResult, None]:
    """``Player.run_pieces`` for a device that serves requests in their order.

    ``start`` queues a piece as soon as it is awaited.
    """
    left = iter(pieces)
    queued: deque[asyncio.Future[PieceResult]] = deque()

    def queue(count: int) -> None:
        queued.extend(asyncio.ensure_future(start(piece)) for piece in islice(left, count))

    queue(PIECES_AHEAD)
    try:
        while queued:
            result = await queued[0]
            queued.popleft()
            queue(1)
            yield result
    finally:
        await asyncio.gather(*queued, return_exceptions=True)
