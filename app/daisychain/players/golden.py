"""Golden vectors: kernel calls with everything they read and everything they must write.

``golden.bin`` is made by ``scripts/make_golden.py`` from the kernels' test cases and the oracle.
Many calls share one program, so that a device answers all of them in one run.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from daisychain.errors import DataError
from daisychain.plan import Buffer, Call, Program

GOLDEN_FILE = "players/golden.bin"
PLAN = "golden"
RECORD = "record"
"""A small buffer of each set, for runs whose kernels write scalars alone."""

MAGIC = b"DaisyGold1"


@dataclass(frozen=True)
class GoldenCase:
    """What one call must leave behind: whole buffers, and the scalar words of its own."""

    kernel: str
    name: str
    outputs: Mapping[str, bytes]
    words: Mapping[int, int]


@dataclass(frozen=True)
class GoldenSet:
    """One program whose plan ``PLAN`` makes the call of each case, in order."""

    program: Program
    inputs: Mapping[str, bytes]
    scalars: tuple[int, ...]
    cases: tuple[GoldenCase, ...]

    def only(self, kernels: Collection[str]) -> GoldenSet:
        """The same set with the calls of these kernels alone."""
        calls = zip(self.program.plans[PLAN], self.cases, strict=True)
        kept = [(call, case) for call, case in calls if call.kernel in kernels]
        names = {RECORD, *(name for call, _ in kept for name in call.buffers)}
        program = replace(
            self.program,
            buffers={name: b for name, b in self.program.buffers.items() if name in names},
            plans={PLAN: tuple(call for call, _ in kept)},
        )
        inputs = {name: data for name, data in self.inputs.items() if name in names}
        return GoldenSet(program, inputs, self.scalars, tuple(case for _, case in kept))


def encode(sets: Sequence[GoldenSet]) -> bytes:
    """The contents of ``golden.bin``; equal data are stored once."""
    blobs: dict[bytes, int] = {}

    def blob(data: bytes) -> int:
        return blobs.setdefault(data, len(blobs))

    header = [
        {
            "buffers": [[b.name, b.kind, b.count] for b in s.program.buffers.values()],
            "calls": [[c.kernel, c.buffers, c.params] for c in s.program.plans[PLAN]],
            "inputs": {name: blob(data) for name, data in s.inputs.items()},
            "scalars": s.scalars,
            "cases": [
                [
                    c.kernel,
                    c.name,
                    {n: blob(d) for n, d in c.outputs.items()},
                    list(c.words.items()),
                ]
                for c in s.cases
            ],
        }
        for s in sets
    ]
    text = json.dumps([header, [len(data) for data in blobs]], separators=(",", ":")).encode()
    return MAGIC + zlib.compress(struct.pack("<I", len(text)) + text + b"".join(blobs), 9)


def decode(data: bytes) -> tuple[GoldenSet, ...]:
    """The sets of ``golden.bin``; raises DataError when it is damaged."""
    try:
        if not data.startswith(MAGIC):
            raise ValueError("unknown beginning")
        raw = zlib.decompress(data[len(MAGIC) :])
        (size,) = struct.unpack_from("<I", raw)
        header, lengths = json.loads(raw[4 : 4 + size])
        blobs, at = [], 4 + size
        for length in lengths:
            blobs.append(raw[at : at + length])
            at += length
        return tuple(_set(entry, blobs) for entry in header)
    except (ValueError, KeyError, IndexError, struct.error, zlib.error) as error:
        raise DataError(
            f"The file {GOLDEN_FILE} is damaged ({error}).",
            "No kernel can be checked without it.",
            "Reload the page; if that does not help, the site was copied incompletely.",
        ) from error


def _set(entry: dict, blobs: list[bytes]) -> GoldenSet:  # type: ignore[type-arg]
    program = Program(
        {name: Buffer(name, kind, count, name) for name, kind, count in entry["buffers"]},
        {PLAN: tuple(Call(k, tuple(b), tuple(p)) for k, b, p in entry["calls"])},
        len(entry["scalars"]),
    )
    cases = tuple(
        GoldenCase(kernel, name, {n: blobs[i] for n, i in outputs.items()}, dict(words))
        for kernel, name, outputs, words in entry["cases"]
    )
    inputs = {name: blobs[index] for name, index in entry["inputs"].items()}
    return GoldenSet(program, inputs, tuple(entry["scalars"]), cases)
