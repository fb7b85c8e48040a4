"""How a device that trains alone gets its state back when its GPU is lost.

It keeps a copy of the state now and then, and of each step since what the step was made of: slices
or, if the step was exchanged (with itself, while somebody was coming in), the reduced gradient.
With others in the room nothing is kept: any of them has the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from daisychain.cluster.exchange import Exchange
from daisychain.cluster.reducer import Reducer
from daisychain.room.replica import Replica
from daisychain.session import SNAPSHOT_EVERY_STEPS, SNAPSHOT_LIMIT_BYTES


@dataclass(frozen=True)
class ReplayStep:
    """A step: its slices, or its reduced gradient in a mode, and the optimizer's scalars."""

    slices: range
    scalars: Sequence[int]
    mode: Exchange = Exchange.NONE
    reduced: Any = None


class Replay:
    """A copy of the state after some step, and the steps since."""

    def __init__(self) -> None:
        self._copy: list[Any] | None = None
        self._steps: list[ReplayStep] | None = []

    @property
    def is_possible(self) -> bool:
        """Whether all steps since the copy are known."""
        return self._steps is not None

    def is_due(self, replica: Replica) -> bool:
        """Whether a copy should be taken before the next step of this device alone."""
        steps = self._steps
        is_small = sum(replica.state_sizes()) <= SNAPSHOT_LIMIT_BYTES
        return is_small and (steps is None or len(steps) >= SNAPSHOT_EVERY_STEPS)

    def start(self, copy: list[Any]) -> None:
        """A copy of the state as it is now; the steps from here on are known."""
        self._copy, self._steps = copy, []

    def add(self, step: ReplayStep) -> None:
        """A step of this device alone, decided and perhaps not yet applied."""
        if self._steps is not None:
            self._steps.append(step)

    def stop(self) -> None:
        """The others have the state: nothing is kept here."""
        self._copy = self._steps = None

    async def restore(self, replica: Replica, reducer: Reducer) -> str:
        """Brings a fresh player to the last step: the same bits.  The hash of the weights."""
        if self._copy is None:
            weights_hash = await replica.initialise()
        else:
            weights_hash = await replica.load_state(self._copy)
        for step in self._steps or ():
            if step.mode is Exchange.NONE:
                for number in step.slices:
                    await replica.add_slice(number, first=number == step.slices.start)
            else:
                await reducer.store_whole(step.reduced, step.mode)
                replica.write_sums(await reducer.wide(step.mode))
            weights_hash = await replica.apply(step.scalars)
        return weights_hash
