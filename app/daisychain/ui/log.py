"""The log: one line a step, newest first, cheap at any length."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from daisychain.platform.dom import Dom, Node
from daisychain.ui import formats

Record = Mapping[str, Any]

ROWS_SHOWN = 100
"""Rows kept in the page, all of which move with each new one; copy and download hold every step."""

Column = tuple[str, str, str, Callable[[Any], str]]


def shares(members: Any) -> str:
    """What each device contributed to a step: Ann's laptop: 6, Phone: 1"""
    rows = members if isinstance(members, list | tuple) else ()
    return ", ".join(f"{row.get('name')}: {row.get('micro_batches')}" for row in rows)


STEP_COLUMNS: tuple[Column, ...] = (
    ("step", "Step", "Training step", formats.whole),
    ("loss", "Loss", "Training loss in nats a token", formats.loss),
    ("lr", "LR", "Learning rate", formats.learning_rate),
    ("tokens_per_s", "Tok/s", "Tokens a second", formats.rate),
    ("gpu_ms", "GPU", "Milliseconds on the device", formats.milliseconds),
)
COLUMNS: tuple[Column, ...] = (
    *STEP_COLUMNS,
    ("host_ms", "Host", "Milliseconds in Python and JavaScript", formats.milliseconds),
    ("data_ms", "Data", "Milliseconds waiting for data", formats.milliseconds),
)
ROOM_COLUMNS: tuple[Column, ...] = (
    *STEP_COLUMNS,
    (
        "exchange_ms",
        "Exch.",
        "Milliseconds of the exchange with the other devices",
        formats.milliseconds,
    ),
    ("members", "Micro-batches", "Micro-batches that each device contributed", shares),
)


def row(record: Record, columns: tuple[Column, ...] = COLUMNS) -> str:
    """Markup of a step, under its held-out measurement if there is one; of a notice or a sample."""
    if "note" in record:
        step = escape(formats.whole(record.get("step")))
        note = escape(str(record["note"]))
        return (
            f'<tr class="notice"><td>{step}</td><td colspan="{len(columns) - 1}">{note}</td></tr>'
        )
    if "sample" in record:
        step = escape(formats.whole(record.get("step")))
        text = escape(str(record["sample"]))
        return (
            f'<tr class="sample"><td>{step}</td><td colspan="{len(columns) - 1}">'
            f"<span>{escape(str(record.get('prompt')))}</span>{text}</td></tr>"
        )
    cells = "".join(f"<td>{escape(show(record.get(key)))}</td>" for key, _, _, show in columns)
    line = f"<tr>{cells}</tr>"
    if record.get("heldout_nats") is None:
        return line
    value = escape(formats.loss(record["heldout_nats"]))
    return (
        f'<tr class="heldout"><td>{escape(formats.whole(record.get("step")))}</td>'
        f'<td>{value}</td><td colspan="{len(columns) - 2}">held-out text</td></tr>{line}'
    )


def json_lines(records: Sequence[Record]) -> str:
    """The whole log as JSON lines."""
    return "".join(f"{json.dumps(record, separators=(',', ':'))}\n" for record in records)


class Log:
    """The table with its buttons; ``save`` offers a file to the person."""

    def __init__(
        self,
        dom: Dom,
        copy: Callable[[], object],
        download: Callable[[], object],
    ) -> None:
        self._dom = dom
        self._head = dom.element("tr")
        self._columns: tuple[Column, ...] = ()
        self._device_head = dom.element("th", scope="col", title="Milliseconds on the device")
        self._body = dom.element("tbody")
        self._table = dom.element("table", dom.element("thead", self._head), self._body)
        self._show_head(COLUMNS)
        self._note = dom.element("p", class_="note", hidden=True)
        self.said = dom.element("span", class_="note", role="status")
        self.root = dom.element(
            "section",
            dom.element(
                "div",
                dom.element("h2", "Log", id="log-title"),
                self.said,
                _button(dom, "Copy", "Copy the log as JSON lines", copy),
                _button(dom, "Download", "Download the log as JSON lines", download),
                class_="heading",
            ),
            dom.element(
                "div",
                self._table,
                class_="scroll",
                tabindex="0",
                role="region",
                aria_labelledby="log-title",
            ),
            self._note,
            class_="log",
        )
        self._shown, self._newest = 0, ""

    def clear(self) -> None:
        """A new run begins."""
        self._body.replace()
        self._shown = 0

    def draw(self, records: Sequence[Record], player: str = "webgpu", shared: bool = False) -> None:
        """Adds the rows of new records; ``shared``: they are those of a room."""
        self._show_head(ROOM_COLUMNS if shared else COLUMNS)
        self._device_head.text("CPU" if player == "wasm" else "GPU")
        if self._shown and row(records[self._shown - 1], self._columns) != self._newest:
            self._body.drop_first()  # it has got its held-out loss since
            self._shown -= 1
        fresh = records[max(self._shown, len(records) - ROWS_SHOWN) :]
        if fresh:
            rows = [row(record, self._columns) for record in reversed(fresh)]
            self._body.prepend_rows("".join(rows), ROWS_SHOWN)
            self._shown, self._newest = len(records), rows[0]
        self._note.show(len(records) > ROWS_SHOWN)
        self._note.text(
            f"The newest rows are shown; copy and download hold all {len(records):,} steps."
        )

    def _show_head(self, columns: tuple[Column, ...]) -> None:
        if columns is self._columns:
            return
        self._columns = columns
        self._table.attribute("class", "shared" if columns is ROOM_COLUMNS else None)
        self._head.replace(
            *(
                self._device_head
                if key == "gpu_ms"
                else self._dom.element("th", name, scope="col", title=title)
                for key, name, title, _ in columns
            )
        )


def _button(dom: Dom, text: str, label: str, press: Callable[[], object]) -> Node:
    button = dom.element("button", text, type="button", class_="quiet", title=label)
    button.on("click", lambda _event: press())
    return button
