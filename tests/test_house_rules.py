"""Rules that hold for the whole tree, checked on its text."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.bootstrap import ROOT

PACKAGE = ROOT / "app/daisychain"
BROWSER_MODULES = {"js", "pyodide", "pyodide_js", "pyscript"}
BLOCKING_CALLS = {"run_sync", "run_until_complete"}
MAX_LINES = 450
LAYERS = (
    ("numbers",),
    ("kernels",),
    ("plan",),
    ("players",),
    ("model", "optim"),
    ("data", "cluster", "export"),
    ("trainer", "generate"),
    ("heldout",),
    ("session",),
    ("room",),
    ("ui",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
RANK["kernels/cases"] = RANK["players"]  # they write a program for each kernel, to be played


def tracked_files() -> list[Path]:
    """Everything that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is not a git checkout")
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


def tracked_texts(*suffixes: str) -> Iterator[tuple[str, str]]:
    """Name and content of each text file, of certain kinds if any are given."""
    for path in tracked_files():
        if path == Path(__file__) or (suffixes and path.suffix not in suffixes):
            continue
        try:
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def offences(pattern: str, *suffixes: str) -> list[str]:
    """``file:line`` of every match of a pattern."""
    found = []
    for name, text in tracked_texts(*suffixes):
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(pattern, line):
                found.append(f"{name}:{number}")
    return found


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that a source imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def package_sources() -> Iterator[tuple[Path, ast.AST]]:
    """Path below the package, and syntax tree, of each of its modules."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE), ast.parse(path.read_text())


def test_only_the_platform_touches_the_browser() -> None:
    for path, tree in package_sources():
        if path.parts[0] != "platform":
            modules = {name.partition(".")[0] for name in imported(tree)}
            assert not modules & BROWSER_MODULES, path


def test_imports_run_one_way() -> None:
    for path, tree in package_sources():
        rank = RANK.get("/".join(path.parts[:2]), RANK.get(path.parts[0].removesuffix(".py")))
        if rank is None:
            continue
        for name in imported(tree):
            parts = name.split(".")
            if parts[0] == "daisychain" and len(parts) > 1:
                assert RANK.get(parts[1], 0) <= rank, f"{path} imports {name}"


def test_nothing_blocks_the_tab() -> None:
    """No synchronous waiting in the page: no run_sync, no time.sleep, no empty waiting loop."""
    for path, tree in package_sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name.rpartition(".")[2] not in BLOCKING_CALLS, f"{path}:{node.lineno}"
                assert name != "time.sleep", f"{path}:{node.lineno}"
            if isinstance(node, ast.While):
                idle = all(isinstance(part, ast.Pass | ast.Continue) for part in node.body)
                assert not idle, f"{path}:{node.lineno} waits in a loop"


def test_no_work_is_put_off_in_words() -> None:
    words = (
        r"TODO|FIXME|XXX|NotImplementedError|(?i:not implemented|(?<![:\"])placeholder(?![=\"]))"
    )
    assert offences(words, ".py", ".js", ".mjs", ".wgsl", ".c", ".h", ".css") == []


def test_no_addresses_of_registries_and_no_paths_of_machines() -> None:
    assert offences(r'"resolved": *"http|--(extra-)?index-url') == []
    assert offences(r"(^|[\s\"'(=:])/(home|Users|root)/\w|(^|[\s\"'(=:])/work/") == []


def test_files_stay_short() -> None:
    sources = tracked_texts(".py", ".js", ".mjs", ".wgsl", ".c")
    assert [name for name, text in sources if text.count("\n") > MAX_LINES] == []
