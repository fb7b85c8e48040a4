"""A run on the page: waits, figures, chart, devices, log, cards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from daisychain.platform.dom import Dom
from daisychain.settings import Settings
from daisychain.ui import phases, stages
from daisychain.ui.cards import DeviceCard, RunCard
from daisychain.ui.chart import Chart
from daisychain.ui.figures import Figures
from daisychain.ui.log import Log
from daisychain.ui.messages import Wait
from daisychain.ui.model_use import ModelUse
from daisychain.ui.room import Room


class RunView:
    """Draws a session's state and its records; what a run of its kind does not have is hidden."""

    def __init__(
        self,
        dom: Dom,
        device: str,
        room: Room,
        model: ModelUse,
        copy_log: Callable[[], object],
        download_log: Callable[[], object],
        copy_link: Callable[[], object],
    ) -> None:
        self._room, self._model = room, model
        self._wait, self._figures = Wait(dom), Figures(dom)
        self.chart = Chart(dom)
        self.log = Log(dom, copy_log, download_log)
        self._device = DeviceCard(dom, device)
        self.card = RunCard(dom, copy_link)
        self._body = dom.element(
            "div",
            self.chart.root,
            room.members.root,
            model.texts.root,
            self.log.root,
            class_="body",
        )
        aside = dom.element(
            "aside",
            room.invitation.root,
            room.by_hand.root,
            model.keeping.root,
            self._device.root,
            self.card.root,
        )
        self.root = dom.element(
            "div",
            room.knocks.root,
            self._wait.root,
            room.door.root,
            self._figures.root,
            dom.element("div", self._body, aside, class_="columns"),
            class_="run",
            hidden=True,
        )

    def clear(self) -> None:
        """A new run begins."""
        self.chart.clear()
        self.log.clear()
        self._model.clear()
        self._figures.clear()

    def draw(
        self, state: Mapping[str, Any], records: Sequence[Mapping[str, Any]], settings: Settings
    ) -> None:
        in_room = bool(stages.stage(state))
        self._wait.draw(*phases.waiting(state))
        trained = state.get("loss") is not None
        self._figures.root.show(trained)
        self.chart.root.show(trained)
        self.log.root.show(bool(records))
        self._body.show(bool(records or state.get("members")))
        self._figures.draw(state, settings, records if in_room else ())
        self.chart.draw(records, phases.bits_per_nat(state))
        self.log.draw(records, str(state["player"]), in_room)
        self._model.draw(state, records)
        self._room.draw(state)
        self._device.draw(state)
        self.card.draw(settings, state)
        self.card.root.show(not stages.is_outside(state))
