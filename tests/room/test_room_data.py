"""Data of the Hub in a room: one device reads listing and footers, everybody trains by them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from exchange_machine import WasmtimeMachine
from memory_room import FAST, Device, Wire, room_settings

from daisychain.cluster import effects, events, wire
from daisychain.cluster.messages import Envelope
from daisychain.cluster.protocol import Node
from daisychain.cluster.reduce_plan import Kind
from daisychain.cluster.room_messages import FetchPlan
from daisychain.data import StreamSource, open_source, open_tokenizer
from daisychain.data.port import DataFile
from daisychain.data.sharing import Shared, pack_plan
from daisychain.errors import ClusterError, DataError
from daisychain.plan import Program
from daisychain.players.oracle import OraclePlayer
from daisychain.room import data_plan, run_maker
from daisychain.room.data_plan import AgreedPlan, open_agreed
from daisychain.room.host import Host
from daisychain.room.run_maker import PageRunMaker, read_settings_text, settings_text
from daisychain.settings import Settings, resolve
from tests.data.http_reference import HttpReferencePort
from tests.data.hub import Hub, running_hub
from tests.data.parquet_files import prose, write_parquet
from tests.data.reference import byte_tokenizer

FOLDER = "owner/shared/refs%2Fconvert%2Fparquet/default/train"
SETTINGS = resolve(
    {
        "width": 16,
        "layers": 1,
        "heads": 2,
        "hidden": 32,
        "context": 16,
        "batch": 2,
        "seed": 3,
        "steps": 40,
        "data": "owner/shared",
    }
)
ROWS = 2
SHORT_FOLDER = FOLDER.replace("shared", "short")
SHORT = replace(SETTINGS, data="owner/short")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("hub")
    write_parquet(root / FOLDER / "0000.parquet", prose(40, 1))
    write_parquet(root / FOLDER / "0001.parquet", prose(30, 2))
    for number in range(3):
        write_parquet(root / SHORT_FOLDER / f"000{number}.parquet", prose(2, number, words=6))
    (root / "tokenizer.json").write_text(byte_tokenizer(), encoding="utf-8")
    with running_hub(root) as hub:
        yield hub


@pytest.fixture(autouse=True)
def forgotten(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small vocabulary keeps the oracle quick."""
    hub.log.clear()
    monkeypatch.setattr(run_maker, "VOCABULARY", 258)


async def opened(hub: Hub, settings: Settings, shared: Shared | None = None) -> StreamSource:
    source = await open_source(
        settings.data,
        seed=settings.seed,
        context=settings.context,
        tokenizer=await open_tokenizer(
            "bytes", port=HttpReferencePort(), file=DataFile(str(hub.root / "tokenizer.json"))
        ),
        hub=hub.api,
        shared=shared,
        fallback=False,
    )
    assert isinstance(source, StreamSource)
    return source


class HubDevice(Device):
    """A member that opens its text as the page does; ``trained`` has each slice's tokens."""

    def __init__(self, world: Wire, me: str, hub: Hub, settings: Settings = SETTINGS) -> None:
        super().__init__(world, me)
        self.hub, self.settings = hub, settings
        self.said: list[str] = []
        self.trained: dict[int, Any] = {}
        self.source: StreamSource
        self.maker = PageRunMaker(
            "oracle",
            self.open_player,
            self.open_text,
            self.open_machine,
            self.said.append,
            lambda sentence: None,
            lambda phase: None,
        )

    @property
    def reads_all(self) -> bool:
        """Whether it has the footers of all three files of the short dataset."""
        return bool(self.trained) and len(self.source.plan.footers) == 3

    async def open_player(self, choice: str, program: Program, note: object) -> OraclePlayer:
        player = OraclePlayer()
        await player.load(program)
        return player

    async def open_text(
        self, settings: Settings, micro_batches: int, note: object, shared: Shared | None = None, /
    ) -> StreamSource:
        source = self.source = await opened(self.hub, settings, shared)
        batch = source.batch

        async def recorded(step: int, micro_batch: int, rows: int) -> Any:
            self.trained[step] = await batch(step, micro_batch, rows)
            return self.trained[step]

        source.batch = recorded  # type: ignore[method-assign]
        return source

    async def open_machine(self) -> WasmtimeMachine:
        return WasmtimeMachine()

    async def open(self, founder: bool) -> None:
        run = await self.maker.found(self.settings) if founder else None
        settings = run.settings if run else await self.maker.prepare(self.settings)
        self.node = Node(self.me, self.me, "test", settings, FAST)
        self.host = Host(self.node, self, self.maker, self.heard, run)
        if run is None:
            self.host.carry_out(self.node.join())
        else:
            weights = await run.replica.initialise()
            layout = self.maker.layout(run.settings.text)
            self.host.carry_out(self.node.found(layout, weights))


