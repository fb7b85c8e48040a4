"""Makes docs/training.png: the built site after a run of nano, as Chromium shows it.

.venv/bin/python -m scripts.make_screenshot
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.servers import running_app
from tools.bootstrap import ROOT, ensure_node_modules
from tools.browsers import find_chromium
from tools.server import make_app
from tools.site import build_site

LINK = "?start=solo&preset=nano&steps=300&seed=1&eval_every=25"
TIMEOUT_MS = 1_200_000


def main() -> None:
    """Train in the page and save its picture."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        build_site(ensure_node_modules().node, Path(folder))
        browser = driver.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        with running_app(make_app(Path(folder))) as url:
            page.goto(url + LINK)
            page.locator("#phase", has_text="Finished").wait_for(timeout=TIMEOUT_MS)
            page.screenshot(path=ROOT / "docs/training.png")
        browser.close()


if __name__ == "__main__":
    main()
