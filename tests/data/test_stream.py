"""Streaming from the Hub stand-in with the reference reader: plan, faults, fallback."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from daisychain.data import TokenSource, WindowSource, open_source, open_tokenizer
from daisychain.data.opening import OwnFile
from daisychain.data.port import DataFile
from daisychain.data.stream import StreamSource
from daisychain.errors import DataError
from tests.data.http_reference import HttpReferencePort
from tests.data.hub import Fault, Hub, running_hub
from tests.data.parquet_files import prose, write_parquet
from tests.data.reference import ROOT, run_apart

FINEWEB = "HuggingFaceFW/fineweb-edu/main/sample/10BT"
CONVERTED = "refs%2Fconvert%2Fparquet"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FineWeb-Edu's originals (two files) and a small dataset on the converted branch."""
    root = tmp_path_factory.mktemp("hub")
    write_parquet(root / FINEWEB / "000_00000.parquet", prose(120, 1), codec="zstd")
    write_parquet(root / FINEWEB / "001_00000.parquet", prose(90, 2), codec="snappy")
    write_parquet(
        root / "owner/small" / CONVERTED / "default/train/0000.parquet",
        prose(40, 3),
        row_group_rows=20,
    )
    return root


@pytest.fixture
def hub(root: Path) -> Iterator[Hub]:
    with running_hub(root) as hub:
        yield hub


async def opened(hub: Hub | None, spec: str = "fineweb-edu", **options: Any) -> TokenSource:
    tokenizer = await open_tokenizer(port=HttpReferencePort())
    options = {"seed": 1, "context": 64, "tokenizer": tokenizer} | options
    return await open_source(spec, hub=hub.api if hub else "http://127.0.0.1:9", **options)


async def streamed(hub: Hub, spec: str = "fineweb-edu", **options: Any) -> StreamSource:
    source = await opened(hub, spec, **options)
    assert isinstance(source, StreamSource)
    return source


def port_of(source: TokenSource) -> HttpReferencePort:
    port = source.tokenizer.port
    assert isinstance(port, HttpReferencePort)
    return port


def run(awaitable: Coroutine[Any, Any, Any]) -> Any:
    return run_apart(awaitable)


def test_first_batch_takes_four_requests(hub: Hub) -> None:
    async def first() -> None:
        source = await streamed(hub)
        ids, targets = await source.batch(0, 0, 8)
        assert len(ids) == len(targets) == 512
        assert ids[1:64] == targets[:63]

    run(first())
    served = [request.origin for request in hub.log[:4]]
    assert served == ["api", "api", "storage", "storage"]
    assert [request.range == "" for request in hub.log[:4]] == [True, False, False, False]
    assert all(request.method == "GET" for request in hub.log)


def test_rows_used_are_the_plans(hub: Hub) -> None:
    async def train() -> tuple[StreamSource, set[tuple[int, int, int, int]]]:
        source = await streamed(hub)
        planned = set()
        for step in range(12):
            planned |= {part.unit.rows for part in await source.rows_used(step, 0, 4)}
            await source.batch(step, 0, 4)
        return source, planned

    source, planned = run(train())
    sizes = {file.bytes: number for number, file in enumerate(source._reader.listing.files)}
    read = {(sizes[size], *rows) for size, *rows in port_of(source).read}
    assert planned <= read
    ahead = {unit.rows for units in source._ahead.values() for unit in units}
    assert read <= planned | ahead


