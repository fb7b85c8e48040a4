"""The data Worker against the Hub stand-in, in a real page and from other origins."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daisychain.data import open_source, open_tokenizer
from daisychain.data.stream import StreamSource
from tests.browser.pyodide_page import PyodidePage
from tests.data.http_reference import HttpReferencePort
from tests.data.hub import Fault, Hub, running_hub
from tests.data.parquet_files import prose, write_parquet
from tests.data.reference import run_apart

FINEWEB = "HuggingFaceFW/fineweb-edu/main/sample/10BT"
CONVERTED = "refs%2Fconvert%2Fparquet/default/train/0000.parquet"
OPEN = """
import asyncio
import js
from daisychain.data import open_source, open_tokenizer
from daisychain.data import retry
retry.FIRST_DELAY_S = 0.05
said = []
async def opened(spec, **options):
    options = {"seed": 1, "context": 64, "hub": api, "on_wait": said.append} | options
    return await open_source(spec, tokenizer=await open_tokenizer(), **options)
async def batches(source, steps, rows=4):
    result = []
    for step in range(steps):
        ids, targets = await source.batch(step, 0, rows)
        result.append([list(ids.to_py()), list(targets.to_py())])
    return result
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    texts: list[str | None] = [*prose(110, 1), None, "", "naïve ☃ 日本語\r\n\u0085x" * 20]
    write_parquet(root / FINEWEB / "000_00000.parquet", texts, codec="zstd")
    write_parquet(root / FINEWEB / "001_00000.parquet", prose(90, 2), row_group_rows=33)
    shapes: dict[str, dict[str, Any]] = {
        "plain": {"codec": "none"},
        "pages": {"codec": "gzip", "data_page_size": 600, "write_batch_size": 3},
        "v2": {"codec": "zstd", "data_page_version": "2.0", "use_dictionary": False},
        "delta": {
            "use_dictionary": False,
            "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"},
        },
        "repeated": {"codec": "lz4"},
    }
    for name, options in shapes.items():
        texts = [
            None if name == "v2" and row % 7 == 3 else text for row, text in enumerate(prose(60, 4))
        ]
        if name == "repeated":
            texts = texts[:3] * 20
        write_parquet(root / "shapes" / name / CONVERTED, texts, row_group_rows=25, **options)
    return root


@pytest.fixture(scope="module")
def hub(root: Path) -> Iterator[Hub]:
    with running_hub(root) as hub:
        yield hub


@pytest.fixture(scope="module")
def page(data_page: PyodidePage, hub: Hub) -> PyodidePage:
    data_page.run(OPEN, api=hub.api)
    return data_page


@pytest.fixture(autouse=True)
def calm(hub: Hub, page: PyodidePage) -> Iterator[None]:
    """No fault, no log, no cache is left to the next test."""
    hub.faults.clear()
    hub.log.clear()
    yield
    hub.allow_preflight, hub.valid_uses = True, None
    page.run(
        """
if "source" in globals():
    await source.tokenizer.port.clear_cache()
    source.close()
    del source
said.clear()
"""
    )


def reference(hub: Hub, spec: str, steps: int, rows: int = 4) -> list[list[list[int]]]:
    """What pyarrow and tokenizers read for the same seed."""

    async def read() -> list[list[list[int]]]:
        tokenizer = await open_tokenizer(port=HttpReferencePort())
        source = await open_source(spec, seed=1, context=64, hub=hub.api, tokenizer=tokenizer)
        assert isinstance(source, StreamSource)
        batches = [await source.batch(step, 0, rows) for step in range(steps)]
        return [[list(ids), list(targets)] for ids, targets in batches]

    HttpReferencePort.sparse.clear()
    batches = run_apart(read())
    hub.log.clear()
    return batches


def test_same_tokens_as_the_reference_reader_in_four_requests(page: PyodidePage, hub: Hub) -> None:
    expected = reference(hub, "fineweb-edu", 12)
    first = page.run('source = await opened("fineweb-edu")\nawait batches(source, 1)')
    before = [request for request in hub.log if request.method != "OPTIONS"][:4]
    assert [request.origin for request in before] == ["api", "api", "storage", "storage"]
    assert first == expected[:1]
    assert page.run("await batches(source, 12)") == expected
    assert not [request for request in hub.log if request.method == "HEAD"]


