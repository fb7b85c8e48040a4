"""A room's data plan: small, exact, and safe whoever sent it."""

from __future__ import annotations

import contextlib
import copy
import json
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from daisychain.data import open_source, open_tokenizer
from daisychain.data.sharing import (
    MAX_PLAN_BYTES,
    difference,
    pack_plan,
    read_plan,
    unpack_plan,
)
from daisychain.data.spec import FINEWEB_EDU_SPEC, parse_dataset
from daisychain.data.stream import StreamSource
from daisychain.errors import DataError
from tests.data.http_reference import HttpReferencePort
from tests.data.hub import Hub, running_hub
from tests.data.parquet_files import prose, write_parquet
from tests.data.reference import run_apart

CONVERTED = "refs%2Fconvert%2Fparquet"
SPEC = "owner/told"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("hub")
    folder = root / SPEC / CONVERTED / "default/train"
    write_parquet(folder / "0000.parquet", prose(30, 3))
    write_parquet(folder / "0001.parquet", prose(23, 4))
    with running_hub(root) as hub:
        yield hub


async def opened(hub: Hub, shared: Any = None) -> StreamSource:
    tokenizer = await open_tokenizer(port=HttpReferencePort())
    source = await open_source(
        SPEC, seed=1, context=64, hub=hub.api, tokenizer=tokenizer, shared=shared, fallback=False
    )
    assert isinstance(source, StreamSource)
    return source


@pytest.fixture(scope="module")
def shared(hub: Hub) -> dict[str, Any]:
    async def share() -> dict[str, Any]:
        return dict(await (await opened(hub)).shared())

    return run_apart(share())


def test_a_plan_survives_and_is_small(shared: dict[str, Any]) -> None:
    plan = pack_plan(shared)
    assert unpack_plan(plan.packed, plan.digest) == shared
    assert "0" in shared["footers"]  # the held-out rows' file, whichever the run begins with
    chance, at, groups = random.Random(1), 4, []
    for _ in range(750):  # as many row groups as a file of FineWeb-Edu's sample has
        size = chance.randrange(2_400_000, 3_000_000)
        groups.append([1000, at, at + size, 2 * size, "ZSTD"])
        at += 3 * size
    large = {
        **shared,
        "footers": {str(n): {**shared["footers"]["0"], "groups": groups} for n in (0, 1)},
    }
    assert len(pack_plan(large).packed) < 32_000


def test_what_is_no_plan_is_refused_before_it_is_unpacked(shared: dict[str, Any]) -> None:
    plan = pack_plan(shared)
    bomb = zlib.compress(b'{"listing": "%s"}' % (b"x" * MAX_PLAN_BYTES), 9)
    assert len(bomb) < 20_000
    for packed in (b"", b"nonsense", plan.packed[:-1], bomb, bytes(2**21), zlib.compress(b"[]")):
        with pytest.raises(DataError, match="cannot be read"):
            unpack_plan(packed)
    with pytest.raises(DataError, match="not the room's"):
        unpack_plan(zlib.compress(b"{}"), plan.digest)
    assert pack_plan({"x": "y" * MAX_PLAN_BYTES}).packed == b""


def edited(shared: dict[str, Any], edit: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    copied: dict[str, Any] = copy.deepcopy(shared)
    edit(copied)
    return copied


HOSTILE: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda s: s.pop("listing"), "list of data files is malformed"),
    (lambda s: s["listing"].update(files=[]), "not one of owner/told"),
    (lambda s: s["listing"].update(repo="owner/other"), "not one of owner/told"),
    (lambda s: s["listing"].update(folder="elsewhere"), "not one of owner/told"),
    (lambda s: s["listing"].update(extra="x"), "list of data files is malformed"),
    (lambda s: s.update(footers=[]), "data plan of the room is malformed"),
    (lambda s: s.update(tokens_per_kilobyte=0), "data plan of the room is malformed"),
    (lambda s: s.update(tokens_per_kilobyte=True), "data plan of the room is malformed"),
    (lambda s: s["footers"].update({"7": s["footers"]["0"]}), "file that is not listed"),
    (lambda s: s["footers"].update({"-1": s["footers"]["0"]}), "file that is not listed"),
    (
        lambda s: s["footers"]["0"]["groups"][2].__setitem__(2, 2**40),
        r"row group 2 of default/train/0000\.parquet",
    ),
]


