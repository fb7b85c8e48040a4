"""The data Worker in a real page: the same tokens as the reference reader."""

from __future__ import annotations

import pytest

from daisychain.data import open_source, open_tokenizer
from tests.browser.pyodide_page import PyodidePage
from tests.data.reference import ReferencePort, run_apart

OPEN = """
from daisychain.data import open_source, open_tokenizer
source = await open_source("embedded", seed=5, context=64, micro_batches=2)
"""


@pytest.fixture(scope="module")
def page(data_page: PyodidePage) -> PyodidePage:
    data_page.run(OPEN)
    return data_page


def test_same_batches_as_the_reference_reader(page: PyodidePage) -> None:
    async def reference() -> list[list[int]]:
        tokenizer = await open_tokenizer(port=ReferencePort())
        source = await open_source(
            "embedded", seed=5, context=64, micro_batches=2, tokenizer=tokenizer
        )
        ids, targets = await source.batch(7, 1, 8)
        batch = await anext(aiter(source.heldout_batches(4)))
        facts = [batch.bytes, batch.tokens, len(source.tokenizer.table.data)]
        return [list(ids), list(targets), list(batch.ids), list(batch.targets), facts]

    in_page = page.run(
        """
ids, targets = await source.batch(7, 1, 8)
batch = await anext(aiter(source.heldout_batches(4)))
facts = [batch.bytes, batch.tokens, len(source.tokenizer.table.data)]
[list(x.to_py()) for x in (ids, targets, batch.ids, batch.targets)] + [facts]
"""
    )
    assert in_page == run_apart(reference())
    assert page.run("ids.constructor.name") == "Uint32Array"


def test_encode_and_decode_in_the_page(page: PyodidePage) -> None:
    text = "Naïve café — ☃ 日本語\r\n\tx = 12345;\u0085 '\u017f\ufeff's"
    ids = page.run("ids = await source.tokenizer.encode(text); ids", text=text)
    tokenizer = run_apart(open_tokenizer(port=ReferencePort()))
    assert ids == run_apart(tokenizer.encode(text))
    assert page.run("source.tokenizer.decode(ids)") == text


def test_damaged_and_missing_files_are_one_sentence(page: PyodidePage) -> None:
    message = page.run(
        """
from daisychain.data import opening
opening.EMBEDDED_FILE, kept = "data/tokenizer.json", opening.EMBEDDED_FILE
try:
    await open_source("embedded", seed=1, context=64, tokenizer=source.tokenizer)
except Exception as error:
    message = str(error)
opening.EMBEDDED_FILE = kept
message
"""
    )
    assert "data/tokenizer.json is damaged. It does not end like a parquet file." in message
    message = page.run(
        """
from daisychain.data.port import DataFile
from daisychain.data.tokenizer import load_tokenizer
messages = []
for address in ("data/embedded.parquet", "data/missing.json"):
    try:
        await load_tokenizer(source.tokenizer.port, "broken", DataFile(address))
    except Exception as error:
        messages.append(str(error))
messages
"""
    )
    assert "The tokenizer file of broken is damaged." in message[0]
    assert "not UTF-8" in message[0]
    assert "answered 404" in message[1]


def test_a_worker_that_does_not_load_is_an_error(page: PyodidePage) -> None:
    message = page.run(
        """
from daisychain.platform import worker_link
start, worker_link.start_worker = worker_link.start_worker, lambda name: start("absent_worker")
try:
    await open_tokenizer()
except Exception as error:
    message = str(error)
worker_link.start_worker = start
message
"""
    )
    assert message.startswith("The data Worker failed (its script could not be loaded). Check the")


def test_closing_ends_pending_calls(page: PyodidePage) -> None:
    message = page.run(
        """
import asyncio
tokenizer = await open_tokenizer()
task = asyncio.ensure_future(tokenizer.encode("text " * 100000))
await asyncio.sleep(0)
tokenizer.port.close()
try:
    await task
except Exception as error:
    message = str(error)
message
"""
    )
    assert message == "The data Worker was closed."
