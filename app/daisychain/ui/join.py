"""The form for entering a room: type or scan its code, or pair by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from daisychain.cluster.room_code import parse_room_code
from daisychain.errors import DaisyChainError
from daisychain.platform.dom import Dom
from daisychain.ui.backing import RoomEntry, ScanQr
from daisychain.ui.scanner import Scanner
from daisychain.ui.turn_form import TurnForm


class JoinForm:
    """Asks for a code; ``enter(entry)`` goes to the room and ``back()`` to the welcome.

    ``turn`` may be filled in here, too: whoever joins has no need of the other settings.
    """

    def __init__(
        self,
        dom: Dom,
        scan: ScanQr,
        enter: Callable[[RoomEntry], object],
        back: Callable[[], object],
        turn: TurnForm,
    ) -> None:
        self._enter, self._turn = enter, turn
        self._code = dom.element(
            "input",
            type="text",
            name="code",
            autocomplete="off",
            autocapitalize="characters",
            spellcheck="false",
            enterkeyhint="go",
            placeholder="K7QD-M2XP-9RTW-4HBN",
            aria_describedby="code-refusal",
        )
        self._name = dom.element(
            "input", type="text", name="name", autocomplete="off", maxlength="40"
        )
        self._refusal = dom.element(
            "p", class_="refusal", role="alert", id="code-refusal", hidden=True
        )
        self._scanner = Scanner(dom, scan, self._scanned)
        join = dom.element("button", "Join", type="submit", class_="primary")
        hand = dom.element("button", "Pair by hand, without a relay", type="button", class_="quiet")
        leave = dom.element("button", "Back", type="button", class_="quiet")
        hand.on("click", lambda _event: self._go(""))
        leave.on("click", lambda _event: self._leave(back))
        form = dom.element(
            "form",
            dom.element("label", dom.element("span", "Code of the room"), self._code),
            self._refusal,
            dom.element("label", dom.element("span", "Name of this device"), self._name),
            dom.element("div", join, self._scanner.button, class_="actions"),
            self._scanner.root,
            dom.element("p", hand, leave, class_="link"),
            novalidate=True,
        )
        form.on("submit", self._submit)
        self.root = dom.element(
            "section",
            dom.element(
                "div",
                dom.element("h1", "Join a room."),
                dom.element(
                    "p",
                    "Type the code that the other device shows, or scan its picture.",
                    class_="lead",
                ),
            ),
            form,
            dom.element(
                "details",
                dom.element("summary", "When devices cannot connect"),
                turn.root,
                class_="settings",
            ),
            class_="join",
            hidden=True,
        )

    def open(self, code: str, name: str) -> None:
        """Shows the form, filled in; a code that cannot be one is said to be so."""
        self._code.enter(code)
        self._name.enter(name)
        self._refuse(_refusal(code) if code else "")
        self._turn.draw()
        self.root.show(True)
        self._code.focus()

    def close(self) -> None:
        """Hides the form and switches the camera off."""
        self._scanner.close()
        self.root.show(False)

    def _submit(self, event: Any) -> None:
        event.preventDefault()
        refusal = _refusal(self._code.value)
        self._refuse(refusal)
        if refusal:
            self._code.focus()
        else:
            self._go(parse_room_code(self._code.value))

    def _scanned(self, text: str) -> str:
        refusal = _refusal(text)
        if refusal:
            return "This picture holds no code of a room."
        self._go(parse_room_code(text))
        return ""

    def _go(self, code: str) -> None:
        self.close()
        self._enter(RoomEntry("member", code, self._name.value.strip()))

    def _leave(self, back: Callable[[], object]) -> None:
        self.close()
        back()

    def _refuse(self, sentence: str) -> None:
        self._refusal.text(sentence)
        self._refusal.show(bool(sentence))
        self._code.attribute("aria-invalid", "true" if sentence else None)


def _refusal(code: str) -> str:
    try:
        parse_room_code(code)
    except DaisyChainError as error:
        return str(error)
    return ""
