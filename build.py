"""DaisyChain's one tool: ``python3 build.py serve | site | test | lint | livecheck | lock``.

Needs Python 3.11+ and git; everything else it fetches into .venv and node_modules.
"""

import argparse
import os
import subprocess
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - an older Python shall read this sentence
    sys.exit("DaisyChain needs Python 3.11 or newer: run build.py with such an interpreter.")

from tools.bootstrap import (
    CONSTRAINTS,
    NODE_MODULES,
    NODE_WHEEL,
    ROOT,
    SetupError,
    ensure_node_modules,
    ensure_venv,
    lock_versions,
)
from tools.browsers import install_missing

DIST = ROOT / "dist"
TEST_SITE = ROOT / ".cache/site"
"""Built once for all processes of the tests, which find it by the variable in tests/conftest.py."""


def run(*command: object) -> int:
    """Run a command in the repository root with our own output; return its exit code."""
    return subprocess.run([str(part) for part in command], cwd=ROOT, check=False).returncode


def site() -> int:
    """Write dist/: the static site that any web server can hand out under any sub-path."""
    python, node = ensure_venv("site"), ensure_node_modules()
    return run(python, "-m", "tools.site", node.node, DIST)


def serve(port: int) -> int:
    """Build the site and serve it on this machine until Ctrl+C."""
    code = site()
    try:
        return code or run(ensure_venv("site"), "-m", "tools.server", DIST, port)
    except KeyboardInterrupt:
        return 0


def lint() -> int:
    """Run all static checks; return how many found something."""
    python, node = ensure_venv(), ensure_node_modules()
    checks = [
        (python, "-m", "ruff", "check"),
        (python, "-m", "ruff", "format", "--check"),
        (python, "-m", "mypy"),
        (node.node, NODE_MODULES / "@biomejs/biome/bin/biome", "check"),
    ]
    return sum(run(*check) != 0 for check in checks)


ALONE = ("-m", "alone", "tests/browser")
"""Three browsers with two emulated GPUs take all of two cores, and minutes beside others."""

PARALLEL = ("-m", "not alone", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
"""Three processes, whole files each, in the order of tests/conftest.py: pages wait now and then."""

AGAIN = ("--last-failed", "--last-failed-no-failures", "none", "--maxfail", "1")
"""What failed beside others runs once more, alone: a busy machine can make a page late, but what
fails twice is broken.  The output of both runs stays."""

TESTS_FAILED = 1
"""pytest's exit code; others say that it was interrupted, or could not run them."""


def test(arguments: list[str]) -> int:
    """Set up everything with the browsers, run all checks and all tests."""
    python, node = ensure_venv(), ensure_node_modules()
    install_missing(python)
    os.environ["PATH"] = f"{node.node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    TEST_SITE.parent.mkdir(exist_ok=True)
    building = subprocess.Popen([python, "-m", "tools.site", node.node, TEST_SITE], cwd=ROOT)
    failed_checks = lint()
    if building.wait():
        return 1
    os.environ["DAISYCHAIN_SITE"] = str(TEST_SITE)
    if arguments:
        return run(python, "-m", "pytest", *arguments) or failed_checks
    codes = {run(python, "-m", "pytest", *part) for part in (ALONE, PARALLEL)} - {0}
    if codes == {TESTS_FAILED}:
        print("What failed runs once more, alone.", flush=True)
        codes = {run(python, "-m", "pytest", *AGAIN)}
    return max(codes, default=0) or failed_checks


def livecheck(arguments: list[str]) -> int:
    """Try the real Hub of Hugging Face and report what the page would meet there."""
    os.environ["PYTHONPATH"] = str(ROOT / "app")
    return run(ensure_venv(), "-m", "tools.livecheck", *arguments)


def lock() -> int:
    """Write constraints.txt anew: the newest versions that the dev group allows."""
    lock_versions(CONSTRAINTS, [NODE_WHEEL])
    return 0


def main() -> int:
    """Read the command line and carry it out."""
    parser = argparse.ArgumentParser(
        prog="build.py", description="Build, serve and test DaisyChain."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve", help="build the site and serve it on this machine")
    serving.add_argument("--port", type=int, default=8000)
    commands.add_parser("site", help="write the static site to dist/")
    commands.add_parser("test", help="run all checks and tests; further arguments go to pytest")
    commands.add_parser("livecheck", help="try the real Hub (ranges, CORS, speed) and report")
    commands.add_parser("lint", help="run the static checks only")
    commands.add_parser("lock", help="write constraints.txt anew")
    options, further = parser.parse_known_args()
    if further and options.command not in ("test", "livecheck"):
        parser.error(f"unknown arguments: {' '.join(further)}")
    if options.command == "serve":
        return serve(options.port)
    if options.command in ("test", "livecheck"):
        return {"test": test, "livecheck": livecheck}[options.command](further)
    return {"site": site, "lint": lint, "lock": lock}[options.command]()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SetupError as error:
        sys.exit(str(error))
