"""A room in words: where this device stands, what it waits for, what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daisychain.ui.messages import Trouble

State = Mapping[str, Any]

NAMES = {
    "opening": "Opening the room",
    "looking": "Looking for the room",
    "knocking": "At the door",
    "refused": "Not let in",
    "removed": "Removed",
    "left": "Left the room",
}

WAITS = {
    "looking": "Looking for the room",
    "knocking": "Waiting until the host lets this device in",
}

OVER = ("refused", "removed", "left")
"""Stages that this device does not come back from."""

DOING = {
    "idle": "ready",
    "member": "training",
    "compute": "training",
    "guard": "training",
    "joining": "loading",
    "silent": "out of reach",
}
"""What a member's state is called where its own word is not plain."""


def stage(state: State) -> str:
    """Where this device stands; empty for a run outside rooms."""
    return str((state.get("room") or {}).get("stage") or "")


def is_outside(state: State) -> bool:
    """Whether this device does not know the room's run yet: it is another one's."""
    room = state.get("room") or {}
    return room.get("role") == "member" and stage(state) != "inside" and not state.get("step")


def lacks_voters(state: State) -> bool:
    """Whether the room stands still until more of its devices are in reach."""
    return bool((state.get("room") or {}).get("lacks_voters"))


def is_host(state: State) -> bool:
    """Whether this device decides who comes in."""
    room = state.get("room") or {}
    own = next((m.get("id") for m in state.get("members") or () if m.get("me")), None)
    return stage(state) == "inside" and own is not None and room.get("host") == own


def may_go_on_alone(state: State) -> bool:
    """Whether this device has waited for others long enough to be asked to go on without them."""
    return bool((state.get("room") or {}).get("may_go_on_alone"))


def awaits_host(state: State) -> bool:
    """Whether this device would train, and the one that leads makes no step."""
    return bool((state.get("room") or {}).get("awaits_host"))


def name(state: State) -> str:
    """Where this device stands, in a word or two."""
    room = state.get("room") or {}
    if stage(state) == "looking" and not room.get("code"):
        return "Pairing by hand"
    opens = room.get("role") == "host" and room.get("sentence")
    return NAMES.get(stage(state), "Opening the room" if opens else "Joining")


def waiting(state: State) -> str:
    """What a device outside the room waits for."""
    room = state.get("room") or {}
    if stage(state) == "looking" and not room.get("code"):
        return "Waiting for the other device"
    return str(room.get("sentence") or "") or WAITS.get(stage(state), "")


def relays_up(state: State) -> bool:
    """Whether devices can find each other by the code at present."""
    return any(relay.get("up") for relay in (state.get("room") or {}).get("relays") or ())


def trouble(state: State) -> Trouble | None:
    """Why this device's part in the room is over; None while it is not."""
    error = str(state.get("error") or "")
    if state.get("phase") == "halt" and error:
        return Trouble(
            "Training has stopped on every device.",
            error,
            "Start again without the device that is named: its memory or its graphics driver is at "
            "fault if it happens twice.",
        )
    if stage(state) == "refused":
        return Trouble(
            error or "The host did not let this device in.",
            "",
            "Ask whoever opened the room, then try again.",
        )
    if stage(state) == "removed":
        return Trouble(
            error or "The host removed this device from the room.",
            "The others go on without it; the figures of its part stay here.",
            "Ask whoever opened the room before you join again.",
        )
    return None


def ways_on(state: State) -> tuple[str, str]:
    """What a second try and the way back are called beside a trouble."""
    if not stage(state):
        return "Try again", "Change the settings"
    return "Start again" if state.get("phase") == "halt" else "Try again", "Leave"
