"""Pages that hold a ``Mesh`` each, for tests of links between real browsers."""

from __future__ import annotations

from typing import Any

from tests.browser.pyodide_page import PyodidePage

CODE = "K7QDM2XP9RTW4HBN"

HELPERS = """
import asyncio
import json
from dataclasses import asdict, replace

from js import Uint8Array, crypto
from pyodide.ffi import to_js

from daisychain.cluster.connection import ConnectionSettings
from daisychain.cluster.links import LinkSettings
from daisychain.cluster.lobby import *
from daisychain.cluster.mesh import Mesh
from daisychain.cluster.mesh_events import *
from daisychain.cluster.reduce_plan import Kind
from daisychain.cluster.times import Times
from daisychain.cluster.wire import Frame, encode_header
from daisychain.platform.rtc import IceServer, IceSettings, LinkError

events, mesh = [], None


async def until(test, what="", timeout_s=25.0):
    async with asyncio.timeout(timeout_s):
        while not test():
            await asyncio.sleep(0.02)


def seen(kind):
    return [event for event in events if isinstance(event, kind)]


async def start(code, name, join, **settings):
    global mesh
    if mesh is not None:
        await mesh.close()
    events.clear()
    mesh = Mesh(events.append, MeshSettings(**settings))
    await (mesh.join_room if join else mesh.open_room)(code, name, "test page")
    return mesh.me.id


def header(total, step=1, epoch=1, bucket=0, origin=0, target=0):
    frame = Frame(Kind.STATE, step, epoch, bucket, origin, target, 0, total, 0)
    return encode_header(frame, b"")


def noise(size, seed):
    # xorshift is too slow in Python for megabytes: one random block, told apart by its first bytes
    data = Uint8Array.new(size)
    for start in range(0, size, 65536):
        crypto.getRandomValues(data.subarray(start, min(start + 65536, size)))
    return data


async def digest(data):
    from js import crypto

    return (await crypto.subtle.digest("SHA-256", data)).to_bytes().hex()
"""


class MeshPage:
    """A booted page with the helpers, and shorthands for what tests ask it."""

    def __init__(self, page: PyodidePage) -> None:
        self.page = page
        page.run(HELPERS)

    def run(self, source: str, **parameters: object) -> Any:
        """Run Python in the page, see ``PyodidePage.run``."""
        return self.page.run(source, **parameters)

    def open_room(self, name: str, code: str | None = CODE, settings: str = "") -> str:
        """Start a room as its host; returns the page's id."""
        return str(self.run(f"await start(code, name, False, {settings})", code=code, name=name))

    def join_room(self, name: str, code: str | None = CODE, settings: str = "") -> str:
        """Start looking for the room; returns the page's id."""
        return str(self.run(f"await start(code, name, True, {settings})", code=code, name=name))

    def until(self, condition: str) -> None:
        """Wait in the page until a Python expression is true."""
        self.run(f"await until(lambda: {condition})")

    def until_linked(self, *peers: str) -> None:
        """Wait until the page has links to exactly these members."""
        self.run("await until(lambda: mesh.linked() == tuple(sorted(peers)))", peers=peers)

    def leave(self) -> None:
        """Leave the room if there is one."""
        self.run("if mesh is not None: await mesh.close()\nmesh = None")
