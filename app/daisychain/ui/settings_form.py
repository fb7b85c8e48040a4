"""The form of the settings: presets for most people, every number for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from daisychain.errors import SettingsError
from daisychain.platform.dom import Dom, Node
from daisychain.settings import PRESETS, RANGES, Settings, parse_value, resolve, to_query
from daisychain.ui import formats
from daisychain.ui.backing import Backing
from daisychain.ui.data_choice import DataChoice, Kept
from daisychain.ui.turn_form import TurnForm

FIELDS = (
    ("Model", ("width", "layers", "heads", "kv_heads", "hidden", "context")),
    ("Training", ("steps", "batch", "lr", "warmup", "seed", "eval_every")),
)

NAMES = {
    "width": "Width",
    "layers": "Layers",
    "heads": "Heads",
    "kv_heads": "Key-value heads",
    "hidden": "Feed-forward",
    "context": "Context, tokens",
    "steps": "Steps",
    "batch": "Batch, sequences",
    "lr": "Learning rate",
    "warmup": "Warm-up steps",
    "seed": "Seed",
    "eval_every": "Held-out every",
}

CHOICES = (
    (
        "player",
        "Compute with",
        {"auto": "The faster one", "webgpu": "GPU", "wasm": "CPU"},
    ),
    (
        "exchange",
        "Gradients between devices of a room",
        {"int8": "8 bits", "int4": "4 bits", "int16": "16 bits, exact"},
    ),
)
"""Settings with a few values: name, legend, what each value is called."""

NAMED = {
    "tokenizer": (
        "That of a model of the Hub",
        "A model of the Hub as owner/name; byte-level BPE is understood",
    ),
    "relay": (
        "Relays",
        "wss://host/path or mqtt+wss://host:port/path, several with commas, or none",
    ),
    "stun": ("STUN servers", "stun:host:port, several with commas, or none"),
}
"""Settings that are a name or an address: label, and what may be entered."""


class SettingsForm:
    """Holds the settings that a run would start with.

    ``presets``, ``data`` and ``fields`` are its parts; ``changed`` is called after each change.
    ``refused`` is the sentence for what does not fit at present, or empty.
    """

    def __init__(
        self, dom: Dom, settings: Settings, backing: Backing, changed: Callable[[], object]
    ) -> None:
        self._dom, self._changed = dom, changed
        self.settings = settings
        self._given = given_values(settings)
        self._wrong: dict[str, str] = {}
        self._inputs: dict[str, Node] = {}
        self._labels: dict[str, Node] = {}
        self._radios: dict[str, Node] = {}
        self._options: dict[tuple[str, str], Node] = {}
        self._message = dom.element("p", class_="refusal", role="alert", hidden=True, id="refusal")
        self.presets = dom.element(
            "fieldset",
            dom.element("legend", "Size of the model"),
            *(self._preset(name) for name in PRESETS),
            class_="presets",
        )
        kept = Kept(dom, backing.kept_bytes, backing.forget_kept)
        self.data = DataChoice(dom, lambda value: self.enter("data", value), backing.own_file, kept)
        self._labels["data"] = self.data.label
        self.turn = TurnForm(dom, "settings")
        self.fields = dom.element(
            "details",
            dom.element("summary", "All settings"),
            *(self._group(title, names) for title, names in FIELDS),
            self._named("Tokenizer", "tokenizer"),
            *(self._choice(*choice) for choice in CHOICES),
            self._named("How devices of a room find each other", "relay", "stun"),
            self.turn.root,
            class_="settings",
        )
        self._show()

    @property
    def refused(self) -> str:
        return next(iter(self._wrong.values()), "")

    def choose(self, preset: str) -> None:
        """Takes a preset's shape; how long and on what to train stays as it is."""
        shape = {*PRESETS[preset], "kv_heads", "hidden"}
        kept = {name: value for name, value in self._given.items() if name not in shape}
        self._wrong = {name: text for name, text in self._wrong.items() if name not in shape}
        self._given = {**kept, "preset": preset}
        self._resolve()

    def enter(self, name: str, text: str) -> None:
        """Takes one field's text; an empty one means the default."""
        self._labels[name].after(self._message)
        self._given.pop(name, None)
        self._wrong.pop(name, None)
        if text.strip():
            try:
                self._given[name] = parse_value(name, text)
            except SettingsError as error:
                self._wrong[name] = error.what
        self._resolve()

    def _resolve(self) -> None:
        self._wrong.pop("", None)
        try:
            self.settings = resolve(self._given)
        except SettingsError as error:
            self._wrong[""] = error.what
        self._show()
        self._changed()

    def _show(self) -> None:
        for preset, radio in self._radios.items():
            radio.check(preset == self.settings.preset)
        for (name, value), radio in self._options.items():
            radio.check(value == getattr(self.settings, name))
        for name, field in self._inputs.items():
            if name not in self._wrong:
                value = self._given.get(name, getattr(self.settings, name))
                field.enter(str(value))
            field.attribute("aria-invalid", "true" if name in self._wrong else None)
        self.data.draw(self.settings.data, "data" in self._wrong)
        self._message.text(self.refused)
        self._message.show(bool(self.refused))

    def _preset(self, name: str) -> Node:
        radio = self._dom.element("input", type="radio", name="preset", value=name)
        radio.on("change", lambda _event: self.choose(name))
        self._radios[name] = radio
        parameters = formats.count(resolve({"preset": name}).parameters)
        return self._dom.element(
            "label",
            radio,
            self._dom.element(
                "span", self._dom.element("b", name), self._dom.element("small", parameters)
            ),
        )

    def _group(self, title: str, names: tuple[str, ...]) -> Node:
        legend = self._dom.element("legend", title)
        return self._dom.element("fieldset", legend, *(self._field(name) for name in names))

    def _choice(self, name: str, title: str, values: Mapping[str, str]) -> Node:
        options = (self._option(name, value, text) for value, text in values.items())
        self._labels[name] = self._dom.element("div", *options, class_="choice")
        legend = self._dom.element("legend", title)
        return self._dom.element("fieldset", legend, self._labels[name])

    def _option(self, name: str, value: str, text: str) -> Node:
        radio = self._dom.element("input", type="radio", name=name, value=value)
        radio.on("change", lambda _event: self.enter(name, value))
        self._options[name, value] = radio
        return self._dom.element("label", radio, self._dom.element("span", text))

    def _named(self, title: str, *names: str) -> Node:
        legend = self._dom.element("legend", title)
        fields = (self._long_field(name, *NAMED[name]) for name in names)
        return self._dom.element("fieldset", legend, *fields, class_="long")

    def _long_field(self, name: str, label: str, hint: str) -> Node:
        field = self._dom.element(
            "input",
            type="text",
            name=name,
            autocomplete="off",
            autocapitalize="none",
            spellcheck="false",
            placeholder="the page's own",
            title=hint,
            aria_describedby="refusal",
        )
        field.on("change", lambda _event: self.enter(name, field.value))
        self._inputs[name] = field
        self._labels[name] = self._dom.element("label", self._dom.element("span", label), field)
        return self._labels[name]

    def _field(self, name: str) -> Node:
        hint = str(RANGES[name]) if name in RANGES else "from 1e-6 to 1"
        field = self._dom.element(
            "input",
            type="text",
            inputmode="decimal" if name == "lr" else "numeric",
            autocomplete="off",
            name=name,
            title=f"{hint[0].upper()}{hint[1:]}",
            aria_describedby="refusal",
        )
        field.on("change", lambda _event: self.enter(name, field.value))
        self._inputs[name] = field
        self._labels[name] = self._dom.element(
            "label", self._dom.element("span", NAMES[name]), field
        )
        return self._labels[name]


def given_values(settings: Settings) -> dict[str, Any]:
    """The values of these settings that do not follow from the others."""
    pairs = (pair.split("=", 1) for pair in to_query(settings).split("&") if pair)
    return {name: getattr(settings, name) for name, _ in pairs}
