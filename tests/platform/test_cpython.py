"""The CPython face: files as the site, memory as the storage."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from daisychain import platform
from daisychain.errors import DataError, DeviceError
from daisychain.platform import cpython
from tests.servers import plain_server
from tools.bootstrap import ROOT


def test_relative_addresses_are_files_of_the_repository() -> None:
    assert asyncio.run(platform.fetch_bytes("index.html")) == (ROOT / "index.html").read_bytes()


@pytest.mark.parametrize("url", ["absent.bin", "../outside", "data"])
def test_what_is_not_there_is_a_data_error(url: str) -> None:
    with pytest.raises(DataError):
        asyncio.run(platform.fetch_bytes(url))


def test_fetch_over_http_within_limits(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1000))
    with plain_server(tmp_path) as url:
        assert asyncio.run(platform.fetch_bytes(f"{url}file", 1000)) == bytes(1000)
        with pytest.raises(DataError, match="larger than the 999 bytes"):
            asyncio.run(platform.fetch_bytes(f"{url}file", 999))
        with pytest.raises(DataError, match="HTTP 404"):
            asyncio.run(platform.fetch_bytes(f"{url}absent"))


def test_storage_keeps_texts() -> None:
    assert platform.storage_get("key") is None
    assert platform.storage_set("key", "value")
    assert platform.storage_get("key") == "value"
    platform.storage_remove("key")
    platform.storage_remove("key")
    assert platform.storage_get("key") is None


def test_page_events_reach_the_listeners_until_they_stop() -> None:
    heard: list[str] = []
    stop = platform.on_page_event(heard.append)
    cpython.simulate_page_event("hidden")
    assert not platform.is_visible()
    cpython.simulate_page_event("visible")
    stop()
    cpython.simulate_page_event("pagehide")
    assert heard == ["hidden", "visible"]
    assert platform.is_visible()


def test_a_worker_needs_a_browser() -> None:
    with pytest.raises(DeviceError, match="needs a browser"):
        platform.start_worker("data_worker")


def test_downloads_and_publications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    platform.save_file("../a b.bin", b"content")
    assert (tmp_path / "a_b.bin").read_bytes() == b"content"
    platform.publish_state(json.dumps({"phase": "idle"}))
    assert cpython.published.state == {"phase": "idle"}
    platform.clear_records()
    platform.put_record(0, '{"step": 1}')
    platform.put_record(1, '{"step": 2}')
    platform.put_record(0, '{"step": 3}')
    assert cpython.published.log == [{"step": 3}]
    platform.clear_records()


def test_the_wake_lock_is_never_held_here() -> None:
    async def hold() -> bool:
        lock = platform.WakeLock()
        await lock.start()
        held = lock.held
        await lock.stop()
        return held

    assert asyncio.run(hold()) is False
