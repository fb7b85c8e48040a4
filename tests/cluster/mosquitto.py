"""Debian's mosquitto on loopback with a WebSocket listener, as a context manager."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.requirements import require


def free_port() -> int:
    """A TCP port of loopback that nobody uses just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def find_mosquitto() -> Path | None:
    """Path of ``mosquitto``, which is no program for everybody and so may not be on PATH."""
    found = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return Path(found) if found else None


@contextlib.contextmanager
def mosquitto(password: str = "") -> Iterator[str]:
    """Run a broker; yields its ``mqtt+ws://`` address.  With a password the user is ``dc``."""
    program = require("mosquitto", find_mosquitto)
    plain, websockets = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "mosquitto.conf")
        # A websockets listener alone makes mosquitto 2.0.11 exit: hence the second, plain one.
        lines = [
            f"listener {plain} 127.0.0.1",
            "socket_domain ipv4",
            f"listener {websockets} 127.0.0.1",
            "protocol websockets",
            "socket_domain ipv4",
        ]
        if password:
            file = Path(folder, "passwords")
            subprocess.run(["mosquitto_passwd", "-b", "-c", file, "dc", password], check=True)
            file.chmod(0o644)
            Path(folder).chmod(0o755)
            lines += [f"password_file {file}", "allow_anonymous false"]
        else:
            lines.append("allow_anonymous true")
        config.write_text("\n".join(lines) + "\n")
        broker = subprocess.Popen(
            [program, "-c", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for(websockets)
            user = f"dc:{password}@" if password else ""
            yield f"mqtt+ws://{user}127.0.0.1:{websockets}/mqtt"
        finally:
            broker.terminate()
            broker.wait()


def wait_for(port: int) -> None:
    """Return once somebody listens on a TCP port of loopback."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError(f"nobody listens on port {port}")