def test_any_device_finds_anybodys_slice(hub: Hub) -> None:
    async def compare() -> None:
        walked = await streamed(hub, seed=3, micro_batches=2, lanes=2)
        batches = {
            (step, lane): await walked.batch(step, lane, 3) for step in range(9) for lane in (0, 1)
        }
        fresh = await streamed(hub, seed=3, micro_batches=2, lanes=2)
        fresh.restore(walked.cursor())
        assert await fresh.batch(8, 1, 3) == batches[8, 1]
        assert await fresh.batch(2, 0, 3) == batches[2, 0]
        assert len({tuple(ids) for ids, _ in batches.values()}) == 18
        other = await streamed(hub, seed=4, micro_batches=2, lanes=2)
        assert await other.batch(2, 0, 3) != batches[2, 0]
        with pytest.raises(DataError, match="differ in seed"):
            other.restore(walked.cursor())
        slower = walked.cursor() | {"tokens_per_kilobyte": walked.facts.tokens_per_kilobyte // 2}
        fresh.restore(slower)
        assert fresh.cursor() == slower
        places = [await walked.rows_used(90, 0, 3), await fresh.rows_used(90, 0, 3)]
        assert places[0] != places[1]

    run(compare())


def test_epochs_use_every_window_once(hub: Hub) -> None:
    async def epoch() -> Counter[tuple[object, ...]]:
        source = await streamed(hub, "owner/small")
        used: Counter[tuple[object, ...]] = Counter()
        for step in range(400):
            for part in await source.rows_used(step, 0, 1):
                used[part.epoch, part.unit.rows, part.place] += 1
        return used

    used = run(epoch())
    assert set(used.values()) == {1}
    assert max(epoch for epoch, *_ in used) >= 2


def test_heldout_rows_are_never_trained_on(hub: Hub) -> None:
    async def texts() -> tuple[str, str, float]:
        source = await streamed(hub, "owner/small")
        trained = ""
        for step in range(60):
            ids, _ = await source.batch(step, 0, 4)
            trained += source.tokenizer.decode(ids)
        held = [batch async for batch in source.heldout_batches(1)]
        text = "".join(source.tokenizer.decode(batch.targets) for batch in held)
        assert sum(batch.bytes for batch in held) == len(text.encode())
        return trained, text, source.heldout_bytes_per_token

    trained, held, rate = run(texts())
    assert "Document 3-39." in held
    assert "Document 3-39." not in trained
    assert "Document 3-38." in trained
    assert 2 < rate < 6


def test_lanes_on_one_address_fetch_each_row_group_once(hub: Hub) -> None:
    async def room() -> None:
        founder = await streamed(hub, micro_batches=4, lanes=4)
        shared = await founder.shared()
        members = [founder]
        for _ in range(3):
            members.append(await streamed(hub, micro_batches=4, lanes=4, shared=shared))
        assert len(hub.requests("api")) == 2
        hub.faults.append(Fault("status", status=429, retry_after="1", path="000", times=2))
        for lane, member in enumerate(members):
            for step in range(6):
                await member.batch(step, lane, 2)
        assert sum(sum(port_of(member).waits) for member in members) > 2

    run(room())
    chunks = Counter(hub.ranges())
    seams = [count for count in chunks.values() if count > 1]
    assert len(seams) <= 4
    assert max(chunks.values()) <= 3


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", status=429, retry_after="3", times=2),
        Fault("status", status=503, times=3),
        Fault("status", origin="api", path="tree", status=502, times=2),
        Fault("cut", times=2),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.origin}-{fault.status}",
)
def test_passing_faults_change_nothing(hub: Hub, fault: Fault) -> None:
    async def batches() -> list[Any]:
        source = await streamed(hub)
        result = [await source.batch(step, 0, 4) for step in range(5)]
        if hub.faults:
            assert len(port_of(source).waits) >= fault.times
        return result

    clean = run(batches())
    hub.faults.append(fault)
    assert run(batches()) == clean
    assert fault.times == 0


def test_expired_addresses_are_resolved_again(hub: Hub) -> None:
    async def batches() -> list[Any]:
        source = await streamed(hub)
        result = [await source.batch(step, 0, 8) for step in range(8)]
        assert port_of(source).waits == []
        return result

    clean = run(batches())
    hub.valid_uses = 2
    assert run(batches()) == clean
    assert any(request.status == 403 for request in hub.log)


def test_who_waits_for_one_address_asks_for_it_once(hub: Hub) -> None:
    async def together() -> None:
        source = await streamed(hub)
        part = (await source.rows_used(0, 0, 1))[0]
        units = [part.unit, *source.plan.substitutes(0, 0, part.unit)]
        footer, rows = source.plan.footers[part.unit.file], source._reader.rows
        hub.log.clear()
        for signature in hub.signatures:
            hub.signatures[signature] = 9
        hub.valid_uses = 5
        await asyncio.gather(*(rows(footer, unit, 65) for unit in units[1:4]))
        asked = [r for r in hub.requests("api") if r.status == 302]
        assert len(asked) == 1, asked
        assert len([r for r in hub.log if r.status == 403]) == 3

    run(together())


@pytest.mark.parametrize(
    ("kind", "words"),
    [("whole", "whole file"), ("shifted", "sent bytes"), ("size", "changed meanwhile")],
)
def test_wrong_ranges_are_clear_errors(hub: Hub, kind: str, words: str) -> None:
    hub.faults.append(Fault(kind))
    with pytest.raises(DataError, match=rf"(?i)footer of .*00000\.parquet: .*{words}"):
        run(streamed(hub))


def test_a_damaged_row_group_is_named_and_passed_over(hub: Hub) -> None:
    async def train() -> StreamSource:
        source = await streamed(hub, "owner/small", seed=2)
        first = (await source.rows_used(0, 0, 1))[0]
        parts = await source.rows_used(0, 0, 200)
        later = next(part for part in parts if part.unit.group != first.unit.group)
        hub.faults.append(Fault("garbage", times=1))
        source._units.clear()
        await source._block(0, later)
        return source

    source = run(train())
    (sentence,) = source.skipped
    assert "Row group" in sentence
    assert "default/train/0000.parquet" in sentence
    assert source.status().notice == sentence


