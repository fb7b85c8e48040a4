"""A room's run is kept by each device and goes on, in a room or alone: whole sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from exchange_machine import WasmtimeMachine

from daisychain.cluster.machine import Owed
from daisychain.cluster.mesh import Mesh
from daisychain.cluster.state import Committed
from daisychain.export.checkpoint import Checkpoint, read_archive, write_checkpoint
from daisychain.export.checkpoint import Run as SavedRun
from daisychain.numbering import Numbering
from daisychain.platform.files import KeepError
from daisychain.players.oracle import OraclePlayer
from daisychain.room import keeper
from daisychain.room.session import RoomSession
from daisychain.settings import resolve
from tests.cluster.memory_rtc import MemoryNetwork
from tests.cluster.test_mesh import CODE
from tests.export.models import foreign
from tests.room.test_room_session import (
    MESH,
    CountingSource,
    House,
    _derive_once,
    assert_equal,
    happens,
    names,
    play,
)
from tests.test_saving import Kept, NamedSource, finished, make, make_config, reread
from tests.test_session import SETTINGS, FailingPlayer

__all__ = ["_derive_once"]

STEPS = 6


class NoisySource(NamedSource):
    """Notes which slices are asked for."""

    def __init__(self, asked: list[tuple[int, int]]) -> None:
        super().__init__()
        self.asked = asked

    def cursor(self) -> dict[str, object]:
        return {**super().cursor(), "micro_batches": 1}

    async def batch(self, step: int, micro_batch: int, rows: int) -> tuple[Any, Any]:
        self.asked.append((step, micro_batch))
        return await super().batch(step, micro_batch, rows)


def room(
    resumed: Checkpoint | None = None,
    kept: Kept | None = None,
    new_player: Callable[[], OraclePlayer] = OraclePlayer,
    asked: list[tuple[int, int]] | None = None,
    new_code: bool = False,
    **changed: Any,
) -> RoomSession:
    """A room of one without a relay."""

    async def open_player(preference: str, program: Any, note: Any) -> OraclePlayer:
        player = new_player()
        await player.load(program)
        return player

    async def open_source(*_: object) -> Any:
        return NoisySource([] if asked is None else asked)

    async def open_machine() -> WasmtimeMachine:
        return WasmtimeMachine()

    settings = resolve(SETTINGS | {"save_every": 2} | changed)
    return RoomSession(
        settings,
        open_player,
        open_source,
        role="host",
        code=CODE,
        name="ann",
        open_machine=open_machine,
        open_mesh=lambda emit, _: Mesh(emit, replace(MESH, relays=()), MemoryNetwork().rtc),
        resumed=resumed,
        keep=kept,
        new_code=new_code,
    )


async def until(done: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not done():
            await asyncio.sleep(0)


def is_applied(session: RoomSession, step: int) -> bool:
    at = session._node.core.committed if session._node else None
    return at is not None and at.step == step and bool(at.weights_hash)


def ended(session: RoomSession) -> dict[str, Any]:
    """The state after the last step or an error; the room is left then."""

    async def go() -> dict[str, Any]:
        run = asyncio.ensure_future(session.run())
        await until(lambda: run.done() or is_applied(session, session.settings.steps))
        session.stop()
        await run
        return session.state()

    return asyncio.run(go())


def bits(session: Any) -> list[tuple[int, float, str]]:
    return [(r["step"], r["loss"], r["hash"]) for r in session.log() if "loss" in r]


@pytest.fixture(scope="module")
def whole() -> tuple[RoomSession, Kept, str]:
    """An uninterrupted run in a room of one, and its saves."""
    kept = Kept()
    session = room(kept=kept)
    state = ended(session)
    assert (state["step"], state["saved_step"], state["error"]) == (STEPS, STEPS, None)
    return session, kept, state["weights_hash"]


def run_of(checkpoint: Checkpoint) -> SavedRun:
    assert checkpoint.run is not None
    return checkpoint.run


Whole = tuple[RoomSession, Kept, str]


def test_a_room_is_kept_every_few_steps_and_at_the_end(whole: Whole) -> None:
    _, kept, weights_hash = whole
    assert kept.steps[0] in (2, 3)
    assert kept.steps[-1] == STEPS
    assert run_of(kept.checkpoints[-1]).weights_hash == weights_hash
    assert run_of(kept.checkpoints[-1]).slices == STEPS
    assert kept.checkpoints[-1].facts["data"] == "counting"


def test_a_room_of_one_goes_on_to_the_same_bits(whole: Whole) -> None:
    session, kept, weights_hash = whole
    again = room(reread(kept.checkpoints[0]), Kept())
    state = ended(again)
    assert (state["weights_hash"], state["error"]) == (weights_hash, None)
    assert state["tokens"] == session.state()["tokens"]
    assert bits(again) == bits(session)


def test_room_and_alone_in_turns_are_one_run(whole: Whole) -> None:
    """From a room alone, from there into a room again; and from a run that began alone."""
    session, kept, weights_hash = whole
    alone = Kept()
    middle = make(reread(kept.checkpoints[0]), alone, source="counting")
    middle._open_source = lambda *_: _noisy()  # type: ignore[assignment]
    assert finished(middle)["weights_hash"] == weights_hash
    assert bits(middle) == bits(session)
    save = next(c for c in alone.checkpoints if run_of(c).step < STEPS)
    assert run_of(save).slices == run_of(save).step
    again = room(reread(save))
    assert ended(again)["weights_hash"] == weights_hash
    solo = Kept()
    assert finished(make(kept=solo))["weights_hash"] == weights_hash
    begun = reread(solo.checkpoints[0])
    assert (run_of(begun).slices, run_of(begun).owed) == (None, None)
    again = room(begun)
    assert ended(again)["weights_hash"] == weights_hash
    assert bits(again) == bits(session)


async def _noisy() -> NoisySource:
    return NoisySource([])


def test_every_slice_is_taken_once_whoever_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two micro-batches a step alone, then one in a room, then two again."""
    monkeypatch.setattr("daisychain.building.MICRO_BATCH_TOKENS", 32)
    solo, together, alone = Kept(), Kept(), list[tuple[int, int]]()
    finished(make(kept=solo, steps=8, warmup=1))
    begun = reread(solo.checkpoints[0])
    at = run_of(begun).step
    asked: list[tuple[int, int]] = []
    assert ended(room(begun, together, asked=asked, steps=8, warmup=1))["error"] is None
    assert asked == [(2 * at + i, 0) for i in range(8 - at)]
    save = reread(next(c for c in together.checkpoints if at < run_of(c).step < 8))
    run = run_of(save)
    assert run.slices == 2 * at + run.step - at
    last = make(save)

    async def noisy() -> NoisySource:
        return NoisySource(alone)

    last._open_source = lambda *_: noisy()  # type: ignore[assignment]
    state = finished(last)
    assert (state["step"], state["error"]) == (8, None)
    assert alone == [(run.slices + i, 0) for i in range(2 * (8 - run.step))]
    assert state["tokens"] == 32 * (run.slices + 2 * (8 - run.step))


