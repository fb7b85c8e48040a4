"""Automatic saves: two kept, whole or not at all, out of room, damaged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import pytest

from daisychain.errors import DataError
from daisychain.export.saves import LIST_FILE, MAX_LIST_BYTES, Saves, room_digest
from daisychain.platform.files import KeepError, MemoryFiles
from daisychain.platform.tabs import OnlyTab
from tests.export.models import trained


@pytest.fixture(autouse=True)
def runs() -> None:
    """Trained beforehand, outside of any event loop."""
    for steps in (1, 2, 3, 6):
        trained(steps)


class DyingFiles(MemoryFiles):
    """The tab dies in a write: a part of the file is left."""

    dies_at = ""

    async def write(self, name: str, parts: Sequence[memoryview]) -> None:
        if name.startswith(self.dies_at or "\0"):
            self.contents[name + ".part"] = bytes(parts[0])
            raise SystemExit
        await super().write(name, parts)


class FullFiles(MemoryFiles):
    """There is room for the list, but for no save any more."""

    is_full = False

    async def write(self, name: str, parts: Sequence[memoryview]) -> None:
        if self.is_full and name != LIST_FILE:
            raise KeepError("There is no room.", is_full=True)
        await super().write(name, parts)


class SlowFiles(MemoryFiles):
    """Another tab may do something in the middle of each operation."""

    async def write(self, name: str, parts: Sequence[memoryview]) -> None:
        self.contents[name + ".part"] = bytes(parts[0])
        await asyncio.sleep(0)
        del self.contents[name + ".part"]
        await super().write(name, parts)

    async def sizes(self) -> dict[str, int]:
        await asyncio.sleep(0)
        return await super().sizes()


class Browser:
    """Tabs that share files; ``open`` are those that live and have announced themselves."""

    def __init__(self, files: MemoryFiles) -> None:
        self.files, self.lock = files, asyncio.Lock()
        self.open: set[str] = set()

    def tab(self, name: str) -> Saves:
        return Saves(self.files, lambda: 1000.5, Tab(self, name))


class Tab:
    def __init__(self, browser: Browser, me: str) -> None:
        self.browser, self.me = browser, me

    async def announce(self) -> None:
        self.browser.open.add(self.me)

    async def others(self) -> frozenset[str]:
        return frozenset(self.browser.open - {self.me})

    def turn(self) -> AbstractAsyncContextManager[None]:
        return self.browser.lock


async def steps_of(store: Saves) -> list[int]:
    """Steps of what is listed, each of which must be there."""
    return [(await store.load(save)).run.step for save in await store.listed()]  # type: ignore[union-attr]


def test_each_of_two_tabs_keeps_its_own_two() -> None:
    async def go() -> None:
        browser = Browser(MemoryFiles())
        first, second = browser.tab("first"), browser.tab("second")
        await first.keep(trained(1))
        for steps in (2, 3, 6):
            await second.keep(trained(steps))
        assert await steps_of(second) == [6, 3]
        assert await steps_of(first) == [1]
        await first.keep(trained(2))
        await second.discard()
        assert await steps_of(second) == []
        assert await steps_of(first) == [2, 1]

    asyncio.run(go())


def test_what_a_tab_that_is_gone_kept_is_there_for_others() -> None:
    async def go() -> None:
        browser = Browser(MemoryFiles())
        first, second = browser.tab("first"), browser.tab("second")
        await first.keep(trained(1))
        await second.keep(trained(2))
        browser.open.remove("first")
        assert await steps_of(second) == [2, 1]
        await second.keep(trained(3))
        assert await steps_of(second) == [3, 2]
        assert len(browser.files.contents) == 3
        browser.open.clear()
        await second.discard()
        assert browser.files.contents == {}

    asyncio.run(go())


def test_tabs_that_save_at_once_do_so_in_turn() -> None:
    async def go() -> None:
        browser = Browser(SlowFiles())
        tabs = [browser.tab(name) for name in ("first", "second", "third")]
        for steps in (1, 2, 3):
            await asyncio.gather(*(tab.keep(trained(steps)) for tab in tabs))
        for tab in tabs:
            assert await steps_of(tab) == [3, 2]
        assert len(browser.files.contents) == 1 + 2 * len(tabs)

    asyncio.run(go())


def test_out_of_room_costs_no_other_tab_its_saves() -> None:
    async def go() -> None:
        files = FullFiles()
        browser = Browser(files)
        first, second = browser.tab("first"), browser.tab("second")
        for store, steps in ((first, 1), (first, 2), (second, 1), (second, 2)):
            await store.keep(trained(steps))
        files.quota_bytes = sum(map(len, files.contents.values())) + 2_000
        await second.keep(trained(3))
        assert await steps_of(second) == [3, 2]
        files.is_full = True
        with pytest.raises(KeepError):
            await second.keep(trained(6))
        assert await steps_of(second) == [3]
        assert await steps_of(first) == [2, 1]

    asyncio.run(go())


def saves(files: MemoryFiles) -> Saves:
    return Saves(files, lambda: 1000.5, OnlyTab())


def test_the_last_two_are_kept() -> None:
    files = MemoryFiles()

    async def go() -> None:
        store = saves(files)
        assert await store.listed() == []
        for steps in (1, 2, 3):
            await store.keep(trained(steps))
        found = await store.listed()
        assert [(s.step, s.steps, s.is_finished) for s in found] == [(3, 6, False), (2, 6, False)]
        assert set(files.contents) == {LIST_FILE, "run-000002.zip", "run-000003.zip"}
        assert await store.load(found[0]) == trained(3)
        assert await store.load(found[1]) == trained(2)
        await store.keep(trained(6))
        assert (await store.listed())[0].is_finished
        await store.discard()
        assert files.contents == {}

    asyncio.run(go())


def test_a_save_names_its_room_by_a_digest_of_the_code() -> None:
    files = MemoryFiles()

    async def go() -> None:
        await saves(files).keep(trained(1), room_digest("K7QDM2XP9RTW4HBN"))
        (found,) = await saves(files).listed()
        assert found.room == room_digest("K7QDM2XP9RTW4HBN") != room_digest("K7QDM2XP9RTW4HBP")
        assert b"K7QD" not in files.contents[LIST_FILE]
        (entry,) = json.loads(files.contents[LIST_FILE])
        del entry["room"], entry["tab"]  # as lists were written once
        files.contents[LIST_FILE] = json.dumps([entry]).encode()
        assert [s.room for s in await saves(files).listed()] == [""]

    asyncio.run(go())


@pytest.mark.parametrize("dies_at", ["run-", LIST_FILE])
def test_a_tab_that_dies_in_a_save_leaves_the_older_one(dies_at: str) -> None:
    files = DyingFiles()

    async def go() -> None:
        store = saves(files)
        await store.keep(trained(1))
        files.dies_at = dies_at
        with pytest.raises(SystemExit):
            await store.keep(trained(2))
        files.dies_at = ""
        store = saves(files)
        assert [s.step for s in await store.listed()] == [1]
        assert await store.load((await store.listed())[0]) == trained(1)
        await store.keep(trained(3))
        assert [s.step for s in await store.listed()] == [3, 1]
        assert len(files.contents) == 3

    asyncio.run(go())


def test_out_of_room() -> None:
    async def go() -> None:
        files = MemoryFiles()
        store = saves(files)
        await store.keep(trained(1))
        size = sum(map(len, files.contents.values()))
        files.quota_bytes = int(1.5 * size)
        with pytest.raises(KeepError, match="no room"):
            await store.keep(trained(2))
        assert [s.step for s in await store.listed()] == [1]
        files.quota_bytes = int(2.5 * size)
        await store.keep(trained(2))
        await store.keep(trained(3))  # takes the place of the older one
        assert [s.step for s in await store.listed()] == [3, 2]
        assert await store.load((await store.listed())[0]) == trained(3)

    asyncio.run(go())


def test_damage_is_found() -> None:
    async def go() -> None:
        files = MemoryFiles()
        store = saves(files)
        await store.keep(trained(1))
        (save,) = await store.listed()
        data = bytearray(files.contents[save.name])
        data[len(data) // 2] ^= 1
        files.contents[save.name] = bytes(data)
        with pytest.raises(DataError):
            await store.load(save)
        files.contents[save.name] = bytes(data[:-5])
        assert await store.listed() == []
        files.contents[save.name] = bytes(data)
        whole = files.contents[LIST_FILE]
        assert await store.listed() == [save]
        for text in (
            b"",
            b"[",
            b"[1]",
            b"{}",
            b'[{"name": 3}]',
            b"[" * 100_000,
            whole.replace(b"1000.5", b"NaN"),
            whole.replace(b"1000.5", b"-1e999"),
            whole + b" " * MAX_LIST_BYTES,
        ):
            files.contents[LIST_FILE] = text
            assert await store.listed() == []

    asyncio.run(go())
