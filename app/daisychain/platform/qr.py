"""QR codes in the page: draw one, read one with the camera (app/js/qr.js)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from daisychain.errors import DeviceError
from daisychain.platform.scripts import import_script

MAX_TEXT_CHARACTERS = 2_000


async def qr_svg(text: str) -> str:
    """An SVG picture of ``text`` as a QR code: room links and pairing texts."""
    if len(text) > MAX_TEXT_CHARACTERS:
        raise ValueError(f"{len(text)} characters do not fit a QR code that phones can read")
    script = await import_script("js/qr.js")
    return str(script.qrSvg(text))


async def scan_qr(video: Any, found: Callable[[str], bool]) -> Callable[[], None]:
    """Show the camera in a ``<video>`` element and call ``found`` with each text that is seen.

    ``found`` returns True to end the scan.  The returned function ends it too, and the camera with
    it; it is to be called in any case.  Raises DeviceError, in words for the person, when there is
    no camera or it is not allowed.
    """
    from pyodide.ffi import JsException, create_proxy

    script = await import_script("js/qr.js")
    proxy = create_proxy(lambda text: found(str(text)))
    try:
        stop = await script.scanQr(video, proxy)
    except (JsException, AttributeError) as cause:
        proxy.destroy()
        raise DeviceError(
            "The camera cannot be used.",
            "There is none, another program has it, or this page may not use it.",
            "Allow the camera for this page, or type the code.",
        ) from cause

    def end() -> None:
        stop()
        proxy.destroy()

    return end
