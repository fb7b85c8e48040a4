"""The cards beside the chart: this device with its kernels, and the run with its link."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from daisychain.data.spec import EMBEDDED, OWN_FILE
from daisychain.platform.dom import Dom
from daisychain.settings import Settings
from daisychain.ui import formats

PLAYER_NAMES = {"webgpu": "WebGPU", "wasm": "WebAssembly", "oracle": "NumPy"}


class Facts:
    """A list of terms and values; terms without a value are left out."""

    def __init__(self, dom: Dom, *terms: str) -> None:
        self._values = {term: dom.element("dd") for term in terms}
        self._rows = {
            term: dom.element("div", dom.element("dt", term), value)
            for term, value in self._values.items()
        }
        self.root = dom.element("dl", *self._rows.values(), class_="facts")

    def draw(self, **values: str) -> None:
        """Values by term, with ``_`` for a blank; all terms not named are hidden."""
        named = {term.replace("_", " "): text for term, text in values.items()}
        for term, row in self._rows.items():
            text = named.get(term, "")
            row.show(bool(text))
            self._values[term].text(text)


class DeviceCard:
    """What computes: the device, the player, the kernels that were admitted and their speed."""

    def __init__(self, dom: Dom, device: str) -> None:
        self._dom, self._device = dom, device
        self._facts = Facts(dom, "Device", "GPU", "Player", "Kernels")
        self._findings = dom.element("ul")
        self._names = dom.element("p")
        self._details = dom.element(
            "details",
            dom.element("summary", "What the check found"),
            self._findings,
            self._names,
            class_="check",
            hidden=True,
        )
        self._drawn: tuple[str, ...] = ()
        self._phase = ""
        self.root = dom.element(
            "section", dom.element("h2", "This device"), self._facts.root, self._details
        )

    def draw(self, state: Mapping[str, Any]) -> None:
        kernels, player = state.get("kernels") or (), str(state.get("player") or "")
        speeds = [str(kernel["speed"]) for kernel in kernels if kernel.get("speed")]
        self._facts.draw(
            Device=self._device,
            GPU=str(state.get("gpu") or ""),
            Player=PLAYER_NAMES.get(player, player),
            Kernels=", ".join((f"{len(kernels)} admitted", *speeds[:1])) if kernels else "",
        )
        findings = tuple(state.get("findings") or ())
        self._details.show(bool(findings or kernels))
        if state["phase"] != self._phase:  # open during the check, then as a person leaves it
            self._phase = state["phase"]
            self._details.raw.open = self._phase == "check"
        self._names.text(", ".join(kernel_text(kernel) for kernel in kernels))
        if findings != self._drawn:
            self._drawn = findings
            self._findings.replace(*(self._dom.element("li", text) for text in findings))


def kernel_text(kernel: Mapping[str, Any]) -> str:
    """softmax, or gemm3 (packed, 2.9 GMAC/s) with what is known of it."""
    known = ", ".join(str(kernel[key]) for key in ("variant", "speed") if kernel.get(key))
    return f"{kernel['name']} ({known})" if known else str(kernel["name"])


class RunCard:
    """The settings of the run and the way to repeat it."""

    def __init__(self, dom: Dom, copy_link: Callable[[], object]) -> None:
        self._facts = Facts(
            dom,
            "Model",
            "Shape",
            "Parameters",
            "Batch",
            "Learning rate",
            "Data",
            "Text ready",
            "Seed",
            "Weights",
        )
        button = dom.element("button", "Copy link", type="button", class_="quiet")
        button.attribute("title", "Copy a link that repeats this run")
        button.on("click", lambda _event: copy_link())
        self.said = dom.element("span", class_="note", role="status")
        self.root = dom.element(
            "section",
            dom.element("div", dom.element("h2", "This run"), self.said, button, class_="heading"),
            self._facts.root,
        )

    def draw(self, settings: Settings, state: Mapping[str, Any]) -> None:
        weights = state.get("weights_hash")
        source = state.get("data") or {}
        ready = source.get("buffered_tokens")
        self._facts.draw(
            Model=settings.preset,
            Shape=shape(settings),
            Parameters=formats.count(settings.parameters),
            Batch=f"{settings.batch} \u00d7 {settings.context} tokens",
            Learning_rate=formats.learning_rate(settings.lr),
            Data=text_name(settings.data, source),
            Text_ready=f"{formats.count(ready)} tokens" if ready else "",
            Seed=str(settings.seed),
            Weights=formats.short_hash(weights) if weights else "",
        )


def text_name(data: str, source: Mapping[str, Any]) -> str:
    """What is learned from: a file by its own name, and what took the place of the Hub."""
    if data == OWN_FILE:
        return str(source.get("name") or "a file")
    if data == EMBEDDED:
        return "embedded corpus"
    return f"embedded corpus, not {data}" if source.get("name") == EMBEDDED else data


def shape(settings: Settings) -> str:
    """2 layers, 4 heads, width 64"""
    layers = "1 layer" if settings.layers == 1 else f"{settings.layers} layers"
    heads = "1 head" if settings.heads == 1 else f"{settings.heads} heads"
    return f"{layers}, {heads}, width {settings.width}"
