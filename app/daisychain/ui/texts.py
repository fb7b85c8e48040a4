"""Texts from the model: a prompt, the text as it comes, and how likely each token was."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from daisychain.errors import DaisyChainError, SettingsError
from daisychain.generate import Sampling
from daisychain.platform.dom import Dom, Node
from daisychain.ui import formats
from daisychain.workshop import SAMPLE_PROMPT, Piece, Tell, TextRequest

Write = Callable[[TextRequest, Tell], Awaitable[None]]

MAX_TOKENS = 4_096
SAMPLES_SHOWN = 5

OPTIONS = (
    ("temperature", "Temperature", "0.8", "0 always takes the likeliest token"),
    ("top_k", "Top-k", "40", "Only so many of the likeliest tokens; 0 means all"),
    ("top_p", "Top-p", "1", "Only the likeliest tokens with this probability together"),
    ("limit", "Tokens", "64", f"At most so many, up to {MAX_TOKENS:,}"),
    ("seed", "Seed", "", "Empty means another one each time"),
    ("stop", "Stop at", "", "The text ends behind this"),
)


class Texts:
    """The section with the prompt; ``write`` asks the session that is shown."""

    def __init__(self, dom: Dom, write: Write) -> None:
        self._dom, self._write = dom, write
        self._task: asyncio.Task[None] | None = None
        self._going = False
        self._pieces: list[Piece] = []
        self._marked: Node | None = None
        self._tokens: list[Node] = []
        self._samples: tuple[tuple[int, str], ...] = ()
        self._prompt = dom.element(
            "textarea", rows="2", aria_label="Prompt", name="prompt", spellcheck="false"
        )
        self._prompt.enter(SAMPLE_PROMPT)
        self._fields = {name: self._field(name, text) for name, _, text, _ in OPTIONS}
        self._start = self._button("Write", "primary", self._begin)
        self._stop = self._button("Stop", "plain", self._end)
        self._stop.attribute("aria-label", "Stop writing")
        self._stop.show(False)
        self._said = dom.element("span", class_="note", role="status")
        self._text = dom.element(
            "p", class_="written", tabindex="0", aria_label="What the model wrote", hidden=True
        )
        for event in ("pointerover", "click"):
            self._text.on(event, self._point)
        self._text.on("keydown", self._step)
        self._detail = dom.element("p", class_="note likeliest", aria_live="polite", hidden=True)
        self._list = dom.element("ol", class_="samples", hidden=True)
        self.root = dom.element(
            "section",
            dom.element("div", dom.element("h2", "What it writes"), class_="heading"),
            self._prompt,
            dom.element("div", self._start, self._stop, self._said, class_="actions"),
            self._text,
            self._detail,
            dom.element(
                "details",
                dom.element("summary", "How it chooses"),
                dom.element("fieldset", *(self._label(*option) for option in OPTIONS)),
                class_="settings",
            ),
            self._list,
            class_="texts",
            hidden=True,
        )

    def clear(self) -> None:
        """A new run begins."""
        self._end()
        self._pieces, self._tokens, self._marked = [], [], None
        self._text.show(False)
        self._detail.show(False)
        self._said.text("")

    def draw(self, can_write: bool, records: Sequence[Mapping[str, Any]]) -> None:
        """Shows the section where there is a model, and the samples of the log."""
        samples = [(int(r["step"]), str(r["sample"])) for r in records if "sample" in r]
        self.root.show(can_write or bool(samples))
        self._start.attribute("disabled", not can_write)
        shown = tuple(reversed(samples[-SAMPLES_SHOWN:]))
        if shown != self._samples:
            self._samples = shown
            self._list.show(bool(shown))
            self._list.replace(*(self._sample(step, text) for step, text in shown))

    # --- a text

    def _begin(self) -> None:
        if self._task is not None and not self._task.done():
            return
        try:
            request = self._request()
        except SettingsError as error:
            self._said.text(str(error))
            return
        self._task = asyncio.ensure_future(self._run(request))

    def _end(self) -> None:
        self._going = False

    async def _run(self, request: TextRequest) -> None:
        self._pieces, self._tokens, self._marked = [], [], None
        self._text.replace(self._dom.element("span", request.prompt, class_="prompt"))
        self._text.show(True)
        self._detail.show(False)
        self._going, start_s = True, time.monotonic()
        self._start.show(False)
        self._stop.show(True)
        self._said.text("Waiting for the step under way")
        seed = f", seed {request.sampling.seed}" if request.sampling.temperature else ""

        def hear(piece: Piece) -> bool:
            nonlocal start_s
            if not self._pieces:
                start_s = time.monotonic()
            self._add(piece)
            count, passed_s = len(self._pieces), time.monotonic() - start_s
            rate = formats.rate((count - 1) / passed_s) if count > 1 and passed_s > 0 else ""
            self._said.text(f"{count} tokens{f', {rate} a second' if rate else ''}{seed}")
            return self._going

        try:
            await self._write(request, hear)
            if not self._pieces:
                self._said.text("The model ends the text at once.")
        except DaisyChainError as error:
            self._said.text(str(error))
        finally:
            self._going = False
            self._start.show(True)
            self._stop.show(False)

    def _add(self, piece: Piece) -> None:
        doubt = f"--doubt:{1 - piece.probability:.2f}"
        node = self._dom.element(
            "span",
            piece.text,
            data_i=str(len(self._pieces)),
            data_token=str(piece.token),
            style=doubt,
        )
        self._pieces.append(piece)
        self._tokens.append(node)
        self._text.append(node)

    def _request(self) -> TextRequest:
        """Raises SettingsError for what the fields cannot mean."""
        sampling = Sampling(
            self._number("temperature", float),
            self._number("top_k", int),
            self._number("top_p", float),
            self._number("seed", int) if self._fields["seed"].value.strip() else _any_seed(),
        )
        limit = self._number("limit", int)
        if not 1 <= limit <= MAX_TOKENS:
            raise SettingsError(f"The number of tokens must be from 1 to {MAX_TOKENS:,}.")
        return TextRequest(self._prompt.value, limit, sampling, self._fields["stop"].value)

    def _number(self, name: str, kind: Callable[[str], Any]) -> Any:
        text = self._fields[name].value.strip()
        label, default = next((o[1], o[2]) for o in OPTIONS if o[0] == name)
        try:
            return kind(text[:20] or default)
        except ValueError as error:
            raise SettingsError(f"{label} must be a number, not {text[:20]!r}.") from error

    # --- how likely

    def _point(self, event: Any) -> None:
        """A pointer rests on a token, or touches one."""
        index = getattr(event.target.dataset, "i", None)
        if index is not None:
            self._show(int(index))

    def _step(self, event: Any) -> None:
        """The arrow keys walk from token to token."""
        moves = {"ArrowLeft": -1, "ArrowRight": 1}
        if event.key in moves and self._tokens:
            event.preventDefault()
            at = self._tokens.index(self._marked) if self._marked else -1
            self._show(max(0, min(len(self._tokens) - 1, at + moves[event.key])))

    def _show(self, index: int) -> None:
        """Says how likely a token was, and what else could have come."""
        if index >= len(self._pieces):
            return
        if self._marked is not None:
            self._marked.attribute("class", None)
        self._marked = self._tokens[index]
        self._marked.attribute("class", "marked")
        piece = self._pieces[index]
        others = ", ".join(f"{_named(text)} {_percent(p)}" for text, p in piece.likeliest)
        self._detail.text(f"Chosen with {_percent(piece.probability)}. Likeliest: {others}")
        self._detail.show(True)

    # --- the parts

    def _sample(self, step: int, text: str) -> Node:
        dom = self._dom
        prompt = dom.element("span", SAMPLE_PROMPT, class_="prompt")
        return dom.element(
            "li",
            dom.element("span", f"Step {step:,}", class_="note"),
            dom.element("p", prompt, text),
        )

    def _field(self, name: str, text: str) -> Node:
        field = self._dom.element("input", type="text", autocomplete="off", name=f"text_{name}")
        if name != "stop":
            field.attribute("inputmode", "decimal")
        field.enter(text)
        return field

    def _label(self, name: str, label: str, _text: str, title: str) -> Node:
        return self._dom.element(
            "label", self._dom.element("span", label), self._fields[name], title=title
        )

    def _button(self, text: str, kind: str, press: Callable[[], object]) -> Node:
        button = self._dom.element("button", text, type="button", class_=kind)
        button.on("click", lambda _event: press())
        return button


def _any_seed() -> int:
    return random.randrange(1, 10_000)


def _percent(probability: float) -> str:
    """34 %, 1.2 %, under 0.1 %"""
    percent = 100 * probability
    if percent < 0.1:
        return "under 0.1\u00a0%"
    return f"{percent:.0f}\u00a0%" if percent >= 10 else f"{percent:.1f}\u00a0%"


def _named(text: str) -> str:
    """A token in quotes, its white space made visible."""
    return f"\u201c{text.replace(chr(10), chr(0x23CE)).replace(' ', chr(0x2423))}\u201d"
