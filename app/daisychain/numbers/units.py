"""The INT8 neural units: tiny integer ReLU networks through which every product and split goes.

``multiply`` (int8 x int8 -> int16) is (sq(a + b) - sq(a - b)) / 4 with ``SQUARE``, a one-input ReLU
network that equals x^2 on every integer it can meet.  ``split`` (int16 -> two int8) is the rounded
shift by 8 and what is left: m = 256*hi + lo, hi = (m + 128) >> 8.  For m > 32639, which no kernel
meets, hi wraps like a byte.

The networks are evaluated on their whole domain (65,536 inputs each) by prefix sums and laid out as
the tables that a device must reproduce before it may compute (``players.admission``); ``prove``
compares every entry with plain integer arithmetic.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

INT8_MIN, INT8_MAX = -128, 127
INT16_MIN, INT16_MAX = -32768, 32767
DOMAIN = 65536
"""Inputs of each unit."""


@dataclass(frozen=True)
class ReluNetwork:
    """One input, one hidden layer: y = bias + sum of weight * relu(x - threshold)."""

    bias: int
    neurons: tuple[tuple[int, int], ...]
    """(weight, threshold) of each hidden neuron."""

    def __call__(self, x: int) -> int:
        return self.bias + sum(weight * max(0, x - at) for weight, at in self.neurons)

    def layout(self, first: int, last: int) -> list[int]:
        """The outputs for all integers first..last; exact, no threshold lies below ``first``.

        A neuron adds its weight to the slope right of its threshold: two prefix sums.
        """
        slopes = [0] * (last - first + 1)
        for weight, at in self.neurons:
            if at < last:
                slopes[at - first + 1] += weight
        slopes[0] += self.bias
        rises = list(accumulate(slopes[1:]))
        return list(accumulate(rises, initial=slopes[0]))


def _steps(heights: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Neurons of a staircase: it rises by ``height`` from integer at - 1 to integer ``at``."""
    pairs = (((height, at - 1), (-height, at)) for height, at in heights)
    return tuple(neuron for pair in pairs for neuron in pair)


SQUARE_MIN, SQUARE_MAX = 2 * INT8_MIN, INT8_MAX - INT8_MIN
"""The integers that a + b and a - b can be."""

SQUARE = ReluNetwork(
    SQUARE_MIN**2,
    (
        (2 * SQUARE_MIN + 1, SQUARE_MIN),
        *((2, at) for at in range(SQUARE_MIN + 1, SQUARE_MAX)),
    ),
)
"""x^2 for x in SQUARE_MIN..SQUARE_MAX: the slope between x and x + 1 is 2x + 1."""

_EDGES = range(INT16_MIN + 128, INT16_MAX + 1, 256)
"""The mantissas at which hi goes up by one."""

HIGH = ReluNetwork(INT8_MIN, _steps([(1, at) for at in _EDGES[:-1]] + [(-255, _EDGES[-1])]))
"""The upper half of an int16, as int8."""

LOW = ReluNetwork(0, ((1, INT16_MIN), *_steps([(-256, at) for at in _EDGES])))
"""The lower half of an int16, as int8."""


def multiply(a: int, b: int) -> int:
    """a * b for int8 a, b, through the network."""
    return (SQUARE(a + b) - SQUARE(a - b)) >> 2


def split(m: int) -> tuple[int, int]:
    """(hi, lo) of an int16, through the networks."""
    return HIGH(m), LOW(m)


@cache
def product_table() -> array[int]:
    """int32[65536]: entry 256*(a + 128) + (b + 128) is a * b."""
    square = SQUARE.layout(SQUARE_MIN, SQUARE_MAX)
    table = array("i")
    for a in range(256):  # of a + 128; the squares of a + b rise with b, those of a - b fall
        sums = square[a : a + 256]
        differences = square[a + 1 : a + 257]
        differences.reverse()
        table.extend([(s - d) >> 2 for s, d in zip(sums, differences, strict=True)])
    return table


@cache
def split_table() -> array[int]:
    """int32[65536]: entry m + 32768 is the byte of hi (upper) and the byte of lo."""
    high = HIGH.layout(INT16_MIN, INT16_MAX)
    low = LOW.layout(INT16_MIN, INT16_MAX)
    return array("i", [(h & 0xFF) << 8 | (i & 0xFF) for h, i in zip(high, low, strict=True)])


def prove() -> None:
    """Checks both tables on their whole domains; raises ArithmeticError with the first fault."""
    int8 = range(INT8_MIN, INT8_MAX + 1)
    products = array("i", [a * b for a in int8 for b in int8])
    _compare("multiply", product_table(), products)
    int16 = range(INT16_MIN, INT16_MAX + 1)
    splits = array("i", [(m + 128 & 0xFF00) | (m & 0xFF) for m in int16])
    _compare("split", split_table(), splits)


def _compare(unit: str, table: array[int], truth: array[int]) -> None:
    if table != truth:
        at = next(i for i, (x, y) in enumerate(zip(table, truth, strict=True)) if x != y)
        raise ArithmeticError(f"the unit {unit} gives {table[at]}, not {truth[at]}, at entry {at}")
