"""A press on the offer isolates the page, and the CPU player then takes several Workers."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

pytestmark = pytest.mark.browser
BOOT_TIMEOUT_MS = 60_000
READY = "() => window.daisychain?.state().phase === 'idle'"


def test_the_page_isolates_itself_when_asked(page: Page, server: str) -> None:
    page.goto(server)
    page.wait_for_function(READY, timeout=BOOT_TIMEOUT_MS)
    assert page.evaluate("crossOriginIsolated") is False
    page.get_by_role("button", name="Use all").click()
    page.wait_for_function("() => crossOriginIsolated", timeout=BOOT_TIMEOUT_MS)
    page.wait_for_function(READY, timeout=BOOT_TIMEOUT_MS)
    assert page.get_by_role("button", name="Use all").count() == 0
    assert page.get_by_role("button", name="Train solo").is_visible()
