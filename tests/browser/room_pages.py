"""Room sessions in bare pages: the real mesh, relay, protocol, exchange and WebAssembly player."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from playwright.sync_api import Browser

from tests.browser.pyodide_page import PyodidePage

CODE = "ABCDEFGHJKMNPQRS"
PAUSE_S = 0.2
"""Before a page's share of a step: pages that train while others wait leave them the processor."""

SMALL = {"width": 16, "layers": 1, "heads": 2, "hidden": 32, "context": 8, "batch": 1}
"""The smallest model that still has the tokenizer's vocabulary."""

START = """
import asyncio
from daisychain.cluster.protocol import Node
from daisychain.cluster.times import Times
from daisychain.data import open_source
from daisychain.platform.exchange_worker import open_exchange
from daisychain.players.choice import open_player
from daisychain.room.replica import Replica
from daisychain.room.session import RoomSession
from daisychain.settings import resolve

async def source(settings, micro_batches, wait_for, shared=None):
    return await open_source(
        settings.data, seed=settings.seed, context=settings.context, micro_batches=micro_batches
    )

if "write_slice" not in globals():  # a page may take part in several rooms
    write_slice = Replica._write_slice

async def write_in_peace(replica, number):
    await asyncio.sleep(pause)
    await write_slice(replica, number)

Replica._write_slice = write_in_peace
Node.__init__.__defaults__ = (Times(**times), 0)
settings = resolve(
    {"preset": "nano", "seed": 1, "player": "wasm", "eval_every": 0, "steps": 100_000, **shape}
)
session = RoomSession(
    settings, open_player, source, role=role, code=code, name=name,
    open_machine=open_exchange, approve_all=True,
)
run = asyncio.ensure_future(session.run())
None
"""


class RoomPage:
    """One device of a room in one page; its browser has no other page."""

    def __init__(self, page: PyodidePage, browser: Browser) -> None:
        self.page, self.browser = page, browser

    def start(
        self,
        role: str,
        name: str,
        code: str = CODE,
        shape: dict[str, int] | None = None,
        times: dict[str, int] | None = None,
    ) -> None:
        """Opens or joins a room in this page; ``times`` change those of the step protocol."""
        parameters = {"shape": shape or {}, "times": times or {}, "pause": PAUSE_S}
        self.run(START, role=role, name=name, code=code, **parameters)

    def run(self, source: str, **parameters: object) -> Any:
        """Run Python in the page, see ``PyodidePage.run``; ``session`` is the room's."""
        return self.page.run(source, **parameters)

    def state(self) -> dict[str, Any]:
        return dict(self.run("session.state()"))

    def steps(self) -> list[dict[str, Any]]:
        """The log's records of steps."""
        return [record for record in self.run("session.log()") if "reduced_hash" in record]

    def roster(self) -> set[str]:
        """Names of those that took part in the last step."""
        steps = self.steps()
        return {row["name"] for row in steps[-1]["members"]} if steps else set()

    def leave(self) -> None:
        self.run("session.stop(); await run; None")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the browser's renderers: this page's and idle ones."""
        with_pids = self.browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")
        for process in with_pids["processInfo"]:
            if process["type"] == "renderer":
                os.kill(process["id"], number)


def until(done: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < deadline, "the room did not get there in time"
        time.sleep(0.3)


def assert_equal_replicas(pages: Sequence[RoomPage], since: int = 0) -> None:
    """All steps after ``since`` that two pages logged have one hash; there are some."""
    hashes: dict[int, tuple[str, str]] = {}
    common = 0
    for page in pages:
        for record in page.steps():
            if record["step"] > since:
                told = record["hash"], record["reduced_hash"]
                common += record["step"] in hashes
                assert hashes.setdefault(record["step"], told) == told
    assert common
