"""Admission: no kernel computes a training value before it has equalled the verified units.

On every device at every start: all 65,536 products and all 65,536 splits of the INT8 units, then
every kernel on golden vectors (ragged shapes, extremes, ties, denormals).  A kernel that differs is
refused with its name and its first differing element.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache

from daisychain.errors import AdmissionError
from daisychain.kernels.catalog import Kind
from daisychain.numbers import units
from daisychain.plan import ProgramBuilder
from daisychain.platform import read_resource
from daisychain.players.golden import GOLDEN_FILE, PLAN, RECORD, GoldenCase, GoldenSet, decode
from daisychain.players.player import Player

UNIT_KERNELS = ("unit_products", "unit_splits")


class KernelRefused(AdmissionError):
    """A kernel of this device differs; ``kernel`` names it, ``difference`` says where."""

    def __init__(self, kernel: str, case: str, difference: str) -> None:
        super().__init__(
            f"The kernel {kernel} was refused on this device ({case}: {difference}).",
            "Every device must compute the same bits as the verified units.",
            "Update the browser or the graphics driver, or train on the other player.",
        )
        self.kernel, self.difference = kernel, difference


@cache
def golden_sets() -> tuple[GoldenSet, ...]:
    """The golden vectors that the package ships."""
    return decode(read_resource(GOLDEN_FILE))


async def admit(player: Player, sets: Sequence[GoldenSet], kernels: Collection[str]) -> None:
    """Checks the units, then the kernels named; leaves no program of use loaded.

    Raises KernelRefused for the first that differs, or that no golden vector covers.
    """
    wanted = set(kernels) | set(UNIT_KERNELS)
    covered = {case.kernel for golden in sets for case in golden.cases}
    for kernel in sorted(wanted - covered - set(UNIT_KERNELS)):
        raise KernelRefused(kernel, "unproved", "there is no golden vector for it")
    await _check_units(player)
    for whole in sets:
        golden = whole.only(wanted)
        if golden.cases:
            await _check_golden(player, golden)


async def _check_units(player: Player) -> None:
    truth = {"unit_products": units.product_table(), "unit_splits": units.split_table()}
    builder = ProgramBuilder()
    builder.begin(PLAN)
    for kernel in truth:
        out = builder.buffer(kernel, "i32", units.DOMAIN)
        builder.call(kernel, out, count=units.DOMAIN)
    builder.buffer(RECORD, "u32", 4)
    await player.load(builder.build())
    await player.run([PLAN], RECORD)
    contents = await player.read_many(list(truth))
    for (kernel, table), found in zip(truth.items(), contents, strict=True):
        _compare(kernel, "all inputs", "out", "i32", found, table.tobytes())


async def _check_golden(player: Player, golden: GoldenSet) -> None:
    await player.load(golden.program)
    for name, data in golden.inputs.items():
        player.write(name, data)
    player.write_scalars(0, golden.scalars)
    names = list(dict.fromkeys(name for case in golden.cases for name in case.outputs))
    await player.run([PLAN], RECORD)
    found = dict(zip(names, await player.read_many(names), strict=True))
    words = memoryview(await player.read_scalars()).cast("I")
    for case in golden.cases:
        for name, expected in case.outputs.items():
            kind = golden.program.buffers[name].kind
            short = name.rpartition(".")[2]
            _compare(case.kernel, case.name, short, kind, found[name], expected)
        _compare_words(case, words)


def _compare_words(case: GoldenCase, found: memoryview) -> None:
    for word, expected in case.words.items():
        if found[word] != expected:
            difference = f"scalar word {word} is {found[word]:#x}, not {expected:#x}"
            raise KernelRefused(case.kernel, case.name, difference)


def _compare(
    kernel: str, case: str, buffer: str, kind: Kind, found: bytes, expected: bytes
) -> None:
    if found == expected:
        return
    difference = first_difference(kind, found, expected)
    raise KernelRefused(kernel, case, f"{buffer}, {difference}")


def first_difference(kind: Kind, found: bytes, expected: bytes) -> str:
    """The first element in which two contents of a buffer differ, in words."""
    if len(found) != len(expected):
        return f"{len(found)} bytes, not {len(expected)}"
    is_values, should_values = _elements(kind, found), _elements(kind, expected)
    for index, (is_, should) in enumerate(zip(is_values, should_values, strict=True)):
        if is_ != should:
            return f"element {index} is {is_}, not {should}"
    return "equal"


def _elements(kind: Kind, data: bytes) -> Sequence[int]:
    if kind != "narrow":
        return memoryview(data).cast("i" if kind == "i32" else "I")
    halves = memoryview(data).cast("b")
    return [
        256 * halves[at + j] + halves[at + 8 + j]
        for at in range(0, len(data), 16)
        for j in range(8)
    ]
