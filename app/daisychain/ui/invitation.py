"""How others get into the room: its code, its link, its picture."""

from __future__ import annotations

from collections.abc import Callable

from daisychain.cluster.room_code import format_room_code
from daisychain.platform.dom import Dom
from daisychain.ui import links
from daisychain.ui.backing import DrawQr
from daisychain.ui.qr_code import QrCode


class Invitation:
    """Code, link and QR code; ``copy(text, said)`` puts a text on the clipboard.

    ``everybody(on)`` is the host's switch for letting people in unasked.
    """

    def __init__(
        self,
        dom: Dom,
        draw: DrawQr,
        copy: Callable[[str, str], object],
        everybody: Callable[[bool], object],
    ) -> None:
        self._dom = dom
        self._code = self._link = ""
        self._groups = dom.element("p", class_="code", role="img")
        self._qr = QrCode(dom, draw, "QR code of the link into the room")
        self._note = dom.element("p", class_="note")
        self.said = dom.element("span", class_="note", role="status")
        self._switch = dom.element("input", type="checkbox", name="everybody")
        self._switch.on("change", lambda _event: everybody(bool(self._switch.raw.checked)))
        self._switch_label = dom.element(
            "label", self._switch, dom.element("span", "Let everybody in who has the code")
        )
        link = dom.element("button", "Copy the link", type="button", class_="primary")
        code = dom.element("button", "Copy the code", type="button", class_="plain")
        link.on("click", lambda _event: copy(self._link, "Link copied"))
        code.on("click", lambda _event: copy(self._code, "Code copied"))
        self._details = dom.element(
            "details",
            dom.element("summary", "Invite devices"),
            dom.element(
                "div",
                dom.element(
                    "div",
                    self._groups,
                    self._note,
                    dom.element("div", link, code, class_="actions"),
                    self.said,
                    self._switch_label,
                ),
                self._qr.root,
                class_="ticket",
            ),
        )
        self.root = dom.element("section", self._details, class_="invitation", hidden=True)

    def draw(self, code: str, link: str, *, host: bool, everybody: bool) -> None:
        """The switch is the host's alone."""
        self._switch_label.show(host)
        self._switch.check(everybody)
        if link == self._link:
            return
        self._code, self._link = format_room_code(code), link
        groups = self._code.split("-")
        self._groups.replace(*(self._dom.element("span", group) for group in groups))
        self._groups.attribute("aria-label", f"Code of the room: {' '.join(self._code)}")
        self._qr.show(link)
        self._note.text(
            "This page's address works on this machine only: other devices need the address under "
            "which they reach it."
            if links.is_private()
            else "Open the link on another device, scan the picture with its camera, or type the "
            "code there."
        )

    def unfold(self, open_: bool) -> None:
        """Shows it all, or the heading alone."""
        self._details.raw.open = open_
