"""The page over a scripted session: what is shown, offered, published and remembered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daisychain.errors import DeviceError
from daisychain.platform import cpython
from daisychain.settings import Settings, resolve
from daisychain.ui.page import Page
from daisychain.ui.refresh import Refresher
from daisychain.ui.runs import TRAINING_MARK
from tests.ui.fake_dom import Window
from tests.ui.scripted import ScriptedSession
from tests.ui.scripted_room import Camera, scripted_backing

URL = "http://localhost:8000/some/place/"
DRAWN_S = 0.04


class Shown:
    """A mounted page, its window and the sessions that it made."""

    def __init__(self, query: str = "") -> None:
        cpython.replace_page_url(URL + query)
        self.window = Window()
        self.sessions: list[ScriptedSession] = []
        self.camera = Camera()
        self.page = Page(self.window.dom(), scripted_backing(self.sessions, self.camera))
        self.page.mount()

    @property
    def session(self) -> ScriptedSession:
        return self.sessions[-1]

    async def press(self, text: str) -> None:
        self.window.button(text).fire("click")
        await self.drawn()

    async def drawn(self) -> None:
        await asyncio.sleep(DRAWN_S)

    def text(self) -> str:
        return self.window.shown()

    def buttons(self) -> set[str]:
        controls = self.window.document.places["controls"]
        return {button.textContent for button in controls.children if button.visible}


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario()

    asyncio.run(run())


@pytest.fixture(autouse=True)
def fresh_platform(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test has an empty storage and an empty log, is in the foreground, and draws often."""
    monkeypatch.setattr(cpython, "_storage", {})
    monkeypatch.setattr(cpython, "_listeners", [])
    monkeypatch.setattr(Refresher, "interval_s", DRAWN_S / 4)
    yield
    cpython.clear_records()
    cpython._page["visibility"] = "visible"


def test_idle_offers_one_tap() -> None:
    async def scenario() -> None:
        shown = Shown()
        await shown.drawn()
        assert shown.buttons() == set()
        assert "1.16 M" in shown.text()
        assert "Memory on the device" in shown.text()
        assert cpython.published.state["phase"] == "idle"
        assert cpython.published.state["steps"] == 1000
        await shown.press("Train solo")
        assert shown.session.settings == resolve()

    play(scenario)


def test_link_starts_without_a_tap() -> None:
    async def scenario() -> None:
        shown = Shown("?start=solo&preset=nano&steps=20&seed=3")
        await shown.drawn()
        assert (shown.session.settings.steps, shown.session.settings.seed) == (20, 3)

    play(scenario)


def test_a_notice_before_a_run_is_published() -> None:
    async def scenario() -> None:
        shown = Shown()
        shown.page.notify("This file is no checkpoint.")
        await shown.drawn()
        assert "This file is no checkpoint." in shown.text()
        assert cpython.published.state["notices"] == ["This file is no checkpoint."]

    play(scenario)


def test_refused_settings_are_told_and_the_run_starts_with_the_defaults() -> None:
    async def scenario() -> None:
        shown = Shown("?start=solo&layers=0&colour=red")
        await shown.drawn()
        assert shown.session.settings.layers == 2
        assert "number of layers" in shown.text()
        assert "no setting called colour" in shown.text()
        assert len(cpython.published.state["notices"]) == 2
        close = [
            e
            for e in shown.window.document.body.all()
            if e.attributes.get("aria-label") == "Dismiss this notice"
        ]
        close[0].fire("click")
        assert "number of layers" not in shown.text()
        assert "colour" in shown.text()

    play(scenario)


def test_waits_are_shown_with_their_progress() -> None:
    async def scenario() -> None:
        shown = Shown("?start=solo")
        await shown.drawn()
        assert "Reading and tokenizing the text" in shown.text()
        shown.session.progress = {"text": "Checking kernels", "done": 21, "total": 47}
        shown.session.go("check")
        await shown.drawn()
        assert "Checking kernels: 21 of 47" in shown.text()
        (bar,) = (e for e in shown.window.document.body.all() if e.tag == "progress")
        assert bar.attributes["value"] == "0.447"
        assert shown.buttons() == {"Stop"}
        assert "Tok/s" not in shown.text()

    play(scenario)


