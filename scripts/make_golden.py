"""Makes app/daisychain/players/golden.bin, the vectors by which a device's kernels are admitted.

The kernels' test cases are shortened to what a page can carry and answered by the NumPy oracle.
usage: PYTHONPATH=app python scripts/make_golden.py
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from daisychain.kernels.cases import Case
from daisychain.kernels.cases import cases as cases_of
from daisychain.kernels.cases.build import PATTERNS
from daisychain.kernels.catalog import BYTES_PER_ELEMENT, CATALOG, STEP_WORDS, Step
from daisychain.plan import Buffer, Call, Program
from daisychain.players.admission import UNIT_KERNELS
from daisychain.players.golden import GOLDEN_FILE, PLAN, RECORD, GoldenCase, GoldenSet, encode
from daisychain.players.oracle import OraclePlayer

TARGET = Path(__file__).parents[1] / "app/daisychain" / GOLDEN_FILE

ELEMENTS = 264
"""Elementwise cases are cut to this many elements: one vector of 8 more than a workgroup."""

ELEMENTWISE = frozenset(
    (
        *("zero", "fill", "absmax", "add", "accumulate", "narrow", "narrow_stochastic"),
        *("swiglu", "swiglu_backward", "sum_squares", "adamw", "weight_max", "narrow_weights"),
        "init_weights",
    )
)
BUDGET_BYTES = {"gemm3": 50_000, "cross_entropy": 15_000, "adamw": 20_000, "softmax": 10_000}
DEFAULT_BUDGET_BYTES = 5_000
"""Compressed bytes of a kernel's cases."""

FREE_STEP_WORDS = (Step.KEY_A, Step.KEY_B)
"""Step words that a case takes from whichever case comes first: any value tests as much."""

SCALAR_PARAMS = {"zero_scalars": ("start",), "move_scalars": ("source", "target")}
"""Parameters that index ``scalars``, besides those that end in _exp or _max."""


def shortened(case: Case) -> Case:
    """The case with its elementwise operands cut to ELEMENTS."""
    (call,) = case.program.plans["case"]
    count = call.named_params().get("count", 0)
    if case.kernel not in ELEMENTWISE or count <= ELEMENTS:
        return case
    whole = [name for name in call.buffers if case.program.buffers[name].count >= count]
    buffers, inputs = dict(case.program.buffers), dict(case.inputs)
    for name in whole:
        buffers[name] = replace(buffers[name], count=ELEMENTS)
        inputs[name] = inputs[name][: ELEMENTS * BYTES_PER_ELEMENT[buffers[name].kind]]
    names = CATALOG[case.kernel].params
    params = tuple(
        ELEMENTS if name == "count" else word for name, word in zip(names, call.params, strict=True)
    )
    program = replace(
        case.program, buffers=buffers, plans={"case": (replace(call, params=params),)}
    )
    return replace(case, program=program, inputs=inputs)


def chosen(kernel: str) -> Iterator[Case]:
    """What the budget holds: the cheapest case of each pattern, then the others; at least one."""
    everything = [shortened(case) for case in cases_of(kernel)]
    paid = {
        data
        for data in everything[0].inputs.values()  # tables, which all its cases share
        if len(everything) > 1 and all(data in case.inputs.values() for case in everything)
    }

    def cost_bytes(case: Case) -> int:
        (golden,) = merged([case]).cases
        data = [*case.inputs.values(), *golden.outputs.values()]
        return len(zlib.compress(b"".join(part for part in data if part not in paid), 9))

    def pattern(case: Case) -> str:
        return next((word for word in PATTERNS if word in case.name), "")

    costs = sorted(((cost_bytes(case), case) for case in everything), key=lambda pair: pair[0])
    first = list({pattern(case): (cost, case) for cost, case in reversed(costs)}.values())[::-1]
    left_bytes = BUDGET_BYTES.get(kernel, DEFAULT_BUDGET_BYTES)
    for cost, case in first + [pair for pair in costs if pair not in first]:
        if cost <= left_bytes or (cost, case) == costs[0]:
            left_bytes -= cost
            yield case