def test_files_without_rows_are_passed_over(hub: Hub) -> None:
    folder = hub.root / "owner/gaps" / CONVERTED / "default/train"
    for number, rows in enumerate((20, 0, 20)):
        write_parquet(folder / f"000{number}.parquet", prose(rows, 5))
    write_parquet(hub.root / "owner/none" / CONVERTED / "default/train/0.parquet", [])

    async def files() -> set[int]:
        source = await streamed(hub, "owner/gaps")
        parts = [part for step in range(60) for part in await source.rows_used(step, 0, 4)]
        await source.batch(59, 0, 4)
        return {part.unit.file for part in parts}

    assert run(files()) == {0, 2}
    with pytest.raises(DataError, match="dataset has no rows"):
        run(streamed(hub, "owner/none"))


def test_a_footer_is_read_again_before_it_counts_as_damaged(hub: Hub) -> None:
    hub.faults.append(Fault("garbage"))
    run(streamed(hub, "owner/small"))
    hub.faults.append(Fault("garbage", times=2))
    with pytest.raises(DataError, match=r"footer of default/train/0000\.parquet"):
        run(streamed(hub, "owner/small"))


def test_a_dataset_that_is_parquet_itself(hub: Hub) -> None:
    """Without a converted branch its own files serve."""
    write_parquet(hub.root / "owner/original/main/data/train-00000-of-00001.parquet", prose(20, 8))

    async def first() -> str:
        source = await streamed(hub, "owner/original")
        ids, _ = await source.batch(0, 0, 2)
        return source.tokenizer.decode(ids)

    assert "Document 8-" in run(first())
    assert [request.status for request in hub.log[:2]] == [404, 200]


def test_errors_of_the_person_are_clear(hub: Hub) -> None:
    with pytest.raises(DataError, match="list of files of owner/missing"):
        run(streamed(hub, "owner/missing"))
    with pytest.raises(DataError, match=r"no text column named nope.*owner/name:column"):
        run(streamed(hub, "owner/small:nope"))
    with pytest.raises(DataError, match="no config named zzz"):
        run(streamed(hub, "owner/small/zzz"))


def test_the_embedded_corpus_takes_over_when_the_hub_is_away(hub: Hub) -> None:
    said: list[str] = []
    source = run(opened(None, on_wait=said.append))
    assert isinstance(source, WindowSource)
    assert "cannot be reached" in source.status().notice
    assert "embedded corpus is used instead of fineweb-edu" in source.status().notice
    assert any("Trying again" in sentence for sentence in said)
    with pytest.raises(DataError, match="cannot be reached"):
        run(opened(None, fallback=False))


def test_own_files(tmp_path: Path) -> None:
    text = "\n\n".join(prose(200, 9))
    (tmp_path / "own.txt").write_text(text)
    (tmp_path / "own.jsonl").write_text('{"text": "one two three"}\n\n{"text": "four"}\n' * 400)
    parquet = write_parquet(tmp_path / "own.parquet", prose(60, 9)).read_bytes()

    async def own(name: str, handle: Any = None) -> TokenSource:
        path = tmp_path / name
        file = DataFile(handle=handle) if handle else DataFile(str(path))
        return await opened(None, "file", file=OwnFile(name, path.stat().st_size, file))

    plain = run(own("own.txt"))
    assert isinstance(plain, WindowSource)
    batch = run(anext(aiter(plain.heldout_batches(4))))
    assert text.endswith(plain.tokenizer.decode(batch.targets)[-20:]) or batch.tokens == 256
    lines = run(own("own.jsonl"))
    assert lines.status().buffered_tokens > 1000

    async def stream() -> str:
        source = await own("own.parquet", parquet)
        ids, _ = await source.batch(0, 0, 4)
        return source.tokenizer.decode(ids)

    assert len(run(stream())) > 300
    (tmp_path / "own.pdf").write_text("x")
    with pytest.raises(DataError, match="no kind of text"):
        run(own("own.pdf"))
    with pytest.raises(DataError, match="No file was chosen"):
        run(opened(None, "file"))


def test_tokenizer_of_a_model_repository(hub: Hub) -> None:
    folder = hub.root / "org/model"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes((ROOT / "data/tokenizer.json").read_bytes())
    hub.faults.append(Fault("status", origin="api", status=503, times=1))
    tokenizer = run(open_tokenizer("org/model", port=HttpReferencePort(), hub=hub.api))
    assert (tokenizer.name, tokenizer.size) == ("org/model", 16_512)


def test_closing_stops_reading(hub: Hub) -> None:
    async def close() -> None:
        source = await streamed(hub)
        await source.batch(0, 0, 8)
        tasks = list(source._units.values())
        source.close()
        await asyncio.sleep(0)
        assert all(task.done() for task in tasks)

    run(close())