def test_training_pause_resume_stop() -> None:
    async def scenario() -> None:
        shown = Shown("?start=solo&steps=100")
        await shown.drawn()
        shown.session.go("train")
        shown.session.play(50)
        await shown.drawn()
        assert shown.buttons() == {"Pause", "Stop"}
        assert "50 of 100" in shown.text()
        assert "4 admitted, 412.5 GMAC/s" in shown.text()
        assert "gemm3 (packed, 412.5 GMAC/s)" in shown.text()
        assert "left" in shown.text()
        assert shown.window.document.title.endswith("step 50 \u00b7 DaisyChain")
        await shown.press("Pause")
        assert shown.buttons() == {"Resume", "Stop"}
        assert "Paused" in shown.text()
        await shown.press("Resume")
        await shown.press("Stop")
        assert shown.session.calls == ["pause", "resume", "stop"]
        assert shown.buttons() == {"New run"}
        assert "Stopped" in shown.text()
        await shown.press("New run")
        assert "about 40 ms, 4 s in all" in shown.text()
        assert shown.window.button("Train solo").focused
        assert shown.window.document.title == "DaisyChain"

    play(scenario)


def test_a_finished_run_stays_in_sight_and_a_new_one_starts_clean() -> None:
    async def scenario() -> None:
        shown = Shown("?start=solo&steps=30")
        await shown.drawn()
        shown.session.go("train")
        shown.session.play(30)
        shown.session.stop()
        await shown.drawn()
        assert "Finished" in shown.text()
        assert len(shown.window.rows()) == 31
        assert len(cpython.published.log) == 30
        await shown.press("New run")
        await shown.press("Train solo")
        assert cpython.published.log == []
        shown.session.go("train")
        shown.session.play(2)
        await shown.drawn()
        assert len(shown.window.rows()) == 2
        assert [record["step"] for record in cpython.published.log] == [1, 2]

    play(scenario)


def test_the_public_log_gets_heldout_losses_that_come_late() -> None:
    async def scenario() -> None:
        shown = Shown("?start=solo")
        await shown.drawn()
        shown.session.go("train")
        shown.session.play(60)
        await shown.drawn()
        heldout = [r["step"] for r in cpython.published.log if "heldout_nats" in r]
        assert heldout == [25, 50]
        assert [r["step"] for r in cpython.published.log] == list(range(1, 61))
        assert cpython.published.state["step"] == 60

    play(scenario)


def test_an_error_in_words_with_a_second_try() -> None:
    async def scenario() -> None:
        shown = Shown("?start=solo")
        await shown.drawn()
        shown.session.go("train")
        shown.session.play(3)
        shown.session.fail(DeviceError("The GPU was lost.", "It is gone.", "Try the CPU."))
        await shown.drawn()
        text = shown.text()
        assert "The GPU was lost. It is gone. Try the CPU." in text
        assert shown.window.rows()
        assert cpython.published.state["phase"] == "error"
        assert cpython.published.state["error"] == "The GPU was lost. It is gone. Try the CPU."
        await shown.press("Try again")
        assert len(shown.sessions) == 2
        assert "The GPU was lost" not in shown.text()
        shown.session.fail(DeviceError("No GPU."))
        await shown.drawn()
        await shown.press("Change the settings")
        assert shown.window.button("Train solo").visible

    play(scenario)


def test_a_fault_of_the_program_never_leaves_a_dead_page() -> None:
    async def scenario() -> None:
        shown = Shown("?start=solo")
        await shown.drawn()
        shown.session.fail(ZeroDivisionError("division by zero"))
        await shown.drawn()
        assert "ZeroDivisionError: division by zero" in shown.text()
        assert "Traceback" in shown.text()
        assert cpython.published.state["phase"] == "error"
        assert shown.window.button("Try again").visible

    play(scenario)


