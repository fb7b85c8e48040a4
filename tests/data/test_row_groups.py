"""The Worker's row groups: one load at a time, bounded in memory and on disk, quota survived."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyarrow.parquet as pq

from tests.data.parquet_files import prose, write_parquet
from tests.data.reference import ROOT
from tools.bootstrap import ensure_node_modules


def test_row_groups_in_memory_and_in_the_cache(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "six.parquet", prose(60, 1))
    metadata = pq.read_metadata(path)
    columns = [metadata.row_group(n).column(0) for n in range(6)]
    groups = [
        {
            "start": column.dictionary_page_offset,
            "end": column.dictionary_page_offset + column.total_compressed_size,
            "rows": 10,
            "codec": column.compression,
        }
        for column in columns
    ]
    done = subprocess.run(
        [ensure_node_modules().node, "tests/data/row_groups.mjs"],
        input=json.dumps({"file": str(path), "groups": groups}),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)

    def opening(*rows: int) -> list[str]:
        return [f"Document 1-{row}." for row in rows]

    together = found["together"]
    assert [text.split(". ")[0] + "." for text in together["texts"]] == opening(0, 10, 20, 0)
    assert together["most"] == 1, "two row groups were on their way at once"
    assert found["requests"] == 3, "a row group was fetched twice"
    assert found["again"]["received"] == 0
    assert not found["again"]["fetched"]
    assert not found["dropped"]["fetched"], "the last row group is held whatever its size"
    assert found["refetched"], "an older one is dropped at the limit"
    assert found["beside"] == ["rejected", "fulfilled"], "a failure is its own row group's"
    assert found["healed"] == 1

    kept = found["kept"]
    assert 0 < kept["bytes"] <= kept["limit"]
    assert not any(name.endswith("g0") for name in kept["names"]), "the oldest goes first"
    assert not found["fromCache"]["fetched"]
    assert found["spoilt"].startswith("Document 1-10.")
    full, bytes_kept = found["full"]
    assert full["text"].startswith("Document 1-40.")
    assert bytes_kept == groups[4]["end"] - groups[4]["start"], "the others made room for it"
    assert found["none"].startswith("Document 1-50.")
    assert found["forbidden"][0].startswith("Document 1-0.")
    assert found["forbidden"][1] == 0
    assert found["beforeClearing"] > 0
    assert found["cleared"] == 0
