"""The life of a run as the page sees it: one session at a time, how it began and how it ended."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable

from daisychain import platform
from daisychain.settings import PRESETS, Settings, resolve
from daisychain.ui.backing import Session
from daisychain.ui.messages import Trouble
from daisychain.ui.settings_form import given_values

TRAINING_MARK = "training"
"""Storage key that stands while a run is under way: found at a start, the tab was killed."""

JOINED_MARK = "room"
"""Its value while this device trains in another one's room."""


class Runs:
    """``session`` is the one that is shown, ``running`` whether it still works.

    ``changed`` is called at each change of the session, ``ended`` when it is over.
    """

    def __init__(self, changed: Callable[[], None], ended: Callable[[], None]) -> None:
        self._changed, self._ended = changed, ended
        self._wake_lock = platform.WakeLock()
        self._task: asyncio.Task[None] | None = None
        self._number = 0
        self.session: Session | None = None
        self.running = False
        self.trouble: Trouble | None = None

    def begin(self, make: Callable[[], Session], mark: str) -> bool:
        """Begins a run unless one is under way; ``mark`` stays in the storage until it ends."""
        if self.running:
            return False
        self.forget()
        self.session, self.trouble, self.running = None, None, True
        platform.clear_records()
        self._number += 1
        self._task = asyncio.ensure_future(self._run(make, mark, self._number, self._task))
        return True

    def forget(self) -> None:
        """Turns away from the session and frees its device, after the step under way."""
        if self.session is not None:
            self.session.close()
        self._number += 1
        self.session, self.trouble, self.running = None, None, False
        platform.storage_remove(TRAINING_MARK)

    async def _run(
        self, make: Callable[[], Session], mark: str, number: int, last: asyncio.Task[None] | None
    ) -> None:
        if last is not None:
            await last  # its device and its links are free again
        if number != self._number:
            return
        platform.storage_set(TRAINING_MARK, mark)
        await self._wake_lock.start()
        try:
            session = make()
            if number == self._number:
                self.session = session
                session.subscribe(self._changed)
                self._changed()
                await session.run()
        except Exception as error:
            if number == self._number:
                self.trouble = Trouble.from_exception(error, traceback.format_exc(limit=-8))
        finally:
            if number == self._number:
                self.running = False
                platform.storage_remove(TRAINING_MARK)
            await self._wake_lock.stop()
            self._ended()


def after_a_killed_tab(settings: Settings) -> tuple[Settings, tuple[str, ...]]:
    """After a run that ended without a word: a smaller preset, and a sentence."""
    preset = platform.storage_get(TRAINING_MARK)
    if preset is None:
        return settings, ()
    platform.storage_remove(TRAINING_MARK)
    if preset == JOINED_MARK:
        return settings, (
            "The last run ended without a word: most likely the browser closed the tab for want "
            "of memory. Close other tabs before you join again.",
        )
    names = list(PRESETS)
    smaller = names[max(0, names.index(preset) - 1)] if preset in names else names[0]
    kept = {n: v for n, v in given_values(settings).items() if n in ("steps", "seed", "data")}
    return resolve({**kept, "preset": smaller}), (
        "The last run ended without a word: most likely the browser closed the tab for want of "
        f"memory. The preset {smaller} is chosen now; start when you like.",
    )
