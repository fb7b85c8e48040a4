"""Integer all-reduce arithmetic: the definition that every kernel mirrors bit for bit.

One row of a tensor at a time; plain Python integers.  A row is ``mantissas`` and one power-of-two
exponent, value = mantissa * 2**exponent.  Everything a kernel does fits 32-bit signed integers.

A step, for each row (``limit`` is the largest mantissa that travels, `Exchange.up_limit`):

1. ``align(gradient, residual)``: the member's gradient (int32, |m| <= 2**30 + 2**24, the
   exponent of its tensor) plus what it still owes this row (int16, an exponent a row), brought to
   one exponent ``w`` such that each term is below 2**29.
2. ``row_exponent``: the least exponent >= w at which the largest mantissa rounds into ``limit``.
   It travels as one int8; ``NO_EXPONENT`` (-128) says that the row is zero.
3. The shard's owner takes the maximum over all members and tells everybody.
4. ``quantise``: q = clip(rounding shift of the aligned row to the agreed exponent, +-limit); the
   rest is the new residual, int16 in units 2**-15 of the quantum or finer (then it is exact).
5. The owner adds all q: int32, exact, in any order.
6. The owner runs 1, 2 and 4 again on the sum, with its own residual, no agreement being needed:
   ``limit`` 127.  It sends one exponent a row and the mantissas; that is the reduced gradient.

Residuals of 4 and 6 take effect when the step commits and are dropped when it is aborted.  An
owner's residual is zeroed whenever the shards change (it belongs to rows, not to devices).
Modes: ``int8`` as above; ``int4`` has limit 7 in step 4 and packs two mantissas a byte, the even
element in the low four bits; ``int16`` is exact: limit 32767 // members, so that the sum itself
fits int16, and step 6 sends the sum at the agreed exponent without a second rounding.  ``none`` is
the room of one: the gradient goes to the optimizer as it is and residuals stay untouched.

Rounding is the project's: ``(x + half) >> s``, half up; see `rounding_shift`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from daisychain.errors import ClusterError

NO_EXPONENT = -128
"""The exponent byte of a row that is all zero."""
LOW_EXPONENT, HIGH_EXPONENT = -127, 127
DOWN_LIMIT = 127
RESIDUAL_BITS = 15
"""The residual's unit is the quantum shifted right by this, or the aligned row's own unit."""


class Exchange(StrEnum):
    """How gradients travel in a step; agreed in its proposal."""

    NONE = "none"
    INT8 = "int8"
    INT4 = "int4"
    INT16 = "int16"

    def up_limit(self, members: int) -> int:
        """Largest mantissa of a contribution in a room of ``members``."""
        limits = {Exchange.INT8: 127, Exchange.INT4: 7, Exchange.INT16: 32767 // members}
        return limits[self]

    def up_bytes(self, elements: int) -> int:
        """Bytes of ``elements`` contributed mantissas."""
        if self is Exchange.INT4:
            return (elements + 1) // 2
        return elements * (2 if self is Exchange.INT16 else 1)

    def down_bytes(self, elements: int, rows: int) -> int:
        """Bytes of a reduced shard: its row exponents, then its mantissas."""
        return rows + elements * (2 if self is Exchange.INT16 else 1)

    @property
    def rounds_sum(self) -> bool:
        """True if the owner quantises the sum again (and so keeps a residual for it)."""
        return self in (Exchange.INT8, Exchange.INT4)


@dataclass(frozen=True)
class Row:
    """``mantissas`` * 2**``exponent``."""

    mantissas: tuple[int, ...]
    exponent: int

    @property
    def top(self) -> int | None:
        """Exponent just above the largest magnitude; None for a row of zeros."""
        bits = max(map(abs, self.mantissas), default=0).bit_length()
        return self.exponent + bits if bits else None

    @classmethod
    def zeros(cls, columns: int) -> Row:
        """A row of zeros, the residual that everything starts from."""
        return cls((0,) * columns, 0)


def rounding_shift(x: int, s: int) -> int:
    """(x + 2**(s-1)) >> s, half up; a left shift for s < 0; 0 for s > 30."""
    if s > 30:
        return 0
    return x << -s if s <= 0 else (x + (1 << (s - 1))) >> s


def align(gradient: Row, residual: Row) -> Row:
    """Sum of two rows at an exponent that leaves each term below 2**29.

    w = max(top of each row that is not all zero) - 29.  A row of zeros adds nothing: its exponent
    counts for nothing and its shift, which may be any number, is not done.  Two rows of zeros give
    zeros at exponent 0.  Left shifts of the others are at most 29.
    """
    tops = [top for row in (gradient, residual) if (top := row.top) is not None]
    if not tops:
        return Row.zeros(len(gradient.mantissas))
    w = max(tops) - 29
    return Row(
        tuple(
            rounding_shift(g, w - gradient.exponent) + rounding_shift(r, w - residual.exponent)
            for g, r in zip(gradient.mantissas, residual.mantissas, strict=True)
        ),
        w,
    )


def row_exponent(row: Row, limit: int) -> int:
    """The exponent at which ``row`` rounds into +-``limit``, as the int8 that travels.

    row.exponent + the least s >= 0 with (largest + half) >> s <= limit, held in -127..127.
    """
    largest = max(map(abs, row.mantissas), default=0)
    if largest == 0:
        return NO_EXPONENT
    s = 0
    while rounding_shift(largest, s) > limit:
        s += 1
    return min(max(row.exponent + s, LOW_EXPONENT), HIGH_EXPONENT)


def agree(exponents: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Elementwise maximum over the members' row exponents; any order gives the same."""
    return tuple(max(column) for column in zip(*exponents, strict=True))


