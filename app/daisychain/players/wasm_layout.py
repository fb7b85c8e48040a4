"""Where everything of a program lies in the linear memory of the WebAssembly kernels.

A memory holds, from low to high addresses: the module's own data; for each part (Worker) a stack,
scratch and a context; ``scalars``; the call records; the storages.  A call record is what the
kernel's struct in ``wasm/calls.h`` says: operand addresses, then parameters, as 32-bit words.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from daisychain.errors import DeviceError
from daisychain.kernels.catalog import CATALOG
from daisychain.plan import Call, Program

PAGE_BYTES = 65536
LIMIT_BYTES = (1 << 32) - PAGE_BYTES
"""A memory of 32-bit addresses; the last page stays out so that sizes fit 32 bits too."""

FIRST_FREE_BYTE = 16384
"""Below it lie the data and the initial stack of the module."""

STACK_BYTES = 32768
GEMM_SCRATCH_BYTES = 960288
TERMS_BYTES = 507912
"""All exponentials of cross-entropy, 31 octaves of 4,096 and the 0 behind them."""

CONTEXT_BYTES = 16
CONTROL_BYTES = 16
_ALIGNMENT = 64


@dataclass(frozen=True)
class Layout:
    """Addresses (bytes) of a program laid out for ``parts`` Workers.

    ``image`` holds contexts and call records and belongs at ``image_address``; ``plans`` names for
    each call its kernel (index into ``kernels``) and the address of its record.
    """

    parts: int
    pages: int
    scalars: int
    scalar_words: int
    buffers: Mapping[str, tuple[int, int]]
    """Name -> (address, bytes)."""
    control: int
    """Words of the Workers' barrier."""
    stack_tops: tuple[int, ...]
    contexts: tuple[int, ...]
    image_address: int
    image: bytes
    kernels: tuple[str, ...]
    plans: Mapping[str, tuple[int, ...]]
    """Plan -> kernel, record, kernel, record, ..."""


class _Allocator:
    def __init__(self, first: int) -> None:
        self.end = first

    def take(self, size_bytes: int) -> int:
        address = -(-self.end // _ALIGNMENT) * _ALIGNMENT
        self.end = address + size_bytes
        return address


def scratch_bytes(program: Program) -> int:
    """Scratch memory that a part needs: packed panels of a GEMM, tables, or two rows of i32."""
    need = 0
    for call in (call for calls in program.plans.values() for call in calls):
        p = call.named_params()
        if call.kernel == "gemm3":
            need = max(need, GEMM_SCRATCH_BYTES)
        elif call.kernel == "cross_entropy":
            need = max(need, 4 * p["cols"] + TERMS_BYTES)
        elif "head_dim" in p:
            need = max(need, 8 * p["heads"] * p["head_dim"])
        else:
            need = max(need, 8 * p.get("cols", 0))
    return need


def lay_out(program: Program, parts: int = 1) -> Layout:
    """Addresses for everything; raises DeviceError when it does not fit 32-bit addresses."""
    space = _Allocator(FIRST_FREE_BYTE)
    control = space.take(CONTROL_BYTES)
    stacks = tuple(space.take(STACK_BYTES) + STACK_BYTES for _ in range(parts))
    scratch = [space.take(scratch_bytes(program)) for _ in range(parts)]
    scalars = space.take(4 * program.scalar_words)
    contexts = [space.take(CONTEXT_BYTES) for _ in range(parts)]
    calls = {call: 0 for plan in program.plans.values() for call in plan}
    for call in calls:
        signature = CATALOG[call.kernel]
        calls[call] = space.take(4 * (len(signature.operands) + len(signature.params)))
    image_end = space.end
    storages = {name: space.take(size) for name, size in program.storages().items()}
    if space.end > LIMIT_BYTES:
        raise DeviceError(
            f"This model needs {space.end / 1e9:.1f} GB of memory on the CPU.",
            f"WebAssembly can address {LIMIT_BYTES / 1e9:.1f} GB.",
            "Choose a smaller model or batch, or a device with WebGPU.",
        )
    buffers = {b.name: (storages[b.storage], b.size_bytes) for b in program.buffers.values()}
    image = bytearray(image_end - contexts[0])
    for part, address in enumerate(contexts):
        struct.pack_into("<4I", image, address - contexts[0], scalars, scratch[part], part, parts)
    for call, address in calls.items():
        words = _record(call, buffers)
        struct.pack_into(f"<{len(words)}I", image, address - contexts[0], *words)
    kernels = tuple(sorted({call.kernel for call in calls}))
    index = {name: i for i, name in enumerate(kernels)}
    return Layout(
        parts=parts,
        pages=-(-space.end // PAGE_BYTES),
        scalars=scalars,
        scalar_words=program.scalar_words,
        buffers=buffers,
        control=control,
        stack_tops=stacks,
        contexts=tuple(contexts),
        image_address=contexts[0],
        image=bytes(image),
        kernels=kernels,
        plans={
            name: tuple(word for call in plan for word in (index[call.kernel], calls[call]))
            for name, plan in program.plans.items()
        },
    )


def _record(call: Call, buffers: Mapping[str, tuple[int, int]]) -> list[int]:
    addresses = [buffers[name][0] for name in call.buffers]
    return addresses + [word & 0xFFFFFFFF for word in call.params]
