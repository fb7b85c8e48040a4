"""Where the rows and elements of a `reduce_plan.Layout` lie, counted through all its buckets."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

from daisychain.cluster.reduce_plan import Layout, Rows, Shard


@dataclass(frozen=True)
class Place:
    """A tensor with its first row and its first element."""

    tensor: Rows
    row: int
    element: int


class Places:
    """All places of one layout."""

    def __init__(self, layout: Layout) -> None:
        tensors = layout.tensors
        rows = accumulate((tensor.rows for tensor in tensors), initial=0)
        elements = accumulate((tensor.elements for tensor in tensors), initial=0)
        self.all = [Place(*place) for place in zip(tensors, rows, elements, strict=False)]
        ends = list(accumulate((len(bucket) for bucket in layout.buckets), initial=0))
        self.by_bucket = [self.all[a:b] for a, b in pairwise(ends)]
        self.row_base = list(accumulate((len(s) - 1 for s in layout.row_starts), initial=0))
        self._element_base = list(accumulate((s[-1] for s in layout.row_starts), initial=0))

    def span(self, bucket: int) -> tuple[int, int, int, int]:
        """First row, rows, first element, elements of a bucket."""
        first, end = self.row_base[bucket : bucket + 2]
        element, last = self._element_base[bucket : bucket + 2]
        return first, end - first, element, last - element

    def pieces(self, bucket: int, own: Shard) -> list[tuple[int, int, int, int]]:
        """A shard cut where tensors meet: (rows before, rows, columns, elements before) of each."""
        first, last = own.first_row, own.first_row + own.rows
        pieces, elements = [], 0
        for place in self.by_bucket[bucket]:
            row = place.row - self.row_base[bucket]
            low, high = max(first, row), min(last, row + place.tensor.rows)
            if low < high:
                pieces.append((low - first, high - low, place.tensor.columns, elements))
                elements += (high - low) * place.tensor.columns
        return pieces
