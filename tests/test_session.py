"""The session on the oracle: phases, log, pause, stop, held-out measurements, lost devices."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from daisychain import building
from daisychain.building import build_model, estimate, micro_batch_rows
from daisychain.data import HeldoutBatch, SourceStatus
from daisychain.errors import DataError, DeviceLost
from daisychain.numbers import tables
from daisychain.players.oracle import OraclePlayer
from daisychain.session import TrainingSession
from daisychain.settings import resolve

VOCABULARY = 61
SETTINGS = {
    "width": 16,
    "layers": 1,
    "heads": 2,
    "hidden": 32,
    "context": 16,
    "batch": 4,
    "lr": 1e-2,
    "steps": 6,
    "eval_every": 3,
    "sample_every": 0,
}


class CountingSource:
    """Sequences that count upwards; held-out text of three bytes a token."""

    tokenizer = SimpleNamespace(size=VOCABULARY)
    name = "counting"

    def __init__(self) -> None:
        self.closed = False
        self.notice = ""

    def _windows(self, start: int, rows: int) -> tuple[array[int], array[int]]:
        ids = [(start + 7 * row + t) % VOCABULARY for row in range(rows) for t in range(16)]
        return array("I", ids), array("I", [(i + 1) % VOCABULARY for i in ids])

    async def batch(self, step: int, micro_batch: int, rows: int) -> tuple[Any, Any]:
        return self._windows(step * 11 + micro_batch, rows)

    async def heldout_batches(self, rows: int, limit: int) -> AsyncIterator[HeldoutBatch]:
        for number in range(limit):
            ids, targets = self._windows(1000 + number, rows)
            yield HeldoutBatch(ids, targets, rows * 16, 3 * rows * 16)

    def status(self) -> SourceStatus:
        return SourceStatus(5000, notice=self.notice, received_bytes=77)

    def close(self) -> None:
        self.closed = True


class FailingPlayer(OraclePlayer):
    """Loses its device at the given run calls, counted over all players of a test."""

    runs = 0

    def __init__(self, lost_at: Sequence[int]) -> None:
        super().__init__()
        self.lost_at = lost_at

    async def run(self, plans: Sequence[str], read: str) -> bytes:
        type(self).runs += 1
        if type(self).runs in self.lost_at:
            raise DeviceLost("The GPU was lost (test).")
        return await super().run(plans, read)


def make(
    new_player: Callable[[], OraclePlayer] = OraclePlayer, source: Any = None, **changed: Any
) -> tuple[TrainingSession, Any]:
    source = source or CountingSource()

    async def open_player(preference: str, program: Any, note: Any) -> OraclePlayer:
        player = new_player()
        await player.load(program)
        return player

    async def open_source(settings: Any, micro_batches: int, note: Any) -> Any:
        note("Waiting for the Hub.")
        note("")
        return source

    return TrainingSession(resolve(SETTINGS | changed), open_player, open_source), source


def test_the_source_is_heard() -> None:
    source = CountingSource()
    source.notice = "Row group 3 is damaged."
    session, _ = make(source=source)
    texts: list[object] = []
    session.subscribe(lambda: texts.append(session.state()["progress"]))
    asyncio.run(session.run())
    state = session.state()
    assert {"text": "Waiting for the Hub."} in texts
    assert state["progress"] is None
    assert state["notices"] == ["Row group 3 is damaged."]
    assert state["data"] == {"name": "counting", "buffered_tokens": 5000, "received_bytes": 77}


def test_a_run_from_start_to_end() -> None:
    session, source = make()
    phases: list[str] = []

    def heard() -> None:
        if not phases or phases[-1] != session.state()["phase"]:
            phases.append(session.state()["phase"])

    session.subscribe(heard)
    asyncio.run(session.run())
    state, log = session.state(), session.log()
    assert phases == ["data", "check", "train", "idle"]
    assert state["error"] is None
    assert [r["step"] for r in log] == [1, 2, 3, 4, 5, 6]
    assert log[-1]["loss"] < log[0]["loss"]
    assert [("heldout_nats" in r) for r in log] == [False, False, True, False, False, True]
    nats = state["heldout_nats"]
    assert state["heldout_bits_per_byte"] == pytest.approx(nats / 0.6931471805599453 / 3)
    assert state["tokens"] == 6 * 4 * 16
    assert len(state["weights_hash"]) == 32
    assert state["weights_hash"] != log[-1]["hash"]
    assert not source.closed
    session.close()
    assert source.closed


def test_pause_resume_and_stop() -> None:
    session, _ = make(steps=1000, eval_every=0)

    async def go() -> None:
        run = asyncio.create_task(session.run())
        actions = {2: session.pause, 4: session.stop}
        session.subscribe(lambda: actions.pop(session.state()["step"], lambda: None)())
        while session.state()["phase"] != "pause":
            await asyncio.sleep(0)
        assert session.state()["step"] == 2
        session.resume()
        await asyncio.wait_for(run, 20)

    asyncio.run(go())
    assert session.state()["phase"] == "idle"
    assert session.state()["step"] == 4


def final_hash(**changed: Any) -> str:
    session, _ = make(**changed)
    asyncio.run(session.run())
    assert session.state()["error"] is None
    return str(session.state()["weights_hash"])


def test_a_lost_device_changes_no_bit() -> None:
    FailingPlayer.runs = 0
    session, _ = make(new_player=lambda: FailingPlayer([4]))
    asyncio.run(session.run())
    assert session.state()["error"] is None
    assert session.state()["weights_hash"] == final_hash()
    assert len([r for r in session.log() if "loss" in r]) == 6
    assert session.state()["notices"] == ["The GPU was lost (test)."]


def test_a_second_loss_even_on_the_way_back_ends_on_the_cpu() -> None:
    """A step that a GPU's watchdog ends kills the fresh device too."""
    FailingPlayer.runs = 0
    asked: list[str] = []
    session, _ = make(new_player=lambda: FailingPlayer([5, 8]))
    open_player = session._open_player

    async def opening(preference: str, program: Any, note: Any) -> Any:
        asked.append(preference)
        return await open_player(preference, program, note)

    session._open_player = opening
    asyncio.run(session.run())
    assert session.state()["error"] is None
    assert session.state()["weights_hash"] == final_hash()
    assert [r["step"] for r in session.log() if "loss" in r] == [1, 2, 3, 4, 5, 6]
    assert asked == ["auto", "auto", "wasm"]


