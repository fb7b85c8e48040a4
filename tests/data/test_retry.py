"""Which failures are tried again, and after how long, on a clock that does not run."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.data.port import PortFailure
from daisychain.data.retry import (
    LONGEST_DELAY_S,
    LONGEST_RETRY_AFTER_S,
    Retry,
    delay_s,
    passes,
    retry_after_s,
)
from tests.data.http_reference import HttpReferencePort
from tests.data.reference import run_apart


def failure(kind: str = "status", status: int = 503, after: str = "") -> PortFailure:
    return PortFailure(kind, "it failed", status=status, retry_after=after)


class ClockPort(HttpReferencePort):
    """Waiting moves the clock."""

    now_s = 1000.0

    def __init__(self) -> None:
        super().__init__()
        self.woken: list[bool] = []

    async def wait(self, seconds: float, wakes: bool) -> None:
        self.waits.append(seconds)
        self.woken.append(wakes)
        self.now_s += seconds


def run_retry(
    failures: list[PortFailure], attempts: int | None = None
) -> tuple[object, ClockPort, list[str]]:
    port, said = ClockPort(), []
    retry = Retry(
        port,
        attempts=attempts,
        on_wait=said.append,
        clock=lambda: port.now_s,
        chance=lambda: 0.0,
    )
    left = list(failures)

    async def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    try:
        return run_apart(retry.run("the text", attempt)), port, said
    except PortFailure as error:
        return error, port, said


def test_passing_failures() -> None:
    again = [failure("network"), failure("short"), failure("stalled"), failure(status=429)]
    again += [failure(status=code) for code in (408, 425, 500, 502, 503, 504)]
    assert all(passes(one) for one in again)
    final = [failure(status=code) for code in (401, 403, 404, 410, 416)]
    final += [failure(k) for k in ("whole", "range", "damaged", "column", "large", "changed")]
    assert not any(passes(one) for one in final)


def test_waits_double_and_nothing_is_lost() -> None:
    result, port, said = run_retry([failure()] * 3)
    assert result == "done"
    assert port.waits == [0.5, 1.0, 2.0]
    assert port.woken == [True] * 3, "being online again ends these waits"
    assert said[0] == "Waiting for the text: It failed. Trying again in 1 s."
    assert said[-1] == ""


def test_attempts_are_limited_and_final_failures_are_raised_at_once() -> None:
    result, port, _ = run_retry([failure()] * 9, attempts=3)
    assert isinstance(result, PortFailure)
    assert len(port.waits) == 2
    result, port, said = run_retry([failure(status=404)])
    assert isinstance(result, PortFailure)
    assert str(result).startswith("The text: It failed. It does not exist")
    assert (port.waits, said) == ([], [])


def test_retry_after_is_kept_to_by_all_requests() -> None:
    result, port, said = run_retry([failure(status=429, after="7")])
    assert result == "done"
    assert port.waits[0] == pytest.approx(7.125)
    assert "Trying again in 7 s" in said[0]
    other = Retry(port, clock=lambda: port.now_s, chance=lambda: 0.0)
    other._not_before_s = port.now_s + 4.0

    async def attempt() -> str:
        return "late"

    assert run_apart(other.run("more", attempt)) == "late"
    assert port.waits[-1] == pytest.approx(4.0)
    assert port.woken == [False, False], "what the server asked for is kept to in any case"


def test_retry_after_forms() -> None:
    now = 1_800_000_000.0
    assert retry_after_s("12", now) == 12.0
    assert retry_after_s(formatdate(now + 30, usegmt=True), now) == pytest.approx(30, abs=1)
    assert retry_after_s(formatdate(now - 30, usegmt=True), now) == 0.0
    assert retry_after_s("-5", now) == 0.0
    assert retry_after_s(str(10**12), now) == LONGEST_RETRY_AFTER_S
    for nonsense in ("", "soon", "Mon, 99 Foo 2020", "1e9"):
        assert retry_after_s(nonsense, now) == 0.0


@given(st.integers(0, 10**6), st.floats(0, 1, exclude_max=True))
def test_delays_stay_in_bounds(attempt: int, chance: float) -> None:
    delay = delay_s(failure("network"), attempt, 0.0, chance)
    assert 0.5 <= delay <= LONGEST_DELAY_S
