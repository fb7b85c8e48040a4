"""The offer to use all processor cores: shared memory needs a page that is isolated from others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from daisychain.platform.dom import Dom, Node


def cores_offer(dom: Dom, cores: int, isolate: Callable[[], Awaitable[None]]) -> Node:
    """One sentence and a button; a press loads the page again, isolated."""
    button = dom.element("button", f"Use all {cores} cores", type="button", class_="quiet")
    said = dom.element("span", class_="note", role="status")

    async def begin() -> None:
        said.text("The page loads once more.")
        try:
            await isolate()
        except Exception as error:  # a JsException: the browser or its settings forbid it
            said.text(f"This browser does not allow it here ({error}). One core still trains.")

    button.on("click", lambda _event: asyncio.ensure_future(begin()))
    text = (
        f"On the CPU, training uses one of this device's {cores} cores. A small helper of this "
        "page can give it the others; it stays in this browser until its site data are cleared."
    )
    return dom.element("p", text, " ", button, " ", said, class_="note cores")
