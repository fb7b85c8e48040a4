"""The data Worker in three engines: the same ids, and ranges from other origins."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.engines import run_firefox, run_webkit
from tests.data.hub import Hub, running_hub
from tests.data.lines import all_lines, mixtures
from tests.data.parquet_files import prose, write_parquet
from tests.data.reference import ROOT, read_tokenizer
from tests.servers import plain_server

FILE = "owner/name/main/train.parquet"
ROWS = 10


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("hub")
    write_parquet(root / FILE, prose(40, 5), codec="zstd", row_group_rows=ROWS)
    with running_hub(root) as hub:
        yield hub


@pytest.fixture(scope="module")
def engine_site(tmp_path_factory: pytest.TempPathFactory, hub: Hub) -> Iterator[str]:
    """A folder with the bundled Worker, the tokenizer and the cases."""
    folder = tmp_path_factory.mktemp("engines")
    esbuild = [ROOT / "node_modules/.bin/esbuild", ROOT / "app/js/data_worker.js", "--bundle"]
    subprocess.run(
        [*esbuild, "--format=esm", "--log-level=error", f"--outfile={folder / 'data_worker.js'}"],
        check=True,
    )
    shutil.copy(ROOT / "data/tokenizer.json", folder)
    shutil.copy(Path(__file__).with_name("data_engines.html"), folder / "index.html")
    rust, _ = read_tokenizer((ROOT / "data/tokenizer.json").read_text(encoding="utf-8"))
    rust.encode_special_tokens = False
    lines = [line for line in [*all_lines()[::4], *mixtures(300)] if line]
    cases = {
        "lines": lines,
        "ids": [encoding.ids for encoding in rust.encode_batch(lines)],
        "file": f"{hub.api}/datasets/owner/name/resolve/main/train.parquet",
        "fileBytes": (hub.root / FILE).stat().st_size,
    }
    (folder / "cases.json").write_text(json.dumps(cases))
    with plain_server(folder) as url:
        yield url


def in_chromium(page: Page, url: str) -> Any:
    page.goto(url)
    page.wait_for_function("window.answer", timeout=90_000)
    return page.evaluate("window.answer")


ENGINES: dict[str, Callable[[Page, str], Any]] = {
    "chromium": in_chromium,
    "firefox": lambda _page, url: run_firefox(url, "window.answer", 90),
    "webkit": lambda _page, url: run_webkit(url, "window.answer", 90),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_ids_and_ranges(page: Page, engine_site: str, hub: Hub, engine: str) -> None:
    hub.log.clear()
    answer = ENGINES[engine](page, engine_site)
    assert "error" not in answer, answer
    assert answer["differing"] == []
    rust, _ = read_tokenizer((ROOT / "data/tokenizer.json").read_text(encoding="utf-8"))
    texts = prose(40, 5)[ROWS : 2 * ROWS]
    assert answer["tokens"] == [i for text in texts for i in (0, *rust.encode(text).ids)]
    assert {request.method for request in hub.log} == {"GET"}, "a simple range needs no preflight"
