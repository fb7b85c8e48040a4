"""Automatic saves: the last two checkpoints of this page, kept by the browser.

Each is written beside the others before the list names it, and the list is written last; so a tab
that dies in the middle leaves the older saves as they were.  Tabs of one browser share files and
list: each writes in turn, and leaves alone what belongs to another tab for as long as that lives.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite

from daisychain.errors import DataError
from daisychain.export.checkpoint import Checkpoint, read_archive, write_checkpoint
from daisychain.platform.files import KeepError, KeptFiles
from daisychain.platform.tabs import Tabs
from daisychain.settings import to_query

KEPT = 2
LIST_FILE = "saves.json"
MAX_LIST_BYTES = 1 << 16


@dataclass(frozen=True)
class Save:
    """One save as the list describes it; ``query`` are the run's settings as in a link."""

    name: str
    bytes: int
    query: str
    step: int
    steps: int
    weights_hash: str
    saved: float
    """Seconds since 1970."""
    room: str = ""
    """Of a run in a room: a digest of the room's code, which itself is kept nowhere."""
    tab: str = ""
    """Which tab made it."""

    @property
    def is_finished(self) -> bool:
        return self.step >= self.steps


class Saves:
    """The saves in the page's own files."""

    def __init__(self, files: KeptFiles, clock_s: Callable[[], float], tabs: Tabs) -> None:
        self._files, self._clock_s, self._tabs = files, clock_s, tabs

    async def listed(self) -> list[Save]:
        """The newest first, without those of other tabs that live; none when the list is damaged
        or the device keeps no files."""
        return (await self._parted())[0]

    async def _parted(self) -> tuple[list[Save], list[Save]]:
        """All saves: this tab's and those of tabs that are gone, and those of others."""
        saves = await self._all()
        others = await self._tabs.others() if saves else frozenset()
        theirs = [save for save in saves if save.tab in others]
        return [save for save in saves if save.tab not in others], theirs

    async def _all(self) -> list[Save]:
        try:
            sizes = await self._files.sizes()
            if sizes.get(LIST_FILE, 0) > MAX_LIST_BYTES:
                return []
            entries = json.loads(await self._files.read(LIST_FILE))
            saves = [_save(entry) for entry in entries]
        except (DataError, ValueError, TypeError, KeyError, RecursionError):
            return []
        return [save for save in saves if sizes.get(save.name) == save.bytes]

    async def keep(self, checkpoint: Checkpoint, room: str = "") -> None:
        """Keeps a run's checkpoint in place of the oldest.  Raises KeepError."""
        run = checkpoint.run
        if run is None:
            raise ValueError("a model without a run is not kept")
        parts = await write_checkpoint(checkpoint)
        save = Save(
            "",
            sum(map(len, parts)),
            to_query(run.settings),
            run.step,
            run.settings.steps,
            run.weights_hash,
            self._clock_s(),
            room,
            self._tabs.me,
        )
        async with self._tabs.turn():
            await self._tabs.announce()
            await self._put(save, parts)

    async def _put(self, save: Save, parts: Sequence[memoryview]) -> None:
        older, theirs = await self._parted()
        listed = [*older, *theirs]
        await self._tidy(listed)
        number = 1 + max((_number(other.name) for other in listed), default=0)
        save = replace(save, name=f"run-{number:06d}.zip")
        try:
            await self._files.write(save.name, parts)
        except KeepError as error:
            if not error.is_full or len(older) < KEPT:
                raise
            await self._forget(older[1:], [*older[:1], *theirs])
            await self._files.write(save.name, parts)
        await self._forget(older[KEPT - 1 :], [save, *older[: KEPT - 1], *theirs])

    async def load(self, save: Save) -> Checkpoint:
        """The checkpoint of a save; raises DataError when it is damaged or gone."""
        return await read_archive(await self._files.read(save.name))

    async def discard(self) -> None:
        """Deletes all saves but those of other tabs that live."""
        async with self._tabs.turn():
            mine, theirs = await self._parted()
            if theirs:
                await self._forget(mine, theirs)
            else:
                await self._files.remove(LIST_FILE)
            await self._tidy(theirs)

    async def _forget(self, old: Sequence[Save], kept: Sequence[Save]) -> None:
        """Writes the list of those kept, then deletes the old ones."""
        newest_first = sorted(kept, key=lambda save: _number(save.name), reverse=True)
        text = json.dumps([asdict(save) for save in newest_first]).encode()
        await self._files.write(LIST_FILE, [memoryview(text)])
        for save in old:
            await self._files.remove(save.name)

    async def _tidy(self, listed: Sequence[Save]) -> None:
        """Deletes what no list names: the remains of tabs that died."""
        known = {LIST_FILE, *(save.name for save in listed)}
        for name in await self._files.sizes():
            if name not in known:
                await self._files.remove(name)


def room_digest(code: str) -> str:
    """By what a save names the room of this code."""
    return hashlib.sha256(f"daisychain room {code}".encode()).hexdigest()[:16]


def _number(name: str) -> int:
    digits = name.removeprefix("run-").removesuffix(".zip")
    return int(digits) if digits.isdecimal() else 0


def _save(entry: dict[str, object]) -> Save:
    """Raises KeyError, TypeError or ValueError for an entry that is not one of ours."""
    entry = {"room": "", "tab": "", **entry}
    kinds = {"str": str, "int": int, "float": float}
    for field in fields(Save):
        if type(entry[field.name]) is not kinds[str(field.type)]:
            raise ValueError(f"{field.name} is malformed")
    if not isfinite(float(str(entry["saved"]))):
        raise ValueError("saved is no time")
    return Save(**{field.name: entry[field.name] for field in fields(Save)})  # type: ignore[arg-type]
