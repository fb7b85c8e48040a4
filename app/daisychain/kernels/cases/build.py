"""What a kernel test case is, and the tools that make one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daisychain.kernels.catalog import CATALOG, Kind, Step
from daisychain.numbers.formats import NARROW_MAX, WIDE_MAX
from daisychain.plan import Program, ProgramBuilder

Integers = NDArray[np.int64]

PLAN = "case"
"""Name of the one plan of a case."""


@dataclass(frozen=True)
class Case:
    """One kernel call with everything it reads.

    A player loads ``program``, writes ``inputs`` and ``scalars`` (all words, from word 0), runs
    ``PLAN`` and reads ``outputs`` and the scalars; both must equal the oracle's, byte for byte.
    """

    kernel: str
    name: str
    program: Program
    inputs: Mapping[str, bytes]
    scalars: tuple[int, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Tensor:
    """A buffer of a case with its scalar words."""

    buffer: str
    max_word: int
    exp_word: int


class CaseBuilder:
    """Collects the operands and scalar words of one call."""

    def __init__(self, kernel: str, name: str) -> None:
        self.kernel = kernel
        self.name = name
        self.rng = np.random.default_rng([ord(letter) for letter in kernel + name])
        self._program = ProgramBuilder()
        self._inputs: dict[str, bytes] = {}
        self._words: dict[int, int] = {
            Step.KEY_A: int(self.rng.integers(1 << 32)),
            Step.KEY_B: int(self.rng.integers(1 << 32)),
        }

    def set_step(self, word: Step, value: int) -> None:
        self._words[word] = value

    def word(self, value: int = 0) -> int:
        """A fresh scalar word; ``value`` may be negative (an exponent)."""
        index = self._program.scalar()
        self._words[index] = value & 0xFFFFFFFF
        return index

    def words(self, values: Sequence[int]) -> int:
        """Consecutive fresh scalar words; the first index."""
        first = self.word(values[0])
        for value in values[1:]:
            self.word(value)
        return first

    def data(self, name: str, kind: Kind, data: bytes) -> str:
        """A buffer with given contents."""
        count = len(data) // (2 if kind == "narrow" else 4)
        self._inputs[name] = data
        return self._program.buffer(name, kind, count)

    def output(self, name: str, kind: Kind, count: int) -> str:
        """A buffer filled with a pattern that no kernel writes, so that gaps show."""
        return self.data(name, kind, b"\xa5" * (count * (2 if kind == "narrow" else 4)))

    def wide(self, name: str, values: Integers, exponent: int = -20) -> Tensor:
        """An i32 operand with its maximum and exponent."""
        self.data(name, "i32", i32_bytes(values))
        return Tensor(name, self.word(int(np.abs(values).max())), self.word(exponent))

    def narrow(self, name: str, values: Integers, exponent: int = -14) -> Tensor:
        """A narrow operand with its exponent."""
        self.data(name, "narrow", narrow_bytes(values))
        return Tensor(name, 0, self.word(exponent))

    def result(self, name: str, kind: Kind, count: int) -> Tensor:
        """An output with words for its maximum and exponent."""
        return Tensor(self.output(name, kind, count), self.word(), self.word(0x5A5A5A5A))

    def finish(self, *buffers: str | Tensor, **params: int) -> Case:
        """The case that calls the kernel once."""
        names = [b.buffer if isinstance(b, Tensor) else b for b in buffers]
        self._program.begin(PLAN)
        self._program.call(self.kernel, *names, **params)
        operands = zip(names, CATALOG[self.kernel].operands, strict=True)
        outputs = [name for name, operand in operands if operand.access != "read"]
        if not outputs:  # only scalars change; a player reads some buffer after a run
            outputs = names[:1] or [self.output("idle", "u32", 4)]
        program = self._program.build()
        words = tuple(self._words.get(i, 0) for i in range(program.scalar_words))
        return Case(self.kernel, self.name, program, dict(self._inputs), words, tuple(outputs))


def i32_bytes(values: Integers) -> bytes:
    return values.astype("<i4").tobytes()


def u32_bytes(values: Integers) -> bytes:
    return values.astype("<u4").tobytes()


def narrow_bytes(values: Integers) -> bytes:
    """The interleaved layout of ``kernels.catalog``."""
    mantissas = values.reshape(-1, 8)
    high = (mantissas + 128) >> 8
    low = mantissas - (high << 8)
    return np.concatenate([high, low], axis=1).astype(np.int8).tobytes()


PATTERNS = ("uniform", "mixed", "small", "extreme", "sparse", "zero")
"""How test values are spread; see ``spread``."""


def spread(
    rng: np.random.Generator, shape: int | tuple[int, ...], limit: int, pattern: str
) -> Integers:
    """Signed integers of magnitude <= limit.

    uniform: over the whole range; mixed: of every magnitude; small: at most 3; extreme: only
    +-limit, +-(limit - 1), 0; sparse: zeros but for a few; zero: zeros.
    """
    uniform = rng.integers(-limit, limit + 1, shape)
    match pattern:
        case "uniform":
            return uniform
        case "mixed":
            return uniform >> rng.integers(0, limit.bit_length() + 1, shape)
        case "small":
            return rng.integers(-3, 4, shape)
        case "extreme":
            return rng.choice(np.array([limit, -limit, limit - 1, 1 - limit, 0]), shape)
        case "sparse":
            return np.where(rng.integers(0, 50, shape) == 0, uniform, 0)
        case "zero":
            return np.zeros(shape, np.int64)
    raise ValueError(f"unknown pattern {pattern}")


def wide_values(rng: np.random.Generator, shape: int | tuple[int, ...], pattern: str) -> Integers:
    return spread(rng, shape, WIDE_MAX, pattern)


def narrow_values(rng: np.random.Generator, shape: int | tuple[int, ...], pattern: str) -> Integers:
    return spread(rng, shape, NARROW_MAX, pattern)
