"""Run Python of our package inside a real page, without the whole site.

``PyodideSite`` is a local server with a bare page, Pyodide and the package's wheel from a built
site (both compiled, which saves each page seconds), ``app/js`` under ``/js/`` (what needs npm
packages bundled, since import maps do not reach Workers), ``wasm/``, ``webgpu/`` and ``data/`` as
they lie in the repository, and the pairing relay at ``/relay``.
``PyodidePage`` boots it in a page::

    def test_something(chromium, pyodide_site):
        with open_page(chromium, pyodide_site) as page:
            assert page.run("import daisychain; daisychain.__version__") == "0.1.0"

``run`` executes Python source (top-level ``await`` allowed) in one namespace per page and returns
the value of the last expression through JSON; keyword arguments are put into that namespace first.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from aiohttp import web
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, sync_playwright

from tests.browser.engines import launch_chromium
from tools.bootstrap import ensure_node_modules
from tools.relay import add_relay
from tools.site import build_site

ROOT = Path(__file__).resolve().parents[2]
NODE_MODULES = ROOT / "node_modules"
BOOT_TIMEOUT_MS = 90_000
BUNDLED = ("data_worker.js", "qr.js")
IMPORT_MAP = {
    "hyparquet": "/node_modules/hyparquet/src/hyparquet.js",
    "hyparquet-compressors": "/node_modules/hyparquet-compressors/src/index.js",
    "hysnappy": "/node_modules/hysnappy/hysnappy.js",
    "fzstd": "/node_modules/fzstd/esm/index.mjs",
}
BARE_PAGE = """<!doctype html><meta charset="utf-8"><title>bare page</title>
<link rel="icon" href="data:,">
<script type="importmap">{"imports": %s}</script>
<script type="module">
import { loadPyodide } from "/pyodide/pyodide.mjs";
const pyodide = await loadPyodide({ indexURL: "/pyodide/" });
await pyodide.loadPackage("daisychain");
const namespace = pyodide.globals.get("dict")();
const dumps = pyodide.runPython("import json; json.dumps");
window.runPython = async (source, parameters) => {
  namespace.set("_parameters", parameters);
  pyodide.runPython("import json; globals().update(json.loads(_parameters))",
                    { globals: namespace });
  const value = await pyodide.runPythonAsync(source, { globals: namespace });
  const text = dumps(value === undefined ? null : value);
  value?.destroy?.();
  return text;
};
window.pyodide = pyodide;
window.booted = true;
</script>
"""


class PyodideSite:
    """The local server, on its own thread and event loop; ``stop`` ends both."""

    def __init__(self, site: Path, port: int = 0) -> None:
        self._site, self._port = site, port
        self._relay_on = True
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._ready.wait()
        self.url = f"http://127.0.0.1:{self._port}/"

    @property
    def relay_url(self) -> str:
        """Address of the pairing relay of this server."""
        return f"ws://127.0.0.1:{self._port}/relay"

    def set_relay(self, on: bool) -> None:
        """Kill the relay with all its connections, or bring it back; the pages stay served."""
        self._relay_on = on
        if not on:
            closing = self._relay.close(web.Application())
            asyncio.run_coroutine_threadsafe(closing, self._loop).result()

    def stop(self) -> None:
        """Close all connections and end the server."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=1.0)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", self._port)
        self._loop.run_until_complete(site.start())
        self._port = runner.addresses[0][1]
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    @web.middleware
    async def _gate(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path == "/relay" and not self._relay_on:
            raise web.HTTPServiceUnavailable
        return await handler(request)

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._gate])
        self._relay = add_relay(app)
        app.router.add_get("/", _serve_page)
        for name in BUNDLED:
            app.router.add_get(f"/js/{name}", _serve_bundle)
        folders = {
            "/pyodide": self._site / "pyodide",
            "/wheels": self._site / "wheels",
            "/node_modules": NODE_MODULES,
            "/js": ROOT / "app/js",
            "/wasm": ROOT / "wasm",
            "/webgpu": ROOT / "webgpu",
            "/data": ROOT / "data",
        }
        for prefix, folder in folders.items():
            if folder.is_dir():
                app.router.add_static(prefix, folder)
        return app


async def _serve_page(_request: web.Request) -> web.Response:
    return web.Response(text=BARE_PAGE % json.dumps(IMPORT_MAP), content_type="text/html")


async def _serve_bundle(request: web.Request) -> web.Response:
    """esbuild's bundle of a script with its npm packages, made at request time."""
    process = await asyncio.create_subprocess_exec(
        NODE_MODULES / ".bin/esbuild",
        ROOT / "app/js" / request.path.rpartition("/")[2],
        "--bundle",
        "--format=esm",
        "--log-level=error",
        stdout=asyncio.subprocess.PIPE,
    )
    script, _ = await process.communicate()
    return web.Response(body=script, content_type="text/javascript")


class PyodidePage:
    """A booted bare page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def run(self, source: str, **parameters: object) -> Any:
        """Run Python source in the page; the last expression's value, through JSON."""
        text = self.page.evaluate(
            "([source, parameters]) => window.runPython(source, parameters)",
            [source, json.dumps(parameters)],
        )
        return json.loads(text)

    def start(self, source: str, **parameters: object) -> None:
        """Like ``run`` but does not wait for the end; errors land in ``errors``."""
        self.page.evaluate(
            "([source, parameters]) => { window.runPython(source, parameters); }",
            [source, json.dumps(parameters)],
        )


def boot(context: BrowserContext, site: PyodideSite) -> PyodidePage:
    """Open the bare page in a context and wait until Python runs there."""
    page = context.new_page()
    booting = PyodidePage(page)
    page.goto(site.url)
    page.wait_for_function("window.booted === true", timeout=BOOT_TIMEOUT_MS)
    return booting


@contextmanager
def open_page(browser: Browser, site: PyodideSite) -> Iterator[PyodidePage]:
    """A booted page in a context of its own, closed at the end."""
    context = browser.new_context()
    try:
        yield boot(context, site)
    finally:
        context.close()


@contextmanager
def fresh_site() -> Iterator[PyodideSite]:
    """A server of a site that is built now, for measurements."""
    with TemporaryDirectory() as folder:
        build_site(ensure_node_modules().node, Path(folder))
        server = PyodideSite(Path(folder))
        yield server
        server.stop()


@pytest.fixture(scope="session")
def playwright_driver() -> Iterator[Playwright]:
    """The one Playwright driver of the test run (its synchronous face allows only one)."""
    with sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="session")
def chromium(playwright_driver: Playwright) -> Iterator[Browser]:
    """The shared Chromium process."""
    browser = launch_chromium(playwright_driver)
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def pyodide_site(site: Path) -> Iterator[PyodideSite]:
    """The shared local server."""
    server = PyodideSite(site)
    yield server
    server.stop()