def test_numbers_of_a_run_alone_are_its_own() -> None:
    plain = Numbering.of(4, None)
    assert (plain.source_micro_batches, plain.room_slice(3), plain.slices(3)) == (4, None, 12)


def test_a_device_lost_after_going_on_changes_no_bit(whole: Whole) -> None:
    _, kept, weights_hash = whole
    FailingPlayer.runs = 0
    state = ended(room(reread(kept.checkpoints[0]), new_player=lambda: FailingPlayer([7])))
    assert (state["weights_hash"], state["error"]) == (weights_hash, None)
    assert any("lost" in notice for notice in state["notices"])


def test_a_pause_and_leaving_save() -> None:
    kept = Kept()
    session = room(kept=kept, steps=1000, save_every=500)

    async def go() -> None:
        run = asyncio.ensure_future(session.run())
        await until(lambda: session.state()["step"] >= 3)
        session.pause()
        assert session.state()["phase"] == "pause"
        await until(lambda: session.state()["saved_step"] == session.state()["step"])
        paused = session.state()["step"]
        await asyncio.sleep(0.3)
        assert (session.state()["step"], session.state()["phase"]) == (paused, "pause")
        session.resume()
        assert session.state()["phase"] == "train"
        await until(lambda: session.state()["step"] > paused)
        session.leave()
        await run
        assert session.state()["saved_step"] == session.state()["step"] == kept.steps[-1]
        last = run_of(kept.checkpoints[-1])
        assert await session.between(lambda trainer: trainer.flush()) == last.weights_hash
        session.close()

    asyncio.run(go())


