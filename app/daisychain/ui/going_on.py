"""Going on from a checkpoint: the last run that the browser kept, or a file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from daisychain.data.spec import OWN_FILE
from daisychain.errors import DaisyChainError, DataError
from daisychain.export.checkpoint import Checkpoint, read_archive
from daisychain.export.saves import Save, room_digest
from daisychain.platform.dom import Dom, Node
from daisychain.settings import Settings, parse_query, resolve
from daisychain.ui import formats, links
from daisychain.ui.backing import Kept, ReadFile
from daisychain.ui.settings_form import given_values

DEVICE_SETTINGS = ("player", "relay", "stun", "approve", "name", "hub")
"""Settings that are this device's own, whatever a checkpoint was made with."""
FOREIGN_CONTEXT = 256

Begin = Callable[[Checkpoint, Settings, bool], object]
"""Goes on from a checkpoint with these settings: in a room if the third is true, else alone."""


@dataclass(frozen=True)
class Offer:
    """A run that can go on: what it is, how its checkpoint is got, how it is put away.

    ``of_file`` tells one in a file that the person chose from the browser's own save.
    """

    sentence: str
    step: int
    is_finished: bool
    in_room: bool
    is_shareable: bool
    load: Callable[[], Awaitable[Checkpoint | None]]
    of_file: bool
    dismiss: Callable[[], Awaitable[None]]

    def ways(self) -> tuple[tuple[str, bool], ...]:
        """Label of each button, the foremost first, and whether it leads into a room."""
        if self.is_finished:
            return (("Open it", False),)
        if self.in_room:
            return ((f"Go on in a room from step {self.step:,}", True), ("Go on alone", False))
        alone = (f"Go on from step {self.step:,}", False)
        return (alone, ("Go on in a room", True)) if self.is_shareable else (alone,)


