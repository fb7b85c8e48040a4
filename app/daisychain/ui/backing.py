"""What the page stands on: sessions, rooms, camera, files; tests put scripts in their place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from daisychain.data import OwnFile
from daisychain.export.checkpoint import Checkpoint
from daisychain.export.saves import Save
from daisychain.settings import Settings
from daisychain.workshop import Tell, TextRequest


class Session(Protocol):
    """What the page needs of a training session."""

    @property
    def settings(self) -> Settings: ...
    async def run(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def stop(self) -> None: ...
    def state(self) -> dict[str, Any]: ...
    def log(self) -> Sequence[Mapping[str, Any]]: ...
    def subscribe(self, callback: Callable[[], None]) -> object: ...
    def close(self) -> None: ...
    async def write(self, request: TextRequest, tell: Tell) -> None: ...
    async def checkpoint(self) -> Checkpoint: ...
    async def kit(self, bits: int, script: bytes) -> Sequence[memoryview]: ...


class RoomSession(Session, Protocol):
    """What the page needs of a session in a room; ids are those of ``state()``."""

    def accept(self, device: str) -> None: ...
    def refuse(self, device: str) -> None: ...
    def remove(self, device: str) -> None: ...
    def rename(self, name: str) -> None: ...
    def leave(self) -> None: ...
    async def hand_offer(self) -> str: ...
    async def hand_answer(self, offer: str) -> str: ...
    async def hand_accept(self, answer: str) -> None: ...


class Estimate(Protocol):
    """What a run will take."""

    @property
    def memory_bytes(self) -> int: ...
    @property
    def multiplies_per_step(self) -> int: ...
    @property
    def exchange_bytes(self) -> int: ...


@dataclass(frozen=True)
class RoomEntry:
    """How a person enters a room: ``role`` is ``host`` (opens it) or ``member``.

    ``code`` is canonical; an empty one means that devices are paired by hand only.  ``new_code``
    tells that nobody else can know it yet.
    """

    role: str
    code: str
    name: str
    new_code: bool = False


DrawQr = Callable[[str], Awaitable[str]]
"""A text's QR code as SVG."""
ScanQr = Callable[[Any, Callable[[str], bool]], Awaitable[Callable[[], None]]]
"""Shows the camera in a video element until ``found(text)`` is true or the result is called."""


class Kept(Protocol):
    """The saves of this page, see ``export.saves.Saves``."""

    async def listed(self) -> list[Save]: ...
    async def load(self, save: Save) -> Checkpoint: ...
    async def discard(self) -> None: ...


ReadFile = Callable[[Any], Awaitable[bytes]]
"""The content of a File of the page's picker."""


@dataclass(frozen=True)
class Backing:
    """The parts below the page, by what the page does with them."""

    make_session: Callable[[Settings, OwnFile | None, Checkpoint | None], Session]
    make_room: Callable[[Settings, RoomEntry, Checkpoint | None], RoomSession]
    estimate: Callable[[Settings], Estimate]
    draw_qr: DrawQr
    scan_qr: ScanQr
    own_file: Callable[[Any], OwnFile]
    kept_bytes: Callable[[], Awaitable[int]]
    forget_kept: Callable[[], Awaitable[None]]
    saves: Kept
    read_file: ReadFile
