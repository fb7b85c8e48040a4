"""Lanes: in order, and never silent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from daisychain.errors import DaisyChainError, DeviceError, ProgramError
from daisychain.room.lane import Lane


def test_errors_and_mistakes_are_told_and_the_lane_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A mistake of the program once ended a lane without a word, and its device waited for ever."""
    error, mistake = DeviceError("No memory."), AttributeError("no attribute 'buffer'")

    async def go() -> list[Any]:
        told: list[Any] = []
        done = asyncio.Event()

        async def failed(error: DaisyChainError, subject: Any) -> None:
            told.append((error, subject))

        async def act(subject: Exception | None) -> None:
            if subject:
                raise subject
            done.set()

        lane = Lane(failed)
        for subject in (error, mistake, None):
            lane.add(act, subject)
        async with asyncio.timeout(5):
            await done.wait()
        lane.close()
        return told

    first, (shown, subject) = asyncio.run(go())
    assert first == (error, error)
    assert isinstance(shown, ProgramError)
    assert (shown.__cause__, subject) == (mistake, mistake)
    assert shown.what == "The program has stumbled: AttributeError: no attribute 'buffer'"
    assert "in act" in capsys.readouterr().err  # with the way to it