def test_an_estimate_that_is_refused_is_a_sentence() -> None:
    def refuse(settings: Settings) -> Any:
        raise DeviceError("This model does not fit any device.")

    async def scenario() -> None:
        cpython.replace_page_url(URL)
        window = Window()
        Page(window.dom(), replace(scripted_backing([]), estimate=refuse)).mount()
        await asyncio.sleep(DRAWN_S)
        assert "does not fit any device" in window.shown()
        assert window.button("Train solo").visible

    play(scenario)


def test_settings_live_in_the_address() -> None:
    async def scenario() -> None:
        shown = Shown("#room=KEPT")
        shown.window.enter("steps", "20")
        assert cpython.page_url() == f"{URL}?steps=20#room=KEPT"
        assert "each way, int8" in shown.window.shown()
        shown.window.enter("heads", "5")
        assert "disabled" in shown.window.button("Train solo").attributes
        assert cpython.page_url() == f"{URL}?steps=20#room=KEPT"
        shown.window.enter("heads", "")
        assert "disabled" not in shown.window.button("Train solo").attributes
        assert cpython.published.state["steps"] == 20

    play(scenario)


def test_links_and_logs_are_copied_and_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.chdir(tmp_path)
        shown = Shown("?start=solo&seed=7")
        clipboard = shown.window.navigator.clipboard
        await shown.drawn()
        shown.session.go("train")
        shown.session.play(3)
        await shown.drawn()
        await shown.press("Copy link")
        assert clipboard.text == f"{URL}?start=solo&seed=7"
        await shown.press("Copy")
        assert [json.loads(line)["step"] for line in clipboard.text.splitlines()] == [1, 2, 3]
        assert "3 lines copied" in shown.text()
        clipboard.allowed = False
        await shown.press("Copy")
        assert "does not allow copying" in shown.text()
        await shown.press("Download")
        saved = (tmp_path / "daisychain-nano-seed7.jsonl").read_text()
        assert len(saved.splitlines()) == 3

    play(scenario)


def test_after_a_killed_tab_a_smaller_preset_waits_for_a_tap() -> None:
    async def scenario() -> None:
        shown = Shown("?start=solo&preset=small&steps=7")
        await shown.drawn()
        assert cpython.storage_get(TRAINING_MARK) == "small"
        again = Shown("?start=solo&preset=small&steps=7")
        await again.drawn()
        assert not again.sessions
        assert "ended without a word" in again.text()
        await again.press("Train solo")
        assert (again.session.settings.preset, again.session.settings.steps) == ("tiny", 7)

    play(scenario)


@pytest.mark.parametrize("ending", ["stop", "reload", "error"])
def test_an_ordinary_end_leaves_no_mark(ending: str) -> None:
    async def scenario() -> None:
        shown = Shown("?start=solo")
        await shown.drawn()
        if ending == "stop":
            shown.session.stop()
        elif ending == "error":
            shown.session.fail(DeviceError("No GPU."))
        else:
            cpython.simulate_page_event("pagehide")
        await shown.drawn()
        assert cpython.storage_get(TRAINING_MARK) is None

    play(scenario)


def test_a_hidden_page_draws_nothing_but_publishes_everything() -> None:
    async def scenario() -> None:
        shown = Shown("?start=solo")
        await shown.drawn()
        shown.session.go("train")
        await shown.drawn()
        cpython.simulate_page_event("hidden")
        shown.session.play(40)
        await shown.drawn()
        assert shown.window.rows() == []
        assert cpython.published.state["step"] == 40
        assert "step 40" in shown.window.document.title
        cpython.simulate_page_event("visible")
        await shown.drawn()
        assert len(shown.window.rows()) == 41

    play(scenario)


def test_writes_stay_few_however_many_steps_there_are() -> None:
    async def scenario() -> None:
        shown = Shown("?start=solo&steps=10000&eval_every=0")
        await shown.drawn()
        shown.session.go("train")
        dom = shown.page._dom
        shown.session.play(20)
        await shown.drawn()
        before = dom.writes
        shown.session.play(1000)
        await shown.drawn()
        assert dom.writes - before < 60

    play(scenario)
