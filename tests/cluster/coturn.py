"""Debian's coturn on loopback, as a context manager."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.mosquitto import free_port, wait_for
from tests.requirements import require


def find_coturn() -> Path | None:
    """Path of ``turnserver``."""
    found = shutil.which("turnserver")
    return Path(found) if found else None


@contextlib.contextmanager
def coturn() -> Iterator[str]:
    """Run a TURN server for user ``dc`` with password ``secret``; yields its ``turn:`` address."""
    program = require("coturn", find_coturn)
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            str(program),
            "-n",
            "--listening-ip=127.0.0.1",
            "--relay-ip=127.0.0.1",
            f"--listening-port={port}",
            "--min-port=49160",
            "--max-port=49260",
            "--lt-cred-mech",
            "--user=dc:secret",
            "--realm=test",
            "--allow-loopback-peers",
            "--no-tls",
            "--no-dtls",
            "--no-cli",
            f"--pidfile={folder}/pid",
            f"--db={folder}/db",
            "--log-file=stdout",
        ]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(port)
            yield f"turn:127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()
