"""The platform in a browser tab, through Pyodide's bridge to JavaScript."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import js
from pyodide.code import run_js
from pyodide.ffi import JsException, create_proxy

from daisychain.errors import DataError
from daisychain.platform.common import describe_user_agent, safe_file_name
from daisychain.platform.javascript import to_js

_make_worker = run_js("(url) => new Worker(new URL(url, document.baseURI), {type: 'module'})")
_revoke_later = run_js("(url) => { setTimeout(() => URL.revokeObjectURL(url), 60_000); }")
_timed_fetch = run_js("(url, ms) => fetch(url, {signal: AbortSignal.timeout(ms)})")


def start_worker(name: str) -> Any:
    """Start the site's module Worker ``js/<name>.js``; its load errors reach ``onerror``."""
    return _make_worker(f"js/{safe_file_name(name)}.js")


async def fetch_bytes(url: str, max_bytes: int = 1 << 28, timeout_ms: int = 60_000) -> bytes:
    """The whole content of an address, taken relative to the page.

    Raises DataError when it is missing, larger than ``max_bytes`` or not here in ``timeout_ms``.
    """
    try:
        response = await _timed_fetch(url, timeout_ms)
        if not response.ok:
            raise DataError(f"{url} could not be loaded (HTTP {response.status}).")
        content = bytearray()
        reader = response.body.getReader()
        while not (part := await reader.read()).done:
            content += part.value.to_bytes()
            if len(content) > max_bytes:
                await reader.cancel()
                raise DataError(f"{url} is larger than the {max_bytes:,} bytes allowed.")
        return bytes(content)
    except JsException as error:
        raise DataError(
            f"{url} could not be loaded ({error.message}).",
            "The connection broke or the server is not there.",
            "Check the connection and try again.",
        ) from error


def page_url() -> str:
    """The address of the page with its query and fragment."""
    return str(js.location.href)


def replace_page_url(url: str) -> None:
    """Show ``url``, of the same origin, as the page's address without loading anything."""
    js.history.replaceState(None, "", url)


def storage_get(key: str) -> str | None:
    """A text kept on this device, or None; also None where the browser withholds storage."""
    try:
        value = js.localStorage.getItem(f"daisychain.{key}")
    except JsException:
        return None
    return value if isinstance(value, str) else None


def storage_set(key: str, value: str) -> bool:
    """Keep a text on this device; False where there is no room or no storage."""
    try:
        js.localStorage.setItem(f"daisychain.{key}", value)
    except JsException:
        return False
    return True


def storage_remove(key: str) -> None:
    """Forget a text; nothing happens when there is none."""
    try:
        js.localStorage.removeItem(f"daisychain.{key}")
    except JsException:
        return


def device_name() -> str:
    """What this device calls itself, in a few words."""
    return describe_user_agent(str(js.navigator.userAgent))


def cpu_count() -> int:
    """Logical processors that the browser admits to; at least 1."""
    return max(1, int(getattr(js.navigator, "hardwareConcurrency", 1) or 1))


def memory_bytes() -> int | None:
    """Memory of the device, roughly, where the browser tells it."""
    gigabytes = getattr(js.navigator, "deviceMemory", None)
    return int(gigabytes * 1e9) if gigabytes else None


def is_visible() -> bool:
    """Whether the page is in the foreground."""
    return bool(js.document.visibilityState == "visible")


def on_page_event(callback: Callable[[str], None]) -> Callable[[], None]:
    """Call back with each of PAGE_EVENTS as it happens; returns a function that ends that."""
    proxy = create_proxy(
        lambda event: callback(
            str(js.document.visibilityState)
            if event.type == "visibilitychange"
            else str(event.type)
        )
    )
    sources = (
        (js.document, ("visibilitychange", "freeze", "resume")),
        (js.window, ("pagehide", "pageshow", "online", "offline")),
    )
    for target, names in sources:
        for name in names:
            target.addEventListener(name, proxy)

    def stop() -> None:
        for target, names in sources:
            for name in names:
                target.removeEventListener(name, proxy)
        proxy.destroy()

    return stop


class WakeLock:
    """Keeps the screen on while wanted, where the browser can; its absence is no error.

    The browser drops the lock whenever the page is hidden, so it is asked for again as soon as
    the page is visible.
    """

    def __init__(self) -> None:
        self._sentinel: Any = None
        self._unsubscribe: Callable[[], None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def held(self) -> bool:
        """Whether the screen is being kept on just now."""
        return self._sentinel is not None and not self._sentinel.released

    async def start(self) -> None:
        """Want the lock from now on."""
        if self._unsubscribe is None:
            self._unsubscribe = on_page_event(self._page_event)
        await self._request()

    async def stop(self) -> None:
        """Want it no more."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        sentinel, self._sentinel = self._sentinel, None
        if sentinel is not None:
            await sentinel.release()

    def _page_event(self, name: str) -> None:
        if name == "visible":
            task = asyncio.ensure_future(self._request())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _request(self) -> None:
        manager = getattr(js.navigator, "wakeLock", None)
        if manager is None or self.held or not is_visible():
            return
        try:
            sentinel = await manager.request("screen")
        except JsException:  # refused: low battery, or hidden in the meantime
            return
        if self._unsubscribe is None:  # stopped while the request was on its way
            await sentinel.release()
        else:
            self._sentinel = sentinel


def save_file(
    name: str, data: bytes | Sequence[memoryview], media_type: str = "application/octet-stream"
) -> None:
    """Offer ``data``, whole or in parts, to the person as a download."""
    parts = [data] if isinstance(data, bytes) else data
    blob = js.Blob.new(to_js([to_js(part) for part in parts]), to_js({"type": media_type}))
    url = js.URL.createObjectURL(blob)
    link = js.document.createElement("a")
    link.href = url
    link.download = safe_file_name(name)
    link.click()
    _revoke_later(url)


def publish_state(state_json: str) -> None:
    """Make a JSON object what ``window.daisychain.state()`` returns."""
    js.daisychain._publish(state_json)


def put_record(index: int, record_json: str) -> None:
    """Make a JSON object the entry ``index``, and the last, of ``window.daisychain.log()``."""
    js.daisychain._record(index, record_json)


def clear_records() -> None:
    """Empty ``window.daisychain.log()``: a new run begins."""
    js.daisychain._clear()


def report_failure(sentence: str, detail: str = "") -> None:
    """Show in the page, and in ``state()``, that the program cannot go on."""
    js.daisychain._fail(sentence, detail)
