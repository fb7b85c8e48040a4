"""The memory of an all-reduce as `reducer` sees it, and what it takes in and gives out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Operation = tuple[Any, ...]
"""One of ("write", address, data, offset, size), which copies a part of ``data``; ("fill", address,
size) with zeros; ("call", function, *numbers); ("ask", function, *numbers) for its number;
("read", address, size, address, size, ...) for all parts end to end; ("hash", ...) likewise, for
the SHA-256 of the parts in hexadecimal."""


class Machine(Protocol):
    """An instance of ``wasm/exchange.wasm``."""

    async def grow(self, size_bytes: int) -> None:
        """Make the memory at least so large; ClusterError if the device has not that much."""

    async def execute(self, operations: Sequence[Operation], give: Sequence[Any] = ()) -> list[Any]:
        """Carry the operations out in order; what "ask", "read" and "hash" give, in order.

        Bytes are ``bytes`` or, in the page, a JavaScript Uint8Array that is only handed on.  Those
        in ``give`` go over instead of being copied, and are empty afterwards.  Operations that are
        asked for later do not wait for a hash."""

    def close(self) -> None:
        """Free the memory."""


@dataclass(frozen=True)
class WideTensor:
    """A reduced gradient as the player's optimizer reads it."""

    name: str
    data: Any
    exponent: int
    maximum: int
    squares: tuple[int, int]
    """Exact sum of squares of the nearest-narrowed mantissas, and its exponent."""


@dataclass(frozen=True)
class Owed:
    """What error feedback still owes on one device, for a checkpoint.

    ``own`` holds mantissas, then row exponents, of its contributions; ``reduced`` those of the
    shards that it reduced as member ``me`` among ``owners`` (indices), empty if it owned none.
    """

    own: Any
    reduced: Any = b""
    owners: tuple[int, ...] = ()
    me: int = 0


def agree_bytes(columns: Sequence[bytes]) -> bytes:
    """`exchange.agree` on rows of int8 as they travel."""
    flip = bytes(i ^ 128 for i in range(256))
    shifted = [column.translate(flip) for column in columns]
    return bytes(map(max, *shifted)).translate(flip) if len(shifted) > 1 else columns[0]
