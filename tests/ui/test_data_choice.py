"""The choice of the text: toggles, datasets by name, files of one's own, what the browser keeps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from daisychain.data.opening import MAX_TEXT_BYTES
from daisychain.platform import cpython
from daisychain.ui.cards import text_name
from daisychain.ui.data_choice import EXAMPLE, refusal
from tests.ui.fake_dom import Element, Files
from tests.ui.test_page import URL, Shown, fresh_platform, play

__all__ = ["fresh_platform"]

NOTES = SimpleNamespace(name="notes.md", size=1_200_000)


def radio(shown: Shown, value: str) -> Element:
    (found,) = (
        e
        for e in shown.window.document.body.all()
        if e.attributes.get("name") == "source" and e.attributes["value"] == value
    )
    return found


def picker(shown: Shown) -> Element:
    elements = shown.window.document.body.all()
    (found,) = (e for e in elements if ".txt" in e.attributes.get("accept", ""))
    return found


def area(shown: Shown) -> Element:
    elements = shown.window.document.body.all()
    (found,) = (e for e in elements if e.attributes.get("class") == "welcome")
    return found


def disabled(shown: Shown) -> set[str]:
    elements = shown.window.document.body.all()
    return {e.textContent for e in elements if e.tag == "button" and "disabled" in e.attributes}


def test_the_link_decides_and_the_choice_is_a_link() -> None:
    async def scenario() -> None:
        shown = Shown("?data=fineweb-edu")
        await shown.drawn()
        assert radio(shown, "fineweb-edu").checked
        radio(shown, "hub").fire("change")
        assert cpython.page_url() == f"{URL}?data={EXAMPLE}"
        shown.window.enter("data", "a/b/config:body")
        assert cpython.page_url() == f"{URL}?data=a/b/config:body"
        await shown.press("Train solo")
        assert shown.session.settings.data == "a/b/config:body"
        assert shown.session.file is None

    play(scenario)


def test_a_name_that_cannot_be_a_dataset_is_explained_and_stays() -> None:
    async def scenario() -> None:
        shown = Shown("?data=a/b")
        shown.window.enter("data", "no dataset")
        assert "or a dataset as owner/name" in shown.text()
        assert shown.window.field("data").value == "no dataset"
        assert shown.window.field("data").attributes["aria-invalid"] == "true"
        assert disabled(shown) == {"Train solo", "Start a room"}
        radio(shown, "embedded").fire("change")
        assert disabled(shown) == set()
        assert not shown.window.field("data").visible

    play(scenario)


@pytest.mark.parametrize("way", ["picker", "drop"])
def test_a_file_of_ones_own(way: str) -> None:
    async def scenario() -> None:
        shown = Shown()
        if way == "picker":
            radio(shown, "file").fire("change")
            assert disabled(shown) == {"Train solo", "Start a room"}
            picker(shown).files = Files(NOTES)
            picker(shown).fire("change")
        else:
            area(shown).fire("drop", dataTransfer=SimpleNamespace(files=Files(NOTES)))
        assert radio(shown, "file").checked
        assert "notes.md, 1.20 MB" in shown.text()
        assert disabled(shown) == {"Start a room"}
        assert cpython.page_url() == f"{URL}?data=file"
        await shown.press("Train solo")
        assert shown.session.file.file is NOTES
        assert text_name("file", {"name": "notes.md"}) == "notes.md"
        assert text_name("fineweb-edu", {"name": "embedded"}) == "embedded corpus, not fineweb-edu"

    play(scenario)


def test_a_link_to_a_file_waits_for_the_file() -> None:
    async def scenario() -> None:
        for start, words in (("solo", "Choose the file"), ("room", "every device can get")):
            shown = Shown(f"?start={start}&data=file")
            await shown.drawn()
            assert not shown.sessions
            assert words in shown.text()

    play(scenario)


def test_files_that_cannot_be_read_are_told_at_once() -> None:
    async def scenario() -> None:
        assert refusal("a.PARQUET", 1 << 40) == ""
        assert refusal("a.txt", MAX_TEXT_BYTES + 1) == (
            "a.txt is larger than 128 MB; a .parquet file may be."
        )
        shown = Shown()
        pdf = SimpleNamespace(name="<i>.pdf", size=1)
        area(shown).fire("drop", dataTransfer=SimpleNamespace(files=Files(pdf)))
        assert "<i>.pdf is no kind of text that can be read here." in shown.text()
        assert "Train solo" in disabled(shown)
        area(shown).fire("drop", dataTransfer=SimpleNamespace(files=Files()))
        area(shown).fire("drop", dataTransfer=SimpleNamespace(files=Files(NOTES)))
        assert "no kind of text" not in shown.text()
        assert disabled(shown) == {"Start a room"}

    play(scenario)


def test_what_the_browser_keeps_is_shown_and_cleared() -> None:
    async def scenario() -> None:
        shown = Shown()
        await shown.drawn()
        assert "kept in the browser" not in shown.text()
        radio(shown, "fineweb-edu").fire("change")
        await shown.drawn()
        assert "84.0 MB of text are kept in the browser." in shown.text()
        await shown.press("Clear")
        assert "kept in the browser" not in shown.text()

    play(scenario)
