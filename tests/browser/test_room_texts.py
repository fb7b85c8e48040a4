"""A room's model in use: texts and a checkpoint in the middle of training, in a real page; the room
goes on from that checkpoint."""

from __future__ import annotations

from playwright.sync_api import Browser

from tests.browser.pyodide_page import PyodideSite, open_page
from tests.browser.room_pages import SMALL, RoomPage, until

USE = """
from daisychain.workshop import TextRequest
tokens = []
def hear(piece):
    tokens.append(piece.token)
    return True
await session.write(TextRequest("The sea", 12), hear)
checkpoint = await session.checkpoint()
sum(len(data) for data in checkpoint.weights().values()) // 4
"""

OWE = """
from daisychain.cluster.machine import Owed

async def owe(run):
    mantissas = bytes(range(256)) * (run.reducer.layout.elements // 128)
    owed = Owed(mantissas + bytes(2 * run.reducer.layout.elements - len(mantissas))
                + bytes([3, 0, 0, 0]) * run.reducer.layout.rows)
    await run.reducer.restore(owed)
    return owed
owed = await session.host.between(owe)
None
"""

AGAIN = """
from dataclasses import replace
from daisychain.export.checkpoint import read_archive, write_checkpoint
session.close()
await run
saved = await read_archive(b"".join(await write_checkpoint(checkpoint)))
session = RoomSession(
    replace(settings, relay="none"), open_player, source, role="host", code="", name="one",
    open_machine=open_exchange, resumed=saved,
)
run = asyncio.ensure_future(session.run())
None
"""


def test_a_member_reads_and_keeps_the_model(chromium: Browser, pyodide_site: PyodideSite) -> None:
    with open_page(chromium, pyodide_site) as page:
        room = RoomPage(page, chromium)
        room.start("host", "one", shape=SMALL)
        until(lambda: len(room.steps()) >= 2, 120)
        parameters = room.state()["parameters"]
        assert page.run(USE) == parameters
        assert 0 < len(page.run("tokens")) <= 12
        assert page.run("checkpoint.facts['devices']") == "one"
        at = room.state()["step"]
        until(lambda: room.state()["step"] > at, 60)
        assert room.state()["error"] is None
        page.run(OWE)
        room.leave()
        assert page.run(USE) == parameters  # the model stays with who leaves
        step = page.run("checkpoint.run.step")
        assert room.state()["step"] == step
        page.run(AGAIN)
        until(lambda: room.state()["step"] > step + 1, 60)
        records = {r["step"]: r["hash"] for r in room.steps()}
        assert list(records) == list(range(1, len(records) + 1))
        assert records[step + 1] == page.run("saved.run.weights_hash")
        assert page.run("saved.run.owed == owed") is True
        assert page.run("(await session.checkpoint()).run.owed == owed") is True
        room.leave()
