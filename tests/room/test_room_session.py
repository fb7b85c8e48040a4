"""Whole room sessions in one process: mesh over a real relay, protocol, oracle players."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from exchange_machine import WasmtimeMachine

from daisychain.cluster.effects import Mode
from daisychain.cluster.mesh import Mesh
from daisychain.cluster.mesh_events import MeshSettings
from daisychain.cluster.times import Times
from daisychain.data import HeldoutBatch
from daisychain.data.source import SourceStatus
from daisychain.errors import DeviceError
from daisychain.export.checkpoint import Checkpoint
from daisychain.players.oracle import OraclePlayer
from daisychain.room.session import RoomSession
from daisychain.saving import Keep
from daisychain.settings import resolve
from daisychain.ui import phases
from tests.cluster.memory_rtc import MemoryNetwork
from tests.cluster.relay_server import RelayServer
from tests.cluster.test_mesh import CODE, QUICK, _derive_once

__all__ = ["_derive_once"]

VOCABULARY = 64
SHAPE = {"width": 16, "layers": 1, "heads": 2, "hidden": 32, "context": 8, "batch": 1}
SETTINGS = resolve(SHAPE | {"steps": 1000, "eval_every": 0, "save_every": 0, "sample_every": 0})
SOON = Times(
    beat_ms=200,
    suspect_ms=3_000,
    deadline_floor_ms=8_000,
    election_ms=200,
    rejoin_ms=600,
    join_retry_ms=600,
)


LINKS = replace(QUICK.links, connect_ms=5_000.0, times=Times())
MESH = replace(QUICK, links=LINKS, guest_ms=5_000.0)


class CountingSource:
    """Sequences that count upwards from where the slice's number says."""

    tokenizer = SimpleNamespace(size=VOCABULARY)
    name = "counting"

    async def batch(self, step: int, micro_batch: int, rows: int) -> tuple[Any, Any]:
        ids = [(11 * step + i) % VOCABULARY for i in range(rows * SETTINGS.context)]
        return array("I", ids), array("I", [(i + 1) % VOCABULARY for i in ids])

    async def heldout_batches(self, rows: int, limit: int) -> AsyncIterator[HeldoutBatch]:
        return
        yield

    def status(self) -> SourceStatus:
        return SourceStatus(buffered_tokens=0)

    def close(self) -> None:
        """Nothing is open."""


class PatientPlayer(OraclePlayer):
    """Lets the links' messages go through between two runs, as a GPU does."""

    async def run(self, plans: Sequence[str], read: str) -> bytes:
        await asyncio.sleep(0.02)
        return await super().run(plans, read)


class House:
    """A relay and a network; sessions of pages that know the room's code."""

    def __init__(self) -> None:
        self.relay, self.network = RelayServer(), MemoryNetwork()
        self.sessions: list[RoomSession] = []
        self.runs: list[asyncio.Task[None]] = []
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.settings = SETTINGS
        self.make_source: Callable[[], Any] = CountingSource

    def page(
        self, role: str, name: str, resumed: Checkpoint | None = None, keep: Keep | None = None
    ) -> RoomSession:
        async def open_source(*_: object) -> Any:
            return self.make_source()

        async def open_player(_name: str, program: Any, _note: object) -> PatientPlayer:
            await self.may_open.wait()
            player = PatientPlayer()
            await player.load(program)
            return player

        async def open_machine() -> WasmtimeMachine:
            return WasmtimeMachine()

        def open_mesh(emit: Callable[[Any], None], _settings: MeshSettings) -> Mesh:
            return Mesh(emit, replace(MESH, relays=(self.relay.url,)), self.network.rtc)

        session = RoomSession(
            self.settings,
            open_player,
            open_source,
            role=role,
            code=CODE,
            name=name,
            open_machine=open_machine,
            open_mesh=open_mesh,
            resumed=resumed,
            keep=keep,
        )
        self.sessions.append(session)
        self.runs.append(asyncio.ensure_future(session.run()))
        return session

    async def end(self) -> None:
        self.may_open.set()
        for session in self.sessions:
            session.stop()
        await asyncio.gather(*self.runs)
        await self.relay.stop()