@pytest.mark.parametrize(("edit", "words"), HOSTILE)
def test_hostile_plans_are_refused_with_a_reason(
    shared: dict[str, Any], edit: Callable[[dict[str, Any]], object], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        read_plan(edited(shared, edit), parse_dataset(SPEC))


def test_plans_with_changed_bytes_raise_nothing_else(shared: dict[str, Any]) -> None:
    chance = random.Random(2)
    plain = json.dumps(shared).encode()
    for _ in range(400):
        changed = bytearray(plain)
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(len(changed))] = chance.choice(b'0123456789[]{}",:-a\x00')
        with contextlib.suppress(DataError):
            read_plan(unpack_plan(zlib.compress(bytes(changed), 1)), parse_dataset(SPEC))
    with pytest.raises(DataError, match="not one of HuggingFaceFW"):
        read_plan(shared, FINEWEB_EDU_SPEC)


def test_a_difference_is_told_by_its_place(shared: dict[str, Any]) -> None:
    def where(edit: Callable[[dict[str, Any]], object]) -> str:
        return difference(edited(shared, edit), shared)

    assert where(lambda s: s["listing"]["files"].pop()) == "the list of files"
    group = lambda s: s["footers"]["0"]["groups"]  # noqa: E731
    assert where(lambda s: group(s).pop()) == (
        "the number of row groups of default/train/0000.parquet"
    )
    assert where(lambda s: group(s)[1].__setitem__(0, 9)) == (
        "row group 1 of default/train/0000.parquet"
    )
    assert where(lambda s: s["footers"].clear()).startswith("the number of row groups")
    assert where(lambda s: s.update(tokens_per_kilobyte=1)) == "the tokens a kilobyte"


async def texts(source: StreamSource) -> list[tuple[Any, Any]]:
    return [await source.batch(step, 0, 4) for step in range(12)]


def test_a_wrong_place_is_corrected_and_the_slices_stay(hub: Hub, shared: dict[str, Any]) -> None:
    """Told byte ranges that lead nowhere: the file's own footer is fetched, once."""

    def lie(told: dict[str, Any]) -> None:
        for footer in told["footers"].values():
            for group in footer["groups"]:
                group[1:3] = [group[1] + 1, group[2] - 1]

    async def compare() -> None:
        honest = await texts(await opened(hub, shared))
        before = len(hub.requests("api"))
        misled = await opened(hub, edited(shared, lie))
        assert await texts(misled) == honest
        footers = [r for r in hub.requests("api")[before:] if r.range.startswith("bytes=0-")]
        assert len(footers) == 2  # the told file's own, and the other file's when its turn came
        notice = misled.status().notice
        assert "footer is wrong at row group" in notice
        assert ".parquet. The file's own is used." in notice

    run_apart(compare())


def test_wrong_rows_are_passed_over_alike_on_every_device(hub: Hub, shared: dict[str, Any]) -> None:
    def lie(told: dict[str, Any]) -> None:
        for footer in told["footers"].values():
            footer["groups"][1][:3] = [7, footer["groups"][1][1] + 1, footer["groups"][1][2]]

    async def compare() -> None:
        misled = [await opened(hub, edited(shared, lie)) for _ in range(2)]
        first, second = [await texts(source) for source in misled]
        assert first == second
        (sentence, *_) = misled[0].skipped
        assert "row group 1 of default/train/000" in sentence.lower()
        assert "the room plans with 7 rows" in sentence

    run_apart(compare())
