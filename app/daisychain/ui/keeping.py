"""What can be kept of a model: a checkpoint to go on from or to share, and a page of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from daisychain import platform
from daisychain.errors import DaisyChainError
from daisychain.export.kit import kit_bytes
from daisychain.platform.dom import Dom, Node
from daisychain.ui import formats
from daisychain.ui.cards import Facts

Parts = Sequence[memoryview]
MakeFile = Callable[[str], Awaitable[Parts]]
"""The content of the file of a kind."""

CHECKPOINT_KINDS = (
    ("F32", "to go on", "Weights as float32, and all that the run needs to go on."),
    ("BF16", "weights only", "Weights as bfloat16, for others: a third of the size of float32."),
)

ROOM_NOTES = {
    "F32": "Weights as float32, and all that this device needs to go on, in a room or alone.",
    "BF16": CHECKPOINT_KINDS[1][2],
}

KIT_KINDS = (
    (
        "16",
        "exact",
        "One HTML file that writes this model's very texts offline, by a double click",
    ),
    ("8", "small", "Half the size: weights of 8 bits, texts close to this model's"),
)


class Offer:
    """One kind of file: its name, its choices, a button, and what became of it."""

    def __init__(
        self,
        dom: Dom,
        title: str,
        kinds: Sequence[tuple[str, str, str]],
        make: MakeFile,
        file_name: Callable[[], str],
    ) -> None:
        self._dom, self._make, self._file_name = dom, make, file_name
        self._task: asyncio.Task[None] | None = None
        self._notes = {kind: note for kind, _, note in kinds}
        self.kind = kinds[0][0]
        self._radios = {kind: self._radio(title, kind) for kind, _, _ in kinds}
        self._note = dom.element("p", class_="note")
        self._said = dom.element("p", class_="note", role="status", hidden=True)
        self._button = dom.element("button", title, type="button", class_="plain")
        self._button.on("click", lambda _event: self._press())
        toggles = (
            dom.element("label", self._radios[kind], dom.element("span", name))
            for kind, name, _ in kinds
        )
        self.root = dom.element(
            "fieldset",
            dom.element("div", self._button, dom.element("div", *toggles, class_="choice")),
            self._note,
            self._said,
            class_="offer",
        )
        self._choose(self.kind)

    def allow(self, allowed: bool, notes: Mapping[str, str] | None = None) -> None:
        """Whether there is something to keep now; ``notes`` replace those of the kinds."""
        self._button.attribute("disabled", not allowed)
        if notes is not None and notes != self._notes:
            self._notes = dict(notes)
            self._choose(self.kind)

    def clear(self) -> None:
        """A new run begins: what became of the last one's file is no longer said."""
        self._say("")

    def _radio(self, title: str, kind: str) -> Node:
        radio = self._dom.element("input", type="radio", name=title, value=kind)
        radio.on("change", lambda _event: self._choose(kind))
        return radio

    def _choose(self, kind: str) -> None:
        self.kind = kind
        for name, radio in self._radios.items():
            radio.check(name == kind)
        self._note.text(self._notes[kind])

    def _press(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._save())

    async def _save(self) -> None:
        self._say("Making the file\u2026")
        try:
            parts = await self._make(self.kind)
            name = self._file_name()
            platform.save_file(name, parts)
            self._say(f"{name}, {formats.size(sum(map(len, parts)))}")
        except DaisyChainError as error:
            self._say(str(error))

    def _say(self, text: str) -> None:
        self._said.text(text)
        self._said.show(bool(text))


class Keeping:
    """The card with everything that can be kept."""

    def __init__(
        self, dom: Dom, checkpoint: MakeFile, kit: MakeFile, name: Callable[[], str]
    ) -> None:
        self._facts = Facts(dom, "Saved in the browser")
        self._checkpoint = Offer(
            dom, "Download checkpoint", CHECKPOINT_KINDS, checkpoint, lambda: f"{name()}.zip"
        )
        self._kit = Offer(dom, "Download inference kit", KIT_KINDS, kit, lambda: f"{name()}.html")
        self.root = dom.element(
            "section",
            dom.element("h2", "Keep it"),
            self._facts.root,
            self._checkpoint.root,
            self._kit.root,
            class_="keeping",
            hidden=True,
        )

    def clear(self) -> None:
        """A new run begins."""
        self._checkpoint.clear()
        self._kit.clear()

    def draw(self, has_model: bool, state: Mapping[str, Any]) -> None:
        """Shows the card where there is a model."""
        saved = state.get("saved_step")
        self.root.show(has_model)
        own_notes = {kind: note for kind, _, note in CHECKPOINT_KINDS}
        self._checkpoint.allow(has_model, ROOM_NOTES if state.get("room") else own_notes)
        count = int(state.get("parameters") or 0)
        sizes = {kind: formats.size(kit_bytes(count, int(kind))) for kind, _, _ in KIT_KINDS}
        self._kit.allow(has_model, {k: f"{note} ({sizes[k]})." for k, _, note in KIT_KINDS})
        self._facts.draw(Saved_in_the_browser=f"step {saved:,}" if saved else "")
