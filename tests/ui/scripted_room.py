"""A session in a room that plays a script, with the face of ``RoomSession``; and what goes with it.

Like scripted.py it runs in CPython and, pasted into a page's main.py behind it, in Pyodide.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from daisychain.errors import ClusterError
from daisychain.export.saves import Save
from daisychain.settings import Settings
from daisychain.ui.backing import Backing, RoomEntry
from tests.ui.scripted import ScriptedSession, scripted_estimate

OFFER = "EAQY" + "b3" * 58
ANSWER = "EQQY" + "c4" * 58
PHONE = {"id": "p" * 16, "name": "Zo\u00eb's phone", "kind": "Chrome 156 on Android"}
TABLET = {"id": "t" * 16, "name": "<b>Tablet</b>", "kind": "Safari 26 on iPad"}
OLD = {"id": "d" * 16, "name": "The old one under the stairs", "kind": "Firefox 145 on Linux"}
OWN_ID = "m" * 16


class ScriptedRoom(ScriptedSession):
    """Stages and members change as the test says; training as in ``ScriptedSession``."""

    def __init__(self, settings: Settings, entry: RoomEntry) -> None:
        super().__init__(settings)
        self.entry, self.name = entry, entry.name
        self.stage = "opening"
        self.waiting: list[dict[str, str]] = []
        self.others: list[dict[str, str]] = []
        self.relays = [{"address": "wss://relay.example/relay", "up": True}]
        self.sentence = ""
        self.lacks_voters = self.may_go_on_alone = False
        self.awaits_host = False
        self.drifted = ""

    async def run(self) -> None:
        self.phase = "data" if self.entry.role == "host" else "join"
        self.stage = "opening" if self.entry.role == "host" else "looking"
        self._changed()
        await self._wait_for_the_end()

    def enter(self, stage: str) -> None:
        """The stage changes."""
        self.stage = stage
        if stage in ("refused", "removed"):
            self.error = {
                "refused": "The host did not let this device in.",
                "removed": "The host removed this device from the room.",
            }[stage]
            self.go("error")
        self._changed()

    def knock(self, device: dict[str, str]) -> None:
        self.waiting.append(device)
        self._changed()

    def halt(self, sentence: str) -> None:
        """Replicas differ: training has stopped for good."""
        self.error, self.drifted = sentence, self.others[-1]["id"]
        self.go("halt")

    def accept(self, device: str) -> None:
        self.calls.append(f"accept {device[0]}")
        self.others += [d for d in self.waiting if d["id"] == device]
        self.refuse(device, told=False)

    def refuse(self, device: str, told: bool = True) -> None:
        if told:
            self.calls.append(f"refuse {device[0]}")
        self.waiting = [d for d in self.waiting if d["id"] != device]
        self._changed()

    def remove(self, device: str) -> None:
        self.calls.append(f"remove {device[0]}")
        self.others = [d for d in self.others if d["id"] != device]
        self._changed()

    def rename(self, name: str) -> None:
        self.name = name
        self._changed()

    def go_on_alone(self) -> None:
        self.calls.append("go_on_alone")

    def leave(self) -> None:
        self.calls.append("leave")
        self.stage = "left"
        self.go("end")

    def stop(self) -> None:
        self.leave()

    def close(self) -> None:
        if self.phase != "idle" or self.stage != "left":
            self.leave()

    async def hand_offer(self) -> str:
        return OFFER

    async def hand_answer(self, offer: str) -> str:
        if offer != OFFER:
            raise ClusterError("This pairing text is damaged.", do="Copy all of it.")
        return ANSWER

    async def hand_accept(self, answer: str) -> None:
        if answer != ANSWER:
            raise ClusterError("This pairing text is damaged.", do="Copy all of it.")
        self.calls.append("paired")

    def state(self) -> dict[str, Any]:
        host = OWN_ID if self.entry.role == "host" else PHONE["id"]
        room = {
            "code": self.entry.code,
            "role": self.entry.role,
            "stage": self.stage,
            "host": host,
            "waiting": self.waiting,
            "relays": self.relays,
            "sentence": self.sentence,
            "lacks_voters": self.lacks_voters,
            "may_go_on_alone": self.may_go_on_alone,
            "awaits_host": self.awaits_host,
        }
        members = self._members() if self.stage == "inside" else []
        return {**super().state(), "room": room, "members": members}

    def _members(self) -> list[dict[str, Any]]:
        own = {"id": OWN_ID, "name": self.name, "kind": "Chrome 156 on Linux"}
        return [self._member(index, d) for index, d in enumerate([own, *self.others])]

    def _member(self, index: int, device: dict[str, str]) -> dict[str, Any]:
        trained, step = bool(self.records), len(self.records)
        hash_ = f"{step * 40503 % 2**32:08x}0123456789abcdef01234567"
        if device["id"] == self.drifted:
            hash_ = "deadbeef" + hash_[8:]
        micro = (6, 1, 2, 3)[index % 4]
        return {
            **device,
            "me": index == 0,
            "leader": index == 0,
            "state": {"train": "compute", "halt": "halted"}.get(self.phase, "member"),
            "step": step,
            "hash": hash_ if trained else "",
            "micro_batches": micro if trained else 0,
            "tokens": micro * 1024 if trained else 0,
            "compute_ms": 412 + 7 * index if trained else 0,
            "exchange_ms": 96 + 11 * index if trained else 0,
            "bytes": 4_870_000 + 1000 * index if trained else 0,
            "link": ("", "direct", "relayed", "forwarded")[index % 4],
            "rtt_ms": (None, 4.2, 38.0, 51.0)[index % 4],
        }

    def _record(self, step: int) -> dict[str, Any]:
        record = super()._record(step)
        shares = [
            {"id": m["id"], "name": m["name"], "micro_batches": (6, 1, 2, 3)[index % 4]}
            | {"tokens": 1024, "compute_ms": 412, "exchange_ms": 96, "bytes": 4_870_000}
            for index, m in enumerate([{"id": OWN_ID, "name": self.name}, *self.others])
        ]
        return {**record, "exchange_ms": 96, "members": shares}


async def scripted_qr(text: str) -> str:
    """No code, but a picture."""
    return f"<svg xmlns='http://www.w3.org/2000/svg'><title>{len(text)}</title></svg>"


class Camera:
    """Shows a text to whoever opens it; ``ended`` counts how often it was switched off."""

    def __init__(self) -> None:
        self.text = ""
        self.allowed = True
        self.found: Callable[[str], bool] | None = None
        self.ended = 0

    async def scan(self, video: Any, found: Callable[[str], bool]) -> Callable[[], None]:
        if not self.allowed:
            raise ClusterError("The camera cannot be used.", do="Type the code.")
        self.found = found
        return self.end

    def end(self) -> None:
        self.ended += 1
        self.found = None


class Kept:
    """What the browser keeps."""

    def __init__(self) -> None:
        self.bytes = 84_000_000

    async def count(self) -> int:
        return self.bytes

    async def clear(self) -> None:
        self.bytes = 0


class ScriptedSaves:
    """Saves of this page; a checkpoint is given as it is, an error raised."""

    def __init__(self, *saves: Save) -> None:
        self.saves = list(saves)
        self.contents: dict[str, Any] = {}

    async def listed(self) -> list[Save]:
        return self.saves

    async def load(self, save: Save) -> Any:
        content = self.contents[save.name]
        if isinstance(content, Exception):
            raise content
        return content

    async def discard(self) -> None:
        self.saves = []


async def read_file(file: Any) -> bytes:
    return bytes(file.content)


def own_file(file: Any) -> Any:
    return SimpleNamespace(name=str(file.name), bytes=int(file.size), file=file)


def scripted_backing(
    sessions: list[Any],
    camera: Camera | None = None,
    draw_qr: Any = scripted_qr,
    saves: ScriptedSaves | None = None,
) -> Backing:
    """Everything scripted; sessions are added to the list as the page asks for them."""

    def make_session(settings: Settings, file: Any, resumed: Any) -> ScriptedSession:
        sessions.append(ScriptedSession(settings))
        sessions[-1].file, sessions[-1].resumed = file, resumed
        return sessions[-1]

    def make_room(settings: Settings, entry: RoomEntry, resumed: Any) -> ScriptedRoom:
        sessions.append(ScriptedRoom(settings, entry))
        sessions[-1].resumed = resumed
        return sessions[-1]

    kept = Kept()
    return Backing(
        make_session=make_session,
        make_room=make_room,
        estimate=scripted_estimate,
        draw_qr=draw_qr,
        scan_qr=(camera or Camera()).scan,
        own_file=own_file,
        kept_bytes=kept.count,
        forget_kept=kept.clear,
        saves=saves or ScriptedSaves(),
        read_file=read_file,
    )