def play(go: Callable[[Wire], Awaitable[None]]) -> None:
    async def run() -> None:
        world = Wire(room_settings())
        try:
            await go(world)
        finally:
            world.close()

    asyncio.run(run())


async def come_in(world: Wire, me: str, hub: Hub, settings: Settings = SETTINGS) -> HubDevice:
    device = HubDevice(world, me, hub, settings)
    await world.enter(device)
    device.host.give(events.Run())
    return device


def planning_requests(hub: Hub) -> list[str]:
    """Requests for the listing and for footers, which ask for these small files whole."""
    asked = hub.requests("api")
    return [r.path for r in asked if "/tree/" in r.path or r.range.startswith("bytes=0-")]


async def assert_trained_by_the_plan(hub: Hub, devices: list[HubDevice]) -> None:
    """Each slice's tokens are those that a reader of its own finds by the slice's number."""
    own = await opened(hub, devices[0].settings)
    for device in devices:
        assert device.trained
        for number, batch in list(device.trained.items()):
            assert batch == await own.batch(number, 0, ROWS)
    steps = [{log.step: log.start_hash for log in device.steps()} for device in devices]
    common = set.intersection(*(set(logs) for logs in steps))
    assert len(common) >= 2
    assert all(len({logs[step] for logs in steps}) == 1 for step in common)


def test_one_device_asks_for_listing_and_footers(hub: Hub) -> None:
    async def go(world: Wire) -> None:
        first = await come_in(world, "aaaa", hub)
        asked = planning_requests(hub)
        assert len([path for path in asked if "/tree/" in path]) == 1
        assert len(asked) == 3  # both files: the one that the run begins with and the held-out one
        second = await come_in(world, "bbbb", hub)
        await world.until(lambda: len(second.steps()) >= 2)
        third = await come_in(world, "cccc", hub)
        devices = [first, second, third]
        await world.until(lambda: all(len(d.steps()) >= 3 for d in devices))
        held = [b async for b in third.host.run.replica.source.heldout_batches(ROWS, 1)]  # type: ignore[union-attr]
        assert held
        assert planning_requests(hub) == asked
        await assert_trained_by_the_plan(hub, devices)
        assert len(devices[0].steps()[-1].roster) == 3
        assert not any(device.said for device in devices)
        plan = first.host.run.plan  # type: ignore[union-attr]
        asking = Envelope("bbbb", "aaaa", 0, FetchPlan(plan.digest))  # type: ignore[union-attr]
        first.host.give(events.Received("bbbb", asking))
        assert first.node.core.dropped["plan for a stranger"] == 1, "only newcomers are served"

    play(go)


def test_a_room_of_other_data_is_not_taken_for_ones_own(hub: Hub) -> None:
    async def go(world: Wire) -> None:
        device = await come_in(world, "aaaa", hub)
        run = device.host.run
        assert run
        for text in (settings_text(SETTINGS, 258, AgreedPlan("a" * 32, 5)), "nonsense"):
            device.host.failure = None
            device.host.carry_out([effects.FetchState("bbbb", 0, text)])
            await world.until(lambda: device.host.failure is not None)
            assert "other settings or other data" in str(device.host.failure)
        newcomer = HubDevice(world, "cccc", hub)
        await newcomer.open(founder=False)
        newcomer.host.carry_out([effects.FetchState("aaaa", 0, "nonsense")])
        await world.until(lambda: newcomer.host.failure is not None)
        assert "settings cannot be read" in str(newcomer.host.failure)
        newcomer.kill()

    play(go)


