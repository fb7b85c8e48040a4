"""Training steps on a player: one command buffer and one read-back a step.

A command buffer first applies the update of the step before, whose learning rate and clip depend on
that step's gradient norm, and then computes the next gradient.  So the record read back after it
holds the hash of the weights that the step started from, its loss and its gradient norm.
``flush`` applies the pending update by itself: before a pause, a save or a held-out measurement.
It changes no bit of what follows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from daisychain.kernels.catalog import Step
from daisychain.model.config import binary32_bits
from daisychain.model.llama import Model, RecordLayout, moment_buffers, weight_buffer
from daisychain.numbers.random_bits import step_key
from daisychain.optim.schedule import OptimizerScalars, Schedule, gradient_norm, optimizer_scalars
from daisychain.players.player import Player

EVAL_STEP = 0xFFFFFFFF
"""Step number in the random keys of held-out measurements (no training step has it)."""

READ_BYTES = 64 << 20
"""A snapshot is read in parts of about this size: a device's read-back buffer is limited."""


@dataclass(frozen=True)
class MicroBatch:
    """Token ids and their successors, ``rows * context`` u32 each: bytes or a JS typed array.

    ``index`` is the micro-batch's number within its step: with the seed and the step it fixes the
    random bits of the gradient, whoever computes it.  ``step`` is that step, where it is not the
    trainer's own: in the numbering of a room.
    """

    index: int
    ids: Any
    targets: Any
    step: int | None = None


@dataclass(frozen=True)
class StepResult:
    """One computed gradient.  ``loss`` in nats a token; ``weights_hash`` of the weights before."""

    step: int
    loss: float
    lr: float
    gradient_norm: float
    tokens: int
    weights_hash: str


@dataclass(frozen=True)
class Snapshot:
    """All state of a run after ``step`` complete steps: contents by buffer name."""

    step: int
    buffers: Mapping[str, bytes | memoryview]


class Trainer:
    """Runs a model's plans.  ``step`` counts the gradients computed so far."""

    def __init__(self, player: Player, model: Model, schedule: Schedule) -> None:
        self.player, self.model, self.schedule = player, model, schedule
        self.step = 0
        self._pending: OptimizerScalars | None = None

    async def initialise(self) -> None:
        """Initial weights from the model's seed; zero moments."""
        self.step, self._pending = 0, None
        await self.player.run(["init"], "record")

    async def train_step(self, batches: Sequence[MicroBatch]) -> StepResult:
        """The gradient of one step over all its micro-batches; its update is left pending."""
        self._write_inputs(self.step, batches)
        plans = ["begin", *self._update_plans(), "hash"]
        for index in range(len(batches)):
            plans.append("grad")
            if self.model.micro_batches > 1:
                plans.append("accumulate_next" if index else "accumulate_first")
        record = await self.player.run([*plans, "norm"], "record")
        tokens = len(batches) * self.model.tokens
        norm = gradient_norm(norm_squares(self.model, record))
        scalars = optimizer_scalars(self.schedule, self.step, norm, tokens)
        self._pending = scalars
        self.step += 1
        return StepResult(
            self.step,
            loss_in_q16(self.model, record) / 65536 * log(2) / tokens,
            scalars.lr,
            norm / tokens,
            tokens,
            weights_hash_of(self.model, record),
        )

    async def flush(self) -> str:
        """Applies the pending update, if any; the hash of the weights after it."""
        plans = ["begin", *self._update_plans(), "hash"]
        record = await self.player.run(plans, "record")
        self._pending = None
        return weights_hash_of(self.model, record)

    async def evaluate(self, batches: Iterable[MicroBatch]) -> float:
        """Mean loss (nats a token) of the current weights; flushes first."""
        await self.flush()
        room = self.model.program.buffers["inputs"].count // self.model.input_words
        bits, tokens, waiting = 0.0, 0, list(batches)
        while waiting:
            now, waiting = waiting[:room], waiting[room:]
            self._write_inputs(EVAL_STEP, now)
            plans = ["begin", *["eval"] * len(now)]
            bits += loss_in_q16(self.model, await self.player.run(plans, "record")) / 65536
            tokens += len(now) * self.model.tokens
        return bits * log(2) / tokens

    async def snapshot(self) -> Snapshot:
        """Weights and moments after the last step; flushes first."""
        await self.flush()
        buffers: dict[str, bytes] = {}
        for names in self._groups(state_buffers(self.model)):
            buffers |= zip(names, await self.player.read_many(names), strict=True)
        return Snapshot(self.step, buffers)

    def _groups(self, names: Iterable[str]) -> Iterator[list[str]]:
        """The buffers in groups that one read-back can hold."""
        group: list[str] = []
        size = 0
        for name in names:
            more = self.model.program.buffers[name].size_bytes
            if group and size + more > READ_BYTES:
                yield group
                group, size = [], 0
            group.append(name)
            size += more
        yield group

    async def restore(self, snapshot: Snapshot) -> None:
        """Goes on from a snapshot of the same model; what it lacks is as at the start."""
        await self.player.run(["init"], "record")
        for name in state_buffers(self.model):
            if name in snapshot.buffers:
                self.player.write(name, snapshot.buffers[name])
        await self.player.run(["refresh"], "record")
        self.step, self._pending = snapshot.step, None

    def _update_plans(self) -> list[str]:
        """Uploads the pending scalars; the plans that apply them."""
        if self._pending is None:
            return []
        s = self._pending
        self.player.write_scalars(
            Step.LR, [binary32_bits(x) for x in (s.lr, s.bias_1, s.bias_2, s.clip)]
        )
        return ["update"]

    def _write_inputs(self, step: int, batches: Sequence[MicroBatch]) -> None:
        self.player.write_scalars(Step.MICRO_BATCH, [0])
        for entry, batch in enumerate(batches):
            at = 4 * entry * self.model.input_words
            number = step if batch.step is None else batch.step
            key = step_key(self.model.seed, number, batch.index)
            self.player.write("inputs", struct.pack("<2I", *key), at)
            self.player.write("inputs", batch.ids, at + 8)
            self.player.write("inputs", batch.targets, at + 8 + 4 * self.model.tokens)


def state_buffers(model: Model) -> list[str]:
    """The buffers that make up a run's state: weights and both moments, by parameter."""
    return [
        name for p in model.parameters for name in (weight_buffer(p.name), *moment_buffers(p.name))
    ]


def loss_in_q16(model: Model, record: bytes) -> int:
    """Sum of losses in base 2, Q16."""
    high, low = struct.unpack_from("<2I", record, 4 * model.record.loss)
    return (int(high) << 16) + int(low)


def weights_hash_of(model: Model, record: bytes) -> str:
    """128-bit hash of the weights, in hexadecimal."""
    words = struct.unpack_from("<4I", record, 4 * model.record.hash)
    return "".join(f"{word:08x}" for word in words)


def norm_squares(model: Model, record: bytes) -> list[tuple[int, int]]:
    """(sum of squares, exponent) of each gradient, from limbs and an i32 exponent."""
    layout, out = model.record, []
    for tensor in range(layout.tensors):
        at = 4 * (layout.norms + tensor * RecordLayout.NORM_WORDS)
        *limbs, exponent = struct.unpack_from("<4Ii", record, at)
        out.append((sum(limb << (16 * i) for i, limb in enumerate(limbs)), exponent))
    return out