def quantise(row: Row, exponent: int, limit: int) -> tuple[tuple[int, ...], Row]:
    """Mantissas of ``row`` at ``exponent`` and the residual left over.

    s = max(0, exponent - row.exponent); q = clip(rounding_shift(m, s), +-limit);
    rest = m - (q << s) (just m for s > 30, where q is 0); t = max(0, s - 15);
    residual = clip(rounding_shift(rest, t), int16) at exponent row.exponent + t.
    ``NO_EXPONENT`` gives zeros and no residual.  A false agreed exponent cannot overflow anything,
    it only clips.
    """
    if exponent == NO_EXPONENT:
        return (0,) * len(row.mantissas), Row.zeros(len(row.mantissas))
    s = max(0, exponent - row.exponent)
    t = max(0, s - RESIDUAL_BITS)
    q = tuple(_clip(rounding_shift(m, s), limit) for m in row.mantissas)
    rest = (m - (k << s) if s <= 30 else m for m, k in zip(row.mantissas, q, strict=True))
    return q, Row(tuple(_clip(rounding_shift(r, t), 32767) for r in rest), row.exponent + t)


def add(contributions: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Exact sum of the members' mantissas of one row, in any order."""
    return tuple(sum(column) for column in zip(*contributions, strict=True))


def reduce_row(
    mode: Exchange, total: Sequence[int], agreed: int, residual: Row
) -> tuple[tuple[int, ...], int, Row]:
    """The owner's half: mantissas and exponent of the reduced row, and the owner's residual."""
    if not mode.rounds_sum:
        return tuple(total), agreed if any(total) else NO_EXPONENT, residual
    row = align(Row(tuple(total), 0 if agreed == NO_EXPONENT else agreed), residual)
    exponent = row_exponent(row, DOWN_LIMIT)
    mantissas, rest = quantise(row, exponent, DOWN_LIMIT)
    return mantissas, exponent, rest


def pack(mode: Exchange, mantissas: Sequence[int]) -> bytes:
    """Contributed mantissas as they travel (little endian); see the modes above."""
    if mode is Exchange.INT16:
        return b"".join(m.to_bytes(2, "little", signed=True) for m in mantissas)
    if mode is Exchange.INT4:
        even = [*mantissas, 0] if len(mantissas) % 2 else mantissas
        return bytes((a & 15) | (b & 15) << 4 for a, b in zip(even[::2], even[1::2], strict=True))
    return bytes(m & 255 for m in mantissas)


def unpack(mode: Exchange, data: bytes, elements: int) -> tuple[int, ...]:
    """Inverse of `pack`; ClusterError if ``data`` has not the size of ``elements``."""
    if len(data) != mode.up_bytes(elements):
        raise ClusterError(
            f"A contribution of {elements} numbers came as {len(data)} bytes.",
            f"The mode {mode} needs {mode.up_bytes(elements)}.",
        )
    if mode is Exchange.INT16:
        pairs = (data[i : i + 2] for i in range(0, len(data), 2))
        return tuple(int.from_bytes(pair, "little", signed=True) for pair in pairs)
    if mode is Exchange.INT4:
        nibbles = (n for byte in data for n in (byte & 15, byte >> 4))
        return tuple((n ^ 8) - 8 for n in nibbles)[:elements]
    return tuple((byte ^ 128) - 128 for byte in data)


def _clip(x: int, limit: int) -> int:
    return max(-limit, min(limit, x))
