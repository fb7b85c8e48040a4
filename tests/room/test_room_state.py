"""What a room's session tells costs the same after a thousand steps as after the first."""

from __future__ import annotations

import asyncio
import gc
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from daisychain.cluster import effects, events, mesh_events
from daisychain.cluster.identity import Member
from daisychain.cluster.layout import model_layout
from daisychain.cluster.protocol import Node
from daisychain.model.config import ModelConfig
from daisychain.model.llama import build_program
from daisychain.plan import Program
from daisychain.room.run import Run
from daisychain.room.run_maker import room_settings
from daisychain.room.session import RoomSession
from daisychain.room.table import names_of
from daisychain.settings import resolve
from tests.room.test_room_saves import STEPS, ended, room, run_of
from tests.test_saving import Kept, reread

CONFIG = ModelConfig(16, 1, 2, 2, 32, 8, vocabulary=61)
ME = "aaaa"


class Source:
    """As far as the state looks at it."""

    name = "test"

    def status(self) -> Any:
        return SimpleNamespace(notice="", ready=1.0)


def nothing(*_: Any) -> Any:
    raise AssertionError("nothing is opened here")


def session(monkeypatch: Any) -> RoomSession:
    """One device inside its own room; only what the links say is made up."""
    monkeypatch.setattr("daisychain.room.session.data_state", lambda source: {"name": source.name})
    mesh = SimpleNamespace(
        host=ME, stage="inside", waiting=[], members=[], relays=list, link_report=list, is_host=True
    )
    settings = resolve({"steps": 5_000, "eval_every": 0})
    room = RoomSession(
        settings, nothing, nothing, role="host", code="", name="", open_machine=nothing,
        open_mesh=lambda *_: mesh,  # type: ignore[arg-type, return-value]
    )  # fmt: skip
    model = build_program(CONFIG, 2, 2, seed=1)
    agreed = room_settings(settings, 61, None)
    run = Run(SimpleNamespace(model=model, source=Source()), None, agreed)  # type: ignore[arg-type]
    room.host = SimpleNamespace(run=run)  # type: ignore[assignment]
    room._node = Node(ME, "", "test", agreed)
    room._node.found(model_layout(CONFIG), "0" * 32)
    room._stage = "inside"
    return room


def step(number: int) -> effects.Log:
    share = effects.Contribution(ME, 1, 16, 99, 5, "", 0, 0, 0)
    return effects.Log(number, 32, (ME,), (share,), "1" * 32, "2" * 32, number, 10)


def calls_of_state(room: RoomSession) -> int:
    """Function calls that one look at the state makes, those into C included.

    The garbage collector's, which other modules ask to be called by, are none of it.
    """
    made = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(count)
    try:
        room.state()
    finally:
        sys.setprofile(None)
        gc.enable()
    return made


def test_a_look_at_the_state_costs_the_same_however_long_the_run(monkeypatch: Any) -> None:
    measured = 0
    whole = Program.memory_bytes

    def memory_bytes(program: Program) -> int:
        nonlocal measured
        measured += 1
        return whole(program)

    monkeypatch.setattr(Program, "memory_bytes", memory_bytes)
    room = session(monkeypatch)
    room._effect(step(1))
    room.state()
    few = calls_of_state(room)
    for number in range(2, 1_001):
        room._effect(step(number))
    for i in range(500):
        room._effect(effects.Notice("test", "The same again."))
        room._diary.tell(f"Note {i}")
    state = room.state()
    assert calls_of_state(room) == few < 150
    assert measured == 1
    assert state["loss"] is not None
    assert state["parameters"] > 0
    assert state["members"][0]["tokens"] == 16


def test_what_passes_stands_in_the_log_alone(monkeypatch: Any) -> None:
    room = session(monkeypatch)
    room._effect(effects.Notice("backlog", "Waiting."))
    room._effect(effects.Notice("guard", "They differ."))
    assert room.state()["notices"] == ["They differ."]
    assert [record["note"] for record in room.log()] == ["Waiting.", "They differ."]


