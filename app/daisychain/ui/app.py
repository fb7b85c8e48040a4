"""Puts the page in place with the real parts below it; app/main.py calls ``main``."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from daisychain.building import estimate
from daisychain.data import OwnFile, Tokenizer, TokenSource, open_source, open_tokenizer
from daisychain.data.hub import HUB_ADDRESS
from daisychain.data.opening import TOKENIZER_FILE
from daisychain.data.port import DataFile
from daisychain.data.sharing import Shared
from daisychain.export.archive import MAX_OPENED_BYTES
from daisychain.export.checkpoint import HEAD_BYTES, MAX_TOKENIZER_BYTES, Checkpoint, check_head
from daisychain.export.saves import Saves, room_digest
from daisychain.platform import cpu_count, fetch_bytes
from daisychain.platform.dom import open_dom
from daisychain.platform.exchange_worker import open_exchange
from daisychain.platform.files import blob, blob_bytes, kept_files
from daisychain.platform.isolation import can_isolate, isolate
from daisychain.platform.qr import qr_svg, scan_qr
from daisychain.platform.scripts import import_script
from daisychain.platform.tabs import page_tabs
from daisychain.platform.workers import clear_kept, kept_bytes, own_file
from daisychain.players.choice import open_player
from daisychain.room.session import RoomSession
from daisychain.session import OpenSource, TrainingSession
from daisychain.settings import Settings
from daisychain.ui.backing import Backing, RoomEntry
from daisychain.ui.cores import cores_offer
from daisychain.ui.page import Page


async def show(backing: Backing) -> Page:
    """Builds the page; it returns when all of it is there and lives on with the event loop."""
    page = Page(open_dom(), backing)
    page.mount()
    try:
        page.attach_chart(await import_script("js/chart.js"))
    except Exception as error:  # a JsException: the file is missing or the browser too old
        page.notify(f"The loss curve could not be loaded ({error}). Training works without it.")
    return page


async def main() -> None:
    """Shows the page with the real parts."""
    page = await show(
        Backing(
            make_session=_make_session,
            make_room=_make_room,
            estimate=estimate,
            draw_qr=qr_svg,
            scan_qr=scan_qr,
            own_file=own_file,
            kept_bytes=kept_bytes,
            forget_kept=clear_kept,
            saves=_saves,
            read_file=_read_file,
        )
    )
    if can_isolate() and cpu_count() > 1:
        page.offer(lambda dom: cores_offer(dom, cpu_count(), isolate))


def _make_session(
    settings: Settings, file: OwnFile | None, resumed: Checkpoint | None
) -> TrainingSession:
    opener = _opener(file, tokenizer=resumed.tokenizer if resumed else b"")
    return TrainingSession(settings, open_player, opener, resumed, _saves.keep)


async def _read_file(file: Any) -> bytes:
    """A file that may be a checkpoint; what is none is not read to its end."""
    check_head(await blob_bytes(file.slice(0, HEAD_BYTES), HEAD_BYTES))
    return await blob_bytes(file, MAX_OPENED_BYTES)


def _make_room(settings: Settings, entry: RoomEntry, resumed: Checkpoint | None) -> RoomSession:
    async def keep(checkpoint: Checkpoint) -> None:
        await _saves.keep(checkpoint, room_digest(entry.code))

    return RoomSession(
        settings,
        open_player,
        _opener(None, fallback=False),
        role=entry.role,
        code=entry.code,
        name=entry.name,
        open_machine=open_exchange,
        approve_all=settings.approve == "all",
        resumed=resumed,
        keep=keep,
        new_code=entry.new_code,
    )


def _opener(file: OwnFile | None, *, fallback: bool = True, tokenizer: bytes = b"") -> OpenSource:
    """How a run opens its text; without ``fallback`` nothing else takes its place.

    ``tokenizer`` is the tokenizer.json of a checkpoint.
    """

    async def open_text(
        settings: Settings,
        micro_batches: int,
        note: Callable[[str], None],
        shared: Shared | None = None,
        /,
    ) -> TokenSource:
        hub = settings.hub or HUB_ADDRESS
        if tokenizer:
            used = await _tokenizer_of(tokenizer, settings.tokenizer)
        else:
            used = await open_tokenizer(settings.tokenizer, hub=hub, on_wait=note)
        try:
            return await open_source(
                settings.data,
                seed=settings.seed,
                context=settings.context,
                micro_batches=micro_batches,
                file=file,
                hub=hub,
                shared=shared,
                fallback=fallback,
                on_wait=note,
                tokenizer=used,
            )
        except BaseException:
            used.port.close()
            raise

    return open_text


async def _tokenizer_of(content: bytes, name: str) -> Tokenizer:
    """A checkpoint's tokenizer, of the repository ``name``; mostly it is the site's own."""
    if content == await fetch_bytes(TOKENIZER_FILE, MAX_TOKENIZER_BYTES):
        return await open_tokenizer()
    name = name or f"checkpoint-{hashlib.sha256(content).hexdigest()[:12]}"
    return await open_tokenizer(name, file=DataFile(handle=blob(content)))


_saves = Saves(kept_files(), time.time, page_tabs())
