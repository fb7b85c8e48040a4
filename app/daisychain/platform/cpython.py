"""The platform in CPython: files for the site, memory for the storage, no page.

``published`` holds what a page would show, and ``simulate_page_event`` plays the part of the
browser, so that everything above the platform can be tested without one.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daisychain.errors import DataError, DeviceError
from daisychain.platform.common import safe_file_name

SITE_ROOT = Path(__file__).resolve().parents[3]
"""Where relative addresses are looked up: the repository has the site's folders, such as data/."""


@dataclass
class Published:
    """What a page would show."""

    state: dict[str, Any] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


published = Published()
_storage: dict[str, str] = {}
_listeners: list[Callable[[str], None]] = []
_page = {"url": "http://localhost/", "visibility": "visible"}


def simulate_page_event(name: str) -> None:
    """Tell all listeners what a browser would tell them."""
    if name in ("visible", "hidden"):
        _page["visibility"] = name
    for callback in tuple(_listeners):
        callback(name)


def start_worker(name: str) -> Any:
    """There is no JavaScript here: raises DeviceError."""
    raise DeviceError(f"The worker {name} needs a browser.", do="Run it in the page.")


async def fetch_bytes(url: str, max_bytes: int = 1 << 28, timeout_ms: int = 60_000) -> bytes:
    """The content of an http address, or of a file relative to the repository's root.

    Raises DataError when it is missing, larger than ``max_bytes`` or not here in ``timeout_ms``.
    """
    content = await asyncio.to_thread(_read, url, max_bytes + 1, timeout_ms / 1000.0)
    if len(content) > max_bytes:
        raise DataError(f"{url} is larger than the {max_bytes:,} bytes allowed.")
    return content


def _read(url: str, size_bytes: int, timeout_s: float) -> bytes:
    try:
        if url.startswith(("http://", "https://")):
            with urllib.request.urlopen(url, timeout=timeout_s) as response:
                return bytes(response.read(size_bytes))
        path = (SITE_ROOT / url).resolve()
        if not path.is_relative_to(SITE_ROOT):
            raise DataError(f"{url} lies outside the site.")
        with path.open("rb") as file:
            return file.read(size_bytes)
    except urllib.error.HTTPError as error:
        raise DataError(f"{url} could not be loaded (HTTP {error.code}).") from error
    except OSError as error:
        raise DataError(f"{url} could not be loaded ({error}).") from error


def page_url() -> str:
    """The address of the page with its query and fragment."""
    return _page["url"]


def replace_page_url(url: str) -> None:
    """Take ``url`` as the page's address."""
    _page["url"] = url


def storage_get(key: str) -> str | None:
    """A text kept on this device, or None."""
    return _storage.get(key)


def storage_set(key: str, value: str) -> bool:
    """Keep a text for the life of the process."""
    _storage[key] = value
    return True


def storage_remove(key: str) -> None:
    """Forget a text; nothing happens when there is none."""
    _storage.pop(key, None)


def device_name() -> str:
    """What this device calls itself, in a few words."""
    return f"Python {platform.python_version()} on {platform.system()}"


def cpu_count() -> int:
    """Logical processors; at least 1."""
    return os.cpu_count() or 1


def memory_bytes() -> int | None:
    """Memory of the device: not known."""
    return None


def is_visible() -> bool:
    """Whether the page is in the foreground."""
    return _page["visibility"] == "visible"


def on_page_event(callback: Callable[[str], None]) -> Callable[[], None]:
    """Call back with each of PAGE_EVENTS as it happens; returns a function that ends that."""
    _listeners.append(callback)
    return lambda: _listeners.remove(callback)


class WakeLock:
    """There is no screen to keep on: never held."""

    @property
    def held(self) -> bool:
        """Whether the screen is being kept on just now."""
        return False

    async def start(self) -> None:
        """Want the lock from now on."""

    async def stop(self) -> None:
        """Want it no more."""


def save_file(
    name: str, data: bytes | Sequence[memoryview], media_type: str = "application/octet-stream"
) -> None:
    """Write ``data``, whole or in parts, into the current folder."""
    with Path(safe_file_name(name)).open("wb") as file:
        file.writelines([data] if isinstance(data, bytes) else data)


def publish_state(state_json: str) -> None:
    """Make a JSON object what ``published.state`` holds."""
    published.state = json.loads(state_json)


def put_record(index: int, record_json: str) -> None:
    """Make a JSON object the entry ``index``, and the last, of ``published.log``."""
    published.log[index:] = [json.loads(record_json)]


def clear_records() -> None:
    """Empty ``published.log``: a new run begins."""
    published.log.clear()


def report_failure(sentence: str, detail: str = "") -> None:
    """Record that the program cannot go on."""
    published.failures.append(sentence)
