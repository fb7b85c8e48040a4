"""Python's standard library as the page gets it: without what no page can use.

Pyodide's ``python_stdlib.zip`` is two fifths of a first visit's download.  A third of it is there
for terminals, servers, mail, XML, debuggers, profilers and legacy character sets.  A test imports
every module of the wheel in a page with the rest.
"""

from __future__ import annotations

import fnmatch
import zipfile
from pathlib import Path

LEFT_OUT = (
    "_pyrepl/*",
    "asyncio/*windows*",
    "asyncio/__main__.py",
    "asyncio/proactor_events.py",
    "asyncio/tools.py",
    "bdb.py",
    "cProfile.py",
    "cmd.py",
    "compileall.py",
    "concurrent/futures/process.py",
    "concurrent/interpreters/*",
    "configparser.py",
    "doctest.py",
    "filecmp.py",
    "fileinput.py",
    "ftplib.py",
    "http/cookiejar.py",
    "http/server.py",
    "imaplib.py",
    "logging/config.py",
    "logging/handlers.py",
    "mailbox.py",
    "modulefinder.py",
    "multiprocessing/*",
    "netrc.py",
    "optparse.py",
    "pdb.py",
    "pickletools.py",
    "plistlib.py",
    "poplib.py",
    "profile.py",
    "pstats.py",
    "pty.py",
    "pyclbr.py",
    "pydoc.py",
    "pydoc_data/*",
    "shelve.py",
    "smtplib.py",
    "socketserver.py",
    "sqlite3/*",
    "symtable.py",
    "sysconfig/__main__.py",
    "tabnanny.py",
    "timeit.py",
    "trace.py",
    "unittest/*",
    "wave.py",
    "wsgiref/*",
    "xml/*",
    "xmlrpc/*",
    "zipapp.py",
)
"""Patterns of the files that are dropped whole."""

KEPT_ENCODINGS = (
    "__init__",
    "aliases",
    "ascii",
    "charmap",
    "cp437",  # names in zip files
    "hex_codec",
    "idna",
    "latin_1",
    "punycode",
    "raw_unicode_escape",
    "undefined",
    "unicode_escape",
    "utf_*",
)
"""The rest of ``encodings/`` are character sets that neither the web nor our files use."""


def is_kept(name: str) -> bool:
    """Whether a file of the library goes into the page."""
    folder, _, stem = name.removesuffix(".py").rpartition("/")
    if folder == "encodings":
        return any(fnmatch.fnmatchcase(stem, pattern) for pattern in KEPT_ENCODINGS)
    return not any(fnmatch.fnmatchcase(name, pattern) for pattern in LEFT_OUT)


def write_slim_library(source: Path, target: Path) -> None:
    """Copy the archive ``source`` to ``target`` without what ``is_kept`` refuses; reproducible."""
    with (
        zipfile.ZipFile(source) as library,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as slim,
    ):
        for name in sorted(library.namelist()):
            if is_kept(name) and not name.endswith("/"):
                slim.writestr(zipfile.ZipInfo(name), library.read(name), zipfile.ZIP_DEFLATED, 9)
