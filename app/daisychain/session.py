"""The training session: settings in, a running model, its state and its log out.

One small state machine drives the trainer.  Phases: ``check`` (device, kernels), ``data`` (corpus,
tokens), ``train``, ``pause``, ``idle`` (before the start and after the end), ``error``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from daisychain.building import build_model, kernels_in_use, micro_batch_rows, prepare_tables
from daisychain.data import Tokenizer, TokenSource
from daisychain.data.sharing import Shared
from daisychain.errors import DaisyChainError, DataError, DeviceError, DeviceLost
from daisychain.export.checkpoint import Checkpoint, Run
from daisychain.heldout import measure_heldout
from daisychain.losses import Losses, preference_after
from daisychain.model.config import STATE_BYTES, parameter_count
from daisychain.numbering import Numbering
from daisychain.optim.schedule import Schedule
from daisychain.plan import Program
from daisychain.platform import monotonic_ms
from daisychain.players.player import Player
from daisychain.saving import (
    AutoSave,
    Keep,
    facts_of,
    heldout_of,
    restore_run,
    separator_of,
    vocabulary_for,
)
from daisychain.settings import Settings
from daisychain.trainer import MicroBatch, Snapshot, StepResult, Trainer
from daisychain.workshop import Workshop

SNAPSHOT_EVERY_STEPS = 25
SNAPSHOT_LIMIT_BYTES = 256 << 20
SPEED_WINDOW_STEPS = 20
"""Steps over which the shown tokens per second are averaged."""

Result = TypeVar("Result")
Note = Callable[[str], None]
OpenPlayer = Callable[[str, Program, Note], Awaitable[Player]]
"""(preference, program, note) -> a player that is admitted and has the program loaded."""


class OpenSource(Protocol):
    """(settings, micro-batches a step, note) -> tokens; note hears what is waited for, then ""."""

    def __call__(
        self, settings: Settings, micro_batches: int, note: Note, shared: Shared | None = None, /
    ) -> Awaitable[TokenSource]:
        """``shared`` is the data plan of a room (``data.sharing``)."""


def data_state(source: TokenSource | None) -> dict[str, Any]:
    """The source, how much text is ready and how much came over the network."""
    if source is None:
        return {}
    status = source.status()
    return {
        "name": source.name,
        "buffered_tokens": status.buffered_tokens,
        "received_bytes": status.received_bytes,
    }


class TrainingSession(Workshop):
    """One run.  ``subscribe`` to hear of every change; read ``state()`` and ``log()``.

    ``resumed`` is the checkpoint that it goes on from; ``keep`` is given one now and then.  After
    the last step the device stays open, for texts and checkpoints, until ``close``.
    """

    def __init__(
        self,
        settings: Settings,
        open_player: OpenPlayer,
        open_source: OpenSource,
        resumed: Checkpoint | None = None,
        keep: Keep | None = None,
    ) -> None:
        self.settings = settings
        self._resumed = resumed
        self._turn = asyncio.Lock()
        self._saves = AutoSave(keep, settings.save_every, self._note, self._changed)
        self._tokenizer_json = resumed.tokenizer if resumed else b""
        self._running, self._closed = False, False
        self._open_player, self._open_source = open_player, open_source
        self._phase = "idle"
        self._error: DaisyChainError | None = None
        self._notices: list[str] = []
        self._findings: list[str] = []
        self._kernels: list[dict[str, Any]] = []
        run = resumed.run if resumed else None
        self._log: list[dict[str, Any]] = [dict(record) for record in run.log] if run else []
        self._first_step = run.step if run else 0
        rows = micro_batch_rows(settings.batch, settings.context)
        self._numbering = Numbering.of(settings.batch // rows, run)
        self._listeners: list[Callable[[], None]] = []
        self._going = asyncio.Event()
        self._going.set()
        self._stopping = False
        self._trainer: Trainer | None = None
        self._source: TokenSource | None = None
        self._waiting = ""
        self._snapshot: Snapshot | None = None
        self._losses = Losses()
        self._hash = ""
        self._heldout: dict[str, float] = {}
        self._tokens = 0

    # ------------------------------------------------------------ for the page

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Calls back, without arguments, after each change of state or log."""
        self._listeners.append(callback)

    def pause(self) -> None:
        """Stops after the step under way; its update is applied first."""
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def stop(self) -> None:
        """Ends the run after the step under way."""
        self._stopping = True
        self._going.set()

    def close(self) -> None:
        """Frees the device and the data, after the step under way."""
        self._closed = True
        self.stop()
        if not self._running:
            self._free()

    def _free(self) -> None:
        if self._trainer:
            self._trainer.player.close()
        if self._source:
            self._source.close()

    async def between(self, action: Callable[[Trainer], Awaitable[Result]]) -> Result:
        """Does something with the device between two steps, the last update applied."""
        async with self._turn:
            trainer = self._active()
            try:
                self._hash = await trainer.flush()
                return await action(trainer)
            except DeviceLost as loss:
                await self._recover(loss)
                raise

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises DataError as long as there is none."""
        return self._tokens_from().tokenizer

    def log(self) -> list[dict[str, Any]]:
        """One record a step, and one a notice."""
        return list(self._log)

    def state(self) -> dict[str, Any]:
        """Plain data: the public state of EXPERIENCE (docs/INTERFACE.md)."""
        player = self._trainer.player if self._trainer else None
        last: dict[str, Any] = next((r for r in reversed(self._log) if "loss" in r), {})
        model = self._trainer.model if self._trainer else None
        return {
            "phase": self._phase,
            "step": self._step_reached,
            "steps": self.settings.steps,
            "loss": last.get("loss"),
            "heldout_nats": self._heldout.get("heldout_nats"),
            "heldout_bits_per_byte": self._heldout.get("heldout_bits_per_byte"),
            "tokens": self._tokens,
            "tokens_per_s": last.get("tokens_per_s"),
            "weights_hash": self._hash,
            "player": player.name if player else "",
            "gpu": getattr(getattr(player, "device", None), "info", ""),
            "kernels": self._kernels,
            "memory_bytes": model.program.memory_bytes() if model else 0,
            "parameters": parameter_count(model.config) if model else 0,
            "data": data_state(self._source),
            "progress": {"text": self._waiting} if self._waiting else None,
            "members": [],
            "saved_step": self._saves.saved_step,
            "notices": list(self._notices),
            "findings": list(self._findings),
            "error": str(self._error) if self._error else None,
        }

    # ------------------------------------------------------------ the run

    async def run(self) -> None:
        """Trains to the last step, a stop or an error; never raises a DaisyChainError."""
        self._running = True
        try:
            await self._prepare()
            await self._train()
        except DaisyChainError as error:
            self._error = error
            self._enter("error")
        finally:
            self._running = False
            if self._closed or self._phase != "idle":
                self._free()

    async def _prepare(self) -> None:
        settings, micro_batches = self.settings, self._numbering.source_micro_batches
        self._enter("data")
        self._source = await self._open_source(settings, micro_batches, self._wait_for)
        self._tell_of_data()
        self._enter("check")
        model = build_model(settings, vocabulary_for(self._source.tokenizer.size, self._resumed))
        await prepare_tables(model.config)
        player = await self._open_player(settings.player, model.program, self._find)
        self._kernels = kernels_in_use(player, model.program)
        schedule = Schedule(settings.lr, settings.steps, settings.warmup)
        self._trainer = Trainer(player, model, schedule)
        if self._resumed:
            await self._go_on(self._trainer, self._source, self._resumed)
        else:
            await self._trainer.initialise()

    async def _go_on(self, trainer: Trainer, source: TokenSource, resumed: Checkpoint) -> None:
        """Takes over a checkpoint's state."""
        self._snapshot = Snapshot(resumed.run.step if resumed.run else 0, resumed.buffers)
        self._hash = await restore_run(trainer, source, resumed, self._snapshot)
        self._notices += resumed.notices
        self._heldout = heldout_of(resumed)
        if resumed.run:
            self._tokens = self._numbering.slices(trainer.step) * trainer.model.tokens

    async def _train(self) -> None:
        trainer = self._active()
        self._enter("train")
        while trainer.step < self.settings.steps and not self._stopping:
            if not self._going.is_set():
                await self._rest()
                continue
            async with self._turn:
                try:
                    await self._step()
                    await self._after_step()
                except DeviceLost as loss:
                    await self._recover(loss)
        await self._come_to_rest()
        await self._saves.finish()
        self._enter("idle")

    async def _rest(self) -> None:
        await self._come_to_rest()
        self._enter("pause")
        await self._going.wait()
        self._enter("train")

    async def _come_to_rest(self) -> None:
        """Applies the last update and saves the run."""
        trainer = self._active()
        async with self._turn:
            while True:
                try:
                    self._hash = await trainer.flush()
                    if self._saves.is_due(trainer.step, always=True):
                        await self._saves.save(await self._checkpoint(trainer))
                    return
                except DeviceLost as loss:
                    await self._recover(loss)

    async def _step(self) -> None:
        trainer, start = self._active(), monotonic_ms()
        batches = await self._batches(trainer.step)
        data_ms = monotonic_ms() - start
        result = await trainer.train_step(batches)
        total_ms = monotonic_ms() - start
        wait_ms = trainer.player.wait_ms
        self._tokens += result.tokens
        self._hash = result.weights_hash
        self._log.append(
            {
                "step": result.step,
                "loss": result.loss,
                "lr": result.lr,
                "gradient_norm": result.gradient_norm,
                "tokens": self._tokens,
                "tokens_per_s": self._speed(result, total_ms),
                "gpu_ms": wait_ms,
                "host_ms": total_ms - wait_ms - data_ms,
                "data_ms": data_ms,
                "ms": total_ms,
                "hash": result.weights_hash,
            }
        )
        self._changed()

    async def _batches(self, step: int) -> list[MicroBatch]:
        rows = self._active().model.rows
        return await self._numbering.batches(self._tokens_from(), step, rows)

    async def _after_step(self) -> None:
        """Held-out measurement, sample, save and snapshot, where they are due."""
        self._tell_of_data()
        trainer, settings = self._active(), self.settings
        last = trainer.step == settings.steps

        def is_due(every: int) -> bool:
            return every > 0 and (trainer.step % every == 0 or last)

        if is_due(settings.eval_every):
            await self._measure()
        if is_due(settings.sample_every):
            await trainer.flush()
            self._log.append(await self._sample(trainer))
            self._changed()
        if self._saves.is_due(trainer.step) and not last:
            await self._saves.save(await self._checkpoint(trainer))
        elif trainer.step % SNAPSHOT_EVERY_STEPS == 0 and not last and self._is_small(trainer):
            self._snapshot = await trainer.snapshot()

    @staticmethod
    def _is_small(trainer: Trainer) -> bool:
        return STATE_BYTES * parameter_count(trainer.model.config) <= SNAPSHOT_LIMIT_BYTES

    async def checkpoint(self) -> Checkpoint:
        return await self.between(self._checkpoint)

    async def _checkpoint(self, trainer: Trainer) -> Checkpoint:
        """The model and all that the run needs to go on."""
        source = self._tokens_from()
        self._hash = await trainer.flush()
        snapshot = await trainer.snapshot()
        if self._is_small(trainer):
            self._snapshot = snapshot
        slices = self._numbering.room_slice(snapshot.step)
        run = Run(self.settings, snapshot.step, self._hash, source.cursor(), self.log(), slices)
        return Checkpoint(
            trainer.model.config,
            {name: memoryview(data) for name, data in snapshot.buffers.items()},
            await self._tokenizer_content(),
            separator_of(source.tokenizer),
            run,
            facts_of(self.state()),
        )

    async def _measure(self) -> None:
        """Held-out loss: nats a token, bits a byte."""
        measured = await measure_heldout(self._active(), self._tokens_from())
        if not measured:
            return
        self._heldout = measured
        next(r for r in reversed(self._log) if "loss" in r).update(self._heldout)
        self._changed()

    async def _recover(self, loss: DeviceLost) -> None:
        """Opens a device again and computes up to the last complete step: the same bits."""
        done = self._active().step
        while True:
            try:
                return await self._compute_again(loss, done)
            except DeviceLost as again:  # the step that killed the last device may kill this one
                loss = again

    async def _compute_again(self, loss: DeviceLost, done: int) -> None:
        trainer = self._active()
        self._losses.count(loss, done)
        self._note(str(loss))
        trainer.player.close()
        preference = preference_after(self._losses.recent, self.settings.player)
        trainer.player = await self._open_player(preference, trainer.model.program, self._find)
        self._kernels = kernels_in_use(trainer.player, trainer.model.program)
        if self._snapshot:
            await trainer.restore(self._snapshot)
        else:
            await trainer.initialise()
        while trainer.step < done:
            await trainer.train_step(await self._batches(trainer.step))

    # ------------------------------------------------------------ small things

    def _active(self) -> Trainer:
        if self._trainer is None:
            raise DeviceError("The session has no device yet.")
        return self._trainer

    @property
    def _step_reached(self) -> int:
        return max(self._first_step, self._trainer.step if self._trainer else 0)

    def _tokens_from(self) -> TokenSource:
        if self._source is None:
            raise DataError("The session has no data yet.")
        return self._source

    def _speed(self, result: StepResult, total_ms: float) -> float:
        """Tokens a second over the last steps."""
        recent = [r["ms"] for r in self._log[-SPEED_WINDOW_STEPS + 1 :] if "ms" in r] + [total_ms]
        return result.tokens * len(recent) * 1000.0 / max(float(sum(recent)), 1e-6)

    def _wait_for(self, sentence: str) -> None:
        """What the data are being waited for; empty when the wait is over."""
        self._waiting = sentence
        self._changed()

    def _tell_of_data(self) -> None:
        """The source's notice, once: a fallback, or a damaged part that was passed over."""
        notice = self._tokens_from().status().notice
        if notice and notice not in self._notices:
            self._note(notice)

    def _note(self, sentence: str) -> None:
        """Something that the person should know."""
        self._notices.append(sentence)
        self._tell(sentence)

    def _find(self, sentence: str) -> None:
        """Something that was found out about the device."""
        self._findings.append(sentence)
        self._tell(sentence)

    def _tell(self, sentence: str) -> None:
        self._log.append({"note": sentence, "step": self._step_reached})
        self._changed()

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self._changed()

    def _changed(self) -> None:
        for callback in self._listeners:
            callback()
