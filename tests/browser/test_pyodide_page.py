"""The bare-page fixture itself."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Error

from tests.browser.pyodide_page import PyodideSite, open_page

pytestmark = pytest.mark.browser


def test_package_runs_in_a_page(chromium: Browser, pyodide_site: PyodideSite) -> None:
    with open_page(chromium, pyodide_site) as page:
        assert page.run("import daisychain, sys\n[sys.platform, daisychain.__version__]") == [
            "emscripten",
            "0.1.0",
        ]
        page.run("kept = number + 1", number=41)
        assert page.run("kept") == 42
        with pytest.raises(Error, match="ZeroDivisionError"):
            page.run("1 / 0")
