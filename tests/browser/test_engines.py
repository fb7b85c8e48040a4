"""The engines themselves: each opens a trivial page of ours and answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Error, Page

from tests.browser.engines import run_firefox, run_webkit
from tests.servers import plain_server

TRIVIAL = "<!doctype html><title>trivial</title><script>window.answer = 6 * 7</script>"


@pytest.fixture(scope="module")
def trivial_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("trivial")
    (folder / "index.html").write_text(TRIVIAL)
    with plain_server(folder) as url:
        yield url


def test_chromium_reaches_this_machine_and_no_other(page: Page, trivial_page: str) -> None:
    page.goto(trivial_page)
    assert page.evaluate("window.answer") == 42
    with pytest.raises(Error, match="ERR_NAME_NOT_RESOLVED"):
        page.goto("http://example.invalid/")


def test_firefox_reports_what_never_comes(trivial_page: str) -> None:
    with pytest.raises(AssertionError, match=r"(?i)timeout|exceeded"):
        run_firefox(trivial_page, "window.never", 1)


def test_webkit(trivial_page: str) -> None:
    assert run_webkit(trivial_page, "({answer: window.answer})", 30) == {"answer": 42}
