"""Waiting politely: which failures are worth another try, and after how long.

Delays double from one second up to a minute, with jitter, so that many devices on one address do
not return together; a Retry-After of the server is kept to.  Nothing is lost by waiting: the caller
still knows what it asked for.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from daisychain.data.port import DataPort, PortFailure

FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 60.0
LONGEST_RETRY_AFTER_S = 900.0
HTTP_DATE = "%a, %d %b %Y %H:%M:%S GMT"
PASSING_KINDS = frozenset({"network", "short", "stalled", "ended"})
PASSING_STATUS = frozenset({408, 425, 429})

T = TypeVar("T")


def passes(failure: PortFailure) -> bool:
    """Whether trying again later may help."""
    if failure.kind == "status":
        return failure.status in PASSING_STATUS or failure.status >= 500
    return failure.kind in PASSING_KINDS


def retry_after_s(text: str, now_s: float) -> float:
    """Seconds of a Retry-After header, which is a number or a date; 0 when there is none."""
    try:
        seconds = float(int(text))
    except ValueError:
        try:
            date = datetime.strptime(text, HTTP_DATE).replace(tzinfo=UTC)
        except ValueError:
            return 0.0
        seconds = date.timestamp() - now_s
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_S)


def delay_s(failure: PortFailure, attempt: int, now_s: float, chance: float) -> float:
    """How long to wait after failed attempt number ``attempt`` (from 0); chance is in [0, 1)."""
    backoff = min(FIRST_DELAY_S * 2.0 ** min(attempt, 16), LONGEST_DELAY_S) * (0.5 + chance / 2)
    asked = retry_after_s(failure.retry_after, now_s)
    return asked + backoff / 4 if asked else backoff


ADVICE = {
    "damaged": "The next row group is used instead where there is one.",
    "column": "Name the column after a colon: owner/name:column.",
    "whole": "The server must support range requests.",
    "range": "The server must support range requests.",
    "changed": "It changed meanwhile: start the run again.",
    "preflight": "Use the embedded corpus or a file of your own.",
}
NOT_OPEN = "It does not exist or needs an account: choose an open one."


def explain(what: str, cause: PortFailure) -> PortFailure:
    """The same failure, with what it was about and what can be done."""
    closed = cause.kind == "status" and cause.status in (401, 403, 404)
    return PortFailure(
        cause.kind,
        f"{what}: {cause.what}",
        do=NOT_OPEN if closed else ADVICE.get(cause.kind, ""),
        host=cause.host,
        status=cause.status,
        retry_after=cause.retry_after,
    )


class Retry:
    """Runs attempts until one succeeds; one object a source, so all its requests wait together."""

    def __init__(
        self,
        port: DataPort,
        *,
        attempts: int | None = None,
        on_wait: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``attempts`` limits the tries of one request, None tries for ever; ``on_wait`` is told
        what is being waited for, and an empty text when the wait is over."""
        self.attempts = attempts
        self._port, self._clock, self._chance = port, clock, chance
        self._on_wait = on_wait or (lambda sentence: None)
        self._not_before_s = 0.0
        self.waiting = ""

    async def run(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of ``attempt``; raises its PortFailure when no other try can help."""
        number = 0
        while True:
            if (left := self._not_before_s - self._clock()) > 0:
                await self._port.wait(left, wakes=False)
            try:
                result = await attempt()
            except PortFailure as failure:
                number += 1
                exhausted = self.attempts is not None and number >= self.attempts
                if exhausted or not passes(failure):
                    self._say("")
                    raise explain(what, failure) from failure
                await self._pause(what, failure, number - 1)
            else:
                self._say("")
                return result

    async def _pause(self, what: str, failure: PortFailure, attempt: int) -> None:
        now = self._clock()
        seconds = delay_s(failure, attempt, now, self._chance())
        if failure.retry_after:
            self._not_before_s = max(self._not_before_s, now + seconds)
        self._say(f"Waiting for {what}: {failure} Trying again in {max(1, round(seconds))} s.")
        await self._port.wait(seconds, wakes=not failure.retry_after)

    def _say(self, sentence: str) -> None:
        if sentence != self.waiting:
            self.waiting = sentence
            self._on_wait(sentence)
