"""The tabs of this site in one browser: which of them live, and whose turn it is.

They share the page's own files.  Web Locks tell both: a lock is free as soon as its tab is gone,
whatever ended that.  Where there are none (the page is no secure context) there are no files.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import cache
from typing import Any, Protocol

from daisychain.platform.files import KeepError

TURN = "daisychain saves"
TAB = "daisychain tab "
"""What the names of locks begin with that tabs hold for as long as they live."""
TURN_LIMIT_MS = 60_000
"""A tab that writes a large file takes seconds; one that is frozen in the middle takes for ever."""


class Tabs(Protocol):
    """``me`` is a name that no other tab has."""

    me: str

    async def announce(self) -> None:
        """From now on, until it is gone, the others hear of this tab."""

    async def others(self) -> frozenset[str]:
        """The other tabs that have announced themselves and live."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Of all tabs one at a time is inside; raises KeepError if the one before never leaves."""


class OnlyTab:
    """A process that shares its files with no other."""

    me = ""

    async def announce(self) -> None:
        """Nobody is there to hear it."""

    async def others(self) -> frozenset[str]:
        return frozenset()

    def turn(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()


class BrowserTabs:
    """The tabs of the page's origin."""

    def __init__(self) -> None:
        self.me = secrets.token_hex(8)
        self._is_announced = False

    async def announce(self) -> None:
        if not self._is_announced:
            self._is_announced = True
            await _held(TAB + self.me)

    async def others(self) -> frozenset[str]:
        import js
        from pyodide.ffi import JsException

        try:
            held = (await js.navigator.locks.query()).held
        except (AttributeError, JsException):  # there are none, or this page may not have them
            return frozenset()
        names = [str(lock.name) for lock in held]
        tabs = {name.removeprefix(TAB) for name in names if name.startswith(TAB)}
        return frozenset(tabs - {self.me})

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        release = await _held(TURN)
        if release is None:
            raise KeepError(
                "Another tab of this browser has been saving for a minute.",
                "Close the tabs of this page that you do not need.",
            )
        try:
            yield
        finally:
            release()


async def _held(name: str) -> Any:
    """What gives the lock of this name back, once this tab has it; None if that takes too long."""
    return await _hold_script()(name, TURN_LIMIT_MS)


@cache
def _hold_script() -> Any:
    from pyodide.code import run_js

    return run_js(
        """(name, limitMs) => new Promise((resolve) => {
          const given = new AbortController();
          const timer = setTimeout(() => { given.abort(); resolve(undefined); }, limitMs);
          const hold = (lock) => new Promise((release) => {
            clearTimeout(timer);
            resolve(release);
          });
          const without = () => { clearTimeout(timer); resolve(() => {}); };
          if (!navigator.locks) return without();
          navigator.locks.request(name, { signal: given.signal }, hold).catch(without);
        })"""
    )


def page_tabs() -> Tabs:
    """This tab and its like."""
    return BrowserTabs() if sys.platform == "emscripten" else OnlyTab()
