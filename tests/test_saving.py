"""Saving in a session: checkpoints between steps, automatic saves, going on."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest

from daisychain.data import Tokenizer
from daisychain.data.byte_pairs import BytePairs
from daisychain.data.port import DataFile, TokenTable
from daisychain.errors import DataError, DeviceLost
from daisychain.export.checkpoint import Checkpoint, read_archive, write_checkpoint
from daisychain.platform.files import KeepError
from daisychain.players.oracle import OraclePlayer
from daisychain.session import TrainingSession
from daisychain.settings import resolve
from tests.export.models import VOCABULARY, foreign, tokenizer_json
from tests.test_session import SETTINGS, CountingSource, FailingPlayer


class WaitingPlayer(OraclePlayer):
    """Lets other tasks run while it computes, as a device does."""

    async def run(self, plans: Sequence[str], read: str) -> bytes:
        for _ in range(20):
            await asyncio.sleep(0)
        return await super().run(plans, read)


class EncodingPort:
    """Encodes in Python."""

    def __init__(self) -> None:
        self.pairs = BytePairs(tokenizer_json())

    async def encode(self, text: str) -> list[int]:
        return self.pairs.encode(text)


class NamedSource(CountingSource):
    """A source with a tokenizer and a cursor."""

    def __init__(self, name: str = "counting") -> None:
        super().__init__()
        self.name = name
        port: Any = EncodingPort()
        tokens = [port.pairs.token_bytes(token) for token in range(VOCABULARY)]
        ends = array("I", accumulate(map(len, tokens)))
        table = TokenTable(b"".join(tokens), ends, port.pairs.added)
        self.tokenizer: Any = Tokenizer(port, "test", table, DataFile(handle=tokenizer_json()))

    def cursor(self) -> dict[str, object]:
        return {"source": self.name}

    def restore(self, cursor: dict[str, object]) -> None:
        if cursor != self.cursor():
            raise DataError("The checkpoint's data differ in source.")


class Kept:
    """Takes the automatic saves."""

    def __init__(self, error: Exception | None = None) -> None:
        self.checkpoints: list[Checkpoint] = []
        self.error = error

    async def __call__(self, checkpoint: Checkpoint) -> None:
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        self.checkpoints.append(checkpoint)

    @property
    def steps(self) -> list[int]:
        return [c.run.step for c in self.checkpoints if c.run]


def make(
    resumed: Checkpoint | None = None,
    kept: Kept | None = None,
    new_player: Callable[[], OraclePlayer] = WaitingPlayer,
    source: str = "counting",
    **changed: Any,
) -> TrainingSession:
    async def open_player(preference: str, program: Any, note: Any) -> OraclePlayer:
        player = new_player()
        await player.load(program)
        return player

    async def open_source(settings: Any, micro_batches: int, note: Any) -> Any:
        return NamedSource(source)

    settings = resolve(SETTINGS | {"save_every": 2} | changed)
    if resumed and resumed.run and not changed:
        settings = resumed.run.settings
    return TrainingSession(settings, open_player, open_source, resumed, kept)


def finished(session: TrainingSession) -> dict[str, Any]:
    asyncio.run(session.run())
    return session.state()


def reread(checkpoint: Checkpoint) -> Checkpoint:
    data = b"".join(asyncio.run(write_checkpoint(checkpoint)))
    return asyncio.run(read_archive(data))


def test_saves_in_the_background_and_at_the_end() -> None:
    kept = Kept()
    state = finished(make(kept=kept, steps=5))
    assert state["error"] is None
    assert kept.steps == [2, 4, 5]
    assert state["saved_step"] == 5
    last = kept.checkpoints[-1].run
    assert last is not None
    assert last.weights_hash == state["weights_hash"]
    assert kept.checkpoints[-1].facts["data"] == "counting"
    assert "oracle" in str(kept.checkpoints[-1].facts["devices"])


def test_never_means_never() -> None:
    kept = Kept()
    finished(make(kept=kept, save_every=0))
    assert kept.steps == []


def test_a_pause_saves() -> None:
    kept = Kept()
    session = make(kept=kept, steps=1000, eval_every=0, save_every=500)

    async def go() -> None:
        run = asyncio.create_task(session.run())
        session.subscribe(lambda: session.pause() if session.state()["step"] == 3 else None)
        while session.state()["phase"] != "pause":
            await asyncio.sleep(0)
        told: list[int] = []
        session.subscribe(lambda: told.append(session.state()["saved_step"]))
        while not told:
            await asyncio.sleep(0)
        assert told == [3]
        session.stop()
        await run

    asyncio.run(go())
    assert kept.steps == [3]


def test_saving_changes_no_bit() -> None:
    hashes = [finished(make(kept=k, **c))["weights_hash"] for k, c in ((None, {}), (Kept(), {}))]
    assert hashes[0] == hashes[1]


def test_a_full_device_is_told_once_and_stops_nothing() -> None:
    kept = Kept(KeepError("The browser has no room.", is_full=True))
    state = finished(make(kept=kept))
    assert state["error"] is None
    assert state["step"] == 6
    assert len(state["notices"]) == 1
    assert "no room" in state["notices"][0]
    assert state["saved_step"] == 0


@pytest.mark.parametrize("number", [0, 1])
def test_going_on_from_a_save_gives_the_same_bits(number: int) -> None:
    kept = Kept()
    whole = make(kept=kept)
    state = finished(whole)
    save = reread(kept.checkpoints[number])
    again = make(save, Kept())
    assert finished(again) | {"notices": []} == state | {
        "tokens_per_s": again.state()["tokens_per_s"]
    }
    steps = [record["step"] for record in again.log() if "loss" in record]
    assert steps == [1, 2, 3, 4, 5, 6]
    losses = [[r["loss"] for r in s.log() if "loss" in r] for s in (whole, again)]
    assert losses[0] == losses[1]


def test_a_device_lost_after_going_on_changes_no_bit() -> None:
    kept = Kept()
    state = finished(make(kept=kept))
    FailingPlayer.runs = 0
    again = make(reread(kept.checkpoints[0]), new_player=lambda: FailingPlayer([5]))
    found = finished(again)
    assert found["error"] is None
    assert found["notices"] == ["The GPU was lost (test)."]
    assert found["weights_hash"] == state["weights_hash"]


def test_somebody_elses_model_is_a_beginning() -> None:
    model = foreign(make_config())
    session = make(model)
    state = finished(session)
    assert state["error"] is None
    assert state["step"] == 6
    assert session.log()[0]["loss"] > 5
    plain = finished(make())
    assert state["weights_hash"] != plain["weights_hash"]


def make_config() -> Any:
    from daisychain.building import model_config

    return model_config(resolve(SETTINGS), VOCABULARY)


def saved() -> Checkpoint:
    kept = Kept()
    finished(make(kept=kept, steps=3))
    return kept.checkpoints[0]


def test_a_run_from_a_file_is_not_said_to_be_saved() -> None:
    kept = Kept(KeepError("The browser has no room.", is_full=True))
    state = finished(make(saved(), kept=kept))
    assert (state["step"], state["saved_step"]) == (3, 0)


def test_other_data_are_refused() -> None:
    state = finished(make(saved(), source="another"))
    assert state["phase"] == "error"
    assert "differ in source" in state["error"]


def test_another_shape_is_refused() -> None:
    state = finished(make(saved(), width=32))
    assert "another model" in state["error"]


def test_weights_of_another_run_are_refused() -> None:
    checkpoint = saved()
    assert checkpoint.run is not None
    run = replace(checkpoint.run, weights_hash="0" * 32)
    state = finished(make(replace(checkpoint, run=run)))
    assert "do not have the hash" in state["error"]


def test_a_checkpoint_between_steps_and_after_the_end() -> None:
    session = make(steps=4)
    found: list[Checkpoint] = []

    async def go() -> None:
        run = asyncio.create_task(session.run())
        while session.state()["step"] < 2:
            await asyncio.sleep(0)
        found.append(await session.checkpoint())
        await run
        found.append(await session.checkpoint())
        session.close()

    asyncio.run(go())
    first, last = (c.run for c in found)
    assert first is not None
    assert last is not None
    assert first.step < last.step == 4
    assert last.weights_hash == session.state()["weights_hash"]
    assert finished(make(reread(found[0])))["weights_hash"] == last.weights_hash


@pytest.mark.parametrize("before_end", [0, 1, 2])
def test_a_device_lost_at_the_very_end_changes_no_bit(before_end: int) -> None:
    FailingPlayer.runs = 0
    plain = finished(make(steps=3, kept=Kept(), new_player=lambda: FailingPlayer([])))
    last, FailingPlayer.runs = FailingPlayer.runs, 0
    kept = Kept()
    session = make(steps=3, kept=kept, new_player=lambda: FailingPlayer([last - before_end]))
    state = finished(session)
    assert state["error"] is None
    assert state["weights_hash"] == plain["weights_hash"]
    assert state["notices"] == ["The GPU was lost (test)."]
    assert kept.steps[-1] == 3


def test_a_device_lost_at_rest_comes_back() -> None:
    FailingPlayer.runs = 0
    session = make(steps=2, new_player=lambda: FailingPlayer([7]))

    async def go() -> None:
        await session.run()
        assert FailingPlayer.runs < 7
        before = session.state()["weights_hash"]
        FailingPlayer.runs = 6
        with pytest.raises(DeviceLost):
            await session.checkpoint()
        checkpoint = await session.checkpoint()
        assert checkpoint.run is not None
        assert (checkpoint.run.step, checkpoint.run.weights_hash) == (2, before)

    asyncio.run(go())