ENDED = """
from pyodide.code import run_js
forget = run_js(
    "() => { const Real = Worker; "
    "globalThis.Worker = function (...p) { return globalThis.made = new Real(...p); }; "
    "return () => { globalThis.Worker = Real; }; }"
)()

def doom(port, doomed):
    ask = port._link.ask
    async def asked(operation, **arguments):
        answer = asyncio.ensure_future(ask(operation, **arguments))
        await asyncio.sleep(0)
        if operation == doomed:
            js.made.terminate()  # as the system does it: no event tells of it
        return await answer
    port._link.ask = asked

source = await opened("fineweb-edu")
doom(source.tokenizer.port, "rows")
found = await batches(source, 12)

tokenizer, ends = await open_tokenizer(), []
tokenizer.port._ends = 9
doom(tokenizer.port, "encode")
for _ in range(2):
    try:
        await tokenizer.encode("text")
    except Exception as error:
        ends.append(str(error))
forget()
[found, said, ends]
"""


def test_a_worker_that_the_browser_ends_is_replaced(page: PyodidePage, hub: Hub) -> None:
    expected = reference(hub, "fineweb-edu", 12)
    found, said, ends = page.run(ENDED)
    assert found == expected
    ended = "The data Worker failed (the browser ended its Worker, perhaps for want of memory)."
    assert any(
        sentence.startswith("Waiting for row group") and ended in sentence for sentence in said
    )
    assert ends[0].startswith(ended)
    assert ends[1].startswith("The browser ended the data Worker 10 times")


def test_parquet_shapes(page: PyodidePage, hub: Hub) -> None:
    shapes = ["plain", "pages", "v2", "delta", "repeated"]
    expected = {shape: reference(hub, f"shapes/{shape}", 8) for shape in shapes}
    found = page.run(
        """
tokenizer, found = await open_tokenizer(), {}
for shape in shapes:
    source = await open_source(
        f"shapes/{shape}", seed=1, context=64, hub=api, tokenizer=tokenizer)
    found[shape] = await batches(source, 8)
found
""",
        shapes=shapes,
    )
    assert found == expected


def test_faults_lose_nothing(page: PyodidePage, hub: Hub) -> None:
    expected = reference(hub, "fineweb-edu", 6)
    hub.faults += [
        Fault("status", origin="api", path="tree", status=500),
        Fault("status", status=429, retry_after="1"),
        Fault("drop"),
    ]
    hub.valid_uses = 3
    page.run('source = await opened("fineweb-edu")')
    hub.faults += [Fault("cut", times=2), Fault("slow"), Fault("status", status=503)]
    assert page.run("await batches(source, 6)") == expected
    assert all(fault.times == 0 for fault in hub.faults)
    said = page.run("said")
    assert any("answered 429. Trying again in" in sentence for sentence in said)
    assert any("Waiting for the list of files" in sentence for sentence in said)
    assert said[-1] == ""


def test_wrong_answers_are_clear_errors(page: PyodidePage, hub: Hub) -> None:
    page.run("tokenizer = await open_tokenizer()")
    for kind, words in (
        ("whole", "sent the whole file"),
        ("shifted", "asked for"),
        ("size", "the listing says"),
    ):
        hub.faults[:] = [Fault(kind)]
        message = page.run(
            """
try:
    await open_source("fineweb-edu", seed=1, context=64, hub=api, tokenizer=tokenizer)
except Exception as error:
    message = str(error)
message
"""
        )
        assert "The footer of sample/10BT/00" in message
        assert words in message
        assert hub.storage.split("/")[2] in message
    page.run("tokenizer.port.close()")


def test_hosts_that_refuse_preflights_or_ranges(page: PyodidePage, hub: Hub) -> None:
    hub.allow_preflight = False
    page.run('source = await opened("shapes/plain")')
    assert not hub.requests(method="OPTIONS"), "a simple range needs no preflight"
    hub.faults.append(Fault("no-cors", times=9))
    notice = page.run(
        'source.close()\nsource = await opened("shapes/v2")\n[source.name, source.status().notice]'
    )
    assert notice[0] == "embedded"
    storage = hub.storage.split("/")[2]
    assert f"{storage} does not let web pages ask for parts of files (CORS)" in notice[1]


