"""Fixtures of all tests that drive a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.pyodide_page import (
    PyodidePage,
    PyodideSite,
    open_page,
)
from tests.servers import running_app
from tools.server import make_app

expect.set_options(timeout=30_000)  # a busy machine is no failure


@pytest.fixture(scope="session")
def server(site: Path) -> Iterator[str]:
    """Address of the site on the project's own server, with the relay at ``relay``."""
    with running_app(make_app(site)) as url:
        yield url


@pytest.fixture(scope="session")
def data_page(chromium: Browser, pyodide_site: PyodideSite) -> Iterator[PyodidePage]:
    """One booted bare page for all tests of the data Worker."""
    with open_page(chromium, pyodide_site) as page:
        yield page


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A fresh page of Chromium in a context of its own."""
    context = chromium.new_context()
    yield context.new_page()
    context.close()
