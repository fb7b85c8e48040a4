"""Cross-origin isolation by choice: with it the CPU player may use several Workers.

A host that sends the two headers isolates the page by itself.  On any other the page can register
``app/js/isolation_worker.js``, which lies at the site's root and adds them from the next load on.
"""

from __future__ import annotations

SCRIPT = "isolation_worker.js"


def is_isolated() -> bool:
    """Whether this page has shared memory for Workers."""
    import js

    return bool(getattr(js, "crossOriginIsolated", False)) and hasattr(js, "SharedArrayBuffer")


def can_isolate() -> bool:
    """Whether ``isolate`` may help: not yet isolated, and the browser has Service Workers."""
    import js

    return not is_isolated() and bool(getattr(js.navigator, "serviceWorker", None))


async def isolate() -> None:
    """Registers the Service Worker and loads the page again, under it."""
    import js

    await js.navigator.serviceWorker.register(SCRIPT)
    await js.navigator.serviceWorker.ready
    js.location.reload()


async def leave_isolation() -> bool:
    """Takes the Service Worker back and loads the page again; False when there was none."""
    import js

    registration = await js.navigator.serviceWorker.getRegistration(SCRIPT)
    if not registration:
        return False
    await registration.unregister()
    js.location.reload()
    return True
