"""Real pages in trouble: tampering, silence, frozen tabs, killed processes.

Each fault has one of two ends: the others go on with equal hashes, or all stop and say why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from signal import SIGCONT, SIGKILL, SIGSTOP

import pytest
from playwright.sync_api import Playwright

from tests.browser.engines import launch_chromium
from tests.browser.pyodide_page import PyodideSite, open_page
from tests.browser.room_pages import CODE, SMALL, RoomPage, assert_equal_replicas, until

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PATIENCE_S = 150
TIMES = {
    "suspect_ms": 6_000,
    "deadline_floor_ms": 6_000,
    "first_deadline_ms": 20_000,
    "election_ms": 1_000,
    "rejoin_ms": 1_500,
    "join_retry_ms": 1_500,
    "transfer_stall_ms": 9_000,
}


class Pages:
    """Booted pages, each in a browser process of its own."""

    def __init__(self, driver: Playwright, site: PyodideSite, stack: ExitStack) -> None:
        self._driver, self._site, self._stack = driver, site, stack
        self.spare: list[RoomPage] = []

    def take(self) -> RoomPage:
        """A page that is in no room."""
        if self.spare:
            return self.spare.pop()
        browser = launch_chromium(self._driver)
        self._stack.callback(browser.close)
        return RoomPage(self._stack.enter_context(open_page(browser, self._site)), browser)

    def room(self, code: str, names: Sequence[str], hosts: int = 1) -> list[RoomPage]:
        """Pages that train together; as many open the room, all others join it."""
        pages = [self.take() for _ in names]
        for i, (page, name) in enumerate(zip(pages, names, strict=True)):
            page.start("host" if i < hosts else "member", name, code, SMALL, TIMES)
        whole(pages, set(names))
        return pages


@pytest.fixture(scope="module")
def pages(playwright_driver: Playwright, pyodide_site: PyodideSite) -> Iterator[Pages]:
    with ExitStack() as stack:
        yield Pages(playwright_driver, pyodide_site, stack)


def whole(pages: Sequence[RoomPage], names: set[str]) -> None:
    """These pages train together, and nobody else does."""
    until(lambda: all(page.roster() == names for page in pages), PATIENCE_S)


def go_on(pages: Sequence[RoomPage], names: set[str], steps: int = 2) -> None:
    """These train on together, with equal hashes."""
    at = max(page.state()["step"] for page in pages)
    until(lambda: all(page.state()["step"] >= at + steps for page in pages), PATIENCE_S)
    whole(pages, names)
    if pages[1:]:
        assert_equal_replicas(pages, at)


GARBAGE = """
from js import Uint8Array, crypto
link = session.mesh._neighbours.by_id[peer].link
raw = link._control._connection._bulk
for size in [0, 1, 31, 32, 33, 1000, 65536]:
    noise = Uint8Array.new(size)
    crypto.getRandomValues(noise.subarray(0, size))
    raw.send(noise)
raw.send("text")
plain = session.mesh.bulk.send
async def twice_and_cut(peer, header, data):
    # The flow itself, then all of it again, then a frame of it that breaks off.
    await plain(peer, header, data)
    await plain(peer, header, data)
    frame = Uint8Array.new(40)
    frame.set(to_js(header))
    raw.send(frame)
from pyodide.ffi import to_js
session.mesh.bulk.send = twice_and_cut
None
"""
DROPPED = "{k: v for k, v in session.mesh.dropped().items() if k.startswith('bulk') and v}"

FLIP = """
from daisychain.cluster import wire
from daisychain.cluster.reduce_plan import Kind
plain, flipped = session.mesh.bulk.send, []
async def flip(peer, header, data):
    if not flipped and wire.decode_flow_header(header).kind is Kind.GRADIENT_DOWN:
        flipped.append(peer)
        data = data.slice()
        data[data.length - 1] ^= 1
    await plain(peer, header, data)
session.mesh.bulk.send = flip
None
"""
DEAF = """
deaf = session.host.bulk
session.host.bulk = lambda *flow: None
None
"""
DRIFT = """
import struct
player = session.host.run.replica.player
name = "weight model.norm.weight"
word = struct.unpack("<I", (await player.read(name))[:4])[0]
player.write(name, struct.pack("<I", word ^ 1))
"""
LIE = """
replica = session.host.run.replica
honest = replica.apply
async def lying(scalars):
    return (await honest(scalars))[::-1]
