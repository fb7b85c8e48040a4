"""Python as bytecode, for the page: the interpreter of the page compiles it, at build time.

Compiling took most of a start: loading Pyodide and importing the package is 2.2 times as fast with
bytecode (docs/EXPERIMENTS.md), for 0.7 MB more to download.  Only the same version of CPython can
make it, so ``bytecode.mjs`` runs this file in Pyodide on Node.

A module ``x.py`` becomes ``x.pyc`` in its place, as PEP 3147 allows where sources are not shipped.
Without column positions (PYTHONNODEBUGRANGES), which tracebacks without sources do not show.
"""

from __future__ import annotations

import base64
import hashlib
import py_compile
import tempfile
import zipfile
from pathlib import Path

RECORD = ".dist-info/RECORD"
FORMAT = ".dist-info/WHEEL"
ANY_PYTHON = b"Tag: py3-none-any"


def compile_archive(source: Path, target: Path, optimize: int, tag: str = "") -> None:
    """Copy the archive ``source`` to ``target`` with every module compiled; reproducible.

    ``optimize`` is that of ``compile``: 2 leaves out assertions and docstrings.  A wheel gets the
    compatibility ``tag`` of its bytecode and its list of files anew.
    """
    files: dict[str, bytes] = {}
    with zipfile.ZipFile(source) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".py"):
                files[f"{name}c"] = _bytecode(name, archive.read(name), optimize)
            elif not name.endswith("/"):
                files[name] = archive.read(name)
    for name in [name for name in files if name.endswith(FORMAT)]:
        files[name] = files[name].replace(ANY_PYTHON, f"Tag: {tag}".encode())
    for name in [name for name in files if name.endswith(RECORD)]:
        files[name] = _record(files, name)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 9)


def _bytecode(name: str, source: bytes, optimize: int) -> bytes:
    """A module's .pyc, which is never compared with a source (there is none beside it)."""
    with tempfile.TemporaryDirectory() as scratch:
        module, compiled = Path(scratch, "module.py"), Path(scratch, "module.pyc")
        module.write_bytes(source)
        py_compile.compile(
            str(module),
            str(compiled),
            dfile=name,
            doraise=True,
            optimize=optimize,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        return compiled.read_bytes()


def _record(files: dict[str, bytes], name: str) -> bytes:
    """The wheel's list of files with their checksums (PyPA, recording installed projects)."""
    lines = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},," if path == name else f"{path},sha256={digest},{len(data)}")
    return "\n".join([*lines, ""]).encode()
