"""The log: rows, their number, amendments, and what comes from outside."""

from __future__ import annotations

import json
from typing import Any

from daisychain.ui.log import ROWS_SHOWN, Log, json_lines
from tests.ui.fake_dom import Element, Window


def record(step: int, **more: Any) -> dict[str, Any]:
    times = {"gpu_ms": 18.24, "host_ms": 1.44, "data_ms": 0.04}
    return {"step": step, "loss": 5.0, "lr": 3e-3, "tokens_per_s": 12_411.0, **times, **more}


def make_log() -> tuple[Log, Any, Any]:
    dom = Window().dom()
    log = Log(dom, lambda: None, lambda: None)
    (body,) = (e for e in log.root.raw.all() if e.tag == "tbody")
    return log, body, dom


def texts(row: Element) -> list[str]:
    return [cell.textContent for cell in row.children]


def test_one_line_a_step_newest_first() -> None:
    log, body, _ = make_log()
    log.draw([record(1)])
    log.draw([record(1), record(2)])
    assert [texts(row)[0] for row in body.children] == ["2", "1"]
    assert texts(body.children[0]) == ["2", "5.0000", "3.0e-3", "12,411", "18.2", "1.4", "0.0"]


def test_rows_and_writes_stay_few_at_ten_thousand_steps() -> None:
    log, body, dom = make_log()
    records = [record(step) for step in range(1, 10_001)]
    for count in (*range(50, 2_001, 50), 10_000):
        before = dom.writes
        log.draw(records[:count])
        assert dom.writes - before <= 4
        assert len(body.children) <= ROWS_SHOWN
    assert texts(body.children[0])[0] == "10,000"
    assert "10,000 steps" in log.root.raw.text_shown()


def test_a_jump_of_many_steps_builds_only_what_is_shown() -> None:
    log, body, _ = make_log()
    log.draw([record(step) for step in range(1, 5_001)])
    assert len(body.children) == ROWS_SHOWN


def test_nothing_new_writes_nothing() -> None:
    log, _, dom = make_log()
    log.draw([record(1)])
    before = dom.writes
    log.draw([record(1)])
    assert dom.writes == before


def test_a_heldout_loss_that_comes_after_its_step() -> None:
    log, body, _ = make_log()
    records = [record(1), record(2)]
    log.draw(records)
    records[1]["heldout_nats"] = 6.5
    log.draw(records)
    assert [texts(row)[:2] for row in body.children] == [
        ["2", "6.5000"],
        ["2", "5.0000"],
        ["1", "5.0000"],
    ]


def test_notices_are_rows_and_never_markup() -> None:
    log, body, _ = make_log()
    log.draw([{"step": 3, "note": "<img src=x onerror=alert(1)>"}])
    assert texts(body.children[0]) == ["3", "<img src=x onerror=alert(1)>"]
    assert not [e for e in body.all() if e.tag == "img"]


def test_a_new_run_starts_empty() -> None:
    log, body, _ = make_log()
    log.draw([record(1), record(2)])
    log.clear()
    log.draw([record(step) for step in range(1, 6)])
    assert len(body.children) == 5


def test_json_lines_hold_every_step() -> None:
    lines = json_lines([record(1), record(2)]).splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
