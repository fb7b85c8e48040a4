"""The TURN relay's fields: taken at once, refused with a sentence, kept in the browser alone."""

from __future__ import annotations

import json

import pytest

from daisychain.platform import cpython
from daisychain.room.turn import TURN_KEY, TurnRelay, keep_relay, kept_relay
from daisychain.ui import links
from daisychain.ui.turn_form import EARLIER, KEPT, NOT_KEPT, TurnForm
from tests.ui.fake_dom import Element, Window
from tests.ui.test_page import Shown, play
from tests.ui.test_page import fresh_platform as fresh_platform

RELAY = TurnRelay("turn:relay.example:3478", "ann-of-the-relay", "hunter2-of-ann")


class Form:
    """A form in a page of its own."""

    def __init__(self) -> None:
        self.window = Window()
        self.saves = 0
        self.form = TurnForm(self.window.dom(), "here", self._saved)
        self.window.document.body.append(self.form.root.raw)

    def _saved(self) -> None:
        self.saves += 1

    def field(self, name: str) -> Element:
        return field_of(self.window.document.body, name)

    def enter(self, **texts: str) -> None:
        for name, text in texts.items():
            self.field(f"turn_{name}").value = text
            self.field(f"turn_{name}").fire("change")

    def tick(self, on: bool) -> None:
        self.field("turn_only").checked = on
        self.field("turn_only").fire("change")

    def values(self) -> list[str]:
        return [self.field(f"turn_{name}").value for name in ("address", "user", "password")]

    def said(self) -> str:
        (said,) = (e for e in self.form.root.raw.all() if e.attributes.get("id") == "turn-here")
        return " ".join(said.text_shown().replace("Forget it", "").split())


def field_of(root: Element, name: str) -> Element:
    """The last field with this name: that of the form for joining, in a whole page."""
    return [e for e in root.all() if e.attributes.get("name") == name][-1]


def enter_relay(form: Form) -> None:
    form.enter(address=RELAY.address, user=RELAY.user, password=RELAY.password)


def test_a_relay_is_kept_once_it_is_whole() -> None:
    form = Form()
    form.tick(True)
    assert form.said() == "Not used yet: address, user name and password missing."
    form.tick(False)
    assert form.said() == ""
    form.enter(address=RELAY.address)
    assert form.said() == "Not used yet: user name and password missing."
    form.enter(user=RELAY.user)
    assert form.said() == "Not used yet: password missing."
    assert kept_relay() is None
    form.enter(password=RELAY.password)
    assert form.said() == KEPT
    assert kept_relay() == RELAY
    assert form.field("turn_password").attributes["type"] == "password"
    assert form.saves == 2
    form.tick(True)
    assert kept_relay() == TurnRelay(RELAY.address, RELAY.user, RELAY.password, only=True)
    assert Form().values() == [RELAY.address, RELAY.user, RELAY.password]
    form.tick(False)
    assert kept_relay() == RELAY


def test_what_is_refused_is_not_used_and_what_was_kept_stays() -> None:
    form = Form()
    form.enter(address="http://relay.example")
    assert form.said() == "The address of the TURN relay must be turn:host:port or turns:host:port."
    assert form.field("turn_address").attributes["aria-invalid"] == "true"
    enter_relay(form)
    form.enter(address="turn:hunter2-of-ann@relay")
    assert form.said().endswith(f"turns:host:port. {EARLIER}")
    assert "hunter2" not in form.said()
    form.enter(address=RELAY.address, password="x" * 300)
    assert form.said().startswith("The password of the TURN relay must be one line")
    assert "aria-invalid" not in form.field("turn_address").attributes
    form.enter(password="")
    assert form.said() == f"Not used yet: password missing. {EARLIER}"
    assert kept_relay() == RELAY
    form.tick(True)
    form.enter(address="", user="", password="")
    assert form.said() == f"Not used yet: address, user name and password missing. {EARLIER}"
    assert kept_relay() == RELAY


@pytest.mark.parametrize("by_button", [False, True])
def test_it_is_forgotten(by_button: bool) -> None:
    form = Form()
    enter_relay(form)
    form.tick(True)
    if by_button:
        form.window.button("Forget it").fire("click")
    else:
        form.tick(False)
        form.enter(address="", user="", password="")
    assert (kept_relay(), form.values(), form.said()) == (None, ["", "", ""], "")
    assert not form.field("turn_only").checked
    assert "Forget it" not in form.window.shown()


def test_kept_text_that_cannot_be_read_is_told_and_can_be_forgotten() -> None:
    cpython.storage_set(TURN_KEY, "{")
    form = Form()
    assert form.said().startswith("The TURN relay that this browser keeps cannot be read.")
    form.window.button("Forget it").fire("click")
    assert form.said() == ""
    assert cpython.storage_get(TURN_KEY) is None


def test_a_browser_that_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daisychain.room.turn.storage_set", lambda _key, _text: False)
    form = Form()
    enter_relay(form)
    assert form.said() == NOT_KEPT
    assert form.saves == 0


def test_both_places_of_the_page_show_it_and_nothing_else_does() -> None:
    async def scenario() -> None:
        shown = Shown("?stun=stun:stun.example")
        await shown.press("Join a room")
        body = shown.window.document.body
        for name, text in zip(("address", "user", "password"), vars(RELAY).values(), strict=False):
            field_of(body, f"turn_{name}").value = text
            field_of(body, f"turn_{name}").fire("change")
        assert kept_relay() == RELAY
        entered = [e.value for e in body.all() if e.attributes.get("name") == "turn_password"]
        assert entered == [RELAY.password] * 2
        await shown.press("Back")
        await shown.press("Start a room")
        assert shown.session.settings.stun == "stun:stun.example"
        told = [
            json.dumps(shown.page.state()),
            shown.text(),
            cpython.page_url(),
            links.invitation(shown.session.settings, "K7QDM2XP9RTW4HBN"),
            links.run_link(shown.session.settings),
        ]
        assert [text for text in told if RELAY.password in text or RELAY.user in text] == []
        keep_relay(None)

    play(scenario)
