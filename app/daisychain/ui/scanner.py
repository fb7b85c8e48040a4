"""The camera, looking for a QR code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from daisychain.errors import DaisyChainError
from daisychain.platform.dom import Dom
from daisychain.ui.backing import ScanQr


class Scanner:
    """A button that opens the camera until ``take`` accepts a text or the button is pressed again.

    ``take`` returns a sentence that says why a text is refused, or an empty one.
    """

    def __init__(self, dom: Dom, scan: ScanQr, take: Callable[[str], str]) -> None:
        self._scan, self._take = scan, take
        self._opening: asyncio.Task[None] | None = None
        self._end: Callable[[], None] | None = None
        self.button = dom.element("button", "Scan", type="button", class_="plain")
        self.button.on("click", lambda _event: self._toggle())
        self._video = dom.element("video", hidden=True, aria_label="Picture of the camera")
        self._said = dom.element("p", class_="note", role="status")
        self.root = dom.element("div", self._video, self._said, class_="scanner")

    def close(self) -> None:
        """Switches the camera off."""
        self._opening = None
        end, self._end = self._end, None
        if end is not None:
            end()
        self._video.show(False)
        self._said.text("")
        self.button.text("Scan")

    def _toggle(self) -> None:
        if self._opening is not None:
            self.close()
            return
        self._video.show(True)
        self._said.text("Opening the camera")
        self.button.text("Stop the camera")
        self._opening = asyncio.ensure_future(self._open())

    async def _open(self) -> None:
        mine = self._opening
        try:
            end = await self._scan(self._video.raw, self._look)
        except DaisyChainError as error:
            if self._opening is mine:
                self.close()
                self._said.text(str(error))
            return
        if self._opening is not mine:  # closed while the person was asked for the camera
            end()
            return
        self._end = end
        self._said.text("Hold the picture before the camera.")

    def _look(self, text: str) -> bool:
        refusal = self._take(text)
        self._said.text(refusal)
        if not refusal:  # not before this call from the camera's script has returned
            asyncio.get_running_loop().call_soon(self.close)
        return not refusal