replica.apply = lying
None
"""


def test_tampering_and_silence(pages: Pages, pyodide_site: PyodideSite) -> None:
    names = ("ann", "bob", "cyd")
    ann, bob, cyd = room = pages.room("K7QDM2XP9RTW4HBN", names, hosts=2)  # two that lead
    everybody = set(names)
    assert len({page.run("session.host.node.core.leader") for page in room}) == 1

    pyodide_site.set_relay(False)  # links need no relay
    cyd.run(GARBAGE, peer=ann.run("session.mesh.me.id"))
    go_on(room, everybody)
    dropped = ann.run(DROPPED)
    assert {"bulk malformed", "bulk unexpected"} <= set(dropped), dropped
    pyodide_site.set_relay(True)

    cyd.run("session.mesh.bulk.send = plain; None")
    cyd.run(FLIP)  # the guards differ, the step is repeated
    until(lambda: bool(cyd.run("flipped")), PATIENCE_S)
    go_on(room, everybody)

    cyd.run(DEAF)  # reads nothing any more: left out, and back when it listens again
    go_on([ann, bob], {"ann", "bob"})
    cyd.run("session.host.bulk = deaf; None")
    go_on(room, everybody)

    for farewell in (True, False):  # frozen, as the browser announces it and as it need not
        if farewell:
            cyd.page.page.evaluate("document.dispatchEvent(new Event('freeze'))")
        cyd.signal(SIGSTOP)
        go_on([ann, bob], {"ann", "bob"})
        cyd.signal(SIGCONT)
        if farewell:
            cyd.page.page.evaluate("document.dispatchEvent(new Event('resume'))")
        go_on(room, everybody)

    cyd.run(DRIFT)
    until(lambda: all(page.state()["phase"] == "halt" for page in room), PATIENCE_S)
    culprit = cyd.run("session.mesh.me.id")
    for page in room:
        assert culprit in page.state()["error"]
        assert "model.norm.weight" in page.state()["error"]
    pages.spare += room


def test_a_lie_about_the_weights_stops_all(pages: Pages) -> None:
    room = pages.room("K7QDM2XP9RTW4HBP", ("ann", "bob", "cyd"))
    room[1].run(LIE)
    until(lambda: all(page.state()["phase"] == "halt" for page in room), PATIENCE_S)
    culprit = room[1].run("session.mesh.me.id")
    assert all(culprit in page.state()["error"] for page in room)
    pages.spare += room


LAST_WORD = """
from daisychain.cluster import wire
mesh = session.mesh
send, here = mesh.send_control, []
def once(peer, text):
    # This reaches one member, and nothing else leaves this device after it.
    if not here:
        kind = type(wire.decode(text.encode()).message).__name__
        if kind == "%s":
            here.append(1)
        return send(peer, text)
    return False
mesh.send_control = once
None
"""
"""A leader's last message, to one of those that it is meant for."""

PAUSE_IN = {
    "compute": """
replica, here = session.host.run.replica, []
async def stuck(*_, **__):
    here.append(1)
    await asyncio.Future()
replica._write_slice = stuck
None
""",
    "reduce": """
from daisychain.cluster import wire
from daisychain.cluster.reduce_plan import Kind
plain, here = session.mesh.bulk.send, []
async def some(peer, header, data):
    if wire.decode_flow_header(header).kind is Kind.GRADIENT_DOWN:
        here.append(1)
    else:
        await plain(peer, header, data)
session.mesh.bulk.send = some
None
""",
    "guard": """
from daisychain.cluster import events
give, here = session.host.give, []
def mute(event):
    if isinstance(event, events.ReducedHashed):
        here.append(1)
    elif not here:
        give(event)
session.host.give = mute
None
""",
    "propose": LAST_WORD % "Propose",
    "commit": LAST_WORD % "Commit",
}
"""What makes a page stop in a phase of a step, to be killed there; ``here`` says that it has."""


def kill_in(phase: str, victim: RoomPage) -> None:
    victim.run(PAUSE_IN[phase])
    until(lambda: bool(victim.run("here")), PATIENCE_S)
    victim.signal(SIGKILL)


def test_pages_killed_in_each_phase(pages: Pages) -> None:
    ann, bob, cyd, dan = pages.room(CODE, ("ann", "bob", "cyd", "dan"))
    kill_in("compute", dan)
    go_on([ann, bob, cyd], {"ann", "bob", "cyd"})
    kill_in("reduce", cyd)
    go_on([ann, bob], {"ann", "bob"})
    eve, fay = late = [pages.take(), pages.take()]
    for page, name in zip(late, ("eve", "fay"), strict=True):
        page.start("member", name, CODE, SMALL, TIMES)
    rest = [ann, bob, eve, fay]
    go_on(rest, {"ann", "bob", "eve", "fay"})
    for phase in ("propose", "commit"):
        leader = next(page for page in rest if page.run("session.host.node.core.leads"))
        rest.remove(leader)
        kill_in(phase, leader)
        go_on(rest, {page.run("session.name") for page in rest})
    last, victim = by_id(rest)
    kill_in("guard", victim)  # of two the one with the lower id goes on
    go_on([last], {last.run("session.name")})
    gus = pages.take()
    gus.start("member", "gus", CODE, SMALL, TIMES)
    go_on([last, gus], {last.run("session.name"), "gus"})
    victim, last = by_id([last, gus])
    victim.signal(SIGKILL)  # the other one waits, until its person says that it shall not
    until(lambda: bool(last.state()["room"]["lacks_voters"]), PATIENCE_S)
    assert any("go on without them" in sentence for sentence in last.state()["notices"])
    last.run("session.go_on_alone(); None")
    go_on([last], {last.run("session.name")})
    assert not any("go on without them" in sentence for sentence in last.state()["notices"])


def by_id(room: Sequence[RoomPage]) -> list[RoomPage]:
    return sorted(room, key=lambda page: str(page.run("session.mesh.me.id")))
