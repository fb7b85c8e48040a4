"""The host's page: invitation, knocks, devices, the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daisychain.cluster.room_code import parse_room_code
from daisychain.platform import cpython
from daisychain.ui import stages
from daisychain.ui.log import json_lines
from tests.ui.room_page import CODE, SHOWN_CODE, Room, host, reloaded
from tests.ui.scripted_room import OLD, PHONE, TABLET
from tests.ui.test_page import URL, fresh_platform, play

__all__ = ["fresh_platform"]


def test_a_tap_starts_a_room_and_the_address_leads_back_to_it() -> None:
    async def scenario() -> None:
        shown = Room("?preset=tiny&steps=20")
        await shown.press("Start a room")
        entry = shown.session.entry
        assert entry.role == "host"
        assert len(entry.code) == 16
        assert entry.name == cpython.device_name()
        assert shown.session.settings.preset == "tiny"
        query, _, fragment = cpython.page_url().removeprefix(URL).partition("#")
        assert query == "?start=room&preset=tiny&steps=20"
        assert parse_room_code(fragment.removeprefix("room=")) == entry.code
        again = reloaded()
        await again.drawn()
        assert entry.new_code
        assert again.session.entry == replace(entry, new_code=False)

    play(scenario)


def test_the_invitation_tells_nothing_of_this_device() -> None:
    async def scenario() -> None:
        shown = await host("&preset=tiny&player=wasm&name=Ann&approve=all&relay=wss://r.example")
        clipboard = shown.window.navigator.clipboard
        await shown.press("Copy the link")
        assert clipboard.text == (
            f"{URL}?start=join&preset=tiny&relay=wss://r.example#room={SHOWN_CODE}"
        )
        await shown.press("Copy the code")
        assert clipboard.text == SHOWN_CODE
        assert "Code copied" in shown.text()
        assert CODE not in clipboard.text.partition("#")[0]
        await shown.press("Copy link")
        assert clipboard.text == f"{URL}?start=solo&preset=tiny&player=wasm&relay=wss://r.example"
        (picture,) = (
            e
            for e in shown.window.document.body.all()
            if e.attributes.get("alt") == "QR code of the link into the room"
        )
        assert picture.visible
        assert picture.attributes["src"].startswith("data:image/svg+xml,%3Csvg")
        assert "works on this machine only" in shown.text()

    play(scenario)


def test_the_host_lets_devices_in_or_not() -> None:
    async def scenario() -> None:
        shown = await host()
        shown.session.knock(PHONE)
        shown.session.knock(TABLET)
        await shown.drawn()
        assert "2 devices ask to come in" in shown.text()
        assert "<b>Tablet</b> Safari 26 on iPad" in shown.text()
        assert shown.window.document.title.startswith("(2)")
        shown.window.named(f"Accept {PHONE['name']}").fire("click")
        await shown.drawn()
        assert "A device asks to come in" in shown.text()
        shown.window.named("Refuse <b>Tablet</b>").fire("click")
        await shown.drawn()
        assert shown.session.calls == ["accept p", "refuse t"]
        assert "to come in" not in shown.text()
        assert set(shown.rows()) == {cpython.device_name(), PHONE["name"]}
        remove = shown.window.named(f"Remove {PHONE['name']}")
        remove.fire("click")
        assert remove.textContent == "Remove for good?"
        remove.fire("blur")
        assert remove.textContent == "Remove"
        remove.fire("click")
        remove.fire("click")
        await shown.drawn()
        assert shown.session.calls[2:] == ["remove p"]
        assert set(shown.rows()) == {cpython.device_name()}

    play(scenario)


def test_a_device_that_waits_keeps_its_place_when_another_comes() -> None:
    async def scenario() -> None:
        shown = await host()
        shown.session.knock(PHONE)
        await shown.drawn()
        button = shown.window.named(f"Accept {PHONE['name']}")
        shown.session.knock(TABLET)
        await shown.drawn()
        assert shown.window.named(f"Accept {PHONE['name']}") is button

    play(scenario)


@pytest.mark.parametrize("by", ["link", "switch"])
def test_everybody_is_let_in_with_a_notice_even_in_the_background(by: str) -> None:
    async def scenario() -> None:
        shown = await host("&approve=all" if by == "link" else "")
        (switch,) = (
            e for e in shown.window.document.body.all() if e.attributes.get("name") == "everybody"
        )
        assert switch.checked == (by == "link")
        shown.session.knock(PHONE)
        if by == "switch":
            assert shown.session.waiting
            switch.checked = True
            switch.fire("change")
            await shown.drawn()
        assert "without being asked" in shown.text()
        cpython.simulate_page_event("hidden")
        shown.session.knock(TABLET)
        await shown.drawn()
        assert shown.session.calls == ["accept p", "accept t"]

    play(scenario)


def test_the_table_says_what_each_device_contributes() -> None:
    async def scenario() -> None:
        shown = await host("", PHONE, TABLET, OLD, steps=40)
        rows = shown.rows()
        assert "4 devices" in shown.text()
        assert "this device, host, training" in rows[cpython.device_name()]
        assert " 1 1,024 419 107 4.87 MB 46 direct, 4 ms" in rows[PHONE["name"]]
        assert "forwarded, 51 ms" in rows[OLD["name"]]
        assert f"{PHONE['name']}: 1, <b>Tablet</b>: 2" in shown.text()
        assert "Exchanged 195 MB" in shown.text()
        first = shown.window.rows()[0]
        assert first.children[-1].textContent.endswith(f"{OLD['name']}: 3")
        assert len(cpython.published.state["members"]) == 4
        assert cpython.published.log[-1]["members"][1]["micro_batches"] == 1
        assert json_lines(shown.session.log()).count("\n") == 40

    play(scenario)


def test_replicas_that_differ_stop_everything_with_the_reason() -> None:
    async def scenario() -> None:
        shown = await host("", PHONE, OLD, steps=30)
        sentence = (
            f"The weights of {OLD['name']} differ in layers.0.gate after step 30. Training has "
            "stopped everywhere; no wrong step was mixed in."
        )
        shown.session.halt(sentence)
        await shown.drawn()
        assert "Training has stopped on every device. " + sentence in shown.text()
        assert "Start again without the device that is named" in shown.text()
        assert shown.buttons() == set()
        assert "Halted" in shown.text()
        assert "deadbeef" in shown.rows()[OLD["name"]]
        odd = [e for e in shown.window.document.body.all() if e.attributes.get("class") == "odd"]
        assert [e.textContent for e in odd] == ["deadbeef"]
        assert "Invite devices" not in shown.text()
        assert cpython.published.state["phase"] == "halt"
        await shown.press("Start again")
        assert len(shown.sessions) == 2
        assert shown.session.entry.code == CODE

    play(scenario)


def test_notices_never_fill_the_page() -> None:
    async def scenario() -> None:
        shown = await host()
        shown.session.notices = [f"Device {number} came in." for number in range(9)]
        shown.session.go("train")
        await shown.drawn()
        assert [n for n in range(9) if f"Device {n} came in." in shown.text()] == [5, 6, 7, 8]

    play(scenario)


def test_a_session_left_behind_no_longer_speaks() -> None:
    async def scenario() -> None:
        shown = await host("", PHONE, steps=2)
        left = shown.session
        await shown.press("Leave")
        await shown.press("New run")
        await shown.press("Train solo")
        left.fail(ZeroDivisionError("late"))
        await shown.drawn()
        assert "ZeroDivisionError" not in shown.text()
        assert cpython.published.state["phase"] == "data"

    play(scenario)


def test_rooms_write_little_into_the_page() -> None:
    async def scenario() -> None:
        shown = await host("&steps=10000&eval_every=0", PHONE, TABLET, OLD, steps=20)
        dom = shown.page._dom
        before = dom.writes
        shown.session.play(1000)
        await shown.drawn()
        assert dom.writes - before < 80

    play(scenario)


def test_a_room_that_is_done_stays_open_for_whoever_is_behind() -> None:
    async def scenario() -> None:
        shown = await host("&steps=5", PHONE, steps=5)
        shown.session.phase = "idle"
        shown.session.knock(TABLET)
        await shown.drawn()
        assert "Finished" in shown.text()
        assert shown.buttons() == {"New run"}
        shown.window.named("Accept <b>Tablet</b>").fire("click")
        await shown.drawn()
        assert "<b>Tablet</b>" in shown.rows()
        await shown.press("New run")
        assert shown.session.calls == ["accept t", "leave"]
        assert cpython.page_url() == f"{URL}?steps=5"

    play(scenario)


def test_a_room_that_looks_for_its_devices_is_being_opened() -> None:
    room = {"code": CODE, "stage": "inside", "role": "host", "sentence": "Looking for others"}
    assert stages.name({"room": room}) == "Opening the room"
    assert stages.name({"room": {**room, "sentence": ""}}) == "Joining"
    assert stages.name({"room": {**room, "role": "member"}}) == "Joining"
