"""Continuous verification: now and then one kernel call of a run is repeated on the CPU.

Admission shows that a device can be right; a driver update, a hot chip or a rare value may make it
wrong later.  The call is chosen at random, its operands are read before and after it, and the CPU
player must get the same bits.  A difference ends the device's use for this page.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from daisychain.errors import DeviceError, DeviceLost
from daisychain.kernels.catalog import CATALOG
from daisychain.plan import Call, Program
from daisychain.players.admission import first_difference
from daisychain.players.measure import Clock
from daisychain.players.player import Piece, PieceResult, Player

SHARE = 0.02
"""Of the time, at most so much goes into checks."""

FIRST_CHECK_MS = 200.0
"""What the first check is expected to cost; the later ones are measured."""

MAX_OPERAND_BYTES = 64 << 20
"""Calls with larger operands are not chosen: they would have to cross to the CPU."""


class PartPlayer(Player, Protocol):
    """A player that can stop between two calls of a run."""

    kernels: list[str]
    variant: str

    @property
    def device(self) -> Any:
        """What it drives."""

    async def run_part(self, plans: Sequence[str], read: str, first: int, last: int) -> bytes:
        """``run`` for the calls first..last-1 of the plans, counted through."""


class CallChecker(Protocol):
    """The CPU player as far as it is needed here."""

    async def run_call(
        self, call: Call, buffers: Mapping[str, bytes], scalars: bytes
    ) -> dict[str, bytes]:
        """Contents after one call of the buffers that it writes, and of ``scalars``."""

    def close(self) -> None:
        """Ends it."""


class KernelWrong(DeviceLost):
    """The device computed something else than the CPU: what it holds is worth nothing."""

    def __init__(self, call: Call, buffer: str, difference: str) -> None:
        super().__init__(
            f"The GPU's kernel {call.kernel} went wrong in this run ({buffer}: {difference}).",
            "It was right at the start, so the driver or the chip has become unreliable.",
            "Training goes on from the last complete step on the CPU.",
        )
        self.kernel = call.kernel


class VerifiedPlayer:
    """A WebGPU player with checks in between; implements ``players.player.Player``.

    ``open_checker`` starts the CPU player when the first check is due; ``on_wrong`` hears of a
    difference before KernelWrong is raised; ``choose(n)`` picks one of n calls; ``share`` of the
    time goes into checks.
    """

    name = "webgpu"

    def __init__(
        self,
        player: PartPlayer,
        open_checker: Callable[[], Awaitable[CallChecker]],
        on_wrong: Callable[[], None],
        log: Callable[[str], None],
        clock_ms: Clock,
        choose: Callable[[int], int] = random.randrange,
        share: float = SHARE,
    ) -> None:
        self.player = player
        self.kernels = player.kernels
        self.checks = 0
        self.wait_ms = 0.0
        self.sample_ms = player.sample_ms
        self._open_checker, self._on_wrong = open_checker, on_wrong
        self._log, self._clock_ms, self._choose, self._share = log, clock_ms, choose, share
        self._program = Program({}, {}, 0)
        self._checker: CallChecker | None = None
        self._is_checking = True
        self._ordinary_ms, self._check_ms = 0.0, FIRST_CHECK_MS

    @property
    def device(self) -> Any:
        """The GPU behind the player."""
        return self.player.device

    @property
    def variant(self) -> str:
        """Which form of the kernels the player uses."""
        return self.player.variant

    async def load(self, program: Program) -> None:
        await self.player.load(program)
        self._program = program

    def write(self, buffer: str, data: Any, offset_bytes: int = 0, give: bool = False) -> None:
        self.player.write(buffer, data, offset_bytes, give)

    def write_scalars(self, first_word: int, words: Sequence[int]) -> None:
        self.player.write_scalars(first_word, words)

    async def run(self, plans: Sequence[str], read: str) -> bytes:
        """See ``Player``; raises KernelWrong when the call that was checked differs."""
        began = self._clock_ms()
        if checker := await self._checker_if_due():
            contents = await self._checked_run(plans, read, checker)
            self.wait_ms = self._check_ms = self._clock_ms() - began
            self._ordinary_ms = 0.0
            return contents
        contents = await self.player.run(plans, read)
        self.wait_ms = self.player.wait_ms
        self._ordinary_ms += self._clock_ms() - began
        return contents

    async def run_pieces(self, pieces: Sequence[Piece]) -> AsyncGenerator[PieceResult, None]:
        """See ``Player``; a check that is due is made in one of the pieces, chosen at random."""
        if checker := await self._checker_if_due():
            index = self._choose(len(pieces))
            async with aclosing(self._unchecked(pieces[:index])) as results:
                async for result in results:
                    yield result
            began, (plans, buffers) = self._clock_ms(), pieces[index]
            await self._checked_run(plans, buffers[0], checker)
            result = await self.player.read_many(buffers), await self.player.read_scalars()
            self._check_ms, self._ordinary_ms = self._clock_ms() - began, 0.0
            yield result
            pieces = pieces[index + 1 :]
        async with aclosing(self._unchecked(pieces)) as results:
            async for result in results:
                yield result

    async def _unchecked(self, pieces: Sequence[Piece]) -> AsyncGenerator[PieceResult, None]:
        began = self._clock_ms()
        async with aclosing(self.player.run_pieces(pieces)) as results:
            async for result in results:
                yield result
        self._ordinary_ms += self._clock_ms() - began

    async def read(self, buffer: str) -> bytes:
        return await self.player.read(buffer)

    async def read_many(self, buffers: Sequence[str]) -> list[bytes]:
        return await self.player.read_many(buffers)

    async def read_scalars(self) -> bytes:
        return await self.player.read_scalars()

    def close(self) -> None:
        self.player.close()
        if self._checker:
            self._checker.close()

    async def _checker_if_due(self) -> CallChecker | None:
        if not self._is_checking or self._ordinary_ms * self._share < self._check_ms:
            return None
        if not self._checker:
            try:
                self._checker = await self._open_checker()
            except DeviceError as error:
                self._is_checking = False
                self._log(f"webgpu is not checked while it trains: {error.what}")
        return self._checker

    async def _checked_run(self, plans: Sequence[str], read: str, checker: CallChecker) -> bytes:
        calls = [call for plan in plans for call in self._program.plans[plan]]
        small = [i for i, call in enumerate(calls) if self._bytes(call) <= MAX_OPERAND_BYTES]
        if not small:
            return await self.player.run(plans, read)
        index = small[self._choose(len(small))]
        call = calls[index]
        await self.player.run_part(plans, read, 0, index)
        before, scalars = await self._contents(call)
        await self.player.run_part(plans, read, index, index + 1)
        after, after["scalars"] = await self._contents(call)
        contents = await self.player.run_part(plans, read, index + 1, len(calls))
        try:
            expected = await checker.run_call(call, before, scalars)
        except DeviceError as error:
            self._is_checking = False
            self._log(f"webgpu is no longer checked: {error.what}")
            return contents
        self.checks += 1
        self._compare(call, after, expected)
        return contents

    def _bytes(self, call: Call) -> int:
        return sum(self._program.buffers[name].size_bytes for name in set(call.buffers))

    async def _contents(self, call: Call) -> tuple[dict[str, bytes], bytes]:
        names = list(dict.fromkeys(call.buffers))
        contents = await self.player.read_many(names)
        return dict(zip(names, contents, strict=True)), await self.player.read_scalars()

    def _compare(self, call: Call, found: dict[str, bytes], expected: dict[str, bytes]) -> None:
        kinds = {
            name: operand.kind
            for name, operand in zip(call.buffers, CATALOG[call.kernel].operands, strict=True)
        }
        for name, contents in expected.items():
            if found[name] != contents:
                difference = first_difference(kinds.get(name, "u32"), found[name], contents)
                self._on_wrong()
                raise KernelWrong(call, name, difference)
