"""The page of a device that joins: codes, stages, advice, pairing by hand."""

from __future__ import annotations

import pytest

from daisychain.platform import cpython
from daisychain.ui import door, room
from daisychain.ui.room import NAME_KEY
from daisychain.ui.runs import JOINED_MARK, TRAINING_MARK
from tests.ui.room_page import CODE, SHOWN_CODE, Room, host, joiner, reloaded
from tests.ui.scripted_room import ANSWER, OFFER, PHONE
from tests.ui.test_page import DRAWN_S, URL, fresh_platform, play

__all__ = ["fresh_platform"]


def test_this_device_is_renamed_and_remembers_it() -> None:
    async def scenario() -> None:
        shown = await host()
        shown.window.enter("own-name", " Ann's laptop ")
        await shown.drawn()
        assert shown.session.name == "Ann's laptop"
        assert "Ann's laptop" in shown.rows()
        assert cpython.storage_get(NAME_KEY) == "Ann's laptop"
        for query, name in (("", "Ann's laptop"), ("&name=Zo%C3%AB", "Zo\u00eb")):
            again = reloaded(f"?start=join{query}#room={SHOWN_CODE}")
            await again.drawn()
            assert again.session.entry.name == name

    play(scenario)


def test_a_link_joins_without_a_tap_and_says_where_it_stands() -> None:
    async def scenario() -> None:
        shown = await joiner()
        assert shown.session.entry.code == CODE
        assert shown.session.entry.role == "member"
        assert "Looking for the room" in shown.text()
        assert shown.buttons() == {"Leave"}
        assert "Model" not in shown.text()  # the run is the host's, and not known yet
        shown.session.enter("knocking")
        await shown.drawn()
        assert "Waiting until the host lets this device in" in shown.text()
        shown.inside(PHONE, steps=3)
        await shown.drawn()
        assert shown.buttons() == {"Pause", "Leave"}
        assert PHONE["name"] in shown.rows()
        assert "host" in shown.rows()[PHONE["name"]]
        assert "Remove" not in shown.rows()[PHONE["name"]]
        await shown.press("Leave")
        assert shown.session.calls == ["leave"]
        assert "Left the room" in shown.text()
        assert cpython.page_url() == URL
        await shown.press("New run")
        assert shown.window.button("Join a room").focused

    play(scenario)


def test_a_room_that_waits_for_others_has_nothing_to_resume() -> None:
    async def scenario() -> None:
        shown = await joiner()
        shown.inside(PHONE, steps=3)
        shown.session.lacks_voters = True
        shown.session.go("pause")
        await shown.drawn()
        assert shown.buttons() == {"Leave"}, "they may be back in a moment"
        shown.session.may_go_on_alone = True
        shown.session.go("pause")
        await shown.drawn()
        assert shown.buttons() == {"Go on without them", "Leave"}
        assert "Waiting for others" in shown.text()
        await shown.press("Go on without them")
        assert shown.session.calls == ["go_on_alone"]
        shown.session.lacks_voters = False
        shown.session.go("pause")
        await shown.drawn()
        assert shown.buttons() == {"Resume", "Leave"}
        assert "Paused" in shown.text()

    play(scenario)


def test_who_waits_for_the_host_says_so() -> None:
    async def scenario() -> None:
        shown = await joiner()
        shown.inside(PHONE, steps=3)
        shown.session.awaits_host = True
        shown.session.go("train")
        await shown.drawn()
        assert "Waiting for the host" in shown.text()
        shown.session.awaits_host = False
        shown.session.go("train")
        await shown.drawn()
        assert "Waiting for the host" not in shown.text()

    play(scenario)


@pytest.mark.parametrize("stage", ["refused", "removed"])
def test_whoever_is_turned_away_reads_it_and_may_try_again(stage: str) -> None:
    async def scenario() -> None:
        shown = await joiner()
        shown.session.enter(stage)
        await shown.drawn()
        assert "Ask whoever opened the room" in shown.text()
        assert cpython.published.state["phase"] == "error"
        await shown.press("Try again")
        assert len(shown.sessions) == 2
        assert shown.session.entry.code == CODE
        shown.session.enter(stage)
        await shown.drawn()
        await shown.press("Leave")
        assert shown.window.button("Join a room").visible
        assert cpython.page_url() == URL

    play(scenario)


