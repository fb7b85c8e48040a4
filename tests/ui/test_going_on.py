"""Going on with a run in a room or alone: from a save, from a file, after a reload."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from daisychain.export.checkpoint import Checkpoint, write_checkpoint
from daisychain.export.saves import room_digest
from daisychain.platform import cpython
from daisychain.settings import to_query
from daisychain.ui import door
from tests.export.models import trained
from tests.ui.room_page import CODE, SHOWN_CODE
from tests.ui.scripted_room import ScriptedRoom, ScriptedSaves
from tests.ui.test_model_use import DRAWN_S, Shown, fresh_platform, pick, save, saves_of

__all__ = ["fresh_platform"]


def in_room() -> Checkpoint:
    run = trained().run
    assert run is not None
    return replace(trained(), run=replace(run, slices=4))


def query() -> str:
    run = trained().run
    assert run is not None
    return to_query(run.settings)


def kept(code: str = CODE) -> ScriptedSaves:
    found = replace(save(3, 6, query()), room=room_digest(code))
    return saves_of(found, content=in_room())


def began(shown: Shown) -> ScriptedRoom:
    assert isinstance(shown.session, ScriptedRoom)
    return shown.session


def test_a_rooms_run_goes_on_as_a_new_room() -> None:
    async def scenario() -> None:
        shown = Shown("", kept())
        text = await shown.drawn()
        assert "Your last run, nano in a room, was interrupted; step 3 of 6" in text
        await shown.press("Go on in a room from step 3")
        room, run = began(shown), in_room().run
        assert run is not None
        assert (room.resumed, room.settings) == (in_room(), run.settings)
        assert (room.entry.role, len(room.entry.code), room.entry.new_code) == ("host", 16, True)
        assert "start=room" in cpython.page_url()
        assert "#room=" in cpython.page_url()

    asyncio.run(scenario())


def test_a_rooms_run_goes_on_alone() -> None:
    async def scenario() -> None:
        shown = Shown(f"?start=join#room={SHOWN_CODE}", kept())
        await shown.drawn()
        await shown.press("Leave")
        await shown.press("Go on alone")
        assert not isinstance(shown.sessions[-1], ScriptedRoom)
        assert shown.sessions[-1].resumed == in_room()
        assert "room" not in cpython.page_url()

    asyncio.run(scenario())


def test_a_reload_in_the_room_goes_on_by_itself() -> None:
    async def scenario() -> None:
        shown = Shown(f"?start=room&{query()}#room={SHOWN_CODE}", kept())
        await shown.drawn()
        assert began(shown).resumed == in_room()
        assert (began(shown).entry.code, began(shown).entry.new_code) == (CODE, False)

    asyncio.run(scenario())


def test_a_reload_after_the_end_begins_nothing_over_what_was_made() -> None:
    async def scenario() -> None:
        saves = saves_of(replace(save(6, 6, query()), room=room_digest(CODE)), content=in_room())
        shown = Shown(f"?start=room&{query()}#room={SHOWN_CODE}", saves)
        text = await shown.drawn()
        assert shown.sessions == []
        assert "Your last run, nano in a room with 6 steps, was finished" in text

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("code", "steps"), [("K7QDM2XP9RTW4HBP", "6"), (CODE, "7")], ids=["room", "settings"]
)
def test_a_save_of_another_room_or_run_is_left_alone(code: str, steps: str) -> None:
    async def scenario() -> None:
        link = query().replace("steps=6", f"steps={steps}")
        shown = Shown(f"?start=room&{link}#room={SHOWN_CODE}", kept(code))
        await shown.drawn()
        assert began(shown).resumed is None

    asyncio.run(scenario())


def test_after_a_killed_tab_the_code_of_the_page_is_used_again() -> None:
    async def scenario() -> None:
        cpython.storage_set("training", "nano")
        shown = Shown(f"?start=room&{query()}#room={SHOWN_CODE}", kept())
        await shown.drawn()
        assert shown.sessions == []
        await shown.press("Go on in a room from step 3")
        assert (began(shown).resumed, began(shown).entry.code) == (in_room(), CODE)

    asyncio.run(scenario())


def test_a_member_whose_tab_was_killed_may_join_again_or_go_on() -> None:
    async def scenario() -> None:
        cpython.storage_set("training", "room")
        shown = Shown(f"?start=join&{query()}#room={SHOWN_CODE}", kept())
        text = await shown.drawn()
        assert "Join a room." in text
        assert "Go on alone" in text
        assert "Train solo" not in text

    asyncio.run(scenario())


@pytest.mark.parametrize("together", [True, False])
def test_a_member_whose_room_is_gone_goes_on_from_its_own_save(
    monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(door, "SILENT_S", DRAWN_S)
        shown = Shown(f"?start=join#room={SHOWN_CODE}", kept())
        assert "Your last run" not in await shown.drawn()
        looking = began(shown)
        looking.enter("looking")
        await shown.drawn()
        text = await shown.drawn()
        assert "Nobody answers yet" in text
        assert "Your last run, nano in a room, was interrupted; step 3 of 6" in text
        await shown.press("Go on in a room from step 3" if together else "Go on alone")
        assert looking.calls == ["leave"]
        assert shown.session.resumed == in_room()
        assert len(shown.sessions) == 2
        if together:
            entry = began(shown).entry
            assert (entry.role, entry.code, entry.new_code) == ("host", CODE, False)
        else:
            assert "room" not in cpython.page_url()

    asyncio.run(scenario())


def test_a_save_of_another_room_is_not_offered_to_who_looks_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(door, "SILENT_S", DRAWN_S)
        shown = Shown(f"?start=join#room={SHOWN_CODE}", kept("K7QDM2XP9RTW4HBP"))
        await shown.drawn()
        began(shown).enter("looking")
        await shown.drawn()
        text = await shown.drawn()
        assert "Nobody answers yet" in text
        assert "Your last run" not in text

    asyncio.run(scenario())


def test_a_solo_run_may_become_a_room() -> None:
    async def scenario() -> None:
        shown = Shown("", saves_of(save(3, 6, query()), content=trained()))
        await shown.drawn()
        await shown.press("Go on in a room")
        assert began(shown).resumed == trained()

    asyncio.run(scenario())


def test_a_run_on_a_file_of_ones_own_stays_alone() -> None:
    async def scenario() -> None:
        shown = Shown("", saves_of(save(3, 6, "data=file"), content=trained()))
        text = await shown.drawn()
        assert "Go on from step 3" in text
        assert "Go on in a room" not in text

    asyncio.run(scenario())


def test_a_file_of_a_room_is_offered_both_ways_or_put_away() -> None:
    data = b"".join(asyncio.run(write_checkpoint(in_room())))

    async def scenario() -> None:
        shown = Shown("", kept())
        await shown.drawn()
        pick(shown, data)
        await asyncio.sleep(0.2)
        assert "mine.zip: nano, step 3 of 6, trained in a room." in await shown.drawn()
        assert "Your last run" in await shown.press("Put it away")
        pick(shown, data)
        await asyncio.sleep(0.2)
        await shown.press("Go on in a room from step 3")
        run = began(shown).resumed.run
        assert (run.step, run.slices) == (3, 4)
        began(shown).enter("inside")
        await shown.press("Leave")
        text = await shown.drawn()
        assert "Your last run" in text
        assert "mine.zip" not in text

    asyncio.run(scenario())


def test_what_was_saved_on_leaving_is_offered_when_it_is_there() -> None:
    async def scenario() -> None:
        shown = Shown("?start=solo", ScriptedSaves())
        await shown.drawn()
        shown.session.go("train")
        shown.session.play(3)
        shown.session.go("end")
        await shown.drawn()
        assert "Your last run" not in await shown.press("New run")
        shown.saves.saves = [save(3, 6, query())]
        shown.page._ended()
        assert "step 3 of 6 was saved" in await shown.drawn()

    asyncio.run(scenario())
