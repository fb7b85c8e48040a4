"""The page's own files in Chromium: kept over a reload, whole or not at all, out of room."""

from __future__ import annotations

from playwright.sync_api import Browser

from tests.browser.pyodide_page import (
    BOOT_TIMEOUT_MS,
    PyodidePage,
    PyodideSite,
    boot,
    open_page,
)

WRITE = """
from daisychain.platform.files import KeepError, kept_files
files = kept_files()
async def attempt(name, *parts):
    try:
        await files.write(name, [memoryview(part) for part in parts])
        return "kept"
    except KeepError as error:
        return f"{error.is_full} {error}"
"""


def test_files_outlive_the_page(chromium: Browser, pyodide_site: PyodideSite) -> None:
    with open_page(chromium, pyodide_site) as page:
        page.run(WRITE)
        assert page.run("await attempt('a.zip', b'hello ', b'', bytes(range(256)))") == "kept"
        assert page.run("await attempt('a.zip', b'again ', bytes(300_000))") == "kept"
        page.page.reload()
        page.page.wait_for_function("window.booted === true", timeout=BOOT_TIMEOUT_MS)
        page.run(WRITE)
        assert page.run("await files.sizes()") == {"a.zip": 300_006}
        assert page.run("(await files.read('a.zip'))[:7].hex()") == b"again \0".hex()

        page.page.context.new_cdp_session(page.page).send(
            "Storage.overrideQuotaForOrigin", {"origin": pyodide_site.url, "quotaSize": 1_000_000}
        )
        refused = page.run("await attempt('b.zip', bytes(900_000))")
        assert refused.startswith("True The browser has no room")
        assert page.run("await files.sizes()") == {"a.zip": 300_006}

        page.run("await files.remove('a.zip'); await files.remove('a.zip')")
        assert page.run("await files.sizes()") == {}
        missing = "from daisychain.errors import DataError\ntry:\n  found = await files.read('x')\n"
        assert page.run(missing + "except DataError as e:\n  found = str(e)\nfound") == (
            "The save x is not there any more."
        )

        page.page.evaluate("() => { delete FileSystemFileHandle.prototype.createWritable; }")
        assert "keeps no files" in page.run("await attempt('a.zip', b'x')")
        page.page.evaluate("() => { delete StorageManager.prototype.getDirectory; }")
        assert "keeps no files" in page.run("await attempt('a.zip', b'x')")


def test_a_checkpoint_through_the_browsers_files(data_page: PyodidePage) -> None:
    """The package's pure Python on the page's interpreter: write, keep, list, load."""
    page = data_page
    page.run(
        """
from array import array
from daisychain.data.byte_pairs import byte_alphabet
from daisychain.export.checkpoint import Checkpoint, Run
from daisychain.export.saves import Saves
from daisychain.model.config import ModelConfig, parameters
from daisychain.model.llama import moment_buffers, weight_buffer
from daisychain.platform.files import kept_files
from daisychain.platform.tabs import page_tabs
from daisychain.settings import resolve
import json, time

settings = resolve({"width": 64, "layers": 1, "heads": 2, "context": 16, "batch": 2})
config = ModelConfig(64, 1, 2, 2, settings.hidden, 16, 16001)
buffers = {}
for p in parameters(config):
    for name in (weight_buffer(p.name), *moment_buffers(p.name)):
        buffers[name] = memoryview(array("f", [0.5]) * p.count).cast("B")
names = ["<|endoftext|>", *byte_alphabet()]
tokenizer = {
    "added_tokens": [{"id": 0, "content": names[0]}],
    "model": {"type": "BPE", "vocab": {n: i for i, n in enumerate(names)}, "merges": []},
}
run = Run(settings, 7, "ab" * 16, {"source": "x"}, [{"step": 1, "loss": 2.0}])
before = Checkpoint(config, buffers, json.dumps(tokenizer).encode(), (0, names[0]), run)
saves = Saves(kept_files(), time.time, page_tabs())
"""
    )
    page.run("await saves.keep(before); await saves.keep(before)")
    assert page.run("[(s.step, s.bytes) for s in await saves.listed()]")[0][0] == 7
    assert page.run("await saves.load((await saves.listed())[0]) == before") is True
    assert page.errors == []


def test_tabs_hear_of_each_other_and_take_turns(
    chromium: Browser, pyodide_site: PyodideSite
) -> None:
    with open_page(chromium, pyodide_site) as first:
        second = boot(first.page.context, pyodide_site)
        for page in (first, second):
            page.run("from daisychain.platform.tabs import page_tabs; tabs = page_tabs()")
            assert page.run("sorted(await tabs.others())") == []
        assert second.run("await tabs.announce(); await tabs.announce(); True")
        (name,) = first.run("sorted(await tabs.others())")
        assert second.run("[tabs.me, sorted(await tabs.others())]") == [name, []]

        first.run("turn = tabs.turn(); await turn.__aenter__()")
        second.run(
            "import asyncio\nfrom daisychain.platform import tabs as module\n"
            "from daisychain.platform.files import KeepError\nmodule.TURN_LIMIT_MS = 200\n"
            "async def attempt():\n    try:\n        async with tabs.turn():\n"
            "            return 'inside'\n    except KeepError as error:\n        return str(error)"
        )
        assert second.run("await attempt()").startswith("Another tab of this browser")
        second.run("module.TURN_LIMIT_MS = 60_000; waiting = asyncio.ensure_future(attempt())")
        assert second.run("await asyncio.sleep(0.1); waiting.done()") is False
        first.run("await turn.__aexit__(None, None, None)")
        assert second.run("await waiting") == "inside"
        assert first.run("async with tabs.turn():\n    inside = True\ninside") is True

        second.page.close()
        gone = "while await tabs.others():\n    await asyncio.sleep(0.02)\nTrue"
        assert first.run(f"import asyncio\n{gone}") is True
        first.page.evaluate("() => { delete Navigator.prototype.locks; }")
        assert (
            first.run("async with tabs.turn():\n    others = await tabs.others()\nlen(others)") == 0
        )
