"""The browser face of the platform, in a real page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256

import pytest
from playwright.sync_api import Browser

from tests.browser.pyodide_page import PyodidePage, PyodideSite, open_page


@pytest.fixture(scope="module")
def booted(chromium: Browser, pyodide_site: PyodideSite) -> Iterator[PyodidePage]:
    with open_page(chromium, pyodide_site) as page:
        page.run("from daisychain import platform\nfrom daisychain.errors import DataError")
        yield page


def test_fetch_within_limits(booted: PyodidePage) -> None:
    source = """
    async def outcome(url, limit):
        try:
            return len(await platform.fetch_bytes(url, limit))
        except DataError as error:
            return str(error)
    [await outcome("data/tokenizer.json", 1 << 24), await outcome("data/tokenizer.json", 1000),
     await outcome("data/absent.json", 1000), await outcome("http://other.invalid/", 1000)]
    """
    size, too_large, absent, blocked = booted.run(source.replace("\n    ", "\n"))
    assert size > 100_000
    assert "larger than the 1,000 bytes" in too_large
    assert "HTTP 404" in absent
    assert "Check the connection" in blocked


def test_storage_keeps_texts_while_there_is_room(booted: PyodidePage) -> None:
    assert booted.run("platform.storage_get('key')") is None
    assert booted.run("platform.storage_set('key', 'value')") is True
    assert booted.page.evaluate("localStorage.getItem('daisychain.key')") == "value"
    assert booted.run("platform.storage_get('key')") == "value"
    assert booted.run("platform.storage_set('key', 'x' * 30_000_000)") is False
    booted.run("platform.storage_remove('key')")
    assert booted.run("platform.storage_get('key')") is None


def test_address_and_device(booted: PyodidePage) -> None:
    booted.run("platform.replace_page_url('?preset=nano#room=AB')")
    assert booted.run("platform.page_url()").endswith("/?preset=nano#room=AB")
    assert booted.run("dict(platform.parse_page_url(platform.page_url()).fragment)") == {
        "room": "AB"
    }
    assert "Chrome" in booted.run("platform.device_name()")
    assert booted.run("platform.cpu_count()") >= 1
    assert booted.run("platform.is_visible()") is True


ACROSS = """
from pyodide_js import _module
from daisychain.plan import ProgramBuilder
from daisychain.platform.wasm_worker import open_wasm
from daisychain.players.wasm import WasmPlayer

builder = ProgramBuilder()
builder.buffer("x", "u32", 1 << 18)
player = WasmPlayer(await open_wasm(1))
await player.load(builder.build())

async def across(times):
    wrong = 0
    for turn in range(times):
        sent = bytes([turn % 251 + 1]) * (1 << 20)
        player.write("x", sent)
        (array,) = await player.device.read_arrays([player._layout.buffers["x"]])
        wrong += array.to_bytes() != sent
        player.write("x", array, give=turn % 2 == 1)
        wrong += await player.read("x") != sent
        wrong += array.byteLength != (0 if turn % 2 else len(sent))  # it went over, or a copy did
    return wrong, _module.HEAPU8.length

first, second = await across(20), await across(200)
tell, told = player.device._leader.tell, []
player.device._leader.tell = lambda *request, **rest: told.append(request) or tell(*request, **rest)
for turn in range(50):
    player.write("x", bytes([turn] * 4), 4 * turn)
many = list((await player.read("x"))[:200:4])
player.close()
[first, second, many, len(told)]
"""


def test_megabytes_that_cross_into_javascript_and_back_leave_nothing_behind(
    booted: PyodidePage,
) -> None:
    (wrong, heap_bytes), (wrong_later, later_bytes), many, messages = booted.run(ACROSS)
    assert wrong == wrong_later == 0
    assert later_bytes == heap_bytes
    assert (many, messages) == (list(range(50)), 1)


EXCHANGE = """
import asyncio
import js
from pyodide.code import run_js
from daisychain.errors import ClusterError
from daisychain.platform.exchange_worker import open_exchange

