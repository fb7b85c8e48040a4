"""What holds for all tests: which of them drive a browser, and the built site."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.browser.pyodide_page import chromium, playwright_driver, pyodide_site
from tools.bootstrap import ensure_node_modules
from tools.site import build_site

IS_LONG = bool(os.environ.get("DAISYCHAIN_LONG_RUNS"))
"""Look for new examples and run every step; else the same examples each time, and fewer steps."""

# Busy machines are no failures: no test has a deadline for an example.
settings.register_profile("patient", deadline=None, derandomize=not IS_LONG)
settings.load_profile("patient")

# Here and nowhere else: a process can run only one driver of Playwright.
__all__ = ["chromium", "playwright_driver", "pyodide_site"]

SITE_VARIABLE = "DAISYCHAIN_SITE"
"""``build.py test`` names the site here that it has built for all processes."""

BROWSER_TESTS = Path(__file__).with_name("browser")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything under tests/browser for ``-m "not browser"``; put Playwright's files last."""
    for item in items:
        if item.path.is_relative_to(BROWSER_TESTS):
            item.add_marker(pytest.mark.browser)
    # Playwright's driver keeps an event loop running in this thread until the end, and asyncio.run
    # refuses to work beside it: files that use the driver come last.  Whole files, since each of
    # the processes of ``build.py test`` takes whole files.
    driving = {item.path for item in items if "playwright_driver" in _fixtures(item)}
    # Slow files first among them, so that no process ends long after the others.
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path in driving, item.path not in slow))


def _fixtures(item: pytest.Item) -> tuple[str, ...]:
    return tuple(getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The static site as ``build.py site`` writes it, built once; tests must not change it."""
    if built := os.environ.get(SITE_VARIABLE):
        return Path(built)
    folder = tmp_path_factory.mktemp("site")
    build_site(ensure_node_modules().node, folder)
    return folder
