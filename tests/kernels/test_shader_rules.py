"""What no shader may contain, and how their sources are put together."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from daisychain.kernels import wgsl
from daisychain.kernels.catalog import CATALOG
from daisychain.players.admission import UNIT_KERNELS, golden_sets

SHADERS = sorted((Path(__file__).parents[2] / "webgpu").glob("*.wgsl"))
FILES = {path.stem: path.read_text(encoding="utf-8") for path in SHADERS}

SOURCES = [
    (form, kernel, variant)
    for variant in wgsl.VARIANTS
    for kernel in CATALOG
    for form in wgsl.forms(kernel, variant)
]

MAY_MULTIPLY = {"units", "units_unpacked", "index"}
"""The INT8 units, and the products of addresses."""

FLOATS = re.compile(
    r"\b(f16|f32|vec[234][fh]|mat[234]x[234][fh]?|AbstractFloat|unpack\w*float|unpack\w*norm|pack\w*float|pack\w*norm)\b"
)
FLOAT_LITERAL = re.compile(r"\b\d+\.\d*|\b\d+[fh]\b|\b\d+e[-+]?\d+\b")
MULTIPLIES = re.compile(
    r"\*|\b(dot|dot4[IU]8Packed|cross|fma|mix|pow|ldexp|determinant|transpose|exp2?|log2?)\s*\("
)
DIRECTIVES = {"use", "vec4", "atomic"}


def code(text: str) -> str:
    """Without comments."""
    return re.sub(r"//[^\n]*", "", text)


def breaches(name: str, text: str) -> list[str]:
    """The rules that a file breaks."""
    found = []
    if FLOATS.search(text):
        found.append("names a floating-point type")
    if FLOAT_LITERAL.search(code(text)):
        found.append("has a floating-point literal")
    if name not in MAY_MULTIPLY and MULTIPLIES.search(code(text)):
        found.append("multiplies outside the units")
    return found


@pytest.mark.parametrize("name", FILES)
def test_integers_only_and_products_only_in_the_units(name: str) -> None:
    assert breaches(name, FILES[name]) == []


@pytest.mark.parametrize(
    "line",
    [
        "let x = a * b;",
        "x *= 3;",
        "let y = dot(u, v);",
        "let y = dot4I8Packed(a, b);",
        "let z = 1.5;",
        "let z = 2f;",
        "let z = vec4<f32>();",
        "// an f16 in a comment",
        "let z = vec3f();",
        "let z = 1e3;",
        "let z = unpack4x8snorm(x);",
    ],
)
def test_a_breach_is_found(line: str) -> None:
    assert breaches("planted", FILES["narrow"] + line)


def test_addresses_are_the_only_products_of_index() -> None:
    assert code(FILES["index"]).count("*") == 1


def test_every_kernel_has_its_file_and_every_file_is_used() -> None:
    used = set()

    def read(name: str) -> str:
        used.add(name)
        return FILES[name]

    for form, _, variant in SOURCES:
        wgsl.source(form, variant, read)
    assert used == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_directives_are_known(name: str) -> None:
    words = [line[4:].split() for line in FILES[name].splitlines() if line.startswith("//!")]
    assert {first for first, *_ in words} <= DIRECTIVES
    assert all(w in FILES for first, *rest in words if first == "use" for w in rest)


@pytest.mark.parametrize(("form", "kernel", "variant"), SOURCES)
def test_sources_are_complete(form: str, kernel: str, variant: str) -> None:
    text = wgsl.source(form, variant)
    signature = CATALOG[kernel]
    bindings = [int(b) for b in re.findall(r"@binding\((\d+)\)", text)]
    assert bindings == list(range(2 + len(signature.operands)))
    assert text.count("@compute") == 1
    assert text.count("fn main(") == 1
    functions = re.findall(r"^fn (\w+)", text, re.MULTILINE)
    assert len(functions) == len(set(functions))
    assert ("requires" in text) == text.startswith("requires packed_4x8_integer_dot_product;")
    if variant != "packed":
        assert "requires" not in text
        assert "dot4I8Packed" not in text


def test_storage_buffers_within_the_default_limit() -> None:
    assert all(1 + len(kernel.operands) <= 8 for kernel in CATALOG.values())


def test_another_reader_is_used() -> None:
    read: Callable[[str], str] = lambda name: FILES[name].replace("return a * b;", "return a - b;")  # noqa: E731
    assert wgsl.source("gemm3", "unpacked", read) != wgsl.source("gemm3", "unpacked")


def gemm(m: int, n: int, k: int, batch: int = 1) -> dict[str, int]:
    return {"m": m, "n": n, "k": k, "outer": batch, "inner": 1}


@pytest.mark.parametrize(
    ("shape", "form", "groups"),
    [
        (gemm(512, 64, 16512), "gemm3_small", (2, 16, 1)),
        (gemm(33, 31, 128, 5), "gemm3_small", (1, 2, 5)),
        (gemm(33, 31, 120, 5), "gemm3", (1, 1, 5)),
        (gemm(1024, 1024, 512), "gemm3_small", (32, 32, 1)),
        (gemm(1024, 1025, 512), "gemm3", (17, 16, 1)),
    ],
)
def test_calls_of_few_tiles_and_long_k_take_the_small_form(
    shape: dict[str, int], form: str, groups: tuple[int, int, int]
) -> None:
    assert wgsl.launch("gemm3", shape, "packed") == (form, groups)
    assert wgsl.launch("gemm3", shape, "software") == ("gemm3", CATALOG["gemm3"].groups(shape))


def test_admission_proves_every_form() -> None:
    proved = {
        wgsl.launch(call.kernel, call.named_params(), "packed")[0]
        for golden in golden_sets()
        for calls in golden.program.plans.values()
        for call in calls
    }
    assert {form for form, _, _ in SOURCES} <= proved | set(UNIT_KERNELS)