forget = run_js(
    "() => { const Real = Worker; "
    "globalThis.Worker = function (...p) { return globalThis.made = new Real(...p); }; "
    "return () => { globalThis.Worker = Real; }; }"
)()
exchange = await open_exchange()
forget()
await exchange.grow(1 << 20)
read = await exchange.execute([["write", 1 << 16, b"twice", 0, 5], ["read", (1 << 16) + 1, 3]])
whole = js.Uint8Array.new([1, 2, 3, 4, 5])
parts = [whole.subarray(0, 2), whole.subarray(2)]  # as a GPU's read-back comes
writes = [["write", address, part, 0, part.length] for address, part in zip([8, 10], parts)]
copied = b"!"  # as a player gives what it has checked
writes.append(["write", 13, copied, 0, 1])
given = await exchange.execute([*writes, ["hash", 8, 6], ["read", 8, 6]], [*parts, copied])
asked = asyncio.ensure_future(exchange.execute([["fill", 0, 1 << 20]] * 100_000))
js.made.terminate()  # as the system does it: no event tells of it
try:
    end = str(await asked)
except ClusterError as error:
    end = str(error)
{
    "read": read[0].to_bytes().decode(),
    "given": [given[0], list(given[1].to_bytes()), whole.byteLength],
    "end": end,
}
"""


def test_the_exchange_s_worker_takes_arrays_over_and_its_end_is_noticed(
    booted: PyodidePage,
) -> None:
    found = booted.run(EXCHANGE)
    assert found["read"] == "wic"
    come = bytes([1, 2, 3, 4, 5]) + b"!"
    assert found["given"] == [sha256(come).hexdigest(), list(come), 0]
    assert "the browser ended its Worker" in found["end"]


def test_page_events(booted: PyodidePage) -> None:
    booted.run("heard = []\nstop = platform.on_page_event(heard.append)")
    for target, name in (
        ("document", "visibilitychange"),
        ("document", "freeze"),
        ("window", "pagehide"),
        ("window", "offline"),
    ):
        booted.page.evaluate(f"{target}.dispatchEvent(new Event('{name}'))")
    assert booted.run("heard") == ["visible", "freeze", "pagehide", "offline"]
    booted.run("stop()")
    booted.page.evaluate("window.dispatchEvent(new Event('pagehide'))")
    assert len(booted.run("heard")) == 4


def test_wake_lock_is_asked_for_again_and_given_back(booted: PyodidePage) -> None:
    booted.run("lock = platform.WakeLock()\nawait lock.start()")
    assert booted.run("lock.held") is True
    booted.run("await lock._sentinel.release()")  # as the browser does when the page is hidden
    assert booted.run("lock.held") is False
    booted.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    booted.run("await platform.sleep_ms(50)")
    assert booted.run("lock.held") is True
    booted.run("await lock.stop()")
    assert booted.run("lock.held") is False


def test_wake_lock_without_the_api_is_no_error(booted: PyodidePage) -> None:
    booted.page.evaluate(
        "window.kept = Object.getOwnPropertyDescriptor(Navigator.prototype, 'wakeLock');"
        "delete Navigator.prototype.wakeLock"
    )
    booted.run("lock = platform.WakeLock()\nawait lock.start()")
    assert booted.run("lock.held") is False
    booted.run("await lock.stop()")
    booted.page.evaluate("Object.defineProperty(Navigator.prototype, 'wakeLock', window.kept)")


def test_download(booted: PyodidePage) -> None:
    with booted.page.expect_download() as waiting:
        booted.run("platform.save_file('../log of run.jsonl', b'{\"step\": 1}\\n')")
    assert waiting.value.suggested_filename == "log_of_run.jsonl"
    assert waiting.value.path().read_bytes() == b'{"step": 1}\n'


def test_state_log_and_failure_reach_the_page(booted: PyodidePage) -> None:
    booted.page.add_script_tag(url="js/boot.js", type="module")
    booted.page.wait_for_function("daisychain.state().error")  # a bare page has no boot.json
    booted.run("platform.publish_state(state)", state=json.dumps({"phase": "train", "step": 3}))
    booted.run("platform.put_record(0, '{\"step\": 1}')")
    booted.run("platform.put_record(1, '{\"step\": 2}')")
    assert booted.page.evaluate("daisychain.state()") == {"phase": "train", "step": 3}
    assert booted.page.evaluate("daisychain.log()") == [{"step": 1}, {"step": 2}]
    booted.run("platform.clear_records()\nplatform.report_failure('It stopped.', 'why')")
    assert booted.page.evaluate("daisychain.log()") == []
    assert booted.page.evaluate("daisychain.state()") == {
        "phase": "error",
        "step": 3,
        "error": "It stopped.",
    }
