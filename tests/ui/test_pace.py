"""The time of a step before it begins: what this device has shown, scaled to the work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from daisychain.platform import cpython
from daisychain.settings import resolve
from daisychain.ui.messages import too_large
from daisychain.ui.pace import FIRST_STEPS, MOST_SIZES, PACE_KEY, STEPS, Pace, step_ms

RECORDS = [{"loss": 9.0, "ms": 900.0}] * FIRST_STEPS + [{"loss": 9.0, "ms": 40.0}] * STEPS


@pytest.fixture(autouse=True)
def nothing_is_known() -> Iterator[None]:
    cpython.storage_remove(PACE_KEY)
    yield
    cpython.storage_remove(PACE_KEY)


def noted(work: int, player: str = "auto") -> None:
    pace = Pace(lambda settings: work)
    pace.watch(resolve({"player": player}), [])
    pace.watch(resolve({"player": player}), RECORDS)


def test_nothing_is_told_before_a_run_has_shown_it() -> None:
    assert step_ms("auto", 1000) is None
    pace = Pace(lambda settings: 1000)
    pace.watch(resolve(), [])
    pace.watch(resolve(), RECORDS[:-1])
    assert step_ms("auto", 1000) is None
    pace.watch(resolve(), RECORDS)
    assert step_ms("auto", 1000) == pytest.approx(40.0)
    assert step_ms("auto", 2000) == pytest.approx(80.0)
    assert step_ms("wasm", 1000) is None


def test_steps_of_another_device_do_not_count() -> None:
    """A run that goes on from a file brings the log of where it came from."""
    pace = Pace(lambda settings: 1000)
    pace.watch(resolve(), RECORDS)
    assert step_ms("auto", 1000) is None
    pace.watch(resolve(), [*RECORDS, *({"loss": 1.0, "ms": 7.0} for _ in RECORDS)])
    assert step_ms("auto", 1000) == pytest.approx(7.0)


def test_the_nearest_size_tells_and_the_oldest_is_forgotten() -> None:
    for size in range(1, MOST_SIZES + 2):
        noted(10**size)
    assert step_ms("auto", 10) == pytest.approx(4.0)  # from the size ten times as large
    noted(5, "wasm")
    assert step_ms("wasm", 10) == pytest.approx(80.0)
    assert step_ms("auto", 2 * 10**5) == pytest.approx(80.0)


@pytest.mark.parametrize("text", ["", "no json", "[1]", '{"auto": 3}', '{"auto": {"x": 1}}'])
def test_storage_may_hold_anything(text: str) -> None:
    cpython.storage_set(PACE_KEY, text)
    assert step_ms("auto", 1000) is None
    noted(1000)
    assert step_ms("auto", 1000) == pytest.approx(40.0)


def test_a_run_that_is_too_large_for_the_device_is_warned_of() -> None:
    assert too_large(10**9, None) == too_large(10**9, 2 * 10**9) == ""
    assert "takes 1.27 GB, and this device has about 2.00 GB" in too_large(1_270_000_000, 2 * 10**9)
