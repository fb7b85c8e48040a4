"""Using a model on the page: texts, files to keep, going on from a save or a file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daisychain.errors import DataError, DeviceError
from daisychain.export.checkpoint import read_archive, write_checkpoint
from daisychain.export.saves import Save
from daisychain.platform import cpython
from daisychain.settings import resolve, to_query
from daisychain.ui.keeping import Keeping
from daisychain.ui.model_use import ModelUse
from daisychain.ui.page import Page
from daisychain.ui.refresh import Refresher
from tests.export.models import foreign, trained
from tests.ui.fake_dom import Element, Files, Window
from tests.ui.scripted import ScriptedSession
from tests.ui.scripted_room import Camera, ScriptedSaves, scripted_backing

URL = "http://localhost:8000/"
DRAWN_S = 0.04


@pytest.fixture(autouse=True)
def fresh_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(cpython, "_storage", {})
    monkeypatch.setattr(cpython, "_listeners", [])
    monkeypatch.setattr(Refresher, "interval_s", DRAWN_S / 4)
    monkeypatch.chdir(tmp_path)
    trained()  # outside of any event loop
    yield
    cpython.clear_records()


class Shown:
    """A mounted page over scripted sessions and saves."""

    def __init__(self, query: str = "", saves: ScriptedSaves | None = None) -> None:
        cpython.replace_page_url(URL + query)
        self.window = Window()
        self.sessions: list[ScriptedSession] = []
        self.saves = saves or ScriptedSaves()
        backing = scripted_backing(self.sessions, Camera(), saves=self.saves)
        self.page = Page(self.window.dom(), backing)
        self.page.mount()

    @property
    def session(self) -> ScriptedSession:
        return self.sessions[-1]

    async def drawn(self) -> str:
        await asyncio.sleep(DRAWN_S)
        return self.window.shown()

    async def press(self, text: str) -> str:
        self.window.button(text).fire("click")
        return await self.drawn()

    def find(self, **attributes: str) -> Element:
        wanted = {k.rstrip("_").replace("_", "-"): v for k, v in attributes.items()}
        (found,) = (
            e
            for e in self.window.document.body.all()
            if all(e.attributes.get(k) == v for k, v in wanted.items())
        )
        return found


async def training(steps: int = 20) -> Shown:
    shown = Shown("?start=solo")
    await shown.drawn()
    shown.session.go("train")
    shown.session.play(steps)
    await shown.drawn()
    return shown


def test_a_text_with_its_probabilities() -> None:
    async def scenario() -> None:
        shown = await training()
        shown.window.enter("text_seed", "7")
        shown.find(name="prompt").value = "Go <on>"
        text = await shown.press("Write")
        assert "Go <on>" in text
        assert "once there was <b>a tree</b>." in text
        assert "5 tokens" in text
        assert "seed 7" in text
        (request,) = shown.session.requests
        assert (request.prompt, request.limit, request.stop) == ("Go <on>", 64, "")
        sampling = request.sampling
        assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.8, 40, 1.0)
        output = shown.find(class_="written")
        token = SimpleNamespace(dataset=SimpleNamespace(i="2"))
        output.fire("pointerover", target=token)
        assert "Chosen with 25 %. Likeliest: \u201c\u2423was\u201d 25 %" in (await shown.drawn())
        output.fire("keydown", key="ArrowRight")
        assert "Chosen with 12 %" in await shown.drawn()
        assert "\u201c\u23ce\u201d 4.0 %" in await shown.drawn()
        output.fire("pointerover", target=SimpleNamespace(dataset=SimpleNamespace()))
        assert "Chosen with 12 %" in await shown.drawn()

    asyncio.run(scenario())


def test_a_text_can_be_stopped() -> None:
    async def scenario() -> None:
        shown = await training()
        shown.window.button("Write").fire("click")
        while "once" not in shown.window.shown():
            await asyncio.sleep(0)
        shown.window.named("Stop writing").fire("click")
        text = await shown.drawn()
        assert "tree" not in text
        assert shown.session.calls == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("temperature", "hot", "Temperature must be a number, not 'hot'"),
        ("temperature", "99", "temperature must be from 0 to 10"),
        ("top_k", "-1", "Top-k"),
        ("top_k", "1.5", "Top-k must be a number"),
        ("top_p", "0", "top-p above 0"),
        ("limit", "0", "number of tokens must be from 1"),
        ("limit", "9" * 5000, "number of tokens must be from 1"),
        ("seed", "x", "Seed must be a number"),
    ],
)
def test_absurd_wishes_get_a_sentence(field: str, value: str, words: str) -> None:
    async def scenario() -> None:
        shown = await training()
        shown.window.enter(f"text_{field}", value)
        assert words in await shown.press("Write")
        assert shown.session.requests == []

    asyncio.run(scenario())


def test_samples_of_the_run() -> None:
    async def scenario() -> None:
        shown = await training()
        for step in range(1, 8):
            record = {"step": step, "prompt": "Begin", "sample": f" <i>text {step}"}
            shown.session.records.append(record)
        shown.session.play(1)
        text = await shown.drawn()
        samples = shown.find(class_="samples").text_shown()
        assert "<i>text 7" in samples
        assert "<i>text 3" in samples
        assert "<i>text 2" not in samples
        assert "Begin" in " ".join(row.textContent for row in shown.window.rows())
        assert "Step 7" in text

    asyncio.run(scenario())


def test_nothing_can_be_written_before_there_is_a_model() -> None:
    async def scenario() -> None:
        shown = Shown("?start=solo")
        text = await shown.drawn()
        assert "What it writes" not in text
        assert "Keep it" not in text

    asyncio.run(scenario())


def test_a_checkpoint_is_downloaded(tmp_path: Path) -> None:
    async def scenario() -> None:
        shown = await training()
        shown.session.made_checkpoint = trained()
        shown.session.saved_step = 20
        shown.session.play(1)
        assert "step 20" in await shown.drawn()
        text = await shown.press("Download checkpoint")
        assert "daisychain-nano-seed1.zip, " in text
        assert await read_archive((tmp_path / "daisychain-nano-seed1.zip").read_bytes()) == (
            trained()
        )
        shown.find(type="radio", value="BF16").fire("change")
        assert "Weights as bfloat16" in await shown.drawn()
        await shown.press("Download checkpoint")
        found = await read_archive((tmp_path / "daisychain-nano-seed1.zip").read_bytes())
        assert found.run is None
        shown.session.checkpoint_error = DeviceError("The GPU was lost.")
        assert "The GPU was lost." in await shown.press("Download checkpoint")

    asyncio.run(scenario())


def test_what_became_of_a_file_is_not_shown_in_the_next_run() -> None:
    use = ModelUse(Window().dom(), lambda: None, lambda: "name")
    use.keeping.draw(True, {})
    use.keeping._checkpoint._say("name.zip, 18.1 MB")
    assert "18.1 MB" in use.keeping.root.raw.text_shown()
    use.clear()
    assert "18.1 MB" not in use.keeping.root.raw.text_shown()


def test_a_checkpoint_of_a_room_says_whose_it_is() -> None:
    async def nothing(kind: str) -> list[memoryview]:
        return []

    keeping = Keeping(Window().dom(), nothing, nothing, lambda: "name")
    for room, words in (
        (None, "all that the run needs"),
        ({"code": "x"}, "this device needs to go on"),
    ):
        keeping.draw(True, {"room": room})
        assert words in keeping.root.raw.text_shown()


def test_a_kit_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(url: str, max_bytes: int) -> bytes:
        assert url == "js/kit.js"
        return b"script"

    monkeypatch.setattr("daisychain.platform.fetch_bytes", script)

    async def scenario() -> None:
        shown = await training()
        assert "by a double click (3.32 MB)" in await shown.drawn()
        await shown.press("Download inference kit")
        shown.find(type="radio", value="8").fire("change")
        assert "Half the size" in await shown.drawn()
        text = await shown.press("Download inference kit")
        assert "daisychain-nano-seed1.html, 16 B" in text
        assert shown.session.calls == ["kit 16 True", "kit 8 True"]
        assert (tmp_path / "daisychain-nano-seed1.html").read_bytes() == b"<html>" + bytes(10)

    asyncio.run(scenario())


def save(step: int, steps: int = 1000, query: str = "", name: str = "run-1.zip") -> Save:
    return Save(name, 10, query, step, steps, "ab" * 16, time.time() - 320)


def saves_of(*found: Save, content: Any) -> ScriptedSaves:
    saves = ScriptedSaves(*found)
    saves.contents = {s.name: content for s in found}
    return saves


def test_an_interrupted_run_goes_on() -> None:
    async def scenario() -> None:
        run = trained().run
        assert run is not None
        saves = saves_of(save(3, 6, to_query(run.settings)), content=trained())
        shown = Shown(f"?start=solo&{to_query(run.settings)}", saves)
        text = await shown.drawn()
        assert shown.sessions == []
        assert "was interrupted; step 3 of 6 was saved 5 min ago" in text
        await shown.press("Go on from step 3")
        assert shown.session.resumed == trained()
        assert shown.session.settings == run.settings
        assert "Go on from" not in await shown.drawn()

    asyncio.run(scenario())


@pytest.mark.parametrize(("step", "query"), [(3, "steps=6"), (1000, "")])
def test_another_run_in_the_link_begins_at_once(step: int, query: str) -> None:
    async def scenario() -> None:
        shown = Shown("?start=solo", saves_of(save(step, query=query), content=None))
        await shown.drawn()
        assert len(shown.sessions) == 1

    asyncio.run(scenario())


def test_a_damaged_save_gives_way_to_the_older_one() -> None:
    async def scenario() -> None:
        saves = ScriptedSaves(save(5, 6, name="new"), save(3, 6, name="old"))
        saves.contents = {"new": DataError("Its hash differs."), "old": trained()}
        shown = Shown("", saves)
        await shown.drawn()
        await shown.press("Go on from step 5")
        assert shown.session.resumed == trained()
        assert "The save of step 5 cannot be used: Its hash differs." in await shown.drawn()

    asyncio.run(scenario())


def test_without_a_whole_save_nothing_begins() -> None:
    async def scenario() -> None:
        saves = ScriptedSaves(save(5, 6, name="new"), save(3, 6, name="old"))
        saves.contents = {name: DataError(f"{name} is cut off.") for name in ("new", "old")}
        shown = Shown("", saves)
        await shown.drawn()
        text = await shown.press("Go on from step 5")
        assert "The save of step 5 cannot be used: new is cut off." in text
        assert "The save of step 3 cannot be used: old is cut off." in text
        assert shown.sessions == []
        assert "Train solo" in text

    asyncio.run(scenario())


def test_a_finished_run_is_opened_or_forgotten() -> None:
    async def scenario() -> None:
        shown = Shown("", saves_of(save(1000), content=trained()))
        assert "was finished 5 min ago" in await shown.drawn()
        assert "finished" not in await shown.press("Forget it")
        assert shown.saves.saves == []
        shown = Shown("", saves_of(save(1000), content=trained()))
        await shown.drawn()
        await shown.press("Open it")
        assert shown.session.resumed == trained()

    asyncio.run(scenario())


def pick(shown: Shown, content: bytes) -> None:
    picker = shown.find(type="file", accept=".zip")
    picker.files = Files(SimpleNamespace(content=content, name="mine.zip"))
    picker.fire("change")


def test_a_file_of_a_run_is_opened() -> None:
    data = b"".join(asyncio.run(write_checkpoint(trained())))

    async def scenario() -> None:
        shown = Shown("?player=wasm&preset=tiny")
        await shown.drawn()
        pick(shown, data)
        await asyncio.sleep(0.2)
        assert "mine.zip: nano, step 3 of 6." in await shown.drawn()
        await shown.press("Go on from step 3")
        run = trained().run
        assert run is not None
        assert shown.session.resumed == trained()
        assert shown.session.settings == resolve(
            {n: getattr(run.settings, n) for n in ("width", "layers", "heads", "hidden")}
            | {"context": 16, "batch": 2, "steps": 6, "warmup": 1, "lr": 1e-2, "player": "wasm"}
        )

    asyncio.run(scenario())


def test_somebody_elses_model_begins_with_the_settings_of_the_form() -> None:
    model = foreign(trained().config)
    data = b"".join(asyncio.run(write_checkpoint(model)))

    async def scenario() -> None:
        shown = Shown("?steps=50&seed=9&context=64&batch=4")
        await shown.drawn()
        pick(shown, data)
        await asyncio.sleep(0.2)
        settings = shown.session.settings
        assert (settings.width, settings.layers, settings.context) == (16, 2, 16)
        assert (settings.steps, settings.seed, settings.batch) == (50, 9, 16)
        resumed: Any = shown.session.resumed
        assert resumed.weights() == model.weights()

    asyncio.run(scenario())


def test_somebody_elses_long_context_becomes_one_that_a_run_can_hold() -> None:
    model = foreign(replace(trained().config, context=2048))
    data = b"".join(asyncio.run(write_checkpoint(model)))

    async def scenario() -> None:
        shown = Shown("?context=64")
        await shown.drawn()
        pick(shown, data)
        await asyncio.sleep(0.2)
        resumed: Any = shown.session.resumed
        assert resumed.config.context == shown.session.settings.context == 256

    asyncio.run(scenario())


def test_a_bad_file_is_told_and_nothing_begins() -> None:
    async def scenario() -> None:
        shown = Shown()
        await shown.drawn()
        pick(shown, b"PK nonsense")
        assert "The archive is damaged" in await shown.drawn()
        assert shown.sessions == []

    asyncio.run(scenario())


def test_a_run_is_closed_when_it_is_left() -> None:
    async def scenario() -> None:
        shown = await training()
        shown.session.go("end")
        await shown.drawn()
        await shown.press("New run")
        assert shown.session.calls == ["close"]

    asyncio.run(scenario())
