"""Drawing seldom: at once when there was a pause, then at most once an interval."""

from __future__ import annotations

import asyncio

import pytest

from daisychain.ui.refresh import Refresher

LONG_S = 1000.0
SHORT_S = 0.01


@pytest.mark.parametrize(("interval_s", "drawings"), [(LONG_S, [1000]), (SHORT_S, [1000, 1002])])
def test_many_marks_are_one_drawing_an_interval(
    monkeypatch: pytest.MonkeyPatch, interval_s: float, drawings: list[int]
) -> None:
    monkeypatch.setattr(Refresher, "interval_s", interval_s)

    async def scenario() -> list[int]:
        drawn: list[int] = []
        marks = 0
        refresher = Refresher(lambda: drawn.append(marks))
        while marks < 1000:
            marks += 1
            refresher.mark()
        await asyncio.sleep(5 * SHORT_S)
        assert drawn == [1000]
        while marks < 1002:
            marks += 1
            refresher.mark()
        await asyncio.sleep(10 * SHORT_S)
        return drawn

    assert asyncio.run(scenario()) == drawings


def test_drawing_at_once_replaces_the_waiting_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Refresher, "interval_s", SHORT_S)

    async def scenario() -> int:
        drawn: list[None] = []
        refresher = Refresher(lambda: drawn.append(None))
        refresher.mark()
        refresher.now()
        await asyncio.sleep(5 * SHORT_S)
        return len(drawn)

    assert asyncio.run(scenario()) == 1


def test_an_eager_mark_after_a_pause_is_not_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Refresher, "interval_s", SHORT_S)

    async def scenario() -> list[int]:
        counts: list[int] = []
        drawn: list[None] = []
        refresher = Refresher(lambda: drawn.append(None))
        for _ in range(3):
            refresher.mark(eager=True)
            counts.append(len(drawn))
        await asyncio.sleep(5 * SHORT_S)
        return [*counts, len(drawn)]

    assert asyncio.run(scenario()) == [1, 1, 1, 2]