def test_a_device_that_is_lost_again_and_again_ends_in_a_sentence() -> None:
    FailingPlayer.runs = 0
    session, _ = make(new_player=lambda: FailingPlayer([4, 8, 14, 20, 26, 33]), steps=30)
    asyncio.run(session.run())
    assert session.state()["phase"] == "error"
    assert "lost 4 times" in session.state()["error"]


def test_broken_data_end_in_a_sentence() -> None:
    class Broken(CountingSource):
        async def batch(self, step: int, micro_batch: int, rows: int) -> tuple[Any, Any]:
            raise DataError("The corpus is damaged.", do="Load the page again.")

    session, _ = make(source=Broken())
    asyncio.run(session.run())
    assert session.state()["phase"] == "error"
    assert session.state()["error"] == "The corpus is damaged. Load the page again."


def test_memory_of_the_estimate_is_that_of_the_run() -> None:
    settings = resolve({"preset": "tiny"})
    assert estimate(settings).memory_bytes == build_model(settings).program.memory_bytes()
    assert estimate(settings).parameters == settings.parameters


def test_an_estimate_makes_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 4,096 positions takes long, and the form asks for an estimate while people type."""
    monkeypatch.setattr(tables, "rope_work", None)
    assert estimate(resolve({"context": 4096, "batch": 1})).memory_bytes > 0


def test_the_page_has_its_turns_while_the_largest_table_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(building, "TURN_MS", 0.0)
    config = building.model_config(resolve({"width": 256, "heads": 4}))
    tables.rope_table(8, 8)

    async def scenario() -> int:
        work, turns = asyncio.ensure_future(building.prepare_tables(config)), 0
        while not work.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(scenario()) >= config.head_dim // 2


def test_the_largest_table_is_there_before_a_player_asks() -> None:
    tables.rope_table(8, 8)
    missing: list[None] = []

    def new_player() -> OraclePlayer:
        missing.extend(tables.rope_work(16, 8))
        return OraclePlayer()

    session, _ = make(new_player)
    asyncio.run(session.run())
    assert session.state()["step"] == 6
    assert missing == []


@pytest.mark.parametrize(
    ("batch", "context", "rows"), [(8, 64, 8), (8, 256, 4), (8, 512, 2), (7, 512, 1), (2, 4096, 1)]
)
def test_micro_batches_divide_the_batch(batch: int, context: int, rows: int) -> None:
    assert micro_batch_rows(batch, context) == rows