def test_a_full_device_is_told_once_and_stops_nothing() -> None:
    state = ended(room(kept=Kept(KeepError("The browser has no room.", is_full=True))))
    assert (state["step"], state["saved_step"], state["error"]) == (STEPS, 0, None)
    assert len([n for n in state["notices"] if "no room" in n]) == 1


def test_never_means_never() -> None:
    kept = Kept()
    ended(room(kept=kept, save_every=0))
    assert kept.steps == []


def _other_weights(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, run=replace(run_of(checkpoint), weights_hash="0" * 32))


def _other_model(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, config=replace(checkpoint.config, hidden=40))


def _other_tokenizer(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, tokenizer=b"{}")


def _other_data(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, run=replace(run_of(checkpoint), cursor={"source": "another"}))


def _no_run(checkpoint: Checkpoint) -> Checkpoint:
    return foreign(make_config())


def _other_start(checkpoint: Checkpoint) -> Checkpoint:
    """Step 0 of a run that began with somebody else's weights."""
    return replace(checkpoint, run=replace(run_of(checkpoint), step=0, slices=0))


def _short_residuals(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, run=replace(run_of(checkpoint), owed=Owed(b"1234")))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_other_weights, "do not have the hash"),
        (_other_model, "another model"),
        (_other_tokenizer, "tokenizer is not one that every device"),
        (_other_data, "differ in source"),
        (_no_run, "a model without a run"),
        (_other_start, "do not have the hash"),
        (_short_residuals, "of another model"),
    ],
)
def test_what_no_room_can_go_on_from_opens_none(
    whole: Whole, change: Callable[[Checkpoint], Checkpoint], words: str
) -> None:
    session = room(change(whole[1].checkpoints[0]))
    state = ended(session)
    assert (state["phase"], state["members"]) == ("error", [])
    assert words in state["error"]
    assert state["room"]["host"] == "", "nothing was opened"


def test_what_is_owed_comes_back(whole: Whole) -> None:
    """Whatever the file says is in the exchange's memory before the first step."""
    checkpoint = whole[1].checkpoints[0]
    layout_bytes = len(_owed_of(room(checkpoint)).own)
    owed = Owed(bytes(range(1, 200)) + bytes(layout_bytes - 199))
    resumed = replace(checkpoint, run=replace(run_of(checkpoint), owed=owed))
    assert _owed_of(room(resumed)) == owed
    kept = Kept()
    ended(room(resumed, kept))
    assert run_of(reread(kept.checkpoints[-1])).owed == owed, "a room of one adds nothing to it"


def _owed_of(session: RoomSession) -> Owed:
    async def go() -> Owed:
        running = asyncio.ensure_future(session.run())
        await until(lambda: session.state()["step"] >= STEPS)
        assert session.host is not None

        async def look(run: Any) -> Owed:
            await run.reducer._clean()
            found = await run.reducer.owed()
            assert found is not None
            return Owed(found.own, found.reduced, found.owners, found.me)

        owed = await session.host.between(look)
        session.stop()
        await running
        return owed

    return asyncio.run(go())


async def written_and_read(checkpoint: Checkpoint) -> Checkpoint:
    return await read_archive(b"".join(await write_checkpoint(checkpoint)))