class GoingOn:
    """The offer above the ways in, and the button for a file.

    ``begin`` goes on from a checkpoint; ``settings`` are the form's; ``tell`` takes a sentence for
    the person.
    """

    def __init__(
        self,
        dom: Dom,
        kept: Kept,
        read_file: ReadFile,
        settings: Callable[[], Settings],
        begin: Begin,
        tell: Callable[[str], object],
    ) -> None:
        self._kept, self._read_file = kept, read_file
        self._settings, self._begin, self._tell = settings, begin, tell
        self._saves: list[Save] = []
        self._offer: Offer | None = None
        self._task: asyncio.Task[None] | None = None
        self._sentence = dom.element("p")
        self._ways = [
            self._button(dom, "", kind, partial(self._take, index))
            for index, kind in enumerate(("primary", "plain"))
        ]
        self._dismissal = self._button(dom, "", "quiet", self._dismiss)
        self.root = dom.element(
            "section",
            self._sentence,
            dom.element("div", *self._ways, self._dismissal, class_="actions"),
            class_="last-run",
            aria_label="Your last run",
            hidden=True,
        )
        self._picker = dom.element("input", type="file", accept=".zip")
        self._picker.on("change", lambda _event: self._pick())
        self._picked = dom.element("span", "Open a checkpoint")
        self.file = dom.element("label", self._picker, self._picked, class_="pick quiet-pick")

    def look(self, otherwise: Callable[[], object] | None = None, room: str = "") -> None:
        """Asks for saves; ``otherwise`` is done unless the run of the settings was interrupted.

        In ``room``, the digest of a room's code, only a save of that very room counts; the page
        goes on from it at once, or offers what it has made if it is finished.
        """
        self._start(self._look(otherwise, room))

    def is_of_room(self) -> bool:
        """Whether what is offered is the browser's own save of the room in the page's address."""
        room, offer = links.room_in_page(), self._offer
        known = bool(room) and bool(self._saves) and self._saves[0].room == room_digest(room)
        return known and offer is not None and not offer.of_file

    async def _look(self, otherwise: Callable[[], object] | None, room: str) -> None:
        try:
            self._saves = await self._kept.listed()
        except DaisyChainError:
            self._saves = []
        if self._offer is None or not self._offer.of_file:
            self._offer_last()
        last = self._saves[0] if self._saves else None
        same = last is not None and is_of(last, self._settings())
        of_room = last is not None and same and bool(room) and last.room == room
        finished = last is not None and last.is_finished
        if of_room and not finished:
            await self._go_on(True)
        elif otherwise and not of_room and (room or not same or finished):
            otherwise()  # a room that has finished is not begun anew over what it has made

    def _offer_last(self) -> None:
        """The newest save, if there is one."""
        self._offer = None
        if self._saves:
            last = self._saves[0]
            self._offer = Offer(
                described(last, time.time()),
                last.step,
                last.is_finished,
                bool(last.room),
                parse_query(last.query)[0].data != OWN_FILE,
                self._load,
                False,
                self._discard,
            )
        self._draw()

    def _draw(self) -> None:
        offer = self._offer
        self.root.show(offer is not None)
        if offer is None:
            return
        self._sentence.text(offer.sentence)
        self._dismissal.text("Put it away" if offer.of_file else "Forget it")
        ways = offer.ways()
        for index, button in enumerate(self._ways):
            button.show(index < len(ways))
            button.text(ways[index][0] if index < len(ways) else "")
        self._ways[0].attribute("class", "plain" if offer.is_finished else "primary")

    def _take(self, index: int) -> None:
        if self._offer is not None:
            self._start(self._go_on(self._offer.ways()[index][1]))

    async def _go_on(self, together: bool) -> None:
        offer = self._offer
        if offer is None:
            return
        for button in self._ways:
            button.attribute("disabled", True)
        self._ways[0].text("Checking the save\u2026")
        try:
            checkpoint = await offer.load()
            if checkpoint is not None:
                self._begin(checkpoint, self._settings_for(checkpoint), together)
                self._offer = None if offer.of_file else self._offer
        finally:
            for button in self._ways:
                button.attribute("disabled", None)
            self._draw()

    async def _load(self) -> Checkpoint | None:
        """The newest save that is whole."""
        for save in self._saves:
            try:
                return await self._kept.load(save)
            except DataError as error:
                self._tell(f"The save of step {save.step:,} cannot be used: {error}")
        return None

    def _dismiss(self) -> None:
        if self._offer is not None:
            self._start(self._offer.dismiss())

    async def _discard(self) -> None:
        await self._kept.discard()
        self._saves = []
        self._offer_last()

    async def _put_away(self) -> None:
        self._offer_last()

    def _pick(self) -> None:
        if self._picker.raw.files.length:
            self._start(self._open(self._picker.raw.files.item(0)))

    async def _open(self, file: Any) -> None:
        self._picked.text("Checking the file\u2026")
        try:
            checkpoint = await read_archive(await self._read_file(file))
            checkpoint = shortened(checkpoint, self._settings())
            self._offer_file(str(file.name), checkpoint)
        except DaisyChainError as error:
            self._tell(str(error))
        finally:
            self._picker.raw.value = ""  # so that the same file may be chosen again
            self._picked.text("Open a checkpoint")

    def _offer_file(self, name: str, checkpoint: Checkpoint) -> None:
        """Asks how a run shall go on; where there is one way only, it is taken."""
        run = checkpoint.run
        if run is None or run.step >= run.settings.steps or run.settings.data == OWN_FILE:
            self._begin(checkpoint, self._settings_for(checkpoint), False)
            return

        async def load() -> Checkpoint:
            return checkpoint

        sentence = f"{name}: {run.settings.preset}, step {run.step:,} of {run.settings.steps:,}"
        in_room = run.slices is not None
        self._offer = Offer(
            f"{sentence}, trained in a room." if in_room else f"{sentence}.",
            run.step,
            False,
            in_room,
            True,
            load,
            True,
            self._put_away,
        )
        self._draw()
        self._ways[0].focus()

    def _settings_for(self, checkpoint: Checkpoint) -> Settings:
        """A run's own settings, or the form's around somebody else's model."""
        form = self._settings()
        own = {name: getattr(form, name) for name in DEVICE_SETTINGS}
        if checkpoint.run is not None:
            return replace(checkpoint.run.settings, **own)
        config = checkpoint.config
        names = ("width", "layers", "heads", "kv_heads", "hidden", "context", "tied")
        shape = {name: getattr(config, name) for name in names}
        rows = max(1, form.tokens_per_step // config.context)
        return resolve({**given_values(form), **shape, "batch": rows, "start": ""})

    def _start(self, work: Any) -> None:
        self._task = asyncio.ensure_future(work)

    @staticmethod
    def _button(dom: Dom, text: str, kind: str, press: Callable[[], object]) -> Node:
        button = dom.element("button", text, type="button", class_=kind)
        button.on("click", lambda _event: press())
        return button


def is_of(save: Save, settings: Settings) -> bool:
    """Whether the save is of a run with these settings."""
    saved, _ = parse_query(save.query)
    device = {name: getattr(settings, name) for name in (*DEVICE_SETTINGS, "start")}
    return replace(saved, **device) == settings


def shortened(checkpoint: Checkpoint, settings: Settings) -> Checkpoint:
    """Somebody else's model with a context that a run can hold."""
    if checkpoint.run is not None:
        return checkpoint
    context = min(checkpoint.config.context, max(settings.context, FOREIGN_CONTEXT))
    return replace(checkpoint, config=replace(checkpoint.config, context=context))


def described(save: Save, now_s: float) -> str:
    """Your nano run stopped at step 300 of 1,000, 5 min ago."""
    settings, _ = parse_query(save.query)
    passed_s = max(0.0, now_s - save.saved)
    days = int(passed_s // 86_400)
    ago = f"{days} days" if days > 1 else formats.duration(passed_s)
    where = f"{settings.preset} in a room" if save.room else settings.preset
    if save.is_finished:
        return f"Your last run, {where} with {save.steps:,} steps, was finished {ago} ago."
    return (
        f"Your last run, {where}, was interrupted; step {save.step:,} of {save.steps:,} was saved "
        f"{ago} ago."
    )
