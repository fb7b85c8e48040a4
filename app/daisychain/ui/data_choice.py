"""What to train on: the embedded books, the Hub, or a file of one's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from daisychain.data import OwnFile
from daisychain.data.opening import FILE_KINDS, MAX_TEXT_BYTES
from daisychain.data.spec import EMBEDDED, FINEWEB_EDU, OWN_FILE
from daisychain.platform.dom import Dom, Node
from daisychain.ui import formats

HUB = "hub"
"""The choice of a dataset by name; its value in the settings is the name itself."""
EXAMPLE = "roneneldan/TinyStories"

CHOICES = (
    (EMBEDDED, "Books", "Four public-domain books that come with the page."),
    (FINEWEB_EDU, "FineWeb-Edu", "Instructive web pages, streamed from the Hugging Face Hub."),
    (HUB, "Dataset", "Any dataset of the Hugging Face Hub that has a column of text."),
    (
        OWN_FILE,
        "My file",
        "It stays on this device, so no room can use it. Up to "
        f"{MAX_TEXT_BYTES >> 20} MB of .txt, .md or .jsonl; a .parquet file of any size.",
    ),
)


def refusal(name: str, size_bytes: int) -> str:
    """Why a file cannot be trained on, as far as its name and size say; or an empty string."""
    kind = FILE_KINDS.get(name.rpartition(".")[2].lower())
    if kind is None:
        return f"{name} is no kind of text that can be read here."
    if kind != "parquet" and size_bytes > MAX_TEXT_BYTES:
        return f"{name} is larger than {MAX_TEXT_BYTES >> 20} MB; a .parquet file may be."
    return ""


class Kept:
    """The text that the browser keeps from one visit to the next, with a button to clear it."""

    def __init__(
        self,
        dom: Dom,
        kept_bytes: Callable[[], Awaitable[int]],
        forget: Callable[[], Awaitable[None]],
    ) -> None:
        self._kept_bytes, self._forget = kept_bytes, forget
        self._task: asyncio.Task[None] | None = None
        self._text = dom.element("span")
        button = dom.element("button", "Clear", type="button", class_="quiet")
        button.attribute("aria-label", "Clear the text kept in the browser")
        button.on("click", lambda _event: self._start(self._clear()))
        self.root = dom.element("p", self._text, button, class_="note kept", hidden=True)

    def refresh(self) -> None:
        """Asks the browser how much there is."""
        self._start(self._count())

    def _start(self, work: Any) -> None:
        self._task = asyncio.ensure_future(work)

    async def _count(self) -> None:
        try:
            kept = await self._kept_bytes()
        except Exception:  # no Worker or no cache: then there is nothing to clear either
            kept = 0
        self._text.text(f"{formats.size(kept)} of text are kept in the browser.")
        self.root.show(kept > 0)

    async def _clear(self) -> None:
        await self._forget()
        await self._count()


class DataChoice:
    """``choose(value)`` gets the setting ``data``; ``file`` is the file that goes with ``file``."""

    def __init__(
        self,
        dom: Dom,
        choose: Callable[[str], object],
        own_file: Callable[[Any], OwnFile],
        kept: Kept,
    ) -> None:
        self._choose, self._own_file, self._kept = choose, own_file, kept
        self.file: OwnFile | None = None
        self._radios: dict[str, Node] = {}
        self._chosen = ""
        toggles = [self._toggle(dom, choice, title) for choice, title, _ in CHOICES]
        self._note = dom.element("p", class_="note")
        self._name = dom.element("input", type="text", name="data", autocomplete="off")
        self._name.attribute("placeholder", "owner/name, or owner/name/config/split:column")
        self._name.attribute("spellcheck", "false")
        self._name.attribute("aria-describedby", "refusal")
        self._name.on("change", lambda _event: choose(self._name.value))
        self.label = dom.element("label", dom.element("span", "Dataset"), self._name)
        endings = ",".join(f".{ending}" for ending in FILE_KINDS)
        self._picker = dom.element("input", type="file", accept=endings)
        self._picker.on("change", lambda _event: self._pick(self._picker.raw.files))
        self._file_note = dom.element("span", "or drop one anywhere here", class_="note")
        self._file = dom.element(
            "p",
            dom.element("label", self._picker, dom.element("span", "Choose a file"), class_="pick"),
            self._file_note,
            class_="own",
        )
        self._file_refusal = dom.element("p", class_="refusal", role="alert", hidden=True)
        self.root = dom.element(
            "fieldset",
            dom.element("legend", "Text to learn from"),
            dom.element("div", *toggles, class_="choice"),
            self._note,
            self.label,
            self._file,
            self._file_refusal,
            kept.root,
            class_="sources",
        )

    @property
    def missing(self) -> bool:
        """Whether a file is wanted and none is chosen."""
        return self._chosen == OWN_FILE and self.file is None

    def draw(self, data: str, wrong: bool) -> None:
        """Shows the setting; while it is ``wrong``, what was entered stays to be mended."""
        choice = HUB if wrong or data not in (EMBEDDED, FINEWEB_EDU, OWN_FILE) else data
        if choice == HUB and not wrong:
            self._name.enter(data)
        self._name.attribute("aria-invalid", "true" if wrong else None)
        self._show(choice)

    def count_kept(self) -> None:
        """Asks the browser how much text it keeps, where the choice is text that it would keep."""
        if self._chosen in (FINEWEB_EDU, HUB):
            self._kept.refresh()

    def take_drops(self, area: Node) -> None:
        """Files that are dropped on ``area`` are taken."""
        area.on("dragover", lambda event: event.preventDefault())
        area.on("drop", self._drop)

    def _show(self, choice: str) -> None:
        if choice == self._chosen:
            return
        self._chosen = choice
        for name, radio in self._radios.items():
            radio.check(name == choice)
        self._note.text(next(note for name, _, note in CHOICES if name == choice))
        self.label.show(choice == HUB)
        self._file.show(choice == OWN_FILE)
        self._file_refusal.show(False)
        self.count_kept()

    def _toggle(self, dom: Dom, choice: str, title: str) -> Node:
        radio = dom.element("input", type="radio", name="source", value=choice)
        radio.on("change", lambda _event: self._press(choice))
        self._radios[choice] = radio
        return dom.element("label", radio, dom.element("span", title))

    def _press(self, choice: str) -> None:
        if choice == HUB and not self._name.value:
            self._name.enter(EXAMPLE)
        self._choose(self._name.value if choice == HUB else choice)

    def _drop(self, event: Any) -> None:
        event.preventDefault()
        self._pick(event.dataTransfer.files)

    def _pick(self, files: Any) -> None:
        if not files.length:
            return
        file = self._own_file(files.item(0))
        said = refusal(file.name, file.bytes)
        self._show(OWN_FILE)
        self._file_refusal.text(said)
        self._file_refusal.show(bool(said))
        if not said:
            self.file = file
            self._file_note.text(f"{file.name}, {formats.size(file.bytes)}")
        self._choose(OWN_FILE)
