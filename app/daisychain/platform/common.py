"""What both faces of the platform share: resources, clock, and the reading of addresses."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from daisychain.errors import DataError

PAGE_EVENTS = ("visible", "hidden", "freeze", "resume", "pagehide", "pageshow", "online", "offline")
"""What a page can go through, as told to the callbacks of ``on_page_event``.

``freeze`` and ``resume`` come only from browsers with the page lifecycle API; ``pagehide`` is the
last event that is sure to arrive before a tab goes away.
"""

MAX_PARAMETERS = 100
"""More URL parameters than this are cut off: a link is input from strangers."""


def read_resource(name: str) -> bytes:
    """A data file of the package, such as ``"webgpu/gemm3.wgsl"``.

    In a source tree, where the wheel's layout does not exist yet, the same path is taken from the
    repository's root.  Raises DataError when there is no such file.
    """
    parts = name.split("/")
    if not all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", part) for part in parts):
        raise DataError(f"{name!r} is no name of a packaged file.")
    packaged = resources.files("daisychain").joinpath(*parts)
    if packaged.is_file():
        return packaged.read_bytes()
    in_source_tree = Path(__file__).resolve().parents[3].joinpath(*parts)
    if in_source_tree.is_file():
        return in_source_tree.read_bytes()
    raise DataError(
        f"The file {name} is missing from the package.",
        "The site was built or copied incompletely.",
        "Build it again: python3 build.py site.",
    )


def monotonic_ms() -> float:
    """Milliseconds on a clock that never goes back; only differences mean anything."""
    return time.perf_counter() * 1000.0


async def sleep_ms(duration_ms: float) -> None:
    """Let other tasks and the page work for at least so long; 0 only yields."""
    await asyncio.sleep(duration_ms / 1000.0)


@dataclass(frozen=True)
class PageParameters:
    """The settings that stand in the page's address, of each name the last one."""

    query: Mapping[str, str]
    fragment: Mapping[str, str]


def parse_page_url(url: str) -> PageParameters:
    """The parameters behind ``?`` and behind ``#`` of a page address."""
    parts = urlsplit(url)

    def pairs(text: str) -> dict[str, str]:
        # Cut before parsing: parse_qsl's own limit raises instead.
        fields = "&".join(text.split("&", MAX_PARAMETERS)[:MAX_PARAMETERS])
        return dict(parse_qsl(fields, keep_blank_values=True, errors="replace"))

    return PageParameters(pairs(parts.query), pairs(parts.fragment))


def safe_file_name(name: str) -> str:
    """A name for a download: no folders, no odd characters, never empty."""
    kept = re.sub(r"[^A-Za-z0-9._-]+", "_", name.replace("\\", "/").rsplit("/", 1)[-1])
    return kept.lstrip(".")[:120] or "download"


BROWSERS = (  # more special names first: nearly every browser also calls itself Safari
    ("Edge", r"Edg(?:e|A|iOS)?/(\d+)"),
    ("Opera", r"OPR/(\d+)"),
    ("Samsung Internet", r"SamsungBrowser/(\d+)"),
    ("Firefox", r"(?:Firefox|FxiOS)/(\d+)"),
    ("Chrome", r"(?:Chrome|Chromium|HeadlessChrome|CriOS)/(\d+)"),
    ("Safari", r"Version/(\d+)[^ ]* (?:Mobile/\w+ )?Safari"),
)

SYSTEMS = (
    ("Android", r"Android"),
    ("iPhone", r"iPhone"),
    ("iPad", r"iPad"),
    ("ChromeOS", r"CrOS"),
    ("Windows", r"Windows"),
    ("macOS", r"Macintosh|Mac OS X"),
    ("Linux", r"Linux|X11"),
)


def describe_user_agent(user_agent: str) -> str:
    """A short name for people, such as ``"Chrome 156 on Android"``, from a User-Agent text."""
    text = user_agent[:1000]
    browser = "Browser"
    for name, pattern in BROWSERS:
        if match := re.search(pattern, text):
            browser = f"{name} {match[1]}"
            break
    system = next((name for name, pattern in SYSTEMS if re.search(pattern, text)), "")
    return f"{browser} on {system}" if system else browser
