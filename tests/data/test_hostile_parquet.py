"""Parquet files that are damaged or made to harm: a clear error, no hang, no huge allocation."""

from __future__ import annotations

import base64
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.parquet_files import prose, write_parquet
from tests.data.reference import ROOT
from tools.bootstrap import ensure_node_modules

LONGEST_CASE_MS = 20_000
"""Far above what any case takes, far below a loop over 2**31 values."""
MOST_MEMORY_BYTES = 900 << 20


def read(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [ensure_node_modules().node, "--max-old-space-size=400", "tests/data/read_parquet.mjs"],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = json.loads(done.stdout)
    assert max(outcome["ms"] for outcome in outcomes) < LONGEST_CASE_MS
    assert max(outcome["heap"] for outcome in outcomes) < MOST_MEMORY_BYTES
    return outcomes  # type: ignore[no-any-return]


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def thrift(*fields: int | bytes | None) -> bytes:
    """A compact-protocol struct: i32 fields, nested structs as bytes, None for an absent field."""
    out, last = b"", 0
    for number, value in enumerate(fields, 1):
        if value is not None:
            kind = 12 if isinstance(value, bytes) else 5
            body = value if isinstance(value, bytes) else varint(value << 1 ^ value >> 63)
            out += bytes([(number - last) << 4 | kind]) + body
            last = number
    return out + b"\x00"


PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8


def page(
    body: bytes,
    values: int,
    *,
    encoding: int = PLAIN,
    unpacked: int | None = None,
    packed: int | None = None,
    kind: int = 0,
) -> bytes:
    """A data page (kind 0) or dictionary page (kind 2), lengths as one likes."""
    facts = thrift(values, encoding, RLE, RLE)
    size = len(body)
    header = thrift(
        kind,
        size if unpacked is None else unpacked,
        size if packed is None else packed,
        None,
        facts if kind == 0 else None,
        None,
        facts if kind == 2 else None,
    )
    return header + body


def levels(run: bytes) -> bytes:
    return len(run).to_bytes(4, "little") + run


def texts(*values: bytes) -> bytes:
    return b"".join(len(value).to_bytes(4, "little") + value for value in values)


ALL_TWO = levels(b"\x04\x01")
"""Two rows, both present."""
INDEXES = page(texts(b"a"), 1, kind=2)

GOOD = {
    "plain": (page(ALL_TWO + texts(b"a", b"b"), 2), ["a", "b"]),
    "null": (page(levels(b"\x03\x02") + texts(b"b"), 2), [None, "b"]),
    "dictionary": (
        INDEXES + page(ALL_TWO + b"\x01\x04\x00", 2, encoding=RLE_DICTIONARY),
        ["a", "a"],
    ),
    "two pages": (page(levels(b"\x02\x01") + texts(b"a"), 1) * 2, ["a", "a"]),
    "zero width": (INDEXES + page(ALL_TWO + b"\x00", 2, encoding=RLE_DICTIONARY), ["a", "a"]),
    "a run longer than the page": (
        page(levels(b"\xfe\xff\xff\xff\x0f\x01") + texts(b"a", b"b"), 2),
        ["a", "b"],
    ),
}

BAD = {
    "empty": (b"", "ends after 0 of 2 rows"),
    "short of rows": (page(levels(b"\x02\x01") + texts(b"a"), 1), "ends after 1 of 2 rows"),
    "too many values": (page(ALL_TWO + texts(b"a", b"b"), 2**31 - 1), "more values"),
    "negative values": (page(ALL_TWO, -5), "more values"),
    "page beyond chunk": (page(b"abc", 2, packed=10**9), "longer than its chunk"),
    "negative page": (page(b"abc", 2, packed=-4), "longer than its chunk"),
    "bomb": (page(b"abc", 2, unpacked=2**31 - 1), "unpacks to more than"),
    "other length": (page(b"abc", 2, unpacked=2), "another length"),
    "value beyond page": (
        page(ALL_TWO + b"\xff\xff\xff\xff" + b"abcdefgh", 2),
        "longer than its page",
    ),
    "values missing": (page(ALL_TWO + texts(b"a"), 2), "values are missing"),
    "levels beyond page": (page(b"\xff\xff\xff\x7f" + b"ab", 2), "levels are longer"),
    "empty run": (page(levels(b"\x00\x01" * 4), 2), "a run is empty"),
    "cut run": (page(levels(b"\x80\x80\x80\x80"), 2), "a run is cut off"),
    "no dictionary": (
        page(ALL_TWO + b"\x01\x04\x00", 2, encoding=RLE_DICTIONARY),
        "lacks its dictionary",
    ),
    "index too large": (
        INDEXES + page(ALL_TWO + b"\x08\x04\x07", 2, encoding=RLE_DICTIONARY),
        "outside the dictionary",
    ),
    "dictionary too large": (page(texts(b"a"), 2**30, kind=2), "values are missing"),
    "encoding": (page(ALL_TWO + texts(b"a", b"b"), 2, encoding=7), "not supported"),
    "not UTF-8": (page(ALL_TWO + texts(b"a", b"\xff\xfe"), 2), "not UTF-8"),
    "dictionary bomb": (
        page(texts(b"a" * 3_000_000), 1, kind=2)
        + page(ALL_TWO + b"\x01\x04\x00", 2, encoding=RLE_DICTIONARY),
        "texts have more than",
    ),
    "page kind": (page(b"", 2, kind=1) * 3, "ends after 0 of 2 rows"),
    "thrift": (b"\x1c" * 50_000, ""),
}


def chunk_case(data: bytes, **facts: object) -> dict[str, Any]:
    facts = {"rows": 2, "codec": "UNCOMPRESSED"} | facts
    return {"chunk": base64.b64encode(data).decode(), "facts": facts}


def test_crafted_pages() -> None:
    for (name, (_, expected)), outcome in zip(
        GOOD.items(), read([chunk_case(data) for data, _ in GOOD.values()]), strict=True
    ):
        assert outcome.get("documents") == expected, (name, outcome)
    for (name, (_, words)), outcome in zip(
        BAD.items(), read([chunk_case(data) for data, _ in BAD.values()]), strict=True
    ):
        assert words in outcome.get("error", "no error"), (name, outcome)


@pytest.mark.parametrize("codec", ["SNAPPY", "ZSTD", "GZIP", "BROTLI", "LZ4_RAW", "LZO"])
def test_garbage_in_every_compression(codec: str) -> None:
    chance = random.Random(codec)
    cases = [
        chunk_case(page(chance.randbytes(200), 2, unpacked=size), codec=codec)
        for size in (0, 1, 300, 1 << 20, (1 << 22) + 1)
        for _ in range(4)
    ]
    assert all("error" in outcome for outcome in read(cases))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("parquet")
    return [
        write_parquet(folder / "zstd.parquet", prose(30, 1), codec="zstd"),
        write_parquet(folder / "snappy.parquet", [*prose(20, 2), None]),
        write_parquet(folder / "plain.parquet", prose(20, 3), codec="none", use_dictionary=False),
        write_parquet(folder / "v2.parquet", prose(20, 4), codec="gzip", data_page_version="2.0"),
    ]


def test_damaged_files_never_hang_or_grow(files: list[Path]) -> None:
    """Flipped bytes anywhere, more of them in the footer, and files cut short."""
    chance = random.Random(2026)
    cases: list[dict[str, Any]] = []
    for path in files:
        size = path.stat().st_size
        assert "documents" in read([{"file": str(path)}])[0]
        for _ in range(400):
            low = chance.choice((0, size - 3000, size - 600))
            count = chance.choice((1, 1, 2, 8))
            flips = [
                [chance.randrange(max(0, low), size), chance.randrange(256)] for _ in range(count)
            ]
            cases.append({"file": str(path), "flips": flips})
        cases += [{"file": str(path), "cut": chance.randrange(1, size)} for _ in range(20)]
    outcomes = read(cases)
    errors = [outcome for outcome in outcomes if "error" in outcome]
    assert len(errors) > len(cases) // 4
    assert all(outcome["error"] for outcome in errors)


def test_columns(tmp_path: Path) -> None:
    nested = pa.table(
        {
            "number": [1, 2],
            "list": [["a"], ["b", "c"]],
            "struct": [{"text": "inner"}, {"text": "inner"}],
            "body": ["one", "two"],
            "title": ["t", "u"],
        }
    )
    pq.write_table(nested, tmp_path / "nested.parquet")
    pq.write_table(nested.select(["number"]), tmp_path / "numbers.parquet")
    pq.write_table(nested.slice(0, 0), tmp_path / "empty.parquet")
    first, title, missing, inner, none, empty = read(
        [
            {"file": str(tmp_path / "nested.parquet")},
            {"file": str(tmp_path / "nested.parquet"), "column": "title"},
            {"file": str(tmp_path / "nested.parquet"), "column": "nope"},
            {"file": str(tmp_path / "nested.parquet"), "column": "number"},
            {"file": str(tmp_path / "numbers.parquet")},
            {"file": str(tmp_path / "empty.parquet")},
        ]
    )
    assert first["documents"] == ["one", "two"]
    assert title["documents"] == ["t", "u"]
    assert "no text column named nope: its text columns are body, title" in missing["error"]
    assert "no text column named number" in inner["error"]
    assert none["error"] == "it has no text column"
    assert empty["documents"] == []