def play(test: Callable[[House], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A scenario with short times."""
    monkeypatch.setattr("daisychain.cluster.protocol.Node.__init__.__defaults__", (SOON, 0))

    async def main() -> None:
        house = House()
        await house.relay.start()
        await test(house)
        await house.end()

    asyncio.run(asyncio.wait_for(main(), 120))


async def until(done: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0.01)


def names(session: RoomSession) -> set[str]:
    """Who took part in the last step."""
    log = [record for record in session.log() if "members" in record]
    return {row["name"] for row in log[-1]["members"]} if log else set()


def assert_equal(one: RoomSession, other: RoomSession, since: int) -> None:
    """All steps after ``since`` that both logged, at least one, have the same hashes."""
    logs = [
        {r["step"]: (r["hash"], r["reduced_hash"]) for r in page.log() if "reduced_hash" in r}
        for page in (one, other)
    ]
    common = {step for step in logs[0].keys() & logs[1].keys() if step > since}
    assert common
    assert all(logs[0][step] == logs[1][step] for step in common)


def happens(session: RoomSession, name: str) -> None:
    """What the browser tells one page."""
    session._lifecycle._page_event(name)
    session.mesh._page_event(name)


def test_a_host_that_meets_a_larger_room_joins_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same code is opened twice; the second page has trained alone for a while."""

    async def test(house: House) -> None:
        ann, bob = house.page("host", "ann"), house.page("member", "bob")
        await until(lambda: names(ann) == names(bob) == {"ann", "bob"})
        cyd = house.page("host", "cyd")
        await until(lambda: names(ann) == names(cyd) == {"ann", "bob", "cyd"})
        at = cyd.state()["step"]
        await until(lambda: cyd.state()["step"] >= at + 3 and ann.state()["step"] >= at + 3)
        assert cyd.state()["room"]["host"] == ann.mesh.me.id
        assert cyd.state()["error"] is None
        assert_equal(ann, cyd, at)

    play(test, monkeypatch)


def test_the_leader_reloads_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its link opens the room again under a new id: it joins those that went on."""

    async def test(house: House) -> None:
        ann, bob = house.page("host", "ann"), house.page("member", "bob")
        await until(lambda: names(ann) == names(bob) == {"ann", "bob"})
        happens(ann, "pagehide")
        at = bob.state()["step"]
        await until(lambda: names(bob) == {"bob"} and bob.state()["step"] > at)
        ann = house.page("host", "ann")
        await until(lambda: names(bob) == names(ann) == {"ann", "bob"})
        at = bob.state()["step"]
        await until(lambda: ann.state()["step"] >= at + 3 and bob.state()["step"] >= at + 3)
        assert_equal(ann, bob, at)
        steps = [r["step"] for r in bob.log() if "reduced_hash" in r]
        assert steps == list(range(steps[0], steps[-1] + 1))

    play(test, monkeypatch)


def test_a_frozen_page_leaves_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(house: House) -> None:
        ann, bob = house.page("host", "ann"), house.page("member", "bob")
        await until(lambda: names(ann) == names(bob) == {"ann", "bob"})
        happens(bob, "freeze")
        await until(lambda: names(ann) == {"ann"})
        happens(bob, "resume")
        await until(lambda: names(ann) == {"ann", "bob"})
        bob.pause()
        await until(lambda: names(ann) == {"ann"})
        happens(bob, "freeze")
        happens(bob, "resume")
        assert bob.host is not None
        assert bob.host.node.core.mode is Mode.AWAY
        at = ann.state()["step"]
        bob.resume()
        trained = lambda: any(r["step"] > at for r in bob.log() if "members" in r)  # noqa: E731
        await until(lambda: names(ann) == {"ann", "bob"} and trained())
        assert_equal(ann, bob, at)

    play(test, monkeypatch)


def test_a_page_that_leaves_while_it_prepares_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(house: House) -> None:
        house.may_open.clear()
        pages = [house.page("host", "ann"), house.page("member", "bob")]
        await until(lambda: all(page.state()["phase"] == "check" for page in pages))
        for page in pages:
            page.stop()
        house.may_open.set()
        await asyncio.gather(*house.runs)
        for page in pages:
            assert (page.state()["phase"], page.state()["room"]["stage"]) == ("idle", "left")
            assert {relay.state for relay in page.mesh.relays()} <= {"down"}
            assert page.log() == []
        assert pages[0].mesh.relays() == (), "a host's room opens when its device is ready"

    play(test, monkeypatch)


def test_who_left_keeps_the_model_until_the_page_turns_to_another_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(house: House) -> None:
        ann, bob = house.page("host", "ann"), house.page("member", "bob")
        await until(lambda: names(ann) == names(bob) == {"ann", "bob"})
        bob.leave()
        await house.runs[1]
        await until(lambda: names(ann) == {"ann"})
        step = bob.state()["step"]
        kept = await bob.between(lambda trainer: trainer.flush())
        assert kept == await bob.between(lambda trainer: trainer.flush())
        hashes = [r["hash"] for r in ann.log() if r.get("step") == step + 1 and "hash" in r]
        assert hashes == [kept], "the weights after the last step that both applied"
        assert bob.tokenizer.size == VOCABULARY
        assert phases.has_model({**bob.state(), "phase": phases.END})
        bob.close()
        with pytest.raises(DeviceError, match="given up"):
            await bob.between(lambda trainer: trainer.flush())

    play(test, monkeypatch)


def test_who_comes_in_after_the_end_gets_the_finished_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(house: House) -> None:
        house.settings = replace(SETTINGS, steps=4, warmup=1)
        ann = house.page("host", "ann")
        await until(lambda: ann.state()["phase"] == "idle")
        bob = house.page("member", "bob")
        await until(lambda: bob.state()["phase"] == "idle")
        await asyncio.sleep(2 * SOON.join_retry_ms / 1000)
        states = [page.state() for page in (ann, bob)]
        assert [(s["phase"], s["room"]["stage"], s["step"]) for s in states] == [
            ("idle", "inside", 4)
        ] * 2
        assert states[0]["weights_hash"] == states[1]["weights_hash"]
        assert phases.has_model({**bob.state(), "phase": phases.END})

    play(test, monkeypatch)


def test_a_member_says_that_it_waits_for_a_host_that_paused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("daisychain.room.table.REST_MS", 500.0)

    async def test(house: House) -> None:
        ann, bob = house.page("host", "ann"), house.page("member", "bob")
        await until(lambda: names(ann) == names(bob) == {"ann", "bob"})
        leader, other = (ann, bob) if ann.host.node.core.leads else (bob, ann)  # type: ignore[union-attr]
        assert not other.state()["room"]["awaits_host"]
        leader.pause()
        await until(lambda: other.state()["room"]["awaits_host"])
        assert not leader.state()["room"]["awaits_host"]
        leader.resume()
        await until(lambda: not other.state()["room"]["awaits_host"])

    play(test, monkeypatch)
