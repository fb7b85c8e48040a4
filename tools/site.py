"""The static site: everything a plain web server needs to hand out, under any sub-path.

Runs inside .venv (for hatchling): ``python -m tools.site NODE FOLDER``.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.bootstrap import NODE_MODULES, ROOT, SetupError, run_step
from tools.stdlib import write_slim_library

BUDGET_BYTES = 8_000_000
"""Most that the whole site may weigh when each file is packed with gzip -9."""

WHEEL_TIME_S = "1735689600"
"""Time stamp of every file in the wheel (2025-01-01), so that equal sources give equal bytes."""

PYODIDE_FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm")
LIBRARY = "python_stdlib.zip"
LIBRARY_OPTIMIZE, WHEEL_OPTIMIZE = "2", "0"
"""Our own assertions stay in the page; the library's, and its docstrings, do not."""

PYSCRIPT_PARTS = (
    "core",
    "deprecations-manager",
    "donkey",
    "error",
    "py-editor",
    "py-game",
    "py-terminal",
    "pyodide_graph",
    "toml",
)
"""Parts of PyScript that core.js loads at every start; the rest are its editor and terminal."""


STYLE_PACKAGES = {
    "uplot/dist/uPlot.min.css": "uplot.css",
    "@fontsource-variable/geist/files/geist-latin-wght-normal.woff2": "geist.woff2",
    "@fontsource-variable/geist/LICENSE": "geist-licence.txt",
    "@fontsource-variable/newsreader/files/newsreader-latin-wght-normal.woff2": "newsreader.woff2",
    "@fontsource-variable/newsreader/LICENSE": "newsreader-licence.txt",
}
"""What style.css takes from packages, and its name in assets/."""


