"""Builds a room's run on this device from the text that the room's founder gives out."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from daisychain.building import kernels_in_use, micro_batch_rows, model_config, prepare_tables
from daisychain.cluster.events import Settings as RoomSettings
from daisychain.cluster.exchange import Exchange
from daisychain.cluster.layout import model_layout
from daisychain.cluster.machine import Machine
from daisychain.cluster.reduce_plan import Layout
from daisychain.cluster.reducer import Reducer
from daisychain.data import TokenSource
from daisychain.data.sharing import PackedPlan
from daisychain.errors import ClusterError, DaisyChainError
from daisychain.losses import preference_after
from daisychain.model.config import ModelConfig, binary32_bits, parameters
from daisychain.model.llama import Model, build_program
from daisychain.model.pieces import in_pieces
from daisychain.optim.schedule import Schedule
from daisychain.players.player import Player
from daisychain.room.data_plan import (
    AgreedPlan,
    check_shareable,
    open_agreed,
    opens_beforehand,
    plan_of,
)
from daisychain.room.replica import Replica
from daisychain.room.run import Run
from daisychain.session import Note, OpenPlayer, OpenSource
from daisychain.settings import VOCABULARY, Settings, parse_query, resolve, to_query

MICRO_BATCHES = 16
"""The most micro-batches of a step on one device (`events.Settings.max_micro_batches`)."""

OWN = {
    name: getattr(resolve(), name)
    for name in (
        "start",
        "player",
        "relay",
        "stun",
        "approve",
        "name",
        "eval_every",
        "save_every",
        "sample_every",
    )
}
"""Settings that concern one device alone, at their defaults."""

OpenMachine = Callable[[], Awaitable[Machine]]
Prepare = Callable[[TokenSource], Awaitable[None]]


@dataclass(frozen=True)
class RoomText:
    """What a room's settings text says."""

    settings: Settings
    vocabulary: int
    plan: AgreedPlan | None


def settings_text(settings: Settings, vocabulary: int, plan: AgreedPlan | None = None) -> str:
    """What a joiner needs to build the same run: a link's query, the vocabulary's size and, for
    data of the Hub, what the room has agreed on of its data plan.

    What concerns one device alone (its player, its way in) is left out.
    """
    shared = replace(settings, **OWN)
    record = {"query": to_query(shared), "vocabulary": vocabulary}
    return json.dumps(record | ({"plan": plan.to_record()} if plan else {}))