def test_a_code_that_nobody_answers_to(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(door, "SILENT_S", 2 * DRAWN_S)
        shown = await joiner()
        assert "Nobody answers" not in shown.text()
        await shown.drawn()
        await shown.drawn()
        assert f"This device looks for {SHOWN_CODE}" in shown.text()
        await shown.press("Another code")
        assert shown.window.field("code").value == SHOWN_CODE
        assert "Nobody answers" not in shown.text()
        assert shown.sessions[0].calls == ["leave"]

    play(scenario)


def test_relays_that_cannot_be_reached_lead_to_pairing_by_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(door, "UNREACHED_S", DRAWN_S)
        shown = await joiner()
        (by_hand,) = (
            e
            for e in shown.window.document.body.all()
            if e.tag == "details" and "without a relay" in e.textContent
        )
        assert not by_hand.open
        shown.session.relays = [{"address": "wss://dead.example/relay", "up": False}]
        shown.session.enter("looking")
        await shown.drawn()
        await shown.drawn()
        assert "No relay can be reached" in shown.text()
        assert "wss://dead.example/relay" in shown.text()
        assert by_hand.open
        shown.session.relays[0]["up"] = True
        shown.session.enter("looking")
        await shown.drawn()
        assert "No relay can be reached" not in shown.text()

    play(scenario)


def test_pairing_by_hand_at_both_ends() -> None:
    def areas(shown: Room) -> list[str]:
        elements = shown.window.document.body.all()
        return [e.value for e in elements if e.tag == "textarea" and e.visible]

    def paste(shown: Room, text: str) -> None:
        elements = shown.window.document.body.all()
        (area,) = (
            e
            for e in elements
            if e.tag == "textarea" and e.visible and "readonly" not in e.attributes
        )
        area.value = text

    async def scenario() -> None:
        first = await host("&relay=none")
        first.session.relays = []
        first.session.enter("inside")
        await first.drawn()
        assert "Invite devices" not in first.text()
        await first.press("Make an offer")
        assert areas(first) == [OFFER, ""]
        second = reloaded("?start=join&relay=none")
        await second.drawn()
        await second.press("Pair by hand, without a relay")
        assert second.session.entry.code == ""
        assert "Pairing by hand" in second.text()
        paste(second, "something else")
        await second.press("Make the answer")
        assert "This pairing text is damaged. Copy all of it." in second.text()
        paste(second, OFFER)
        await second.press("Make the answer")
        assert ANSWER in areas(second)
        paste(first, ANSWER)
        await first.press("Connect")
        assert first.session.calls == ["paired"]
        assert "The connection is being opened." in first.text()

    play(scenario)


def test_codes_that_cannot_be_one_are_explained_before_anything_is_tried() -> None:
    async def scenario() -> None:
        shown = Room("?start=join#room=K7QD")
        await shown.drawn()
        assert not shown.sessions
        assert "A room code has 10 to 64 letters and digits, this has 4." in shown.text()
        assert shown.window.field("code").attributes["aria-invalid"] == "true"
        shown.window.field("code").value = " k7qd m2xp-9rtw 4hbn "
        shown.window.field("name").value = "Ann"
        (form,) = (e for e in shown.window.document.body.all() if e.tag == "form")
        form.fire("submit")
        await shown.drawn()
        assert (shown.session.entry.code, shown.session.entry.name) == (CODE, "Ann")
        assert cpython.page_url() == f"{URL}?start=join#room={SHOWN_CODE}"

    play(scenario)


def test_a_scanned_link_is_as_good_as_a_typed_code() -> None:
    async def scenario() -> None:
        shown = Room("?start=join")
        await shown.press("Scan")
        assert "Hold the picture before the camera" in shown.text()
        assert shown.camera.found is not None
        assert not shown.camera.found("https://elsewhere.example/")
        assert "holds no code of a room" in shown.text()
        assert shown.camera.found(f"{URL}?start=join#room={SHOWN_CODE}")
        await shown.drawn()
        assert shown.session.entry.code == CODE
        assert shown.camera.ended == 1
        refused = reloaded("?start=join")
        refused.camera.allowed = False
        await refused.press("Scan")
        assert "The camera cannot be used. Type the code." in refused.text()
        await refused.press("Scan")
        refused.camera.allowed = True

    play(scenario)


def test_after_a_killed_tab_a_member_is_asked_before_it_joins_again() -> None:
    async def scenario() -> None:
        await joiner()
        assert cpython.storage_get(TRAINING_MARK) == JOINED_MARK
        again = await joiner()
        assert not again.sessions
        assert "ended without a word" in again.text()
        assert again.window.field("code").value == SHOWN_CODE

    play(scenario)


def test_the_door_is_looked_at_again_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(room, "LOOK_AGAIN_S", DRAWN_S / 2)
        shown = await joiner()
        shown.session.stage = "knocking"
        await shown.drawn()
        await shown.drawn()
        assert "At the door" in shown.text()
        assert cpython.published.state["room"]["stage"] == "knocking"

    play(scenario)
