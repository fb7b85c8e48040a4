"""The loss chart with its legend, range and unit; app/js/chart.js draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daisychain.platform.dom import Dom, Node
from daisychain.ui import formats

Record = Mapping[str, Any]

SMOOTHING = 0.92
"""Weight of the past in the smoothed loss."""

RANGES = (("All", 0), ("1,000", 1_000), ("100", 100))

KEYS = {"ArrowLeft": -1, "ArrowRight": 1, "PageUp": -20, "PageDown": 20}


class Mean:
    """An exponential mean that is right from the first value on."""

    def __init__(self) -> None:
        self._sum = self._norm = 0.0

    def add(self, value: float) -> float:
        self._sum = SMOOTHING * self._sum + (1 - SMOOTHING) * value
        self._norm = SMOOTHING * self._norm + (1 - SMOOTHING)
        return self._sum / self._norm


class SmoothedLoss:
    """The double exponential mean: as smooth as a mean, but it does not lag behind a slope."""

    def __init__(self) -> None:
        self._once, self._twice = Mean(), Mean()

    def add(self, value: float) -> float:
        once = self._once.add(value)
        return 2 * once - self._twice.add(once)


class Chart:
    """Draws nothing until ``attach`` has given it the plot, and everything from then on."""

    def __init__(self, dom: Dom) -> None:
        self._plot: Any = None
        self._points: list[tuple[int, float, float, float | None]] = []
        self._smoothed = SmoothedLoss()
        self._factor = 1.0
        self._seen = 0
        self._cursor = -1
        self.canvas = dom.element("div", class_="plot", tabindex="0", role="img")
        self.canvas.on("keydown", self._press)
        self._values = {
            name: dom.element("output") for name in ("step", "loss", "smooth", "heldout")
        }
        self._legend = dom.element("div", *self._legend_entries(dom), class_="legend")
        self._ranges = [
            self._toggle(dom, "range", text, index == 0, steps)
            for index, (text, steps) in enumerate(RANGES)
        ]
        self._units = dom.element("fieldset", class_="choice", hidden=True)
        self._units.append(
            dom.element("legend", "Unit", class_="unseen"),
            self._unit_toggle(dom, "nats a token", True, bits=False),
            self._unit_toggle(dom, "bits a byte", False, bits=True),
        )
        self._bits_per_nat = 0.0
        self._unit_note = dom.element("span", "nats a token", class_="note")
        self._unzoom = dom.element(
            "button", "Reset zoom", type="button", class_="quiet", hidden=True
        )
        self._unzoom.on("click", lambda _event: self._show_range(0))
        self.root = dom.element(
            "section",
            dom.element(
                "div",
                dom.element("h2", "Loss"),
                self._unzoom,
                self._unit_note,
                self._units,
                dom.element(
                    "fieldset",
                    dom.element("legend", "Steps shown", class_="unseen"),
                    *self._ranges,
                    class_="choice",
                ),
                class_="heading",
            ),
            self._legend,
            self.canvas,
            class_="chart",
        )

    def attach(self, plot: Any) -> None:
        """``plot`` is a LossChart of chart.js."""
        self._plot = plot
        for point in self._points:
            plot.add(*point)
        plot.draw()

    def draw(self, records: Sequence[Record], bits_per_nat: float | None) -> None:
        """Adds new records, and makes bits a byte available once their relation is known."""
        changed = self._amend(records) or len(records) > self._seen
        for record in records[self._seen :]:
            self._add(record)
        self._seen = len(records)
        if bits_per_nat:
            self._bits_per_nat = bits_per_nat
            self._units.show(True)
            self._unit_note.show(False)
        if self._plot is not None and changed:
            self._plot.draw()
        self._draw_legend()

    def _add(self, record: Record) -> None:
        if record.get("loss") is None:  # a notice
            return
        value = float(record["loss"])
        heldout = record.get("heldout_nats")
        point = (int(record["step"]), value, self._smoothed.add(value), heldout)
        self._points.append(point)
        if self._plot is not None:
            self._plot.add(*point)

    def _amend(self, records: Sequence[Record]) -> bool:
        """Takes the held-out loss that the last record has got since; whether there was one."""
        if not self._points or not self._seen:
            return False
        heldout = records[self._seen - 1].get("heldout_nats")
        step, value, smooth, known = self._points[-1]
        if heldout is None or known is not None:
            return False
        self._points[-1] = (step, value, smooth, heldout)
        if self._plot is not None:
            self._plot.amend(heldout)
        return True

    def on_cursor(self, index: int) -> None:
        """The cursor is over a point, or (-1) has left."""
        self._cursor = int(index)
        self._draw_legend()

    def on_zoom(self, zoomed: bool) -> None:
        """A part of the chart was chosen, or let go."""
        self._unzoom.show(zoomed)

    def clear(self) -> None:
        """A new run begins."""
        self._points.clear()
        self._smoothed = SmoothedLoss()
        self._seen, self._cursor = 0, -1
        for value in self._values.values():
            value.text("")
        if self._plot is not None:
            self._plot.clear()

    def _draw_legend(self) -> None:
        if not self._points:
            return
        index = self._cursor if 0 <= self._cursor < len(self._points) else len(self._points) - 1
        step, value, smooth, _ = self._points[index]
        past = (point[3] for point in reversed(self._points[: index + 1]))
        heldout = next((held for held in past if held is not None), None)
        self._values["step"].text(f"step {step:,}")
        for name, number in (("loss", value), ("smooth", smooth), ("heldout", heldout)):
            shown = None if number is None else number * self._factor
            self._values[name].text(formats.loss(shown))
        if index == len(self._points) - 1:
            self.canvas.attribute(
                "aria-label",
                f"Loss over {len(self._points):,} steps, from {self._points[0][1]:.2f} "
                f"to {smooth:.2f} nats a token. Arrow keys move the cursor.",
            )

    def _legend_entries(self, dom: Dom) -> list[Node]:
        def entry(name: str, text: str) -> Node:
            return dom.element("span", text, self._values[name], class_=f"key {name}")

        return [
            entry("smooth", "Train, smoothed"),
            entry("loss", "Each step"),
            entry("heldout", "Held-out"),
            dom.element("span", self._values["step"], class_="key at"),
        ]

    def _toggle(self, dom: Dom, name: str, text: str, checked: bool, steps: int) -> Node:
        radio = dom.element("input", type="radio", name=name, checked=checked)
        radio.on("change", lambda _event: self._show_range(steps))
        return dom.element("label", radio, dom.element("span", text))

    def _unit_toggle(self, dom: Dom, text: str, checked: bool, *, bits: bool) -> Node:
        radio = dom.element("input", type="radio", name="unit", checked=checked)
        radio.on("change", lambda _event: self._use_unit(bits))
        return dom.element("label", radio, dom.element("span", text))

    def _show_range(self, steps: int) -> None:
        if self._plot is not None:
            self._plot.show(steps)

    def _use_unit(self, bits: bool) -> None:
        self._factor = self._bits_per_nat if bits else 1.0
        if self._plot is not None:
            self._plot.scale(self._factor)
        self._draw_legend()

    def _press(self, event: Any) -> None:
        if self._plot is not None and self._points and event.key in KEYS:
            event.preventDefault()
            self._plot.move(KEYS[event.key])
