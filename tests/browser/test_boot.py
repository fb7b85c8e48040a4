"""The start of the built site: it comes up, and every way to break it is put into words."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Request, Route

from tests.servers import plain_server

BOOT_TIMEOUT_MS = 60_000
STARTED = "window.daisychain && daisychain.state().phase !== 'boot'"


def started_state(page: Page, url: str) -> dict[str, Any]:
    """Open the site and wait until it is no longer booting."""
    page.goto(url, wait_until="commit")
    page.wait_for_function(STARTED, timeout=BOOT_TIMEOUT_MS)
    state: dict[str, Any] = page.evaluate("daisychain.state()")
    return state


@pytest.fixture
def copied_site(site: Path, tmp_path: Path) -> Path:
    """A copy of the site, by hard links, in which a test may remove and add files."""
    return shutil.copytree(site, tmp_path / "copy", copy_function=os.link)


def test_boots_from_a_plain_server_under_a_sub_path(page: Page, site: Path, tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some/place").symlink_to(site)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    with plain_server(tmp_path) as url:
        state = started_state(page, f"{url}some/place/")
        assert state["phase"] not in ("boot", "error"), state
        assert page.is_hidden("#boot")
        home = f"{url}some/place/"
        assert [address for address in requests if not address.startswith((home, "data:"))] == []
        assert page.evaluate("[crossOriginIsolated, navigator.onLine]")[0] is False


def test_state_and_log_answer_before_python_runs(page: Page, server: str) -> None:
    page.route("**/main.py", lambda route: None)  # Python cannot begin while the test looks
    page.goto(server, wait_until="commit")
    page.wait_for_function("window.daisychain")
    assert page.evaluate("daisychain.state().phase") == "boot"
    assert page.evaluate("daisychain.log()") == []
    assert page.is_visible("#boot-text")
    page.evaluate("daisychain.state().phase = 'train'; window.daisychain.state = null")
    assert page.evaluate("daisychain.state().phase") == "boot"


IMPORT_ALL = """
import importlib, json, pkgutil
import daisychain, js

names = [module.name for module in pkgutil.walk_packages(daisychain.__path__, "daisychain.")]
failed = []
for name in names:
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed.append(f"{name}: {error}")
js.daisychain._publish(json.dumps({"phase": "idle", "names": names, "failed": failed}))
"""


def test_every_module_of_the_wheel_imports_in_the_page(page: Page, copied_site: Path) -> None:
    """With the part of the standard library that the site ships, and without NumPy."""
    (copied_site / "main.py").unlink()
    (copied_site / "main.py").write_text(IMPORT_ALL)
    with plain_server(copied_site) as url:
        state = started_state(page, url)
    assert len(state["names"]) > 30
    assert state["failed"] == []


def remove(name: str) -> Callable[[Path], None]:
    """Break a site by deleting the file that matches ``name``."""

    def break_site(site: Path) -> None:
        (path,) = site.glob(name)
        path.unlink()

    return break_site


def truncate(name: str) -> Callable[[Path], None]:
    """Break a site by halving the file that matches ``name``."""

    def break_site(site: Path) -> None:
        (path,) = site.glob(name)
        half = path.read_bytes()[: path.stat().st_size // 2]
        path.unlink()  # it is a link to the file of the whole site
        path.write_bytes(half)

    return break_site


def alter_lock(site: Path) -> None:
    """Break a site as an old cached lock file would: the wheel's checksum is another one."""
    path = site / "pyodide/pyodide-lock.json"
    lock = json.loads(path.read_text())
    lock["packages"]["daisychain"]["sha256"] = "0" * 64
    path.unlink()
    path.write_text(json.dumps(lock))


