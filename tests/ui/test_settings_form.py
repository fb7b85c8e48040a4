"""The form: presets, fields, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from daisychain.settings import EXCHANGES, PLAYERS, parse_query, resolve
from daisychain.ui.settings_form import SettingsForm, given_values
from tests.ui.fake_dom import Element, Window
from tests.ui.scripted_room import scripted_backing


class Form:
    """A form in a page of its own, with the calls that it made."""

    def __init__(self, query: str = "") -> None:
        self.window = Window()
        self.changes = 0
        settings, _ = parse_query(query)
        self.form = SettingsForm(self.window.dom(), settings, scripted_backing([]), self._changed)
        roots = (self.form.presets.raw, self.form.data.root.raw, self.form.fields.raw)
        self.window.document.body.append(*roots)

    def _changed(self) -> None:
        self.changes += 1

    def radios(self) -> dict[str, Element]:
        return {e.attributes["value"]: e for e in self.form.presets.raw.all() if e.tag == "input"}

    def values(self, *names: str) -> list[Any]:
        return [self.window.field(name).value for name in names]


def test_shows_the_link() -> None:
    form = Form("preset=tiny&steps=7")
    assert form.radios()["tiny"].checked
    assert form.values("width", "steps", "lr", "kv_heads", "warmup") == [
        "128",
        "7",
        "0.003",
        "4",
        "0",
    ]


def test_a_preset_changes_the_shape_and_keeps_the_rest() -> None:
    form = Form("width=96&seed=5")
    form.radios()["small"].fire("change")
    assert form.form.settings == resolve({"preset": "small", "seed": 5})
    assert form.values("width", "hidden", "seed") == ["256", "704", "5"]
    assert form.changes == 1


def test_what_follows_is_shown() -> None:
    form = Form()
    form.window.enter("width", "128")
    assert form.values("hidden") == ["352"]
    form.window.enter("width", "")
    assert form.form.settings == resolve()
    assert form.values("width") == ["64"]


def test_a_refused_value_is_explained_and_stays_to_be_mended() -> None:
    form = Form()
    form.window.enter("layers", "0")
    assert form.form.refused.startswith("The number of layers must be")
    assert form.window.field("layers").attributes["aria-invalid"] == "true"
    assert form.values("layers") == ["0"]
    assert form.form.settings == resolve()
    assert "number of layers" in form.window.shown()
    form.window.enter("layers", "3")
    assert form.form.refused == ""
    assert form.form.settings.layers == 3
    assert "number of layers" not in form.window.shown()


def test_values_that_do_not_fit_each_other() -> None:
    form = Form()
    form.window.enter("heads", "5")
    assert form.form.refused == "The width 64 is not divisible by 5 heads."
    form.window.enter("width", "80")
    assert form.form.refused == ""
    assert (form.form.settings.width, form.form.settings.head_dim) == (80, 16)


def test_the_sentence_stands_behind_the_field() -> None:
    form = Form()
    form.window.enter("seed", "x")
    label = form.window.field("seed").parent
    assert label is not None
    assert label.parent is not None
    following = label.parent.children[label.parent.children.index(label) + 1]
    assert following.attributes["id"] == "refusal"


def test_a_tokenizer_is_named_by_its_repository() -> None:
    form = Form("tokenizer=owner/model")
    (field,) = [e for e in form.form.fields.raw.all() if e.attributes.get("name") == "tokenizer"]
    assert field.value == "owner/model"
    form.form.enter("tokenizer", "not a repository")
    assert "tokenizer must be empty or a model repository" in form.form.refused
    form.form.enter("tokenizer", "")
    assert form.form.settings == resolve()


@pytest.mark.parametrize(
    ("name", "values", "first", "then"),
    [("exchange", EXCHANGES, "int16", "int4"), ("player", PLAYERS, "webgpu", "wasm")],
)
def test_one_of_a_few_values_is_chosen(
    name: str, values: tuple[str, ...], first: str, then: str
) -> None:
    form = Form(f"{name}={first}")
    options = {
        e.attributes["value"]: e
        for e in form.form.fields.raw.all()
        if e.attributes.get("name") == name
    }
    assert set(options) == set(values)
    assert [value for value, radio in options.items() if radio.checked] == [first]
    options[then].fire("change")
    assert form.form.settings == resolve({name: then})
    assert [value for value, radio in options.items() if radio.checked] == [then]


def test_given_values_leave_out_what_follows() -> None:
    assert given_values(resolve({"preset": "tiny"})) == {"preset": "tiny"}
    assert given_values(resolve({"width": 128})) == {"width": 128}
