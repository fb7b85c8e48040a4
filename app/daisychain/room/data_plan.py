"""The room's data: one device reads listing and footers, all others are told, and all agree.

The founder puts the hash of its plan into the room's settings text.  A newcomer gets the plan over
the links from the device that serves it, and reads the Hub itself if that one does not answer or
lies; what it then finds must have the same hash, or its slices would be others than the room's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from daisychain.data import StreamSource, TokenSource
from daisychain.data.sharing import MAX_PACKED_BYTES, PackedPlan, difference, pack_plan, unpack_plan
from daisychain.data.spec import OWN_FILE, is_dataset
from daisychain.errors import DataError
from daisychain.room.books import plan_header
from daisychain.session import Note, OpenSource
from daisychain.settings import Settings

ASK_EVERY_MS = 1_000
ASKS = 10
"""After so many questions in vain a newcomer reads the Hub itself."""


@dataclass(frozen=True)
class AgreedPlan:
    """What a room's settings text says of its data plan; no bytes: it is not sent."""

    digest: str
    packed_bytes: int

    def to_record(self) -> list[object]:
        """As in the settings text."""
        return [self.digest, self.packed_bytes]

    @staticmethod
    def from_record(record: Any) -> AgreedPlan | None:
        """Raises ValueError or TypeError for what cannot be."""
        if record is None:
            return None
        digest, packed_bytes = record
        if len(bytes.fromhex(digest)) != 16 or type(packed_bytes) is not int:
            raise ValueError("the data plan")
        if not 0 <= packed_bytes <= MAX_PACKED_BYTES:
            raise ValueError("the size of the data plan")
        return AgreedPlan(digest, packed_bytes)


def opens_beforehand(settings: Settings) -> bool:
    """Whether a newcomer can open the data before it is told the room's plan."""
    return not is_dataset(settings.data) and settings.data != OWN_FILE


def check_shareable(settings: Settings) -> None:
    """Raise DataError for data that only one device has."""
    if settings.data == OWN_FILE:
        raise DataError(
            "A room needs text that every device can get, and a file of one's own is on one only.",
            do="Choose the embedded corpus or a dataset of the Hub.",
        )


async def plan_of(source: TokenSource) -> PackedPlan | None:
    """What a founder's source has to share; None where every device has the text."""
    return pack_plan(await source.shared()) if isinstance(source, StreamSource) else None


async def open_agreed(
    open_source: OpenSource,
    settings: Settings,
    agreed: AgreedPlan,
    told: bytes | None,
    wait_for: Note,
    tell: Note,
) -> tuple[TokenSource, PackedPlan]:
    """A newcomer's source, by the plan that it was told or else by one of its own.

    Raises DataError when neither is the one that the room trains by.
    """
    shared = None
    if told is not None:
        try:
            shared = unpack_plan(told, agreed.digest)
            source = await open_source(settings, 1, wait_for, shared)
            return source, PackedPlan(agreed.digest, told)
        except DataError as error:
            tell(f"{error} This device reads the data's footers itself.")
    source = await open_source(settings, 1, wait_for)
    assert isinstance(source, StreamSource)
    own = await source.shared()
    plan = pack_plan(own)
    if plan.digest == agreed.digest:
        return source, plan
    source.close()
    where = f" They differ in {difference(shared, own)}." if shared is not None else ""
    raise DataError(
        f"The data of this room are not what the Hub has of {settings.data}.{where}",
        "This device's slices would be others than the room's.",
        "Begin a new room; if the dataset has just changed, its new form is used then.",
    )


class PlanInbox:
    """The plan on its way to a newcomer."""

    def __init__(self) -> None:
        self._agreed: AgreedPlan | None = None
        self._packed: bytes | None = None
        self._came = asyncio.Event()

    def open(self, agreed: AgreedPlan | None) -> list[bytes]:
        """Await this plan, if there is one: the header of its flow.  An earlier one is dropped."""
        self._agreed = agreed if agreed is not None and agreed.packed_bytes else None
        self._packed = None
        self._came.clear()
        return [plan_header(self._agreed.packed_bytes)] if self._agreed else []

    def came(self, packed: bytes) -> None:
        """All of it is here."""
        self._packed = packed
        self._came.set()

    async def wait(self, ask: Callable[[str], None], wanted: Callable[[], bool]) -> bytes | None:
        """Asks by its hash until it comes; None if it does not, or is not wanted any more."""
        for _ in range(ASKS if self._agreed else 0):
            if self._agreed is None or self._packed is not None or not wanted():
                break
            ask(self._agreed.digest)
            with suppress(TimeoutError):
                async with asyncio.timeout(ASK_EVERY_MS / 1000):
                    await self._came.wait()
        return self._packed