@pytest.mark.parametrize(
    ("break_site", "blamed"),
    [
        pytest.param(remove("pyodide/pyodide-lock.json"), "pyodide/pyodide-lock.json", id="lock"),
        pytest.param(alter_lock, "pyodide/pyodide-lock.json", id="stale-checksum"),
        pytest.param(remove("wheels/*.whl"), "wheels/daisychain", id="wheel"),
        pytest.param(truncate("pyodide/pyodide.asm.wasm"), "pyodide/pyodide.asm.wasm", id="wasm"),
        pytest.param(remove("pyodide/pyodide.mjs"), "pyodide/pyodide.mjs", id="pyodide"),
        pytest.param(truncate("pyodide/python_stdlib.zip"), "pyodide/python_stdlib.zip", id="lib"),
        pytest.param(remove("pyscript/core.js"), "pyscript/core.js", id="pyscript"),
        pytest.param(remove("pyscript/core-*.js"), "pyscript/core-", id="pyscript-part"),
        pytest.param(remove("pyscript.toml"), "pyscript.toml", id="configuration"),
        pytest.param(remove("main.py"), "main.py", id="main"),
        pytest.param(remove("boot.json"), "boot.json", id="manifest"),
        pytest.param(remove("js/boot.js"), "js/boot.js", id="boot-script"),
    ],
)
def test_a_broken_site_says_which_file(
    page: Page, copied_site: Path, break_site: Callable[[Path], None], blamed: str
) -> None:
    break_site(copied_site)
    with plain_server(copied_site) as url:
        page.goto(url, wait_until="commit")
        page.wait_for_function(
            "name => document.querySelector('#boot-text')?.textContent.includes(name)",
            arg=blamed,
            timeout=BOOT_TIMEOUT_MS,
        )
        assert page.is_visible("#boot-text")
        if blamed != "js/boot.js":
            state = page.evaluate("daisychain.state()")
            assert state["phase"] == "error"
            assert blamed in state["error"]
            assert page.get_by_role("alert").get_by_role("button", name="Reload").is_visible()


def is_question(request: Request) -> bool:
    """Whether the page only asks if a file is there."""
    return request.method == "HEAD"


@pytest.mark.parametrize("server_answers", [False, True])
def test_a_file_that_never_arrives_is_noticed(
    page: Page, server: str, server_answers: bool
) -> None:
    """The download hangs; asked for the file alone, the server answers or does not."""

    def hang(route: Route) -> None:
        if route.request.method == "HEAD":
            route.continue_() if server_answers else route.abort()

    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request) if is_question(request) else None)
    for answered in ("requestfinished", "requestfailed"):
        page.on(answered, lambda request: asked.remove(request) if request in asked else None)
    page.route("**/pyodide.asm.wasm*", hang)
    page.clock.install()
    page.goto(server, wait_until="commit")
    with page.expect_request("**/pyodide.asm.wasm"):
        page.wait_for_function("window.daisychain")
    page.clock.run_for(26_000)
    if server_answers:
        page.wait_for_function("document.querySelector('#boot-text').textContent.includes('slow')")
        assert page.evaluate("daisychain.state().phase") == "boot"
        for _ in range(40):  # in steps: the clock also drives the limit on each question
            page.clock.run_for(5_000)
            page.wait_for_timeout(50)
            for _ in range(600):
                if not asked:
                    break
                page.wait_for_timeout(50)
    page.wait_for_function("daisychain.state().phase === 'error'")
    sentence = page.evaluate("daisychain.state().error")
    assert ("takes too long" if server_answers else "pyodide.asm.wasm") in sentence
    assert page.inner_text("#boot-text") == sentence


def test_a_browser_without_webassembly_is_told_so(page: Page, server: str) -> None:
    page.add_init_script("delete globalThis.WebAssembly")
    state = started_state(page, server)
    assert state["phase"] == "error"
    assert "WebAssembly" in state["error"]
    assert page.inner_text("#boot-text") == state["error"]


def test_a_program_that_raises_is_put_into_words(page: Page, copied_site: Path) -> None:
    (copied_site / "main.py").unlink()
    (copied_site / "main.py").write_text("raise ValueError('no such thing')")
    manifest = json.loads((copied_site / "boot.json").read_text())
    manifest["files"] = [file for file in manifest["files"] if file["path"] != "main.py"]
    (copied_site / "boot.json").unlink()
    (copied_site / "boot.json").write_text(json.dumps(manifest))
    with plain_server(copied_site) as url:
        page.goto(url, wait_until="commit")
        page.wait_for_function(
            "window.daisychain?.state().phase === 'error'", timeout=BOOT_TIMEOUT_MS
        )
        assert "could not be started" in page.inner_text("#boot-text")
        assert "no such thing" in page.text_content("#boot details pre")


def test_opened_as_a_file_it_says_what_to_do(page: Page, site: Path) -> None:
    page.goto((site / "index.html").as_uri(), wait_until="commit")
    page.wait_for_function(STARTED)
    assert "python3 -m http.server" in page.inner_text("#boot-text")
