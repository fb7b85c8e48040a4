"""This device's copy of the model in a room: gradients out, reduced gradients in.

Every slice of the run's global numbering has one gradient, whoever computes it: its tokens come
from the data source by the slice's number, its random bits from (seed, slice).
"""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import blake2b
from hashlib import sha256 as sha256_here
from typing import Any

from daisychain.cluster.hashtree import RANGE_BYTES
from daisychain.cluster.machine import WideTensor
from daisychain.data import TokenSource
from daisychain.kernels.catalog import Step
from daisychain.model.config import binary32_bits
from daisychain.model.llama import Model, weight_buffer
from daisychain.numbers.random_bits import step_key
from daisychain.optim.schedule import Schedule, gradient_norm, optimizer_scalars
from daisychain.platform.digest import sha256
from daisychain.players.player import Piece, Player
from daisychain.trainer import Trainer, loss_in_q16, norm_squares, state_buffers, weights_hash_of


@dataclass(frozen=True)
class _Sum:
    """Where the summed gradient of a parameter lies: buffer and scalar words."""

    buffer: str
    maximum: int
    exponent: int


class Replica:
    """Runs a room's plans on one player.

    The model is built for several micro-batches and cut into the exchange's buckets (`in_pieces`).
    """

    def __init__(
        self, player: Player, model: Model, source: TokenSource, schedule: Schedule
    ) -> None:
        self.player, self.model, self.source, self.schedule = player, model, source, schedule
        norms = zip(model.parameters, model.program.plans["norm"], strict=True)
        calls = {p.name: call for p, call in norms}
        self._sums = {
            name: _Sum(call.buffers[0], call.named_params()["x_max"], call.named_params()["x_exp"])
            for name, call in calls.items()
        }
        self._initial: tuple[Player, str] | None = None

    def trainer(self) -> Trainer:
        """What measures and writes with this device's weights, between steps."""
        return Trainer(self.player, self.model, self.schedule)

    async def initialise(self) -> str:
        """Initial weights from the run's seed; their hash.  Nothing is done if they are there."""
        if self._initial is None or self._initial[0] is not self.player:
            await self.player.run(["init"], "record")
            self._initial = self.player, await self.weights_hash()
        return self._initial[1]

    async def weights_hash(self) -> str:
        return weights_hash_of(self.model, await self.player.run(["begin", "hash"], "record"))

    async def add_slice(self, number: int, *, first: bool) -> int:
        """Adds a slice's gradient to the sum (or starts one); its summed loss in base 2, Q16."""
        await self._write_slice(number)
        record = await self.player.run(["begin", "grad", _accumulation(first)], "record")
        return loss_in_q16(self.model, record)

    async def add_last_slice(
        self, number: int, *, first: bool
    ) -> AsyncGenerator[tuple[int, list[tuple[Any, int]]], None]:
        """Like `add_slice`, bucket by bucket: its summed loss (told with the first bucket, else 0)
        and the bucket's sums as (i32 data, exponent), while the next bucket is being computed.

        Close the generator to leave the rest out.
        """
        await self._write_slice(number)
        accumulate = _accumulation(first)
        sums = [[self._sums[name] for name in group] for group in self.model.pieces]
        pieces: list[Piece] = [
            ([f"grad {i}", f"{accumulate} {i}"], [s.buffer for s in group])
            for i, group in enumerate(sums)
        ]
        plans, buffers = pieces[0]
        pieces[0] = (["begin", *plans], ["record", *buffers])
        async with aclosing(self.player.run_pieces(pieces)) as results:
            for group in sums:
                contents, scalars = await anext(results)
                is_first = group is sums[0]
                loss = loss_in_q16(self.model, as_bytes(contents.pop(0))) if is_first else 0
                words = struct.unpack(f"<{self.model.program.scalar_words}i", scalars)
                exponents = [words[s.exponent] for s in group]
                yield loss, list(zip(contents, exponents, strict=True))

    async def _write_slice(self, number: int) -> None:
        ids, targets = await self.source.batch(number, 0, self.model.rows)
        key = step_key(self.model.seed, number, 0)
        self.player.write_scalars(Step.MICRO_BATCH, [0])
        self.player.write("inputs", struct.pack("<2I", *key))
        self.player.write("inputs", ids, 8)
        self.player.write("inputs", targets, 8 + 4 * self.model.tokens)

    def write_sums(self, tensors: Sequence[WideTensor]) -> None:
        """Replaces the summed gradients by reduced ones, which are given away."""
        for tensor in tensors:
            place = self._sums[tensor.name]
            self.player.write(place.buffer, tensor.data, give=True)
            self.player.write_scalars(place.maximum, [tensor.maximum])
            self.player.write_scalars(place.exponent, [tensor.exponent & 0xFFFFFFFF])

    async def own_squares(self) -> list[tuple[int, int]]:
        """Sums of squares of the summed gradient, by parameter."""
        return norm_squares(self.model, await self.player.run(["begin", "norm"], "record"))

    def scalars(
        self, step: int, squares: Sequence[tuple[int, int]], tokens: int
    ) -> tuple[int, ...]:
        """Binary32 bits of what the update to ``step`` needs: lr, bias corrections, clip."""
        s = optimizer_scalars(self.schedule, step - 1, gradient_norm(list(squares)), tokens)
        return tuple(binary32_bits(x) for x in (s.lr, s.bias_1, s.bias_2, s.clip))

    async def apply(self, scalars: Sequence[int]) -> str:
        """The optimizer's step; the hash of the weights after it."""
        self._initial = None
        self.player.write_scalars(Step.LR, scalars)
        record = await self.player.run(["begin", "update", "hash"], "record")
        return weights_hash_of(self.model, record)

    async def state(self) -> list[bytes]:
        """Weights and moments, buffer by buffer."""
        return await self.player.read_many(state_buffers(self.model))

    def state_sizes(self) -> list[int]:
        """Bytes of each buffer of the state."""
        return [self.model.program.buffers[n].size_bytes for n in state_buffers(self.model)]

    async def load_state(self, contents: Sequence[Any]) -> str:
        """Replaces weights and moments; the hash of the weights."""
        self._initial = None
        for name, data in zip(state_buffers(self.model), contents, strict=True):
            self.player.write(name, data)
        await self.player.run(["refresh"], "record")
        return await self.weights_hash()

    async def leaves(self) -> list[str]:
        """Hash of each 64 KiB of the weights, all parameters end to end."""
        names = [weight_buffer(p.name) for p in self.model.parameters]
        data = b"".join(map(bytes, await self.player.read_many(names)))
        starts = range(0, len(data), RANGE_BYTES)
        return [blake2b(data[i : i + RANGE_BYTES], digest_size=16).hexdigest() for i in starts]


def _accumulation(first: bool) -> str:
    return "accumulate_first" if first else "accumulate_next"


def as_bytes(data: Any) -> bytes:
    """Bytes of a flow.  In the page they come as a Uint8Array, which ``bytes()`` would walk through
    element by element (seconds for a state); ``to_bytes`` copies at once."""
    return data if isinstance(data, bytes) else bytes(data.to_bytes())


async def hash_state(contents: Sequence[Any]) -> str:
    """128-bit hash of a state: of the SHA-256 of each of its buffers."""
    return state_hash([await sha256(data) for data in contents])


def state_hash(contents: Sequence[bytes]) -> str:
    """128-bit hash of a few bytes."""
    return sha256_here(b"".join(contents)).hexdigest()[:32]
