"""The page before a run: the ways in, the size of the model, what it will take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from daisychain.platform.dom import Dom, Node
from daisychain.settings import Settings
from daisychain.ui import formats
from daisychain.ui.backing import Estimate
from daisychain.ui.cards import Facts
from daisychain.ui.pace import step_ms
from daisychain.ui.settings_form import SettingsForm


@dataclass(frozen=True)
class WayIn:
    """One way to begin: the ``start`` parameter, its button, one sentence, what a press does."""

    start: str
    title: str
    sentence: str
    begin: Callable[[], object]


class Welcome:
    """Heading, ways in, presets, estimate and settings."""

    def __init__(
        self,
        dom: Dom,
        ways: tuple[WayIn, ...],
        form: SettingsForm,
        device: str,
        copy_link: Callable[[], object],
        open_file: Node,
    ) -> None:
        self._device = device
        self.buttons = {way.start: self._button(dom, way, way is ways[0]) for way in ways}
        self._facts = Facts(
            dom,
            "This device",
            "Parameters",
            "Memory on the device",
            "Multiplications a step",
            "Tokens a step",
            "In a room of two",
            "Time a step",
            "Steps",
        )
        link = dom.element("button", "Copy link to these settings", type="button", class_="quiet")
        link.on("click", lambda _event: copy_link())
        self.said = dom.element("span", class_="note", role="status")
        self.root = dom.element(
            "section",
            dom.element(
                "div",
                dom.element("h1", "Train a language model in this tab."),
                dom.element(
                    "p",
                    "A small Llama learns English from nothing, on your own device. "
                    "All of its arithmetic is exact, so the same settings give the same model, "
                    "bit for bit, on every machine.",
                    class_="lead",
                ),
                dom.element(
                    "ul",
                    *(
                        dom.element("li", self.buttons[way.start], dom.element("p", way.sentence))
                        for way in ways
                    ),
                    class_="ways",
                ),
                class_="hero",
            ),
            dom.element(
                "div",
                form.presets,
                form.data.root,
                self._facts.root,
                form.fields,
                dom.element("p", link, open_file, self.said, class_="link"),
                class_="choices",
            ),
            class_="welcome",
        )
        form.data.take_drops(self.root)

    def draw(
        self,
        settings: Settings,
        estimate: Estimate | None = None,
    ) -> None:
        """Shows what a run with these settings will take."""
        self._facts.draw(
            This_device=self._device,
            Parameters=formats.count(settings.parameters),
            Memory_on_the_device=formats.size(estimate.memory_bytes if estimate else None),
            Multiplications_a_step=formats.count(
                estimate.multiplies_per_step if estimate else None
            ),
            Tokens_a_step=f"{settings.tokens_per_step:,}",
            In_a_room_of_two=_exchange(settings.exchange, estimate),
            Time_a_step=_time(settings, estimate),
            Steps=f"{settings.steps:,}",
        )

    def allow(self, **allowed: bool) -> None:
        """Which ways in are open now."""
        for way, button in self.buttons.items():
            button.attribute("disabled", not allowed[way])

    @staticmethod
    def _button(dom: Dom, way: WayIn, first: bool) -> Node:
        button = dom.element(
            "button", way.title, type="button", class_="primary" if first else "plain"
        )
        button.on("click", lambda _event: way.begin())
        return button


def _time(settings: Settings, estimate: Estimate | None) -> str:
    """about 190 ms, 3 min in all"""
    if estimate is None:
        return ""
    time_ms = step_ms(settings.player, estimate.multiplies_per_step)
    if time_ms is None:
        return "measured in the first run"
    step = f"{time_ms:.0f} ms" if time_ms < 1000 else formats.duration(time_ms / 1000)
    return f"about {step}, {formats.duration(time_ms * settings.steps / 1000)} in all"


def _exchange(mode: str, estimate: Estimate | None) -> str:
    """9.12 MB each way, int8"""
    return f"{formats.size(estimate.exchange_bytes)} each way, {mode}" if estimate else ""
