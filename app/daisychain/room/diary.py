"""What a room's session tells people: the log, sentences that stand on the page, and findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from daisychain.cluster.effects import Notice

PASSING = frozenset({"backlog", "deadline", "paused", "left out"})
"""Codes of `Notice` that are true for a moment only: they stand in the log alone."""
WHILE_OUT = frozenset({"no quorum", "stepped aside", "refused", "device-failed"})
"""... and those that are true until this device takes part again."""


class Diary:
    """``step`` says at which step the run is, ``changed`` is called after each entry."""

    def __init__(
        self,
        records: Iterable[Mapping[str, Any]],
        step: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        self.log: list[dict[str, Any]] = [dict(record) for record in records]
        self.notices: list[str] = []
        self.findings: list[str] = []
        self._while_out: set[str] = set()
        self._step, self._changed = step, changed

    def tell(self, sentence: str) -> None:
        """A line of the log, unless the last one says the same."""
        if not self.log or self.log[-1].get("note") != sentence:
            self.log.append({"note": sentence, "step": self._step()})
            self._changed()

    def note(self, sentence: str) -> None:
        """A line of the log that also stands on the page, once."""
        if sentence not in self.notices:
            self.notices.append(sentence)
        self.tell(sentence)

    def find(self, sentence: str) -> None:
        """What was found out about this device."""
        self.findings.append(sentence)
        self.tell(sentence)

    def take(self, notice: Notice) -> None:
        """What the protocol has to say."""
        if notice.code in PASSING:
            self.tell(notice.text)
            return
        if notice.code in WHILE_OUT:
            self._while_out.add(notice.text)
        self.note(notice.text)

    def back(self) -> None:
        """This device takes part (again): what kept it out is over, and stands in the log alone."""
        self.notices = [text for text in self.notices if text not in self._while_out]
        self._while_out.clear()
