"""Which rows of a parquet dataset feed which sequence: planned from seed and footers alone.

A *unit* is a run of consecutive rows of one row group with about half a megabyte of text; it is
what a device tokenizes at once.  An epoch takes the files in a seeded order, in each file the row
groups in a seeded order, and a row group's units in their own.  *Lanes* divide each file's units
into contiguous spans, so that devices on different lanes share (almost) no row group.  A unit gives
a planned number of windows, from its share of the row group's bytes and the dataset's measured
tokens a byte: so the place of any sequence follows without reading what comes before it.  Windows
spread evenly over the tokens a unit really has; a too low plan leaves small gaps, a too high one
small overlaps, and no row is ever in two units.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from daisychain.data.cursor import permute
from daisychain.errors import DataError

UNIT_BYTES = 1 << 19
MAX_CHUNK_BYTES = 1 << 26
MAX_UNPACKED_BYTES = 1 << 28
MAX_ROWS = 1 << 22
MAX_TOLD_BYTES = 1 << 37
"""Unpacked text of one file, if a device says so: a bound on the units that it makes."""
HELDOUT_ROWS = 256
HELDOUT_SHARE = 20
"""Held out are the last rows of the first file: 1 in 20 of its last row group, at most 256."""

FILES_KEPT = 4
"""Plans of so many files are kept."""

FILE_ORDER, GROUP_ORDER, WINDOW_ORDER = 1, 2, 3


@dataclass(frozen=True)
class RowGroup:
    """One row group's text column: rows, byte range in the file, unpacked size, compression."""

    rows: int
    start: int
    end: int
    unpacked: int
    codec: str

    @property
    def usable(self) -> bool:
        """Small enough to be held; others are left out by every device alike."""
        return (
            0 < self.rows <= MAX_ROWS
            and self.end - self.start <= MAX_CHUNK_BYTES
            and self.unpacked <= MAX_UNPACKED_BYTES
        )


@dataclass(frozen=True)
class Footer:
    """What a parquet file's footer says of its text column."""

    column: str
    optional: bool
    groups: tuple[RowGroup, ...]

    def to_record(self) -> dict[str, object]:
        """JSON-able, a few numbers a row group, for the other members of a room."""
        return {
            "column": self.column,
            "optional": self.optional,
            "groups": [[g.rows, g.start, g.end, g.unpacked, g.codec] for g in self.groups],
        }

    @staticmethod
    def from_record(record: object, path: str, file_bytes: int) -> Footer:
        """The footer of a file that another device sent.  Raises DataError naming the row group."""
        try:
            fields = dict(record)  # type: ignore[call-overload]
            column, optional, groups = fields["column"], fields["optional"], fields["groups"]
            if type(column) is not str or type(optional) is not bool:
                raise TypeError("a field is missing")
            numbered = enumerate(list(groups))
        except (TypeError, ValueError, KeyError) as cause:
            raise DataError(f"The room's footer of {path} is malformed ({cause}).") from cause
        told = tuple(_told_group(g, n, path, file_bytes) for n, g in numbered)
        if sum(group.unpacked for group in told if group.usable) > MAX_TOLD_BYTES:
            raise DataError(f"The room's footer of {path} has more text than can be planned.")
        return Footer(column, optional, told)


def _told_group(record: object, number: int, path: str, file_bytes: int) -> RowGroup:
    """A row group that another device described."""
    try:
        group = RowGroup(*record)  # type: ignore[misc]
        numbers = (group.rows, group.start, group.end, group.unpacked)
        if any(type(n) is not int or not 0 <= n < 2**53 for n in numbers):
            raise TypeError("a number is out of range")
        holds = group.rows == 0 or group.start < group.end
        if not holds or group.end > file_bytes or type(group.codec) is not str:
            raise TypeError("it lies outside the file")
    except TypeError as cause:
        where = f"row group {number} of {path}"
        raise DataError(f"The room's footer is wrong at {where} ({cause}).") from cause
    return group


@dataclass(frozen=True)
class Unit:
    """Rows ``first`` to ``last`` (exclusive) of a row group, and how many windows they give."""

    file: int
    group: int
    first: int
    last: int
    windows: int

    @property
    def rows(self) -> tuple[int, int, int, int]:
        """What it reads, however many windows are planned."""
        return self.file, self.group, self.first, self.last


@dataclass(frozen=True)
class Slice:
    """Where one sequence comes from: ``place`` is its window in the unit."""

    epoch: int
    unit: Unit
    place: int
    following: int
    """The lane's first sequence after this unit."""


class FooterNeeded(Exception):
    """Planning must know this file's footer first."""

    def __init__(self, file: int) -> None:
        super().__init__(f"footer of file {file}")
        self.file = file


