"""The session of a room: the same face to the page as ``session.TrainingSession``.

It opens the links (`cluster.mesh`), builds the run, and lets `host.Host` follow the step protocol.
Phases: ``data``, ``check``, ``join`` (looking, knocking, loading the state), ``train``, ``pause``,
``idle`` (left, finished), ``halt`` (replicas differ: stopped for good), ``error``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from daisychain.cluster import effects, events, lobby, mesh_events
from daisychain.cluster.mesh import Mesh
from daisychain.cluster.mesh_events import MeshSettings
from daisychain.cluster.protocol import Node
from daisychain.data import Tokenizer
from daisychain.errors import ClusterError, DaisyChainError, DataError, DeviceError
from daisychain.export.checkpoint import Checkpoint
from daisychain.heldout import measure_heldout
from daisychain.platform import device_name, monotonic_ms
from daisychain.room.diary import Diary
from daisychain.room.host import Host
from daisychain.room.keeper import Keeper, Told, checkpoint_of, found
from daisychain.room.lifecycle import RETURN_S, Lifecycle
from daisychain.room.people import People, mesh_settings
from daisychain.room.run import Run
from daisychain.room.run_maker import OpenMachine, PageRunMaker
from daisychain.room.table import awaits_host, member_rows, names_of, room_row, step_record
from daisychain.saving import AutoSave, Keep, facts_of, heldout_of
from daisychain.session import OpenPlayer, OpenSource, data_state
from daisychain.settings import Settings
from daisychain.trainer import Trainer
from daisychain.workshop import Result, Workshop

GATHER_S = 5.0
"""A room that goes on from a save waits so long for devices that went on without this one."""
LISTEN_S = 0.75
"""A new room listens so long for devices that wait for it: they take part in its first step."""

OpenMesh = Callable[[Callable[[mesh_events.MeshEvent], None], MeshSettings], Mesh]


class RoomSession(People, Workshop):
    """One device in one room; ``role`` is ``host`` (founder) or ``member`` (joiner).

    A founder may go on from the checkpoint ``resumed``; ``keep`` is given one now and then.  Under
    a ``new_code`` nobody can have gone on.
    """

    def __init__(
        self,
        settings: Settings,
        open_player: OpenPlayer,
        open_source: OpenSource,
        *,
        role: str,
        code: str,
        name: str,
        open_machine: OpenMachine,
        approve_all: bool = False,
        open_mesh: OpenMesh = Mesh,
        resumed: Checkpoint | None = None,
        keep: Keep | None = None,
        new_code: bool = False,
    ) -> None:
        self._own_settings = settings
        self.role, self.code, self.name = role, code, name
        self._new_code = new_code
        self._phase = "join"
        self._error: DaisyChainError | None = None
        run = resumed.run if resumed else None
        self._resumed = resumed
        self._stepped_ms = self._alone_ms = monotonic_ms()
        self._diary = Diary(run.log if run else (), self._step, self._changed)
        self._last = next((r for r in reversed(self._diary.log) if "loss" in r), dict[str, Any]())
        self._first_step = run.step if run else 0
        saves = AutoSave(keep, settings.save_every, self._diary.note, self._changed)
        saves.saved_step = 0 if new_code else self._first_step
        self._keeper = Keeper(saves, self.checkpoint)
        self._listeners: list[Callable[[], None]] = []
        self._maker = PageRunMaker(
            settings.player,
            open_player,
            open_source,
            open_machine,
            self._diary.find,
            self._wait_for,
            self._enter,
        )
        self.mesh = open_mesh(self._mesh_event, mesh_settings(settings, approve_all))
        self.host: Host | None = None
        self._node: Node | None = None
        self._ended = asyncio.Event()
        self._over = self._closed = self._saving = False
        self._lifecycle = Lifecycle(self._give)
        self._stage = "opening"
        self._waiting = ""
        self._tokens = int(self._last.get("tokens", 0))
        self._hash = ""
        self._heldout = heldout_of(resumed) if resumed else {}
        self._halted = ""

    # ------------------------------------------------------------ for the page

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Calls back, without arguments, after each change of state or log."""
        self._listeners.append(callback)

    def pause(self) -> None:
        """The leader pauses the room, after the step under way; another member steps aside."""
        self._lifecycle.pause()
        if self._phase == "train":
            self._enter("pause")
        self._keeper.stepped(self._step(), always=True)

    def resume(self) -> None:
        self._lifecycle.resume()
        if self._phase == "pause" and self._node and self._node.core.mode is effects.Mode.MEMBER:
            self._enter("train")

    def go_on_alone(self) -> None:
        """Trains on without the devices that are out of reach, though they were too many."""
        self._give(events.ContinueAlone())

    def stop(self) -> None:
        """Leaves the room for good."""
        self._give(events.Quit("left"))
        self._stage = "left"
        self._ended.set()

    leave = stop

    def close(self) -> None:
        """Leaves the room; nothing stays open behind it."""
        self._closed = True
        self.stop()
        if self._over and not self._saving:
            self._free()

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises DataError as long as there is no run."""
        if self.host is None or self.host.run is None:
            raise DataError("There is no model here yet, or the room was left.")
        return self.host.run.replica.source.tokenizer

    async def between(self, action: Callable[[Trainer], Awaitable[Result]]) -> Result:
        """Does something with the device behind what the step under way has queued."""

        async def act(run: Run) -> Result:
            return await action(run.replica.trainer())

        return await self._owner().between(act)

    async def checkpoint(self) -> Checkpoint:
        host, content = self._owner(), await self._tokenizer_content()
        own, facts = self._own_settings, lambda: facts_of(self.state())
        return await checkpoint_of(host, Told(self.settings, own, content, facts, self.log))

    def _owner(self) -> Host:
        """What holds the model; raises DeviceError where there is none."""
        if self.host is None:
            raise DeviceError("There is no model here yet, or it was given up.")
        return self.host

    def log(self) -> list[dict[str, Any]]:
        """One record a step, and one a notice."""
        return list(self._diary.log)

    def state(self) -> dict[str, Any]:
        """Plain data: the public state of EXPERIENCE (docs/INTERFACE.md)."""
        run = self.host.run if self.host else None
        last, player = self._last, self._maker.player
        return {
            "phase": self._phase,
            "step": self._step(),
            "steps": self.settings.steps,
            "loss": last.get("loss"),
            "heldout_nats": self._heldout.get("heldout_nats"),
            "heldout_bits_per_byte": self._heldout.get("heldout_bits_per_byte"),
            "tokens": self._tokens,
            "tokens_per_s": last.get("tokens_per_s"),
            "weights_hash": self._weights_hash(),
            "player": player.name if player else "",
            "gpu": getattr(getattr(player, "device", None), "info", ""),
            "kernels": self._maker.kernels,
            "memory_bytes": run.memory_bytes if run else 0,
            "parameters": run.parameters if run else 0,
            "data": data_state(run.replica.source if run else None),
            "progress": {"text": self._waiting} if self._waiting else None,
            "room": self._room(),
            "members": self._members(),
            "saved_step": self._keeper.saves.saved_step,
            "notices": list(self._diary.notices),
            "findings": list(self._diary.findings),
            "error": self._halted or (str(self._error) if self._error else None),
        }

    @property
    def settings(self) -> Settings:
        """The room's settings, once known; until then this device's own."""
        return self._maker.settings or self._own_settings

    def _step(self) -> int:
        committed = self._node.core.committed if self._node else None
        return committed.step if committed else self._first_step

    def _weights_hash(self) -> str:
        """Of the last step that this device has applied."""
        committed = self._node.core.committed if self._node else None
        return (committed.weights_hash if committed else "") or self._hash

    def _room(self) -> dict[str, Any]:
        row = room_row(self._node, self.mesh, self._stage)
        lacks = row["lacks_voters"] and not self._lifecycle.is_paused
        rest_ms, usual_ms = monotonic_ms() - self._stepped_ms, float(self._last.get("ms", 0))
        return {
            "code": self.code,
            "role": self.role,
            **row,
            "lacks_voters": lacks,
            "may_go_on_alone": lacks and monotonic_ms() - self._alone_ms >= 1000 * RETURN_S,
            "awaits_host": self._phase == "train" and awaits_host(self._node, rest_ms, usual_ms),
            "sentence": self._waiting,
        }

    def _members(self) -> list[dict[str, Any]]:
        if self._node is None or self._stage != "inside":
            return []
        shares = self._last.get("members", [])
        return member_rows(self._node, self.mesh, shares)

    # ------------------------------------------------------------ the run

    async def run(self) -> None:
        """Until the room is left, finished, halted or lost; never raises a DaisyChainError."""
        try:
            await self._open()
            await self._ended.wait()
        except DaisyChainError as error:
            self._error = error
            self._enter("error")
        finally:
            await self._close()
        await self._rest()

    async def _open(self) -> None:
        # A joiner's link has the room's settings, so that much can be opened beforehand.
        kind, own, is_host = device_name(), self._own_settings, self.role == "host"
        resumed, self._resumed = self._resumed, None
        if not is_host:  # the room is found while this device is made ready
            await self.mesh.join_room(self.code, self.name or kind, kind, knocks=False)
        began = await found(self._maker, own, resumed) if is_host else None
        run = began.run if began else None
        settings = run.settings if run else await self._maker.prepare(own)
        if self._ended.is_set():  # left meanwhile
            return
        if is_host:
            await self.mesh.open_room(self.code, self.name or kind, kind)
        me = self.mesh.me
        self._node = Node(me.id, me.name, me.kind, settings)
        self.host = Host(self._node, self.mesh, self._maker, self._effect, run)
        if began is None or run is None:
            self._stage = "looking"
            self._enter("join")
            self.mesh.knock()
            return
        self._stage = "inside"
        self._tokens = began.cursor * run.replica.model.tokens
        if began.state is not None:
            self.host.begin_from(began.state)
        layout = self._maker.layout(run.settings.text)
        self.host.carry_out(self._node.found(layout, began.weights_hash, began.step, began.cursor))
        self._keeper.stepped(began.step, always=True)  # a reload asks for a save of this code
        if self.mesh.relays():
            await self._gather(0 if self._new_code else began.step)
        if not self._ended.is_set() and self._node.core.mode is effects.Mode.MEMBER:
            self._enter("idle" if began.step == run.settings.last_step else "train")
        self._give(events.Run())

    async def _gather(self, step: int) -> None:
        """Others may wait for this room, or have gone on since the save: it goes on with theirs."""
        self._enter("join")
        self._wait_for("Looking for other devices of this room")
        with suppress(TimeoutError):
            async with asyncio.timeout(GATHER_S if step else LISTEN_S):
                while self._node and self._node.core.mode is effects.Mode.MEMBER:
                    if self._node.core.coming and not step:
                        break
                    await asyncio.sleep(0.05)
        self._wait_for("")

    async def _close(self) -> None:
        """Out of the room; what was trained stays, for texts and files, until ``close``."""
        self._over = True
        if self.host is not None:
            self.host.leave()
        self._lifecycle.close()
        await self.mesh.close()
        if self._phase not in ("error", "halt"):
            self._enter("idle")

    async def _rest(self) -> None:
        """Saves what was trained; replicas that differ are not worth it."""
        self._saving = True
        if self._phase == "idle":
            self._keeper.stepped(self._step(), always=True)
        await self._keeper.finish()
        self._saving = False
        if self._closed or self._phase == "error":
            self._free()

    def _free(self) -> None:
        host, self.host = self.host, None
        if host is not None:
            host.close()
        self._maker.close()

    @property
    def _acting(self) -> Host | None:
        """The host, as long as this device takes part in the room."""
        return None if self._over else self.host

    def _give(self, event: events.Event) -> None:
        if self._acting:
            self._acting.give(event)

    # ------------------------------------------------------------ what the links say

    def _mesh_event(self, event: mesh_events.MeshEvent) -> None:
        match event:
            case mesh_events.LinkUp(member):
                self._give(events.LinkUp(member.id))
            case mesh_events.LinkDown(device, _):
                self._give(events.LinkDown(device))
            case mesh_events.Coming(device):
                self._give(events.Coming(device))
            case mesh_events.Control(peer, text) if self._acting:
                self._acting.control(peer, text)
            case mesh_events.Bulk(peer, header, data):
                if self._acting:
                    self._acting.bulk(peer, header, data)
                return  # what a flow changes for people, an effect tells
            case lobby.Admitted():
                self._stage = "inside"
                if self.host is not None and self.host.node.core.committed is None:
                    self.host.carry_out(self.host.node.join())
                    for peer in self.mesh.linked():
                        self._give(events.LinkUp(peer))
                    self._give(events.Run())
            case lobby.TurnedAway(stage, reason):
                self._stage = stage
                self._error = ClusterError(reason)
                self._enter("error")
                self._ended.set()
            case lobby.Knocked(member):
                self._diary.tell(f"{member.name} ({member.kind}) asks to come in.")
            case lobby.Joined(member):
                self._diary.tell(f"{member.name} came in.")
            case lobby.Left(member, reason):
                self._diary.tell(f"{member.name} left ({reason}).")
            case mesh_events.Unreachable(_, sentence) if sentence not in self._diary.notices:
                self._diary.note(sentence)  # it is tried again and again
        self._changed()

    # ------------------------------------------------------------ what the protocol says

    def _effect(self, effect: effects.Effect) -> None:
        match effect:
            case effects.Log():
                self._stepped(effect)
            case effects.Notice():
                self._diary.take(effect)
                if effect.code == "finished":  # for one who came in afterwards, too
                    self._enter("idle")
            case effects.ModeChanged():
                self._mode(effect.mode)
            case effects.Halted():
                self._halted = effect.text
                self._enter("halt")
                self._ended.set()
            case effects.AskApproval():
                self._give(events.Approve(effect.peer, True))
            case effects.CloseLink():
                if self.mesh.is_host:
                    self.mesh.remove(effect.peer)
        self._changed()

    def _mode(self, mode: effects.Mode) -> None:
        match mode:
            case effects.Mode.MEMBER:
                self._diary.back()
                self._stepped_ms = monotonic_ms()
                self._enter("pause" if self._lifecycle.is_paused else "train")
            case effects.Mode.JOINING:
                self._enter("join")
            case effects.Mode.PAUSED | effects.Mode.AWAY:
                self._alone_ms = monotonic_ms()
                asyncio.get_running_loop().call_later(RETURN_S, self._changed)
                self._enter("pause")
            case effects.Mode.LEFT:
                self._ended.set()

    def _stepped(self, entry: effects.Log) -> None:
        """One line of the log: what each device contributed."""
        self._stepped_ms = monotonic_ms()
        names = names_of(self.mesh.members)
        me = self._node.core.me if self._node else ""
        record = step_record(entry, names, me, self.settings)
        self._tokens, self._hash = record["tokens"], entry.start_hash
        self._diary.log.append(record)
        self._last, every = record, self.settings.eval_every
        if self.host and every and (entry.step % every == 0 or entry.step == self.settings.steps):
            measured = self.host.between(lambda run: self._measured(run, record))
            measured.add_done_callback(self._note_failure)
        run = self.host.run if self.host else None
        notice = run.replica.source.status().notice if run else ""
        if notice and notice not in self._diary.notices:
            self._diary.note(notice)
        is_last = entry.step == self.settings.steps
        self._keeper.stepped(entry.step, always=is_last or self._lifecycle.is_paused)
        if is_last:
            self._enter("idle")  # the run is complete; the room stays open for who is behind

    async def _measured(self, run: Run, record: dict[str, Any]) -> None:
        """A held-out measurement, behind the update."""
        measured = await measure_heldout(run.replica.trainer(), run.replica.source)
        self._heldout = measured or self._heldout
        record.update(self._heldout)
        self._changed()

    def _note_failure(self, work: asyncio.Future[None]) -> None:
        if not work.cancelled() and (error := work.exception()):
            self._diary.note(str(error))

    def _wait_for(self, sentence: str) -> None:
        self._waiting = sentence
        self._changed()

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self._changed()

    def _changed(self) -> None:
        for callback in self._listeners:
            callback()
