"""The committed WebAssembly modules: rebuilt to the byte, deterministic, small enough."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from daisychain.kernels.catalog import CATALOG
from daisychain.players.wasm_layout import FIRST_FREE_BYTE
from tests.players.wasm_runner import WasmtimeDevice
from tests.wasm_opcodes import ATOMIC, FIRST_RELAXED_SIMD, HEADER, SIMD, instructions

ROOT = Path(__file__).resolve().parents[1]
PLAIN, SHARED = (ROOT / "wasm" / name for name in ("kernels.wasm", "kernels_shared.wasm"))
DOT = 0xBA


def relaxed(module: bytes) -> list[int]:
    """Numbers of the relaxed SIMD instructions in a module."""
    return [
        number
        for opcode, number in instructions(module)
        if opcode == SIMD and number >= FIRST_RELAXED_SIMD
    ]


def test_headers_and_modules_are_what_the_sources_give() -> None:
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("the compiler, PyPI package ziglang, is not installed")
    from scripts.build_wasm import differences

    assert differences() == [], "run: python scripts/build_wasm.py"


@pytest.mark.parametrize("path", [PLAIN, SHARED], ids=lambda path: path.stem)
def test_no_relaxed_simd(path: Path) -> None:
    """Relaxed instructions may differ between processors; the exact dot is there."""
    module = path.read_bytes()
    assert relaxed(module) == []
    assert (SIMD, DOT) in set(instructions(module))


def test_a_relaxed_instruction_is_seen() -> None:
    body = b"\0" + b"\xfd\x92\x02" + b"\x0b"  # i16x8.relaxed_dot_i8x16_i7x16_s, end
    code = b"\x01" + bytes([len(body)]) + body
    assert relaxed(HEADER + b"\x0a" + bytes([len(code)]) + code) == [0x112]


FLOAT = re.compile(r"\b(float|double|\w*f(32|64)\w*)\b")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
SOFT_FLOAT = "optimizer.c"
"""Its float32 is IEEE 754's, which the shaders compute with integers, to the same bits."""


def test_the_model_has_no_floating_point() -> None:
    """Integers alone, also where a proof would bound a float's error (docs/EXPERIMENTS.md)."""
    sources = [path for path in (ROOT / "wasm").rglob("*.[ch]") if path.name != "calls.h"]
    found = {path.name for path in sources if FLOAT.search(COMMENT.sub("", path.read_text()))}
    assert len(sources) > 10
    assert found == {SOFT_FLOAT}


def test_only_the_shared_module_uses_atomics() -> None:
    atomics = [any(op == ATOMIC for op, _ in instructions(p.read_bytes())) for p in (PLAIN, SHARED)]
    assert atomics == [False, True]


def test_exports_and_own_memory() -> None:
    """Every kernel of the catalogue, and data below the layout's first free byte."""
    exports = WasmtimeDevice().module_exports()
    assert set(CATALOG) <= set(exports)
    assert exports["__heap_base"] <= FIRST_FREE_BYTE
