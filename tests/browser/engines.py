"""The three browser engines that tests drive.

Chromium through Playwright (fixtures ``chromium`` and ``page``), Firefox through Node and
puppeteer-core (``run_firefox``), WebKitGTK through Selenium (``run_webkit``).  None of them may
reach another host than this machine; Firefox and WebKitGTK reach nothing from a page of the disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Playwright
from selenium import webdriver
from selenium.common.exceptions import JavascriptException
from selenium.webdriver.webkitgtk.options import Options
from selenium.webdriver.webkitgtk.service import Service

from tests.requirements import require
from tools import browsers
from tools.bootstrap import ensure_node

CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
)

FIREFOX_DRIVER = Path(__file__).with_name("firefox.mjs")
WEBKIT_POLL_S = 0.1


def launch_chromium(driver: Playwright, *flags: str) -> Browser:
    """One more Chromium process with the project's flags."""
    path = require("Chromium", browsers.find_chromium)
    return driver.chromium.launch(
        executable_path=path, args=[*CHROMIUM_FLAGS, *flags], headless=True
    )


def run_firefox(url: str, expression: str, timeout_s: float = 60.0) -> Any:
    """Open ``url`` in headless Firefox; the first truthy value of a JavaScript expression there.

    The expression may be a promise; its value comes back through JSON.  Raises AssertionError with
    the page's console when it stays falsy for ``timeout_s``.
    """
    firefox = require("Firefox", browsers.find_firefox)
    require("Mesa's lavapipe", browsers.find_lavapipe)
    node = ensure_node().node
    done = subprocess.run(
        [node, FIREFOX_DRIVER, firefox, url, expression, str(timeout_s)],
        capture_output=True,
        text=True,
        timeout=timeout_s + 60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_webkit(url: str, expression: str, timeout_s: float = 60.0) -> Any:
    """Open ``url`` in WebKitGTK; the first truthy value of a synchronous JavaScript expression."""
    with webkit(is_offline=url.startswith("file:")) as driver:
        driver.get(url)
        deadline = time.monotonic() + timeout_s
        failure = "it stayed falsy"
        while time.monotonic() < deadline:
            try:
                if value := driver.execute_script(f"return ({expression});"):
                    return value
            except JavascriptException as error:  # what it asks for is not there yet
                failure = str(error)
            time.sleep(WEBKIT_POLL_S)
        raise AssertionError(f"{expression} in WebKitGTK after {timeout_s} s: {failure}")


@contextmanager
def webkit(is_offline: bool = False) -> Iterator[webdriver.WebKitGTK]:
    """A WebKitGTK browser on a virtual screen; offline, all its requests go to a dead proxy."""
    path = require("WebKitGTK's WebDriver", browsers.find_webkit_driver)
    options = Options()
    options.binary_location = str(require("MiniBrowser", browsers.find_minibrowser))
    options.add_argument("--automation")
    if is_offline:
        options.add_argument("--proxy=http://127.0.0.1:9")
    with virtual_screen() as display:
        service = Service(executable_path=str(path), env={**os.environ, "DISPLAY": display})
        driver = webdriver.WebKitGTK(options=options, service=service)
        try:
            yield driver
        finally:
            driver.quit()


@contextmanager
def virtual_screen() -> Iterator[str]:
    """An X server without a screen; yields its DISPLAY."""
    path = require("Xvfb", browsers.find_xvfb)
    read_end, write_end = os.pipe()
    server = subprocess.Popen(
        [path, "-displayfd", str(write_end), "-screen", "0", "1280x900x24", "-nolisten", "tcp"],
        pass_fds=(write_end,),
        stderr=subprocess.DEVNULL,
    )
    os.close(write_end)
    try:
        with os.fdopen(read_end) as answer:
            yield f":{answer.readline().strip()}"
    finally:
        server.terminate()
        server.wait()
