"""A text as a QR code."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from daisychain.platform.dom import Dom
from daisychain.ui.backing import DrawQr


class QrCode:
    """A picture that appears once it is drawn; without it the text beside it is enough."""

    def __init__(self, dom: Dom, draw: DrawQr, alt: str) -> None:
        self._draw = draw
        self._text = ""
        self._task: asyncio.Task[None] | None = None
        self.root = dom.element("img", class_="qr", alt=alt, hidden=True)

    def show(self, text: str) -> None:
        """Draws the code of ``text``, or nothing for an empty one."""
        if text == self._text:
            return
        self._text = text
        self.root.show(False)
        if text:
            self._task = asyncio.ensure_future(self._load(text))

    async def _load(self, text: str) -> None:
        try:
            svg = await self._draw(text)
        except Exception:  # the script is missing or the browser too old: the text is there
            return
        if text == self._text:
            self.root.attribute("src", f"data:image/svg+xml,{quote(svg)}")
            self.root.show(True)
