"""The chart's side in Python: points, smoothing, unit, legend."""

from __future__ import annotations

from typing import Any

from daisychain.ui.chart import Chart, SmoothedLoss
from tests.ui.fake_dom import Window


class Plot:
    """Records what chart.js would be told."""

    def __init__(self) -> None:
        self.points: list[tuple[Any, ...]] = []
        self.calls: list[tuple[Any, ...]] = []

    def add(self, *point: Any) -> None:
        self.points.append(point)

    def amend(self, heldout: float) -> None:
        self.calls.append(("amend", heldout))

    def __getattr__(self, name: str) -> Any:
        return lambda *values: self.calls.append((name, *values))


def records(count: int) -> list[dict[str, Any]]:
    return [{"step": step, "loss": 9.0 - step / 100} for step in range(1, count + 1)]


def test_smoothing_follows_a_slope_without_lag() -> None:
    smoothed = SmoothedLoss()
    line = [smoothed.add(10.0 - step * 0.05) for step in range(200)]
    assert line[0] == 10.0
    assert abs(line[-1] - (10.0 - 199 * 0.05)) < 1e-3
    noise = [smoothed.add(0.05 + (1 if step % 2 else -1)) for step in range(400)]
    assert max(noise[-50:]) - min(noise[-50:]) < 0.4


def test_points_wait_for_the_plot_and_are_told_once() -> None:
    chart, plot = Chart(Window().dom()), Plot()
    chart.draw(records(3), None)
    chart.attach(plot)
    chart.draw(records(5), None)
    chart.draw(records(5), None)
    assert [point[:2] for point in plot.points] == [(r["step"], r["loss"]) for r in records(5)]
    assert plot.calls == [("draw",), ("draw",)]


def test_notices_in_the_log_are_no_points() -> None:
    chart, plot = Chart(Window().dom()), Plot()
    chart.attach(plot)
    chart.draw([{"note": "The GPU was lost.", "step": 1}, *records(2)], None)
    assert len(plot.points) == 2


def test_a_heldout_loss_that_comes_after_its_step() -> None:
    chart, plot = Chart(Window().dom()), Plot()
    chart.attach(plot)
    log = records(2)
    chart.draw(log, None)
    log[-1]["heldout_nats"] = 8.5
    chart.draw(log, 0.3)
    assert ("amend", 8.5) in plot.calls
    assert "8.5000" in chart.root.raw.text_shown()
    chart.draw(log, 0.3)
    assert plot.calls.count(("amend", 8.5)) == 1


def test_legend_follows_the_cursor_and_the_unit() -> None:
    chart = Chart(Window().dom())
    chart.attach(Plot())
    chart.draw([{"step": 1, "loss": 9.0, "heldout_nats": 9.5}, {"step": 2, "loss": 8.0}], 0.5)
    chart.on_cursor(0)
    assert "step 1" in chart.root.raw.text_shown()
    chart.on_cursor(-1)
    text = chart.root.raw.text_shown()
    assert "step 2" in text
    assert "8.0000" in text
    assert "9.5000" in text
    units = [e for e in chart.root.raw.all() if e.attributes.get("name") == "unit"]
    units[1].fire("change")
    assert "4.0000" in chart.root.raw.text_shown()


def test_a_new_run_starts_a_new_line() -> None:
    chart, plot = Chart(Window().dom()), Plot()
    chart.attach(plot)
    chart.draw(records(5), None)
    chart.on_cursor(3)
    chart.clear()
    assert ("clear",) in plot.calls
    chart.draw(records(9), None)
    assert "step 9" in chart.root.raw.text_shown()


def test_keys_move_the_cursor() -> None:
    chart, plot = Chart(Window().dom()), Plot()
    chart.attach(plot)
    chart.canvas.raw.fire("keydown", key="ArrowLeft")
    assert plot.calls == [("draw",)]
    chart.draw(records(3), None)
    chart.canvas.raw.fire("keydown", key="ArrowLeft")
    assert plot.calls[-1] == ("move", -1)
    chart.canvas.raw.fire("keydown", key="x")
    assert plot.calls[-1] == ("move", -1)
