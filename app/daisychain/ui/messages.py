"""What the page says beside the numbers: notices, waits, troubles, and words for screen readers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from daisychain.errors import DaisyChainError, ProgramError
from daisychain.platform.dom import Dom
from daisychain.ui import formats


@dataclass(frozen=True)
class Trouble:
    """What happened, what it means, what to do, and the machine's own words."""

    what: str
    means: str = ""
    do: str = ""
    detail: str = ""

    @classmethod
    def from_exception(cls, error: BaseException, detail: str) -> Trouble:
        """An error of ours in its own words; any other as a fault of the program."""
        told = error if isinstance(error, DaisyChainError) else ProgramError(error)
        return cls(told.what, told.means, told.do, detail)

    @classmethod
    def from_text(cls, text: str) -> Trouble:
        """The text of a DaisyChainError: its first sentence, those between, and its last."""
        first, *others = re.split(r"(?<=[.!?]) (?=[A-Z])", text)
        if len(others) < 2:
            return cls(first, " ".join(others))
        return cls(first, " ".join(others[:-1]), others[-1])

    def sentence(self) -> str:
        return " ".join(part for part in (self.what, self.means, self.do) if part)


def too_large(needed_bytes: int, device_bytes: int | None) -> str:
    """A warning where a run takes more than half of the device's memory, or an empty string."""
    if device_bytes is None or needed_bytes <= device_bytes / 2:
        return ""
    return (
        f"This run takes {formats.size(needed_bytes)}, and this device has about "
        f"{formats.size(device_bytes)} of memory: the browser may close the tab. Choose a smaller "
        "model, a shorter context or a smaller batch."
    )


class ErrorPanel:
    """Stands at the top while there is a trouble."""

    def __init__(self, dom: Dom, again: Callable[[], object], back: Callable[[], object]) -> None:
        self._what = dom.element("h2")
        self._means, self._do = dom.element("p"), dom.element("p", class_="do")
        self._detail = dom.element("pre")
        self._more = dom.element("details", dom.element("summary", "Details"), self._detail)
        self._again = dom.element("button", "Try again", type="button", class_="primary")
        self._again.on("click", lambda _event: again())
        self._back = dom.element("button", "Back", type="button", class_="plain")
        self._back.on("click", lambda _event: back())
        actions = dom.element("div", self._again, self._back, class_="actions")
        self.root = dom.element(
            "section",
            self._what,
            self._means,
            self._do,
            actions,
            self._more,
            class_="error",
            role="alert",
            hidden=True,
        )

    def draw(self, trouble: Trouble | None, again: str, back: str) -> None:
        """``again`` and ``back`` are what a second try and the way back are called."""
        self.root.show(trouble is not None)
        if trouble is None:
            return
        self._again.text(again)
        self._back.text(back)
        for node, text in ((self._means, trouble.means), (self._do, trouble.do)):
            node.text(text)
            node.show(bool(text))
        self._what.text(trouble.what)
        self._detail.text(trouble.detail)
        self._more.show(bool(trouble.detail))


class Notices:
    """Sentences that are not errors, the newest few; each can be put away for good."""

    most = 4

    def __init__(self, dom: Dom) -> None:
        self._dom = dom
        self._shown: tuple[str, ...] = ()
        self._dismissed: set[str] = set()
        self._list = dom.element("ul", class_="notices", hidden=True)
        self.root = dom.element("div", self._list, role="status")

    def draw(self, sentences: Sequence[str]) -> None:
        wanted = [s for s in dict.fromkeys(sentences) if s not in self._dismissed]
        shown = tuple(wanted[-self.most :])
        self._dismissed.update(wanted[: -self.most])
        if shown == self._shown:
            return
        self._shown = shown
        self._list.replace(*(self._item(sentence) for sentence in shown))
        self._list.show(bool(shown))

    def _item(self, sentence: str) -> Any:
        close = self._dom.element(
            "button", "\u00d7", type="button", class_="close", aria_label="Dismiss this notice"
        )
        close.on("click", lambda _event: self._dismiss(sentence))
        return self._dom.element("li", self._dom.element("span", sentence), close)

    def _dismiss(self, sentence: str) -> None:
        self._dismissed.add(sentence)
        self.draw(self._shown)


class Wait:
    """What the page is waiting for, with a bar: full length unknown unless ``total`` is given."""

    def __init__(self, dom: Dom) -> None:
        self._text = dom.element("p")
        self._bar = dom.element("progress", aria_label="Progress", max="1")
        self.root = dom.element("div", self._text, self._bar, class_="wait", hidden=True)

    def draw(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Shows the text, or nothing for an empty one."""
        self.root.show(bool(text))
        if not text:
            return
        known = bool(total) and done is not None
        self._text.text(f"{text}: {done:,.0f} of {total:,.0f}" if known else text)
        share = f"{min(1.0, done / total):.3f}" if known and done is not None and total else None
        self._bar.attribute("value", share)


class Announcer:
    """A live region that only screen readers see, spoken to seldom."""

    def __init__(self, dom: Dom) -> None:
        self.root = dom.element("p", class_="unseen", role="status", aria_live="polite")

    def say(self, text: str) -> None:
        self.root.text(text)
