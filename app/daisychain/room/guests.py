"""What this device serves to those that come in: the state kept for each, later steps, the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from daisychain.cluster import effects
from daisychain.data.sharing import PackedPlan
from daisychain.room.books import catch_up_header, plan_header, state_header

Send = Callable[[str, bytes, Any], None]
"""(peer, header, data): starts a transfer."""


@dataclass
class Guest:
    """A joiner that this device serves: the state kept for it, and what waits behind it."""

    step: int
    contents: list[Any]
    serving: bool = False
    waiting: list[tuple[int, Any]] = field(default_factory=list)


class Guests:
    """All joiners that this device feeds."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._guests: dict[str, Guest] = {}
        self._planned: set[str] = set()

    def keep(self, effect: effects.KeepState) -> None:
        """Opens a joiner's books at once; its state is copied in its turn.

        What was on its way to this joiner is sent no more, the data plan too.
        """
        self._planned.discard(effect.joiner)
        self._guests[effect.joiner] = Guest(effect.step, [])

    def copy(self, effect: effects.KeepState, contents: list[Any]) -> None:
        """The state that a joiner will get."""
        guest = self._guests.get(effect.joiner)
        if guest is not None:
            guest.contents = contents

    def serve(self, effect: effects.ServeState) -> bool:
        """Sends the state kept for a joiner; False if it is not here (yet)."""
        guest = self._guests.get(effect.joiner)
        if guest is None or not guest.contents:
            return False
        for index, data in enumerate(guest.contents):
            self._send(effect.joiner, state_header(guest.step, index, len(data)), data)
        guest.serving, guest.contents = True, []
        for step, data in guest.waiting:
            self._send(effect.joiner, catch_up_header(step, len(data)), data)
        guest.waiting = []
        return True

    def send_catch_up(self, effect: effects.SendCatchUp, data: Any) -> None:
        """The reduced gradient of the step, behind the state if that is not served yet."""
        guest = self._guests.get(effect.joiner)
        if guest is not None and not guest.serving:
            guest.waiting.append((effect.step, data))
        else:
            self._send(effect.joiner, catch_up_header(effect.step, len(data)), data)

    def serve_plan(self, effect: effects.ServePlan, plan: PackedPlan | None) -> None:
        """The data plan, once to each joiner."""
        if plan is None or plan.digest != effect.plan_hash or effect.joiner in self._planned:
            return
        self._planned.add(effect.joiner)
        self._send(effect.joiner, plan_header(len(plan.packed)), plan.packed)

    def stop(self, joiner: str) -> None:
        """Drops everything kept for a joiner."""
        self._guests.pop(joiner, None)
        self._planned.discard(joiner)
