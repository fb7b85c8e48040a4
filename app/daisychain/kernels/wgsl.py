"""Assembles the WGSL of a kernel: bindings from the catalogue, included files, its own file.

A kernel's file starts with directives::

    //! use units common random   files included before it, in this order
    //! vec4 x out                operands bound as 16-byte vectors of their words
    //! atomic record             operands bound as atomic words

Binding 0 is ``scalars``, 1 the parameters as ``params``, 2.. the operands in catalogue order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from daisychain.kernels.catalog import CATALOG, Groups, Kernel, Operand

VARIANTS: dict[str, dict[str, str]] = {
    "packed": {},
    "unpacked": {"units": "units_unpacked", "gemm3": "gemm3_unpacked"},
    "software": {
        "units": "units_unpacked",
        "gemm3": "gemm3_unpacked",
        "lanes": "lanes_software",
        "maximum": "maximum_software",
    },
}
"""The ways to write a kernel, all with the same results, as replacements of files.

packed: for GPUs with packed dot products; unpacked: for those without; software: for adapters that
run on a CPU, where packed products and barriers are slow.  Among admitted variants a device uses
the fastest by measurement.
"""

SMALL_GEMM = "gemm3_small"
SMALL_TILE = 32
FEW_TILES = 256
LONG_INNER = 128
"""GEMM3 has a second form, in tiles of 32 x 32 that split k, for calls of few tiles of 64 x 64 and
long k: they would leave most of a large GPU idle.  Below LONG_INNER there is nothing to split."""

PACKED_FEATURE = "packed_4x8_integer_dot_product"
"""The WGSL language feature that the variant "packed" requires."""

REQUIRES = f"requires {PACKED_FEATURE};\n"
DIRECTIVE = "//! "
RESERVED = frozenset({"target"})
"""Parameter names that WGSL reserves: they get an underscore."""


def forms(kernel: str, variant: str) -> tuple[str, ...]:
    """The sources that a kernel has in a variant; ``launch`` takes one of them for each call."""
    return (kernel, SMALL_GEMM) if (kernel, variant) == ("gemm3", "packed") else (kernel,)


def launch(kernel: str, params: Mapping[str, int], variant: str) -> tuple[str, Groups]:
    """The form and the number of workgroups of a call."""
    x, y, z = CATALOG[kernel].groups(params)
    if SMALL_GEMM not in forms(kernel, variant):
        return kernel, (x, y, z)
    if x * y * z > FEW_TILES or params["k"] < LONG_INNER:
        return kernel, (x, y, z)
    return SMALL_GEMM, (-(-params["n"] // SMALL_TILE), -(-params["m"] // SMALL_TILE), z)


def source(kernel: str, variant: str = "packed", read: Callable[[str], str] | None = None) -> str:
    """The complete WGSL of a kernel, or another of its ``forms``, in one of the ``VARIANTS``.

    ``read`` gives the text of a file by name (default: the files shipped with the package).
    """
    read = read or read_file
    replaced = VARIANTS[variant]
    own = read(replaced.get(kernel, kernel))
    words = _directives(own)
    signature = CATALOG["gemm3" if kernel == SMALL_GEMM else kernel]
    bindings = _bindings(signature, words.get("vec4", []), words.get("atomic", []))
    included = [read(replaced.get(name, name)) for name in words["use"]]
    text = "\n".join([bindings, *included, own])
    return REQUIRES + text.replace(REQUIRES, "") if REQUIRES in text else text


@cache
def read_file(name: str) -> str:
    """The text of a file of ``webgpu/``, from the installed package or from the repository."""
    packaged = resources.files("daisychain").joinpath("webgpu", f"{name}.wgsl")
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    return (Path(__file__).parents[3] / "webgpu" / f"{name}.wgsl").read_text(encoding="utf-8")


def _directives(text: str) -> dict[str, list[str]]:
    lines = [line for line in text.splitlines() if line.startswith(DIRECTIVE.strip())]
    split = [line[len(DIRECTIVE) :].split() for line in lines]
    return {words[0]: words[1:] for words in split}


def _bindings(kernel: Kernel, vectors: list[str], atomics: list[str]) -> str:
    fields = ", ".join(f"{_field(name)}: {_parameter_type(name)}" for name in kernel.params)
    lines = [
        f"struct Params {{ {fields} }}",
        "@group(0) @binding(0) var<storage, read_write> scalars: array<atomic<u32>>;",
        "@group(0) @binding(1) var<uniform> params: Params;",
    ]
    for binding, operand in enumerate(kernel.operands, 2):
        access = "read" if operand.access == "read" else "read_write"
        element = _element(operand, operand.name in vectors, operand.name in atomics)
        variable = f"var<storage, {access}> {operand.name}: array<{element}>;"
        lines.append(f"@group(0) @binding({binding}) {variable}")
    return "\n".join(lines) + "\n"


def _field(name: str) -> str:
    return f"{name}_" if name in RESERVED else name


def _parameter_type(name: str) -> str:
    """Mantissas, digits and exponents of constants are signed."""
    return "i32" if name.endswith(("_m", "_l", "_e")) else "u32"


def _element(operand: Operand, vector: bool, atomic: bool) -> str:
    if operand.kind == "narrow":
        return "vec4<u32>"
    if vector:
        return f"vec4<{operand.kind}>"
    return f"atomic<{operand.kind}>" if atomic else operand.kind
