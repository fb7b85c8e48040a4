"""How a run alone counts its slices of the text, whether it began so or in a room.

By itself a run counts steps and the micro-batches in them.  A room counts slices, one micro-batch
each, from the run's first on, and a step takes as many as there are devices to compute them; a run
that goes on from a room goes on in that numbering.  Either way every slice is taken once.
"""

from __future__ import annotations

from dataclasses import dataclass

from daisychain.data import TokenSource
from daisychain.export.checkpoint import Run
from daisychain.trainer import MicroBatch


@dataclass(frozen=True)
class Numbering:
    """``first`` is the slice, in a room's numbering, that step ``step`` (from 0) begins with;
    None for a run that was never in a room."""

    micro_batches: int
    step: int = 0
    first: int | None = None

    @staticmethod
    def of(micro_batches: int, resumed: Run | None) -> Numbering:
        """That of a run of so many micro-batches a step."""
        if resumed is None:
            return Numbering(micro_batches)
        return Numbering(micro_batches, resumed.step, resumed.slices)

    @property
    def source_micro_batches(self) -> int:
        """Micro-batches a step as the source counts them."""
        return self.micro_batches if self.first is None else 1

    def room_slice(self, step: int) -> int | None:
        """The slice that a step begins with in a room's numbering, if the run has one."""
        if self.first is None:
            return None
        return self.first + (step - self.step) * self.micro_batches

    def slices(self, step: int) -> int:
        """How many slices the run has trained on before this step, in the room or alone."""
        found = self.room_slice(step)
        return step * self.micro_batches if found is None else found

    async def batches(self, source: TokenSource, step: int, rows: int) -> list[MicroBatch]:
        """A step's micro-batches, each with the numbers that its random bits come from."""
        first, indexes = self.room_slice(step), range(self.micro_batches)
        if first is None:
            places = [(step, index) for index in indexes]
        else:
            places = [(first + index, 0) for index in indexes]
        return [
            MicroBatch(index, *await source.batch(number, index, rows), number)
            for number, index in places
        ]
