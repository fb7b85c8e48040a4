"""A device that is lost in a room: a fresh one is opened, and its replica gets the state back.

The room goes on meanwhile.  A device that trained alone computes its last steps again (`replay`);
otherwise it comes in again like a newcomer and loads the state of a member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from daisychain.cluster import effects, events
from daisychain.cluster.protocol import Node
from daisychain.errors import ClusterError, DaisyChainError, DeviceLost, ProgramError
from daisychain.losses import Losses
from daisychain.room.replay import Replay
from daisychain.room.run import Run, RunMaker


class Recovery:
    """``losses`` counts the devices lost; ``is_stateless`` while the replica has no state."""

    def __init__(
        self,
        node: Node,
        maker: RunMaker,
        give: Callable[[events.Event], None],
        tell: Callable[[effects.Effect], None],
        exchange_memory: asyncio.Lock,
    ) -> None:
        self._node, self._maker = node, maker
        self._give, self._tell = give, tell
        self._exchange_memory = exchange_memory
        self.replay = Replay()
        self.losses = Losses()
        self.is_stateless = False

    def use_state(self) -> None:
        """The state of a member is loaded and counts."""
        self.is_stateless = False
        self.replay.stop()

    async def recover(self, loss: DeviceLost, run: Run) -> None:
        """Raises DaisyChainError if there is no fresh device, or too many were lost."""
        core = self._node.core
        was_away = core.mode is effects.Mode.AWAY and core.return_ms < 0
        own = core.roster == (core.me,) and self.replay.is_possible and not self.is_stateless
        self.is_stateless = True
        self._give(events.Away("device lost") if own else events.StateLost("device lost"))
        self._tell(effects.Notice("device-lost", str(loss)))
        while True:
            self.losses.count(loss, core.committed.step if core.committed else 0)
            try:
                run.replica.player = await self._maker.reopen(self.losses.recent)
                if own:
                    await self._take_back(run)
                break
            except DeviceLost as again:
                loss = again
        if not was_away:
            self._give(events.Back())

    async def _take_back(self, run: Run) -> None:
        """The state as it was after the last step of this device alone."""
        at = self._node.core.committed
        if at is None:
            raise ClusterError("This device has no state that it could take back.")
        async with self._exchange_memory:
            weights_hash = await self.replay.restore(run.replica, run.reducer)
        if at.weights_hash not in ("", weights_hash):
            raise ClusterError("The weights of the last step could not be computed again.")
        self.is_stateless = False
        self._give(events.Applied(at.step, weights_hash))


def is_over(node: Node) -> bool:
    """Whether this device will train no more: then a loss is the end."""
    return node.core.mode in (effects.Mode.HALTED, effects.Mode.LEFT)


def consequence(error: DaisyChainError, effect: object) -> events.Event:
    """A device that cannot compute stays out of this attempt; one that cannot apply quits, as
    one does whose program made a mistake."""
    if isinstance(error, ProgramError):
        return events.Quit(str(error))
    if isinstance(effect, effects.BeginAttempt):
        key = effect.proposal.step, effect.proposal.epoch
        return events.ComputeFailed(*key, str(error))
    if isinstance(effect, effects.FetchState):
        return events.StateFailed(effect.step, str(error))
    return events.Quit(str(error))