def read_settings_text(text: str) -> RoomText:
    """Inverse of `settings_text`; ClusterError for anything that this program did not make."""
    try:
        given = json.loads(text)
        query, vocabulary = given["query"], given["vocabulary"]
        settings, refused = parse_query(query)
        if refused or type(vocabulary) is not int or not 8 <= vocabulary <= 1 << 20:
            raise ValueError(f"refused: {refused} {vocabulary}")
        plan = AgreedPlan.from_record(given.get("plan"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as cause:
        raise ClusterError(
            "The room's settings cannot be read.",
            "Its founder runs another version of this page.",
            "Reload the page on both devices.",
        ) from cause
    return RoomText(settings, vocabulary, plan)


@dataclass(frozen=True)
class _Device:
    """All of a run but its text."""

    key: str
    player: Player
    model: Model
    reducer: Reducer
    schedule: Schedule


class PageRunMaker:
    """See `host.RunMaker`.  ``player`` is this device's own choice, the rest is the room's."""

    def __init__(
        self,
        player: str,
        open_player: OpenPlayer,
        open_source: OpenSource,
        open_machine: OpenMachine,
        find: Note,
        wait_for: Note,
        entered: Callable[[str], None],
    ) -> None:
        self._player = player
        self._open_player, self._open_source = open_player, open_source
        self._open_machine = open_machine
        self._find, self._wait_for, self._entered = find, wait_for, entered
        self.kernels: list[dict[str, Any]] = []
        self.player: Player | None = None
        self.settings: Settings | None = None
        self._device: _Device | None = None
        self._source: TokenSource | None = None
        self._made: Run | None = None

    def state_sizes(self, text: str) -> list[int]:
        return [4 * p.count for p in parameters(self._config(text)) for _ in range(3)]

    def layout(self, text: str) -> Layout:
        return model_layout(self._config(text))

    def exchange(self, text: str) -> Exchange:
        return Exchange(read_settings_text(text).settings.exchange)

    def plan(self, text: str) -> AgreedPlan | None:
        return read_settings_text(text).plan

    def _config(self, text: str) -> ModelConfig:
        room = read_settings_text(text)
        return model_config(room.settings, room.vocabulary)

    async def found(self, settings: Settings, prepare: Prepare | None = None) -> Run:
        """The run of a room that begins here; ``prepare`` sees its text before it is shared."""
        check_shareable(settings)
        self._entered("data")
        source = await self._open_source(settings, 1, self._wait_for)
        try:
            if prepare is not None:
                await prepare(source)
            plan = await plan_of(source)
        except DaisyChainError:
            source.close()
            raise
        return await self._complete(settings, source, plan)

    async def prepare(self, settings: Settings) -> RoomSettings:
        """Opens for a newcomer what it can open before the room has told it more than its link."""
        if opens_beforehand(settings):
            run = await self.found(settings)
            await run.replica.initialise()  # it may be let in before the first step
            return run.settings
        if not settings.tokenizer:
            await self._open_device(settings, VOCABULARY)
        return room_settings(settings, VOCABULARY, None)

    async def build(self, text: str, told: bytes | None = None) -> Run:
        """What was made beforehand is used if the room's settings are the same."""
        if self._made is not None and self._made.settings.text == text:
            return self._made
        room = read_settings_text(text)
        check_shareable(room.settings)
        self._entered("data")
        opener, plan = self._open_source, None
        if room.plan is None:
            source = await opener(room.settings, 1, self._wait_for)
        else:
            source, plan = await open_agreed(
                opener, room.settings, room.plan, told, self._wait_for, self._find
            )
        run = await self._complete(room.settings, source, plan)
        if run.settings.text != text:
            raise ClusterError(
                f"This device's tokenizer has {source.tokenizer.size} tokens, "
                f"the room's {room.vocabulary}.",
                do="Reload the page on both devices.",
            )
        self._entered("join")
        return run

    async def reopen(self, losses: int) -> Player:
        """See `RunMaker`; from the second loss on it is the CPU's."""
        device = self._device
        if device is None:
            raise ClusterError("This device has no run yet.")
        device.player.close()
        preference = preference_after(losses, self._player)
        self.player = await self._open_player(preference, device.model.program, self._find)
        self.kernels = kernels_in_use(self.player, device.model.program)
        self._device = replace(device, player=self.player)
        return self.player

    async def _complete(
        self, settings: Settings, source: TokenSource, plan: PackedPlan | None
    ) -> Run:
        """A run that reads this text; the device is opened unless it is there already."""
        self._close_source()
        self._source = source
        device = await self._open_device(settings, source.tokenizer.size)
        replica = Replica(device.player, device.model, source, device.schedule)
        agreed = AgreedPlan(plan.digest, len(plan.packed)) if plan else None
        shared = room_settings(settings, source.tokenizer.size, agreed)
        self.settings = settings
        self._made = Run(replica, device.reducer, shared, plan)
        return self._made

    async def _open_device(self, settings: Settings, vocabulary: int) -> _Device:
        """Player and exchange for these settings; others are closed first."""
        key = settings_text(settings, vocabulary)
        if self._device is not None and self._device.key == key:
            return self._device
        self._close_device()
        self._entered("check")
        rows = micro_batch_rows(settings.batch, settings.context)
        config = model_config(settings, vocabulary)
        layout = model_layout(config)
        whole = build_program(config, rows, MICRO_BATCHES, settings.seed)
        model = in_pieces(whole, layout.names_by_bucket)
        await prepare_tables(config)
        self.player = await self._open_player(self._player, model.program, self._find)
        self.kernels = kernels_in_use(self.player, model.program)
        schedule = Schedule(settings.lr, settings.steps, settings.warmup)
        reducer = Reducer(await self._open_machine(), layout)
        self._device = _Device(key, self.player, model, reducer, schedule)
        return self._device

    def close(self) -> None:
        """Frees what was made."""
        self._close_source()
        self._close_device()

    def _close_source(self) -> None:
        source, self._source, self._made = self._source, None, None
        if source is not None:
            source.close()

    def _close_device(self) -> None:
        device, self._device = self._device, None
        if device is not None:
            device.reducer.machine.close()
            device.player.close()


def room_settings(settings: Settings, vocabulary: int, plan: AgreedPlan | None) -> RoomSettings:
    """What the protocol needs of the run's settings.  The lobby decides who comes in."""
    schedule = Schedule(settings.lr, settings.steps, settings.warmup)

    def learning_rate_bits(step: int) -> int:
        return binary32_bits(schedule.learning_rate(step - 1))

    return RoomSettings(
        learning_rate_bits,
        settings_text(settings, vocabulary, plan),
        Exchange(settings.exchange),
        max_micro_batches=MICRO_BATCHES,
        last_step=settings.steps,
        approve_all=True,
    )