def grouped(wanted: Sequence[Case]) -> list[list[Case]]:
    """Cases whose step words agree share a program; those that change them have their own."""
    groups: list[tuple[dict[int, int], list[Case]]] = []
    alone: list[list[Case]] = []
    for case in wanted:
        if changes_step_words(case):
            alone.append([case])
            continue
        words = {
            word: value
            for word, value in enumerate(case.scalars[:STEP_WORDS])
            if value and word not in FREE_STEP_WORDS
        }
        for common, members in groups:
            if all(common.get(w, v) == v for w, v in words.items()):
                common.update(words)
                members.append(case)
                break
        else:
            groups.append((words, [case]))
    return [members for _, members in groups] + alone


def changes_step_words(case: Case) -> bool:
    """Whether the kernel writes words that the host writes, which other cases may read."""
    golden = merged([case])
    (only,) = golden.cases
    return any(only.words[word] != golden.scalars[word] for word in range(STEP_WORDS))


def merged(members: Sequence[Case]) -> GoldenSet:
    """One program of all cases; buffers that are only read and equal are shared."""
    buffers = {RECORD: Buffer(RECORD, "u32", 4, RECORD)}
    inputs: dict[str, bytes] = {}
    shared: dict[tuple[str, bytes], str] = {}
    calls: list[Call] = []
    goldens: list[GoldenCase] = []
    scalars = [0] * STEP_WORDS
    for index, case in enumerate(members):
        (call,) = case.program.plans["case"]
        names = []
        for name in call.buffers:
            old, data = case.program.buffers[name], case.inputs[name]
            new = f"{case.kernel}.{index}.{name}"
            if name not in case.outputs:
                new = shared.setdefault((old.kind, data), new)
            names.append(new)
            buffers.setdefault(new, Buffer(new, old.kind, old.count, new))
            inputs[new] = data
        moved = len(scalars) - STEP_WORDS
        for word, value in enumerate(case.scalars[:STEP_WORDS]):
            scalars[word] = scalars[word] or value
        scalars += case.scalars[STEP_WORDS:]
        params = [
            word + moved if word >= STEP_WORDS and _is_scalar(case.kernel, name) else word
            for name, word in zip(CATALOG[case.kernel].params, call.params, strict=True)
        ]
        calls.append(Call(case.kernel, tuple(names), tuple(params)))
        own = range(STEP_WORDS + moved if len(members) > 1 else 0, len(scalars))
        outputs = {
            new: b"" for new, name in zip(names, call.buffers, strict=True) if name in case.outputs
        }
        goldens.append(GoldenCase(case.kernel, case.name, outputs, dict.fromkeys(own, 0)))
    program = Program(buffers, {PLAN: tuple(calls)}, len(scalars))
    return answered(GoldenSet(program, inputs, tuple(scalars), tuple(goldens)))


def _is_scalar(kernel: str, param: str) -> bool:
    return param.endswith(("_exp", "_max")) or param in SCALAR_PARAMS.get(kernel, ())


def answered(golden: GoldenSet) -> GoldenSet:
    """The set with the oracle's outputs and scalar words."""

    oracle = OraclePlayer()

    async def ask() -> dict[str, bytes]:
        await oracle.load(golden.program)
        for name, data in golden.inputs.items():
            oracle.write(name, data)
        oracle.write_scalars(0, golden.scalars)
        await oracle.run([PLAN], RECORD)
        return {name: await oracle.read(name) for name in golden.program.buffers}

    after = asyncio.run(ask())
    cases = tuple(
        replace(
            case,
            outputs={name: after[name] for name in case.outputs},
            words={word: int(oracle.scalars[word]) for word in case.words},
        )
        for case in golden.cases
    )
    return replace(golden, cases=cases)


def make() -> bytes:
    """The contents of golden.bin."""
    kernels = [kernel for kernel in CATALOG if kernel not in UNIT_KERNELS]
    wanted = [case for kernel in kernels for case in chosen(kernel)]
    return encode([merged(members) for members in grouped(wanted)])


def main() -> None:
    data = make()
    TARGET.write_bytes(data)
    print(f"{TARGET.name}: {len(data):,} bytes")


if __name__ == "__main__":
    main()
