"""What each phase of a session is called, offers and waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daisychain.settings import Settings
from daisychain.ui import stages

PHASES = {
    "idle": "",
    "check": "Checking the device",
    "data": "Preparing the text",
    "train": "Training",
    "pause": "Paused",
    "halt": "Halted",
    "error": "Stopped",
}

WAITS = {
    "check": "Checking each kernel of this device against the INT8 units",
    "data": "Reading and tokenizing the text",
    "join": "Loading the model as the others have trained it",
}

END = "end"
"""The page's own phase: a session that is idle again; the page shows what it did."""


def idle_state(settings: Settings) -> dict[str, Any]:
    blank = dict.fromkeys(
        (
            "loss",
            "heldout_nats",
            "heldout_bits_per_byte",
            "tokens_per_s",
            "weights_hash",
            "player",
            "memory_bytes",
            "error",
        )
    )
    counts = {"phase": "idle", "step": 0, "steps": settings.steps, "tokens": 0}
    return {**blank, **counts, "kernels": [], "members": [], "notices": []}


def controls(state: Mapping[str, Any]) -> tuple[str, ...]:
    """The buttons that make sense now."""
    stop = "leave" if stages.stage(state) else "stop"
    if state["phase"] == "pause" and stages.lacks_voters(state):
        # Nobody paused it, so there is nothing to resume.
        return ("go_on_alone", stop) if stages.may_go_on_alone(state) else (stop,)
    return {
        "check": (stop,),
        "data": (stop,),
        "join": (stop,),
        "train": ("pause", stop),
        "pause": ("resume", stop),
        END: ("new",),
    }.get(str(state["phase"]), ())


def has_model(state: Mapping[str, Any]) -> bool:
    """Whether a model is there to write texts and to be kept."""
    if state["phase"] in ("train", "pause"):
        return bool(state.get("weights_hash"))
    kept = stages.stage(state) in ("", "inside", "left")
    return state["phase"] == END and kept and bool(state.get("weights_hash"))


def name(state: Mapping[str, Any]) -> str:
    """What the page says the run is doing."""
    phase, stage = str(state["phase"]), stages.stage(state)
    if phase == "join" or (phase in (END, "error") and stage not in ("", "inside")):
        return stages.name(state)
    if phase == "pause" and stages.lacks_voters(state):
        return "Waiting for others"
    if phase == "train" and stages.awaits_host(state):
        return "Waiting for the host"
    if phase == END:
        step, steps = state.get("step") or 0, state.get("steps") or 0
        return "Finished" if steps and step >= steps else "Stopped"
    return PHASES.get(phase, phase.capitalize())


def title(state: Mapping[str, Any], phase: str) -> str:
    """What the tab is called; ``phase`` is the page's."""
    asking = len((state.get("room") or {}).get("waiting") or ())
    if asking and phase != END:
        return f"({asking}) asks to come in \u00b7 DaisyChain"
    if phase == "idle" or state.get("loss") is None:
        return "DaisyChain"
    return f"{state['loss']:.2f} \u00b7 step {state['step']:,} \u00b7 DaisyChain"


def waiting(state: Mapping[str, Any]) -> tuple[str, float | None, float | None]:
    """What the page waits for; ``progress`` of the state says it best."""
    progress = state.get("progress")
    if isinstance(progress, Mapping):
        return str(progress.get("text", "")), progress.get("done"), progress.get("total")
    if state["phase"] == "join" and stages.stage(state) != "inside":
        return stages.waiting(state), None, None
    return WAITS.get(str(state["phase"]), ""), None, None


def bits_per_nat(state: Mapping[str, Any]) -> float | None:
    """Bits a byte for one nat a token, from the last held-out measurement."""
    nats, bits = state.get("heldout_nats"), state.get("heldout_bits_per_byte")
    return bits / nats if nats and bits else None