@pytest.mark.parametrize("hashes", [["", "ab"], ["", ""]], ids=["applied", "left"])
def test_a_step_that_is_decided_but_not_applied_is_waited_for(
    hashes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that has left is not told the hash of its last step any more."""
    read: list[Committed] = []
    waiting = [Committed(5, 32, "", weights_hash, 5, ("a",)) for weights_hash in hashes]
    core = SimpleNamespace(committed=None)

    async def between(action: Callable[[Any], Any]) -> Any:
        core.committed = waiting.pop(0)
        return await action(None)

    async def read_it(run: Any, at: Committed, told: Any) -> Checkpoint:
        read.append(at)
        return foreign(make_config())

    monkeypatch.setattr(keeper, "_read", read_it)
    host: Any = SimpleNamespace(node=SimpleNamespace(core=core), between=between)
    nothing: Any = None
    asyncio.run(keeper.checkpoint_of(host, nothing))
    assert [at.weights_hash for at in read] == hashes[1:]


class SharedSource(CountingSource):
    """One that a checkpoint can be made of."""

    def __init__(self) -> None:
        self.tokenizer = NamedSource().tokenizer

    def cursor(self) -> dict[str, object]:
        return {"source": self.name, "micro_batches": 1}

    def restore(self, cursor: dict[str, object]) -> None:
        assert cursor == self.cursor()


async def two_devices(house: House) -> tuple[RoomSession, RoomSession, Checkpoint]:
    """Ann and Bob train together; what Ann keeps."""
    house.make_source = SharedSource
    house.settings = replace(house.settings, save_every=3)
    kept = Kept()
    ann, bob = house.page("host", "ann", keep=kept), house.page("member", "bob", keep=Kept())
    await until(lambda: names(ann) == names(bob) == {"ann", "bob"})
    at = ann.state()["step"]
    await until(lambda: kept.steps and kept.steps[-1] > at + 1 and bob.state()["saved_step"])
    save = kept.checkpoints[-1]
    assert "ann" in str(save.facts["devices"])
    assert "bob" in str(save.facts["devices"])
    owed = run_of(save).owed
    assert owed is not None
    assert len(owed.owners) == 2
    return ann, bob, save


def test_a_room_of_two_goes_on_after_both_were_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daisychain.room.session.GATHER_S", 0.3)

    async def test(house: House) -> None:
        ann, bob, save = await two_devices(house)
        for page in (ann, bob):
            happens(page, "pagehide")
            page.stop()
        ann = house.page("host", "ann", await written_and_read(save))
        await until(lambda: ann.state()["step"] > run_of(save).step)
        bob = house.page("member", "bob")
        await until(lambda: names(ann) == names(bob) == {"ann", "bob"})
        at = ann.state()["step"]
        await until(lambda: bob.state()["step"] > at + 1)
        assert_equal(ann, bob, at - 1)
        steps = [r["step"] for r in ann.log() if "loss" in r]
        assert steps == list(range(1, steps[-1] + 1))
        first = next(r for r in ann.log() if r.get("step") == run_of(save).step + 1 and "loss" in r)
        assert first["hash"] == run_of(save).weights_hash

    play(test, monkeypatch)


def test_a_host_that_comes_back_goes_on_with_those_that_went_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(house: House) -> None:
        ann, bob, save = await two_devices(house)
        happens(ann, "pagehide")
        at = bob.state()["step"]
        await until(lambda: names(bob) == {"bob"} and bob.state()["step"] > at)
        ann = house.page("host", "ann", await written_and_read(save))
        await until(lambda: names(ann) == names(bob) == {"ann", "bob"})
        at = bob.state()["step"]
        await until(lambda: ann.state()["step"] > at + 1)
        assert_equal(ann, bob, at - 1)
        steps = [r["step"] for r in bob.log() if "reduced_hash" in r]
        assert steps == list(range(steps[0], steps[-1] + 1))
        assert ann.state()["error"] is None

    play(test, monkeypatch)
