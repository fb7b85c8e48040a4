"""The TURN relay of this device's links: its fields, which write into the browser's storage alone.

A change is taken at once, like any setting's.  What is incomplete or refused is not used: whatever
was kept before stays in use, so that nobody's address shows because of a slip.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from daisychain.errors import SettingsError
from daisychain.platform.dom import Dom, Node
from daisychain.room.turn import (
    TurnRelay,
    check_address,
    check_password,
    check_user,
    keep_relay,
    kept_relay,
    turn_relay,
)


@dataclass(frozen=True)
class Field:
    """One field: what it is called, and what refuses its text with a SettingsError."""

    name: str
    label: str
    check: Callable[[str], None]
    kind: str = "text"
    hint: str = ""


FIELDS = (
    Field("turn_address", "Address", check_address, hint="turn:host:port"),
    Field("turn_user", "User name", check_user),
    Field("turn_password", "Password", check_password, kind="password"),
)

WHAT_FOR = (
    "For devices that cannot reach each other directly; one of the two needs it. "
    "It stays in this browser, in no link and no file."
)
KEPT = "Kept. It is used from the next room on."
EARLIER = "What was kept before stays in use."
NOT_KEPT = "This browser lets the page keep nothing, so no TURN relay can be used."


class TurnForm:
    """The fields as a fieldset, ``root``; ``place`` makes its id the only one of the page.

    ``saved()`` is called after each change of what is kept.
    """

    def __init__(self, dom: Dom, place: str, saved: Callable[[], object] = lambda: None) -> None:
        self._dom, self._saved = dom, saved
        self._has_relay = False
        self._said_id = f"turn-{place}"
        self._inputs = [self._input(field) for field in FIELDS]
        self._only = dom.element("input", type="checkbox", name="turn_only")
        self._only.on("change", lambda _event: self._enter())
        self._refusal = dom.element("p", class_="refusal", role="alert", hidden=True)
        self._note = dom.element("span", class_="note", role="status")
        self._forget = dom.element("button", "Forget it", type="button", class_="quiet")
        self._forget.on("click", lambda _event: self._keep(None))
        self.root = dom.element(
            "fieldset",
            dom.element("legend", "TURN relay"),
            dom.element("p", WHAT_FOR, class_="note"),
            *(
                dom.element("label", dom.element("span", field.label), node)
                for field, node in zip(FIELDS, self._inputs, strict=True)
            ),
            dom.element(
                "label",
                self._only,
                dom.element("span", "Connect through it alone: that hides this device's address"),
                class_="tick",
            ),
            dom.element(
                "div",
                self._refusal,
                dom.element("p", self._note, self._forget, class_="said"),
                id=self._said_id,
            ),
            class_="turn",
        )
        self.draw()

    def draw(self) -> None:
        """Shows what this browser keeps."""
        try:
            relay, trouble = kept_relay(), ""
        except SettingsError as error:
            relay, trouble = None, str(error)
        self._has_relay = relay is not None
        values = (relay.address, relay.user, relay.password) if relay else ("", "", "")
        for node, value in zip(self._inputs, values, strict=True):
            node.enter(value)
            node.attribute("aria-invalid", None)
        self._only.check(relay is not None and relay.only)
        self._say(KEPT if relay else "", trouble)
        self._forget.show(bool(relay or trouble))

    def _enter(self) -> None:
        """Takes what stands in the fields, if it is a whole relay, or none at all."""
        texts = [node.value for node in self._inputs]
        missing, refusal = [], ""
        for field, node, text in zip(FIELDS, self._inputs, texts, strict=True):
            said = _refusal(field, text)
            node.attribute("aria-invalid", "true" if said else None)
            refusal = refusal or said
            if not text.strip():
                missing.append(field.label.lower())
        only = bool(self._only.raw.checked)
        if len(missing) == len(FIELDS) and not only:
            self._keep(None)
        elif missing or refusal:
            wanted = "" if refusal else f"Not used yet: {_listed(missing)} missing."
            earlier = EARLIER if self._has_relay else ""
            self._say(f"{wanted} {earlier}".strip(), refusal)
            self._forget.show(True)
        else:
            address, user, password = texts
            self._keep(turn_relay(address, user, password, only))

    def _keep(self, relay: TurnRelay | None) -> None:
        if keep_relay(relay):
            self.draw()
            self._saved()
        else:
            self._say("", NOT_KEPT)

    def _say(self, note: str, refusal: str) -> None:
        self._note.text(note)
        self._refusal.text(refusal)
        self._refusal.show(bool(refusal))

    def _input(self, field: Field) -> Node:
        node = self._dom.element(
            "input",
            type=field.kind,
            name=field.name,
            autocomplete="off",
            autocapitalize="none",
            spellcheck="false",
            placeholder=field.hint,
            aria_describedby=self._said_id,
        )
        node.on("change", lambda _event: self._enter())
        return node


def _listed(words: list[str]) -> str:
    """address, user name and password"""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def _refusal(field: Field, text: str) -> str:
    """Why this text is refused; a field that is still empty is no mistake."""
    try:
        if text.strip():
            field.check(text)
    except SettingsError as error:
        return str(error)
    return ""