def test_away_and_back(page: PyodidePage, hub: Hub) -> None:
    expected = reference(hub, "fineweb-edu", 40)
    page.run('source = await opened("fineweb-edu")')
    hub.faults.append(Fault("drop", times=10**6))
    page.start("import asyncio\ntask = asyncio.ensure_future(batches(source, 40))")
    deadline = time.monotonic() + 60
    while page.run("len(said)") <= 2:
        assert time.monotonic() < deadline, "the source says nothing of its waiting"
        time.sleep(0.1)
    assert "Waiting for row group" in page.run("said[0]")
    assert "cannot be reached" in page.run("said[0]")
    hub.faults.clear()
    assert page.run("await task") == expected


def test_offline_hub_falls_back_with_a_notice(page: PyodidePage) -> None:
    notice = page.run(
        """
source = await opened("fineweb-edu", hub="http://127.0.0.1:9")
[source.name, source.status().notice]
"""
    )
    assert notice[0] == "embedded"
    assert "127.0.0.1:9 cannot be reached" in notice[1]
    assert "The embedded corpus is used instead of fineweb-edu." in notice[1]


def test_own_files_of_every_kind(page: PyodidePage, root: Path) -> None:
    parquet = (root / FINEWEB / "001_00000.parquet").read_bytes()
    found = page.run(
        r"""
import base64
from daisychain.platform.workers import own_file
from pyodide.ffi import to_js
data = {
    "own.parquet": base64.b64decode(parquet),
    "own.TXT": ("One fine day.\n\n" * 900).encode(),
    "own.md": ("# Title\n\nSome text, " * 900).encode(),
    "own.jsonl": b'{"text": "One line of text."}\n\n"A bare string."\n' * 300,
}
found = {}
for name, content in data.items():
    file = own_file(js.File.new(to_js([to_js(content)]), name))
    own = await opened("file", file=file)
    ids, targets = await own.batch(0, 0, 2)
    held = [batch async for batch in own.heldout_batches(1)]
    found[name] = [own.name, own.tokenizer.decode(ids.to_py()), len(held) > 0]
    own.close()
messages = []
bad = {"bad.jsonl": b'{"text": 1}', "bad.txt": b"\xff\xfe", "bad.parquet": b"x" * 50}
for name, content in bad.items():
    try:
        await opened("file", file=own_file(js.File.new(to_js([to_js(content)]), name)))
    except Exception as error:
        messages.append(str(error))
[found, messages]
""",
        parquet=base64.b64encode(parquet).decode(),
    )
    texts, messages = found
    assert len(texts["own.parquet"][1]) > 200
    assert "One fine day." in texts["own.TXT"][1]
    assert "# Title" in texts["own.md"][1]
    assert "A bare string." in texts["own.jsonl"][1]
    assert all(entry[2] for entry in texts.values())
    assert 'bad.jsonl cannot be used. Line 1 has no text in "text".' in messages[0]
    assert "The file is not UTF-8 text." in messages[1]
    assert "bad.parquet: It does not end like a parquet file." in messages[2]


def test_row_groups_are_kept_and_cleared(page: PyodidePage, hub: Hub) -> None:
    page.run('source = await opened("fineweb-edu")\nawait batches(source, 8)')
    page.run("await asyncio.gather(*source._units.values()); None")  # those read ahead, too
    kept = page.run("await source.tokenizer.port.cached_bytes()")
    assert kept > 1000
    fetched = len(hub.ranges())
    hub.log.clear()
    page.run('source.close()\nsource = await opened("fineweb-edu")\nawait batches(source, 8)')
    assert len(hub.ranges()) == 1 < fetched
    page.run("await source.tokenizer.port.clear_cache()")
    assert page.run("await source.tokenizer.port.cached_bytes()") == 0


def test_a_damaged_row_group_is_passed_over(page: PyodidePage, hub: Hub) -> None:
    open_again = """
if "source" in globals():
    await source.tokenizer.port.clear_cache()
    source.close()
source = await opened("shapes/plain")
await batches(source, 60)
"""
    clean = page.run(open_again)
    second = hub.ranges()[-1]
    hub.faults.append(Fault("garbage", range=second))
    assert page.run(open_again) == clean, "spoilt once, then fetched again"
    assert page.run("source.status().notice") == ""
    hub.faults.append(Fault("garbage", range=second, times=99))
    assert page.run(open_again) != clean
    notice = page.run("source.status().notice")
    assert notice.startswith("Row group ")
    assert "default/train/0000.parquet" in notice
    assert "next row group" in notice
