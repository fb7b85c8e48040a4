"""How long a step takes on this device, as its own runs have shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import log
from statistics import median
from typing import Any

from daisychain import __version__, platform
from daisychain.settings import Settings

PACE_KEY = f"pace {__version__}"
"""Storage key of the times by player and by work."""

FIRST_STEPS = 2
"""Steps at the beginning of a run that are not counted: drivers compile and allocate late."""

STEPS = 10
"""Steps that are measured."""

MOST_SIZES = 8
"""Sizes of a step that are remembered for a player, the last ones."""


class Pace:
    """Remembers once a run how long its steps take here; ``work`` tells the multiplications."""

    def __init__(self, work: Callable[[Settings], int]) -> None:
        self._work = work
        self._first: int | None = None
        self._noted = False

    def begin(self) -> None:
        """A new run begins."""
        self._first, self._noted = None, False

    def watch(self, settings: Settings, records: Sequence[Mapping[str, Any]]) -> None:
        """Looks at the log of the run; those that it began with may be of another device."""
        if self._first is None:
            self._first = len(records)
        if self._noted or len(records) < self._first + FIRST_STEPS + STEPS:
            return
        own = [r for r in records[self._first :] if "loss" in r and r.get("ms")]
        times_ms = [float(record["ms"]) for record in own[FIRST_STEPS:]]
        if len(times_ms) >= STEPS:
            self._noted = True
            _remember(settings.player, self._work(settings), median(times_ms[-STEPS:]))


def step_ms(player: str, multiplies: int) -> float | None:
    """What a step of so many multiplications will take, by the run nearest in size; or None."""
    sizes = _known().get(player)
    if not sizes or multiplies <= 0:
        return None
    nearest = min(map(int, sizes), key=lambda size: abs(log(size / multiplies)))
    return sizes[str(nearest)] * multiplies / nearest


def _remember(player: str, multiplies: int, time_ms: float) -> None:
    """``player`` is the setting, since that is what is known before a run."""
    known = _known()
    others = {k: v for k, v in known.get(player, {}).items() if k != str(multiplies)}
    kept = dict(list(others.items())[1 - MOST_SIZES :])
    known[player] = {**kept, str(multiplies): time_ms}
    platform.storage_set(PACE_KEY, json.dumps(known))


def _known() -> dict[str, dict[str, float]]:
    """Milliseconds by player and multiplications; storage may hold anything."""
    try:
        known = json.loads(platform.storage_get(PACE_KEY) or "{}")
        return {
            player: {str(int(size)): float(ms) for size, ms in sizes.items() if int(size) > 0}
            for player, sizes in known.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}
