"""The live check, against the stand-in."""

from __future__ import annotations

from pathlib import Path

from tests.data.hub import Fault, running_hub
from tests.data.parquet_files import prose, write_parquet
from tools.livecheck import Report, livecheck

FINEWEB = "HuggingFaceFW/fineweb-edu/main/sample/10BT/000_00000.parquet"


def lines_of(hub: str, name: str = "fineweb-edu") -> tuple[int, list[str]]:
    lines: list[str] = []
    return livecheck(hub, name, Report(lines.append)), lines


def test_a_good_hub(tmp_path: Path) -> None:
    write_parquet(tmp_path / FINEWEB, prose(50, 1), codec="zstd")
    with running_hub(tmp_path) as hub:
        failures, lines = lines_of(hub.api)
        assert failures == 0
        text = "\n".join(lines)
        for words in ("206, Content-Range bytes", "ZSTD", "MB/s", "Content-Range exposed", "text"):
            assert words in text
        assert hub.requests(method="OPTIONS")
        assert not hub.requests(method="HEAD")


def test_what_pages_cannot_live_with(tmp_path: Path) -> None:
    write_parquet(tmp_path / FINEWEB, prose(50, 1))
    with running_hub(tmp_path) as hub:
        for kind in ("whole", "no-cors", "shifted"):
            hub.faults[:] = [Fault(kind, times=9)]
            failures, lines = lines_of(hub.api)
            assert failures, kind
            assert any(line.startswith("FAILS footer") for line in lines)
        hub.faults.clear()
        failures, lines = lines_of(hub.api, "owner/missing")
        assert failures == 2
    failures, lines = lines_of("http://127.0.0.1:9")
    assert failures == 1
    assert "cannot be reached" in lines[0]
