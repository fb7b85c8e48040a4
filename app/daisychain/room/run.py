"""A room's run on one device, and who can build it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from daisychain.cluster import events
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.reduce_plan import Layout
from daisychain.cluster.reducer import Reducer
from daisychain.data.sharing import PackedPlan
from daisychain.errors import ClusterError
from daisychain.model.config import parameter_count
from daisychain.players.player import Player
from daisychain.room.data_plan import AgreedPlan
from daisychain.room.replica import Replica


@dataclass(frozen=True)
class Run:
    """A room's run on this device."""

    replica: Replica
    reducer: Reducer
    settings: events.Settings
    plan: PackedPlan | None = None
    """Which text it reads, for newcomers; None where every device has the text anyway."""

    @cached_property
    def memory_bytes(self) -> int:
        """Device memory of the run's program."""
        return self.replica.model.program.memory_bytes()

    @cached_property
    def parameters(self) -> int:
        """Number of weights."""
        return parameter_count(self.replica.model.config)

    def check_room(self, text: str) -> None:
        """Raise ClusterError unless a room with this settings text trains this run."""
        if text != self.settings.text:
            raise ClusterError(
                "The room that this device met trains with other settings or other data.",
                do="Leave, then join that room.",
            )


class RunMaker(Protocol):
    """Builds a run from the room's settings text.  Its methods raise DaisyChainError."""

    def state_sizes(self, text: str) -> list[int]:
        """Bytes of each buffer of a state; at once, before anything is built."""

    def layout(self, text: str) -> Layout:
        """The exchange layout of the room's model."""

    def exchange(self, text: str) -> Exchange:
        """How the room's gradients travel."""

    def plan(self, text: str) -> AgreedPlan | None:
        """What the room has agreed on of its data plan, None if it needs none."""

    async def reopen(self, losses: int) -> Player:
        """A fresh player with the run's program, after the device was lost so often."""

    async def build(self, text: str, told: bytes | None = None) -> Run:
        """Opens data, player and exchange; ``told`` is the data plan that came from a member."""