@pytest.mark.parametrize("fault", ["lie", "silence"])
def test_a_source_that_lies_or_is_silent_changes_no_slice(
    hub: Hub, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_plan, "ASK_EVERY_MS", 100)
    monkeypatch.setattr(data_plan, "ASKS", 2)

    def tamper(origin: str, peer: str, header: bytes, data: bytes) -> bytes:
        if fault == "lie" and wire.decode_flow_header(header).kind is Kind.PLAN:
            return data[:-9] + bytes(9)
        return data

    async def go(world: Wire) -> None:
        world.tamper = tamper
        first = await come_in(world, "aaaa", hub)
        if fault == "silence":
            monkeypatch.setattr(first.host._guests, "serve_plan", lambda effect, plan: None)
        asked = planning_requests(hub)
        second = await come_in(world, "bbbb", hub)
        await world.until(lambda: len(second.steps()) >= 3)
        assert len(planning_requests(hub)) == 2 * len(asked)
        await assert_trained_by_the_plan(hub, [first, second])
        assert [s for s in second.said if "reads the data's footers itself" in s] or (
            fault == "silence"
        )
        # It has the plan now, and can tell it to others.
        first_run, second_run = first.host.run, second.host.run
        assert first_run
        assert second_run
        assert first_run.plan == second_run.plan

    play(go)


def test_a_later_footer_is_read_once_and_told(hub: Hub) -> None:
    async def go(world: Wire) -> None:
        devices = [await come_in(world, "aaaa", hub, SHORT)]
        assert len(planning_requests(hub)) == 3, "the listing and two footers of three"
        hub.log.clear()
        for name in ("bbbb", "cccc"):  # the third needs it at once, from who has it
            devices.append(await come_in(world, name, hub, SHORT))
            await world.until(lambda: all(d.reads_all for d in devices))
        trained = [len(device.trained) for device in devices]
        await world.until(lambda: all(len(d.trained) > n for d, n in zip(devices, trained)))  # noqa: B905
        assert len(planning_requests(hub)) == 1
        assert not any(device.source.status().notice for device in devices)
        await assert_trained_by_the_plan(hub, devices)

    play(go)


def test_a_plan_that_is_not_the_hubs_is_refused_by_its_place(hub: Hub) -> None:
    """The founder itself lies: what it agreed on cannot be had from the Hub."""

    async def go() -> None:
        shared: Any = await (await opened(hub, SETTINGS)).shared()
        said: list[str] = []

        async def newcomer(plan: Any) -> Exception:
            packed = pack_plan(plan)
            agreed = AgreedPlan(packed.digest, len(packed.packed))
            opener = lambda settings, micro, note, told=None, /: opened(hub, settings, told)  # noqa: E731
            with pytest.raises(DataError) as caught:
                await open_agreed(opener, SETTINGS, agreed, packed.packed, said.append, said.append)
            return caught.value

        shared["footers"]["1"]["groups"][2][2] = 2**50
        error = await newcomer(shared)
        assert "wrong at row group 2 of default/train/0001.parquet" in said[-1]
        assert "differ in row group 2 of default/train/0001.parquet" in str(error)
        shared["listing"]["repo"] = "owner/other"
        assert "differ in the list of files" in str(await newcomer(shared))

    asyncio.run(go())


def test_a_file_of_ones_own_is_on_one_device_only(hub: Hub) -> None:
    async def go() -> None:
        device = HubDevice(Wire(room_settings()), "aaaa", hub)
        own = resolve({"data": "file"})
        with pytest.raises(DataError, match="text that every device can get"):
            await device.maker.found(own)
        with pytest.raises(DataError, match="text that every device can get"):
            await device.maker.build(settings_text(own, 16_512))

    asyncio.run(go())


def test_settings_texts_with_impossible_plans_are_refused() -> None:
    good = settings_text(SETTINGS, 16_512, AgreedPlan("a" * 32, 5))
    assert read_settings_text(good).plan == AgreedPlan("a" * 32, 5)
    for plan in ("x", [], ["a" * 32], ["a" * 31, 5], ["g" * 32, 5], [5, 5], ["a" * 32, 2**30], 7):
        text = json.dumps(json.loads(good) | {"plan": plan})
        with pytest.raises(ClusterError, match="cannot be read"):
            read_settings_text(text)