def heldout_unit(footer: Footer) -> Unit | None:
    """The held-out rows at the end of the first file, None when there is but one row."""
    for number in range(len(footer.groups) - 1, -1, -1):
        group = footer.groups[number]
        if group.usable:
            rows = min(HELDOUT_ROWS, max(1, group.rows // HELDOUT_SHARE))
            if rows < group.rows:
                return Unit(0, number, group.rows - rows, group.rows, 0)
            return None
    return None


def window_place(window: int, windows: int, tokens: int, context: int) -> int:
    """Where a unit's window starts: ``windows`` of them spread evenly over its tokens."""
    room = tokens - context - 1
    return window * room // (windows - 1) if windows > 1 else 0


def _make_room(cache: dict[Any, Any], limit: int) -> None:
    """Drop the oldest entry of a full cache."""
    if len(cache) >= limit:
        cache.pop(next(iter(cache)))


class SlicePlan:
    """The plan of one run.  The owner fills ``footers`` as FooterNeeded asks for them."""

    def __init__(
        self,
        footers: dict[int, Footer],
        *,
        files: int,
        seed: int,
        context: int,
        lanes: int,
        tokens_per_kilobyte: int,
    ) -> None:
        """``tokens_per_kilobyte`` (1,000 bytes of unpacked text column) sets windows a unit."""
        self.footers, self.files, self.seed, self.lanes = footers, files, seed, lanes
        self.context, self.tokens_per_kilobyte = context, tokens_per_kilobyte
        self._units: dict[tuple[int, int], list[Unit]] = {}
        self._spans: dict[tuple[int, int, int], tuple[list[Unit], list[int]]] = {}
        self._starts: dict[int, list[tuple[int, int, int]]] = {}

    def locate(self, lane: int, sequence: int) -> Slice:
        """Where a lane's sequence comes from.  Raises FooterNeeded or, without rows, DataError."""
        first, epoch, position = self._start(lane, sequence)
        empty = 0
        while True:
            units, ends = self.lane_units(epoch, self.file_at(epoch, position), lane)
            if ends and sequence < first + ends[-1]:
                break
            empty = 0 if ends else empty + 1
            if empty > self.files:
                raise self._no_rows()
            first, position = first + (ends[-1] if ends else 0), position + 1
            if position == self.files:
                epoch, position = epoch + 1, 0
            self._remember(lane, first, epoch, position)
        at = bisect_right(ends, sequence - first)
        unit = units[at]
        place = sequence - first - (ends[at - 1] if at else 0)
        following = first + ends[at]
        stream = (epoch, WINDOW_ORDER, unit.file, unit.group, unit.first)
        window = permute(place, unit.windows, self.seed, *stream)
        return Slice(epoch, unit, window, following)

    def _start(self, lane: int, sequence: int) -> tuple[int, int, int]:
        """The last known start of a file's span: (first sequence, epoch, position of the file)."""
        starts = self._starts.setdefault(lane, [(0, 0, 0)])
        return starts[bisect_right(starts, sequence, key=lambda start: start[0]) - 1]

    def _remember(self, lane: int, first: int, epoch: int, position: int) -> None:
        starts = self._starts[lane]
        if first == starts[-1][0]:
            starts[-1] = (first, epoch, position)
        elif first > starts[-1][0]:
            starts.append((first, epoch, position))

    def _no_rows(self) -> DataError:
        if not any(group.rows for footer in self.footers.values() for group in footer.groups):
            return DataError("The dataset has no rows.", do="Choose another one.")
        if not any(group.usable for footer in self.footers.values() for group in footer.groups):
            return DataError(
                f"No row group is within {MAX_CHUNK_BYTES >> 20} MiB packed and "
                f"{MAX_UNPACKED_BYTES >> 20} MiB unpacked.",
                do="Choose a dataset with smaller row groups.",
            )
        return DataError(
            f"The dataset is too small for {self.lanes} lanes.",
            do="Choose a larger one or fewer micro-batches a step.",
        )

    def files_from(self, lane: int, sequence: int, ahead: int) -> list[int]:
        """The file of a sequence that was located before, and the ``ahead`` next in the order."""
        _, epoch, first = self._start(lane, sequence)
        places = (divmod(place, self.files) for place in range(first, first + ahead + 1))
        return [self.file_at(epoch + later, position) for later, position in places]

    def file_at(self, epoch: int, position: int) -> int:
        """The file at a position of the epoch's order."""
        return permute(position, self.files, self.seed, epoch, FILE_ORDER)

    def lane_units(self, epoch: int, file: int, lane: int) -> tuple[list[Unit], list[int]]:
        """A lane's units of a file in their order, and the running count of their windows."""
        key = (epoch, file, lane)
        if key not in self._spans:
            if file not in self.footers:
                raise FooterNeeded(file)
            units = self._file_units(epoch, file)
            span = units[lane * len(units) // self.lanes : (lane + 1) * len(units) // self.lanes]
            _make_room(self._spans, FILES_KEPT * self.lanes)
            self._spans[key] = span, list(accumulate(unit.windows for unit in span))
        return self._spans[key]

    def _file_units(self, epoch: int, file: int) -> list[Unit]:
        if (epoch, file) not in self._units:
            _make_room(self._units, FILES_KEPT)
            self._units[epoch, file] = list(self.units(epoch, file))
        return self._units[epoch, file]

    def substitutes(self, lane: int, epoch: int, unit: Unit) -> list[Unit]:
        """What stands in for a unit whose row group is damaged: one unit of each next group."""
        span, _ = self.lane_units(epoch, unit.file, lane)
        at = span.index(unit)
        chosen = {other.group: other for other in reversed(span[at + 1 :] + span[:at])}
        chosen.pop(unit.group, None)
        following = dict.fromkeys(other.group for other in span[at + 1 :] + span[:at])
        return [chosen[group] for group in following if group in chosen]

    def units(self, epoch: int, file: int) -> Iterator[Unit]:
        """All units of a file in the epoch's order."""
        footer = self.footers[file]
        held = heldout_unit(footer) if file == 0 else None
        usable = [number for number, group in enumerate(footer.groups) if group.usable]
        least = -(-self.lanes // max(1, len(usable)))
        for place in range(len(usable)):
            number = usable[permute(place, len(usable), self.seed, epoch, GROUP_ORDER, file)]
            group = footer.groups[number]
            rows = held.first if held is not None and held.group == number else group.rows
            parts = min(rows, max(least, -(-group.unpacked // UNIT_BYTES)))
            for part in range(parts):
                first, last = part * rows // parts, (part + 1) * rows // parts
                size = group.unpacked * (last - first) // group.rows
                windows = size * self.tokens_per_kilobyte // 1000 // self.context
                yield Unit(file, number, first, last, max(1, windows))