def build_wheel(folder: Path) -> Path:
    """Build the package's wheel, of sources, into ``folder``."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": WHEEL_TIME_S}
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise SetupError(f"The wheel could not be built: {done.stdout.strip()}")
    return wheels[0]


def pyodide_lock() -> dict[str, Any]:
    """What the installed Pyodide says of itself."""
    lock: dict[str, Any] = json.loads((NODE_MODULES / "pyodide/pyodide-lock.json").read_text())
    return lock


def write_python(node: Path, out: Path) -> Path:
    """Write the standard library and the package, compiled, into ``out``; the wheel's path.

    The wheel's name holds the hash of its content as the build tag, so that a browser's cache can
    never answer a new lock file with an old wheel.
    """
    major, minor, _ = pyodide_lock()["info"]["python"].split(".")
    tag = f"cp{major}{minor}-none-any"
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        wheel = build_wheel(scratch)
        write_slim_library(NODE_MODULES / "pyodide" / LIBRARY, scratch / LIBRARY)
        library_job = (LIBRARY, f"compiled-{LIBRARY}", LIBRARY_OPTIMIZE, "")
        wheel_job = (wheel.name, f"compiled-{wheel.name}", WHEEL_OPTIMIZE, tag)
        command: list[str | Path] = [node, ROOT / "tools/bytecode.mjs", scratch]
        command += [*library_job, *wheel_job]
        run_step(command, "The Python modules could not be compiled.")
        for folder in ("pyodide", "wheels"):
            (out / folder).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(scratch / f"compiled-{LIBRARY}", out / "pyodide" / LIBRARY)
        compiled = scratch / f"compiled-{wheel.name}"
        build = f"0{hashlib.sha256(compiled.read_bytes()).hexdigest()[:12]}"
        package, version, _ = wheel.name.split("-", 2)
        final = f"{package}-{version}-{build}-{tag}.whl"
        return Path(shutil.copyfile(compiled, out / "wheels" / final))


def lock_file(wheel: Path) -> str:
    """Our own pyodide-lock.json: what Pyodide says of itself, and our wheel as only package."""
    package = {
        "name": "daisychain",
        "version": wheel.name.split("-")[1],
        "file_name": f"../wheels/{wheel.name}",
        "install_dir": "site",
        "package_type": "package",
        "imports": ["daisychain"],
        "depends": [],
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "unvendored_tests": False,
    }
    lock = {"info": pyodide_lock()["info"], "packages": {"daisychain": package}}
    return json.dumps(lock, indent=1) + "\n"


def copy_files(files: Iterable[Path], folder: Path) -> None:
    """Copy files flat into ``folder``, which is made if need be."""
    for path in files:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / path.name)


def boot_manifest(out: Path) -> str:
    """boot.json: size and sha256 of each file that the start needs, for progress and diagnosis."""
    names = ["main.py", "pyscript.toml"]
    for folder in ("pyscript", "pyodide", "wheels"):
        names += sorted(f"{folder}/{path.name}" for path in (out / folder).iterdir())
    files = [
        {
            "path": name,
            "bytes": (out / name).stat().st_size,
            "sha256": hashlib.sha256((out / name).read_bytes()).hexdigest(),
        }
        for name in names
    ]
    return json.dumps({"files": files}, indent=1) + "\n"


def build_site(node: Path, out: Path) -> None:
    """Write the whole site into the empty folder ``out``."""
    copy_files([ROOT / "index.html", ROOT / "pyscript.toml", ROOT / "app/main.py"], out)
    shutil.copytree(ROOT / "app/assets", out / "assets")
    for name, copy in STYLE_PACKAGES.items():
        shutil.copyfile(NODE_MODULES / name, out / "assets" / copy)
    pyscript = (NODE_MODULES / "@pyscript/core/dist").glob("*.js")
    copy_files((p for p in pyscript if p.name.startswith(PYSCRIPT_PARTS)), out / "pyscript")
    copy_files((NODE_MODULES / "pyodide" / name for name in PYODIDE_FILES), out / "pyodide")
    wheel = write_python(node, out)
    (out / "pyodide/pyodide-lock.json").write_text(lock_file(wheel))
    run_step([node, ROOT / "tools/bundle.mjs", out / "js"], "app/js could not be bundled.")
    # A Service Worker reaches no further than its own folder.
    (out / "js/isolation_worker.js").rename(out / "isolation_worker.js")
    data = ROOT / "data"
    copy_files([*data.glob("tokenizer.json"), *data.glob("*.parquet")], out / "data")
    (out / "boot.json").write_text(boot_manifest(out))


def weigh(out: Path) -> dict[str, int]:
    """Bytes of the site packed with gzip -9, file by file, added up per top-level entry."""
    weights: dict[str, int] = {}
    for path in sorted(out.rglob("*")):
        if path.is_file():
            group = path.relative_to(out).parts[0]
            packed = len(gzip.compress(path.read_bytes(), 9, mtime=0))
            weights[group] = weights.get(group, 0) + packed
    return weights


def replace_folder(new: Path, old: Path) -> None:
    """Put ``new`` in the place of ``old``, with no moment of a half-written folder."""
    retired = new.with_name(f"{new.name}.retired")
    if old.exists():
        old.rename(retired)
    new.rename(old)
    shutil.rmtree(retired, ignore_errors=True)


def main(node: Path, out: Path) -> None:
    """Build into a scratch folder beside ``out``, move it there, print what the page weighs."""
    scratch = Path(tempfile.mkdtemp(prefix="site-", dir=out.parent))
    scratch.chmod(0o755)
    try:
        build_site(node, scratch)
        replace_folder(scratch, out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    weights = weigh(out)
    for group, size in sorted(weights.items(), key=lambda item: -item[1]):
        print(f"{size:>12,} B  {group}")
    total = sum(weights.values())
    print(f"{total:>12,} B  in all with gzip -9, of {BUDGET_BYTES:,} B allowed, in {out.name}/")
    if total > BUDGET_BYTES:
        raise SetupError(
            f"The site is {total - BUDGET_BYTES:,} B over its budget: make it lighter."
        )


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except SetupError as error:
        raise SystemExit(str(error)) from error
