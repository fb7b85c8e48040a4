"""Names of data, and what the Hub answers to them."""

from __future__ import annotations

import json

import pytest

from daisychain.data.hub import (
    Listing,
    RemoteFile,
    choose_split,
    file_address,
    list_files,
    parquet_files,
    tree_address,
)
from daisychain.data.port import DataFile, JsonAnswer
from daisychain.data.retry import Retry
from daisychain.data.spec import FINEWEB_EDU_SPEC, DatasetSpec, parse_dataset
from daisychain.errors import DataError, SettingsError
from tests.data.http_reference import HttpReferencePort
from tests.data.reference import run_apart

HUB = "https://hub.example"


def entry(path: str, size: int = 100) -> dict[str, object]:
    return {"type": "file", "path": path, "size": size, "oid": "1", "lfs": {"oid": "2"}}


def files(*paths: str) -> list[RemoteFile]:
    return list(parquet_files([entry(path) for path in paths]))


class PagedPort(HttpReferencePort):
    def __init__(self, pages: dict[str, tuple[object, str]]) -> None:
        super().__init__()
        self.pages, self.asked = pages, []

    async def read_json(self, file: DataFile, max_bytes: int) -> JsonAnswer:
        self.asked.append(file.url)
        body, following = self.pages[file.url]
        return JsonAnswer(body if isinstance(body, str) else json.dumps(body), following)


def listing(pages: dict[str, tuple[object, str]], spec: DatasetSpec) -> Listing:
    port = PagedPort(pages)
    return run_apart(list_files(port, Retry(port, attempts=1), HUB, spec))


def test_names() -> None:
    assert parse_dataset("fineweb-edu") is FINEWEB_EDU_SPEC
    assert parse_dataset("HuggingFaceFW/fineweb-edu") is FINEWEB_EDU_SPEC
    assert parse_dataset("HuggingFaceFW/fineweb-edu/sample-10BT/train:text") is FINEWEB_EDU_SPEC
    assert parse_dataset("HuggingFaceFW/fineweb-edu/CC-MAIN-2024-10").config == "CC-MAIN-2024-10"
    spec = parse_dataset("a/b.c-d/conf/test:my column")
    assert (spec.repo, spec.config, spec.split, spec.column) == (
        "a/b.c-d",
        "conf",
        "test",
        "my column",
    )
    assert parse_dataset(spec.name) == spec
    for bad in ("", "nonsense", "a/", "../etc", "a/../b", "a/b/c/d/e", "a b/c", "a/b:", "x" * 500):
        with pytest.raises(SettingsError, match="no data named"):
            parse_dataset(bad)


def test_addresses() -> None:
    spec = parse_dataset("owner/name")
    assert tree_address(HUB, spec) == (
        f"{HUB}/api/datasets/owner/name/tree/refs%2Fconvert%2Fparquet?recursive=true"
    )
    assert tree_address(HUB, FINEWEB_EDU_SPEC) == (
        f"{HUB}/api/datasets/HuggingFaceFW/fineweb-edu/tree/main/sample/10BT?recursive=true"
    )
    assert file_address(HUB, spec, "default/train/0 0.parquet") == (
        f"{HUB}/datasets/owner/name/resolve/refs%2Fconvert%2Fparquet/default/train/0%200.parquet"
    )


def test_entries_are_checked() -> None:
    kept = parquet_files(
        [
            entry("a/train/1.parquet"),
            entry("a/train/readme.md"),
            entry("../x.parquet"),
            entry("a" * 2000 + ".parquet"),
            entry("b.parquet", size=3),
            entry("c.parquet", size=2**60),
            entry("d.parquet") | {"size": "7"},
            entry("e.parquet") | {"type": "directory"},
            {},
        ]
    )
    assert [file.path for file in kept] == ["a/train/1.parquet"]
    for bad in ({"error": "x"}, "text", [1]):
        with pytest.raises(DataError, match="list"):
            list(parquet_files(bad))


def test_config_and_split_are_chosen() -> None:
    spec = parse_dataset("o/n")
    both = files("b/train/1.parquet", "default/test/0.parquet", "default/partial-train/0.parquet")
    chosen = choose_split(spec, both)
    assert (chosen.spec.config, chosen.spec.split) == ("default", "train")
    assert [file.path for file in chosen.files] == ["default/partial-train/0.parquet"]
    assert choose_split(parse_dataset("o/n/b"), both).files[0].path == "b/train/1.parquet"
    assert choose_split(spec, files("x/validation/0.parquet")).spec.split == "validation"
    with pytest.raises(DataError, match=r"no config named zzz.*It has: b, default"):
        choose_split(parse_dataset("o/n/zzz"), both)
    with pytest.raises(DataError, match=r"no split named dev.*It has: test, train"):
        choose_split(parse_dataset("o/n/default/dev"), both)


def test_pages_are_followed_on_the_same_host_only() -> None:
    spec = parse_dataset("o/n")
    first = tree_address(HUB, spec)
    second = f"{HUB}/api/more?cursor=2"
    found = listing(
        {
            first: ([entry("default/train/1.parquet")], "/api/more?cursor=2"),
            second: ([entry("default/train/0.parquet")], ""),
        },
        spec,
    )
    assert [file.path[-9:] for file in found.files] == ["0.parquet", "1.parquet"]
    with pytest.raises(DataError, match="another host"):
        listing({first: ([entry("default/train/1.parquet")], "https://evil.example/")}, spec)
    with pytest.raises(DataError, match="no parquet files"):
        listing({first: ([entry("data.csv")], "")}, spec)
    with pytest.raises(DataError, match="not JSON"):
        listing({first: ("<html>", "")}, spec)


def test_listing_records() -> None:
    one = choose_split(parse_dataset("o/n"), files("default/train/1.parquet"))
    assert Listing.from_record(json.loads(json.dumps(one.to_record()))) == one
    record = one.to_record()
    for bad in (
        None,
        {},
        record | {"repo": "../../x"},
        record | {"repo": 3},
        record | {"surprise": "x"},
        record | {"files": [[1]]},
    ):
        with pytest.raises(DataError, match="malformed"):
            Listing.from_record(bad)
