"""The figures at the top of a run: loss, bits a byte, tokens a second, memory, progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daisychain.platform.dom import Dom, Node
from daisychain.settings import Settings
from daisychain.ui import formats


class Figures:
    """Large numbers with a hairline of progress under them."""

    def __init__(self, dom: Dom) -> None:
        self._dom = dom
        self._values: dict[str, Node] = {}
        self._hints: dict[str, Node] = {}
        self._line = dom.element("span", class_="line")
        self._bar = dom.element(
            "div", self._line, class_="bar", role="progressbar", aria_valuemin="0"
        )
        self._left = dom.element("p", class_="note")
        self._exchanged_bytes, self._counted = 0.0, 0
        self._list = dom.element(
            "dl",
            self._figure("loss", "Loss", "nats a token"),
            self._figure("bits", "Bits a byte", "held-out text"),
            self._figure("rate", "Tokens/s", ""),
            self._figure("memory", "Memory", "on the device"),
            self._figure("traffic", "Exchanged", "by this device"),
            self._figure("step", "Step", ""),
        )
        self.root = dom.element(
            "section",
            self._list,
            self._bar,
            self._left,
            class_="figures",
            aria_label="Progress of the run",
        )

    def clear(self) -> None:
        """A new run begins."""
        self._exchanged_bytes, self._counted = 0.0, 0

    def draw(
        self,
        state: Mapping[str, Any],
        settings: Settings,
        shared: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """``shared`` are the records of a run in a room: they say what each step exchanged."""
        self._count(state, shared)
        self._list.attribute("class", "shared" if state.get("room") else None)
        self._values["traffic"].text(formats.size(self._exchanged_bytes))
        step, steps = int(state.get("step") or 0), int(state.get("steps") or settings.steps)
        self._values["loss"].text(formats.loss(state.get("loss")))
        self._values["bits"].text(formats.loss(state.get("heldout_bits_per_byte")))
        self._values["rate"].text(formats.rate(state.get("tokens_per_s")))
        self._values["memory"].text(formats.size(state.get("memory_bytes") or None))
        self._values["step"].text(formats.whole(step))
        self._hints["step"].text(f"of {steps:,}")
        self._hints["rate"].text(f"{formats.count(state.get('tokens') or 0)} so far")
        share = min(1.0, step / steps) if steps else 0.0
        self._line.attribute("style", f"transform:scaleX({share:.4f})")
        self._bar.attribute("aria-valuemax", str(steps))
        self._bar.attribute("aria-valuenow", str(step))
        self._bar.attribute("aria-label", f"Step {step:,} of {steps:,}")
        self._left.text(self._time_left(state, settings, steps - step))

    def _count(self, state: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> None:
        own = next((m["id"] for m in state.get("members") or () if m.get("me")), None)
        if own is None:
            return
        for record in records[self._counted :]:
            shares = record.get("members") or ()
            self._exchanged_bytes += sum(s.get("bytes") or 0 for s in shares if s.get("id") == own)
        self._counted = len(records)

    @staticmethod
    def _time_left(state: Mapping[str, Any], settings: Settings, steps: int) -> str:
        rate = state.get("tokens_per_s")
        if state.get("phase") != "train" or not rate or steps <= 0:
            return ""
        return f"about {formats.duration(steps * settings.tokens_per_step / rate)} left"

    def _figure(self, name: str, label: str, hint: str) -> Node:
        self._values[name] = self._dom.element("b", formats.MISSING)
        self._hints[name] = self._dom.element("small", hint)
        return self._dom.element(
            "div",
            self._dom.element("dt", label),
            self._dom.element("dd", self._values[name], self._hints[name]),
            class_=f"figure {name}",
        )
