"""Pairing without a relay: two texts that people carry across, by copying or by the camera."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from daisychain.errors import DaisyChainError
from daisychain.platform.dom import Dom, Node
from daisychain.ui.backing import DrawQr, RoomSession, ScanQr
from daisychain.ui.qr_code import QrCode
from daisychain.ui.scanner import Scanner

Copy = Callable[[str, str], object]


class Carried:
    """A text to carry to the other device."""

    def __init__(self, dom: Dom, draw: DrawQr, copy: Copy, label: str, note: str) -> None:
        self._text = ""
        self._area = dom.element("textarea", readonly=True, rows="3", aria_label=label)
        self._qr = QrCode(dom, draw, f"QR code: {label}")
        button = dom.element(
            "button", "Copy", type="button", class_="plain", aria_label=f"Copy: {label}"
        )
        button.on("click", lambda _event: copy(self._text, "Copied"))
        self.root = dom.element(
            "div",
            dom.element("p", note, class_="note"),
            self._area,
            button,
            self._qr.root,
            class_="carried",
            hidden=True,
        )

    def show(self, text: str) -> None:
        """An empty text hides it all."""
        self._text = text
        self._area.enter(text)
        self._qr.show(text)
        self.root.show(bool(text))


class Brought:
    """A text that comes from the other device: pasted, typed or scanned."""

    def __init__(self, dom: Dom, scan: ScanQr, label: str, action: Node) -> None:
        self._area = dom.element(
            "textarea", rows="3", spellcheck="false", autocapitalize="off", autocomplete="off"
        )
        self.scanner = Scanner(dom, scan, self._take)
        self.root = dom.element(
            "div",
            dom.element("label", dom.element("span", label), self._area),
            dom.element("div", action, self.scanner.button, class_="actions"),
            self.scanner.root,
            class_="brought",
        )

    @property
    def text(self) -> str:
        return self._area.value

    def _take(self, text: str) -> str:
        self._area.enter(text)
        return ""


class ByHand:
    """Both ends of the pairing; ``draw`` says which of them this device is."""

    def __init__(self, dom: Dom, draw: DrawQr, scan: ScanQr, copy: Copy) -> None:
        self._session: RoomSession | None = None
        self._task: asyncio.Task[None] | None = None
        offer = self._button(dom, "Make an offer", self._offer)
        connect = self._button(dom, "Connect", self._connect)
        answer = self._button(dom, "Make the answer", self._answer)
        self._offered = Carried(
            dom, draw, copy, "Offer", "Carry this to the other device: Join a room, Pair by hand."
        )
        self._answered = Carried(
            dom,
            draw,
            copy,
            "Answer",
            "Carry this back to the first device; the connection then opens by itself.",
        )
        self._offer_in = Brought(dom, scan, "Offer of the first device", answer)
        self._answer_in = Brought(dom, scan, "Answer of the other device", connect)
        self._second = dom.element("li", self._answer_in.root, hidden=True)
        self._inviting = dom.element(
            "ol", dom.element("li", offer, self._offered.root), self._second
        )
        self._joining = dom.element(
            "ol",
            dom.element("li", self._offer_in.root),
            dom.element("li", self._answered.root),
        )
        self.said = dom.element("p", class_="note", role="status")
        self._details = dom.element(
            "details",
            dom.element("summary", "Pair by hand, without a relay"),
            self._inviting,
            self._joining,
            self.said,
        )
        self.root = dom.element("section", self._details, class_="by-hand", hidden=True)

    def open(self, session: RoomSession) -> None:
        """A new session: nothing of the last one stays."""
        self.close()
        self._session = session
        self._offered.show("")
        self._answered.show("")
        self._second.show(False)
        self.said.text("")
        self.unfold(False)

    def close(self) -> None:
        """Switches the cameras off."""
        for brought in (self._offer_in, self._answer_in):
            brought.scanner.close()

    def draw(self, *, inviting: bool, joining: bool) -> None:
        """Shows this device's end of it, or nothing."""
        self._inviting.show(inviting)
        self._joining.show(joining)
        self.root.show(inviting or joining)

    def unfold(self, open_: bool) -> None:
        """Shows it all, or the heading alone."""
        self._details.raw.open = open_

    async def _offer(self, session: RoomSession) -> str:
        self._offered.show("")
        self._offered.show(await session.hand_offer())
        self._second.show(True)
        return ""

    async def _answer(self, session: RoomSession) -> str:
        self._answered.show("")
        self._answered.show(await session.hand_answer(self._offer_in.text))
        return ""

    async def _connect(self, session: RoomSession) -> str:
        await session.hand_accept(self._answer_in.text)
        self._offered.show("")
        self._second.show(False)
        return "The connection is being opened."

    def _button(self, dom: Dom, text: str, act: Callable[[RoomSession], Awaitable[str]]) -> Node:
        button = dom.element("button", text, type="button", class_="primary")

        async def work(session: RoomSession) -> None:
            button.attribute("disabled", True)
            self.said.text("Looking for ways to this device")
            try:
                self.said.text(await act(session))
            except DaisyChainError as error:
                self.said.text(str(error))
            finally:
                button.attribute("disabled", None)

        def press(_event: Any) -> None:
            if self._session is not None:
                self._task = asyncio.ensure_future(work(self._session))

        button.on("click", press)
        return button