def test_what_is_said_again_and_again_is_one_notice(monkeypatch: Any) -> None:
    room = session(monkeypatch)
    for _ in range(3):
        room._effect(effects.Notice("device-failed", "The Hub cannot be reached."))
    room._effect(step(1))
    room._effect(effects.Notice("device-failed", "The Hub cannot be reached."))
    assert room.state()["notices"] == ["The Hub cannot be reached."]
    notes = [record.get("note") for record in room.log()]
    assert notes == ["The Hub cannot be reached.", None, "The Hub cannot be reached."]


def test_what_kept_a_device_out_stands_until_it_is_back(monkeypatch: Any) -> None:
    monkeypatch.setattr("daisychain.room.session.RETURN_S", 0.1)

    async def out_and_back() -> None:
        room, drawn = session(monkeypatch), []
        assert room._node is not None
        room.subscribe(lambda: drawn.append(room.state()["room"]["may_go_on_alone"]))
        room._effect(effects.Notice("no quorum", "Too few devices."))
        room._effect(effects.Notice("guard", "They differ."))
        room._node.core.stand_still(("b",))
        room._effect(effects.ModeChanged(effects.Mode.PAUSED))
        assert room.state()["notices"] == ["Too few devices.", "They differ."]
        assert drawn[-1] is False, "they may be back in a moment"
        await asyncio.sleep(0.3)
        assert drawn[-1] is True
        room._effect(effects.ModeChanged(effects.Mode.MEMBER))
        assert room.state()["notices"] == ["They differ."]
        assert [record["note"] for record in room.log()] == ["Too few devices.", "They differ."]

    asyncio.run(out_and_back())


def test_a_person_may_go_on_without_the_others(monkeypatch: Any) -> None:
    room = session(monkeypatch)
    given: list[events.Event] = []
    monkeypatch.setattr(room, "_give", given.append)
    room.go_on_alone()
    assert given == [events.ContinueAlone()]


def test_whether_the_room_waits_for_voters_or_for_a_person(monkeypatch: Any) -> None:
    room = session(monkeypatch)
    assert room._node is not None
    assert room.state()["room"]["lacks_voters"] is False
    room._node.core.stand_still(("b",))
    assert room.state()["room"]["lacks_voters"] is True
    room._lifecycle.is_paused = True
    assert room.state()["room"]["lacks_voters"] is False


def test_devices_of_one_name_are_told_apart() -> None:
    members = [Member("a" * 16, "phone", ""), Member("b" * 16, "phone", ""), Member("c", "x", "")]
    assert list(names_of(members).values()) == ["phone (aaaa)", "phone (bbbb)", "x"]


def test_a_flow_of_bytes_wakes_nobody(monkeypatch: Any) -> None:
    room, woken = session(monkeypatch), []
    room.host = None
    room.subscribe(lambda: woken.append(1))
    room._mesh_event(mesh_events.Bulk("bbbb", b"", b""))
    assert not woken
    room._mesh_event(mesh_events.Control("bbbb", "{}"))
    assert woken


def test_what_is_tried_in_vain_again_and_again_is_said_once(monkeypatch: Any) -> None:
    room = session(monkeypatch)
    for _ in range(3):
        room._mesh_event(mesh_events.Unreachable("bbbb", "Two devices cannot connect."))
    assert room.state()["notices"] == ["Two devices cannot connect."]
    assert [record.get("note") for record in room.log()] == ["Two devices cannot connect."]


def test_a_newcomer_counts_the_tokens_of_the_whole_run(monkeypatch: Any) -> None:
    room = session(monkeypatch)
    room._effect(replace(step(60), next_cursor=70))
    contributions = step(60).contributions
    a_slice = sum(c.tokens for c in contributions) // sum(c.micro for c in contributions)
    assert room.state()["tokens"] == room.log()[-1]["tokens"] == 70 * a_slice


def test_a_run_under_a_new_code_is_kept_at_once() -> None:
    """A reload finds no other save of this room, and would begin the run anew."""
    first = Kept()
    ended(room(kept=first))
    resumed = reread(first.checkpoints[0])
    for new_code in (False, True):
        kept = Kept()
        again = room(resumed, kept, new_code=new_code, save_every=100)
        assert again.state()["saved_step"] == (0 if new_code else run_of(resumed).step)
        assert ended(again)["error"] is None
        assert kept.steps[-1] == STEPS
        assert (kept.steps[0] < STEPS) == new_code
