"""The room's state on its way to this device, and the steps that the room makes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from daisychain.cluster.times import Times
from daisychain.room.books import catch_up_header, state_header

TIMES = Times()


class StateInbox:
    """One state at a time; opening another gives the one before up."""

    def __init__(self) -> None:
        self._wanted: object = None
        self._step = 0
        self._sizes: Sequence[int] = ()
        self._contents: dict[int, Any] = {}
        self._catch_ups: dict[int, Any] = {}
        self._complete = asyncio.Event()

    def open(
        self, wanted: object, step: int, sizes: Sequence[int], catch_up_bytes: int
    ) -> list[bytes]:
        """Await buffers of these sizes (none at step 0); the headers of all flows to expect.

        ``wanted`` stands for the fetch that this is for.
        """
        self._wanted, self._step, self._sizes = wanted, step, sizes if step else ()
        self._contents, self._catch_ups = {}, {}
        self._complete = asyncio.Event()
        following = range(step + 1, step + 1 + 2 * TIMES.longest_backlog(catch_up_bytes))
        return [
            *(state_header(step, i, size) for i, size in enumerate(self._sizes)),
            *(catch_up_header(step, catch_up_bytes) for step in following),
        ]

    @property
    def is_wanted(self) -> bool:
        """Whether a fetch is under way."""
        return self._wanted is not None

    def is_open(self, wanted: object) -> bool:
        """Whether this fetch is still the one that counts."""
        return self._wanted is wanted

    def came(self, step: int, index: int, data: Any) -> None:
        """A buffer is here; one of a state that was given up comes too late."""
        if step != self._step:
            return
        self._contents[index] = data
        if len(self._contents) == len(self._sizes):
            self._complete.set()

    def catch_up_came(self, step: int, data: Any) -> None:
        """The reduced gradient of a step is here."""
        self._catch_ups[step] = data

    def take_catch_up(self, step: int) -> Any:
        return self._catch_ups.pop(step)

    async def wait(self, wanted: object, every_ms: int) -> list[Any] | None:
        """The whole state once it is here; None if it is given up before."""
        complete = self._complete
        while self.is_open(wanted) and not complete.is_set():
            await asyncio.sleep(every_ms / 1000)
        if not self.is_open(wanted):
            return None
        return [self._contents[i] for i in range(len(self._sizes))]

    def loaded(self) -> None:
        """The state is in use; the steps after it still come."""
        self._wanted, self._contents = None, {}

    def close(self) -> None:
        """Nothing is wanted any more; what is here is dropped."""
        self.loaded()
        self._catch_ups = {}
