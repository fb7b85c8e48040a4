"""The built site with a scripted session in place of the real one, steered from a test."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

SCRIPTS = [Path(__file__).parents[1] / f"ui/{name}.py" for name in ("scripted", "scripted_room")]
BOOT_TIMEOUT_MS = 120_000
STEERING = """
import js
from pyodide.ffi import create_proxy
from daisychain.platform.qr import qr_svg
from daisychain.ui.app import show
sessions, camera = [], Camera()
shown = await show(scripted_backing(sessions, camera, qr_svg))
def steer(source):
    import json
    session = sessions[-1] if sessions else None
    names = {"session": session, "page": shown, "dom": shown._dom, "camera": camera}
    try:
        return json.dumps(eval(source, globals(), names))
    except Exception as error:
        return json.dumps(f"{type(error).__name__}: {error}")
js.steer = create_proxy(steer)
"""


class ScriptedPage:
    """A page whose session does what the test says."""

    def __init__(self, page: Page, server: str, query: str = "") -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        source = "".join(script.read_text() for script in SCRIPTS) + STEERING
        source = re.sub(r"^from (__future__|tests).*$", "", source, flags=re.MULTILINE)
        page.route("**/main.py", lambda route: route.fulfill(body=source))
        page.goto(server + query, wait_until="commit")
        page.wait_for_function(
            "window.steer || window.daisychain?.state().phase === 'error'", timeout=BOOT_TIMEOUT_MS
        )

    def steer(self, source: str) -> Any:
        """The value of a Python expression over ``session``, ``page``, ``dom`` and ``camera``."""
        return json.loads(self.page.evaluate("source => window.steer(source)", source))

    def state(self) -> dict[str, Any]:
        """``window.daisychain.state()``"""
        state: dict[str, Any] = self.page.evaluate("daisychain.state()")
        return state
