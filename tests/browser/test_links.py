"""Rooms and links between real Chromium pages, over a local relay, without any outside server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error

from daisychain.cluster.seal import Sealer, derive_room_keys
from daisychain.platform.crypto import open_crypto
from tests.browser.engines import run_firefox
from tests.browser.mesh_pages import CODE, HELPERS, MeshPage
from tests.browser.pyodide_page import PyodideSite, open_page
from tests.cluster.coturn import coturn
from tests.cluster.mosquitto import mosquitto

pytestmark = pytest.mark.browser
MIB = 1 << 20
FIREFOX_SCENARIO = """
await start(code, "Fox", True)
await until(lambda: mesh.linked() == (host_id,))
mesh.bulk.expect(host_id, [header(size)])
mesh.send_control(host_id, "ready")
await until(lambda: seen(Bulk))
data = noise(size, 1)
await mesh.send_bulk(host_id, header(size, bucket=1), data)
await until(lambda: mesh.link_report()[0].candidates)
{
    "came": await digest(seen(Bulk)[0].data),
    "sent": await digest(data),
    "way": mesh.link_report()[0].way,
    "dropped": sum(mesh.dropped().values()),
}
"""


@pytest.fixture(scope="module")
def links_site(site: Path) -> Iterator[PyodideSite]:
    """A server of our own, since tests stop its relay."""
    server = PyodideSite(site)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def booted(chromium: Browser, links_site: PyodideSite) -> Iterator[list[MeshPage]]:
    """Three booted pages for all tests."""
    with (
        open_page(chromium, links_site) as one,
        open_page(chromium, links_site) as two,
        open_page(chromium, links_site) as three,
    ):
        yield [MeshPage(page) for page in (one, two, three)]


@pytest.fixture
def pages(booted: list[MeshPage]) -> Iterator[list[MeshPage]]:
    """The three pages, outside of any room; no page may have had an uncaught error."""
    yield booted
    for page in booted:
        page.leave()
    assert [page.page.errors for page in booted] == [[], [], []]


def test_host_lets_in_and_bytes_arrive_intact_both_ways(pages: list[MeshPage]) -> None:
    host, guest, stranger = pages
    stranger.join_room("Mallory", code=CODE[:-1] + "P")
    host_id = host.open_room("Ann")
    guest_id = guest.join_room("Bob  with\na  long name " + "x" * 50)
    host.until("mesh.waiting")
    assert host.run("[asdict(member) for member in mesh.waiting]") == [
        {"id": guest_id, "name": ("Bob with a long name " + "x" * 50)[:40], "kind": "test page"}
    ]
    assert guest.run("[mesh.linked(), mesh.members]") == [[], []]
    host.run("mesh.accept(mesh.waiting[0].id)")
    host.until_linked(guest_id)
    guest.until_linked(host_id)

    host.run("mesh.send_control(mesh.linked()[0], '{\"hello\": 1}')")
    guest.run("for n in range(100): mesh.send_control(mesh.linked()[0], json.dumps(n))")
    guest.until("seen(Control) == [Control(mesh.host, '{\"hello\": 1}')]")
    host.until("[event.text for event in seen(Control)] == [str(n) for n in range(100)]")

    for sender, receiver, sender_id, receiver_id in (
        (host, guest, host_id, guest_id),
        (guest, host, guest_id, host_id),
    ):
        receiver.run("mesh.bulk.expect(peer, [header(size)])", peer=sender_id, size=8 * MIB + 5)
        sent = sender.run(
            "data = noise(size, 1)\nawait mesh.send_bulk(peer, header(size), data)\n"
            "await digest(data)",
            peer=receiver_id,
            size=8 * MIB + 5,
        )
        receiver.until("seen(Bulk)")
        assert receiver.run("[seen(Bulk)[0].peer, await digest(seen(Bulk)[0].data)]") == [
            sender_id,
            sent,
        ]
    host.until("mesh.link_report()[0].way == 'direct'")
    report = host.run("[asdict(row) for row in mesh.link_report()]")[0]
    assert (report["way"], report["state"], report["id"]) == ("direct", "connected", guest_id)
    assert report["received_bytes"] >= 8 * MIB
    assert report["megabytes_per_s"] > 0
    for page in (host, guest):
        assert set(page.run("mesh.dropped()").values()) == {0}
    assert stranger.run(
        "[mesh.linked(), len(seen(Knocked)), mesh.dropped()['signal unopened']]"
    ) == [
        [],
        0,
        0,
    ]


def test_refused_removed_renamed_and_left(pages: list[MeshPage]) -> None:
    host, one, two = pages
    host.open_room("Ann")
    one_id = one.join_room("Bob")
    host.until("mesh.waiting")
    host.run("mesh.refuse(mesh.waiting[0].id)")
    one.until("seen(TurnedAway)")
    assert "did not let" in one.run("seen(TurnedAway)[0].reason")

    one_id, two_id = one.join_room("Bob"), two.join_room("Cyd")
    host.until("len(mesh.waiting) == 2")
    host.run("for member in mesh.waiting: mesh.accept(member.id)")
    host.until_linked(one_id, two_id)
    one.run("mesh.rename('Bobby')")
    two.until("'Bobby' in [member.name for member in mesh.members]")

    host.run("mesh.remove(peer)", peer=one_id)
    one.until("seen(TurnedAway) and not mesh.linked()")
    assert one.run("seen(TurnedAway)[0].stage") == "removed"
    two.until("len(mesh.linked()) == 1 and len(mesh.members) == 2")
    assert two.run("[event.reason for event in seen(Left)]") == ["was removed by the host"]
    one.run("mesh._lobby.stage = 'outside'")  # a removed device that will not have it
    host.run("await asyncio.sleep(3)")
    assert host.run("[mesh.waiting, mesh.linked()]") == [[], [two_id]]

    two.leave()
    host.until("seen(Left)[-1].reason == 'left the room' and not mesh.linked()")


def test_relay_killed_links_stay_and_newcomers_come_when_it_is_back(
    pages: list[MeshPage], links_site: PyodideSite
) -> None:
    host, one, two = pages
    host_id = host.open_room("Ann", settings="approve_all=True")
    one_id = one.join_room("Bob")
    one.until_linked(host_id)
    links_site.set_relay(False)
    try:
        host.until("not any(relay.state == 'up' for relay in mesh.relays())")
        one.run("mesh.send_control(mesh.host, '{}')")
        host.until("seen(Control)")
        two_id = two.join_room("Cyd")
    finally:
        links_site.set_relay(True)
    two.until_linked(host_id, one_id)
    one.until_linked(host_id, two_id)


def test_pairing_by_hand_needs_no_relay(pages: list[MeshPage]) -> None:
    host, guest, third = pages
    host_id = host.open_room("Ann", code=None)
    guest_id = guest.join_room("Bob", code=None)
    offer = host.run("await mesh.hand_offer()")
    answer = guest.run("await mesh.hand_answer(offer)", offer=offer)
    assert max(len(offer), len(answer)) <= 150
    host.run("await mesh.hand_accept(answer)", answer=answer)
    host.until_linked(guest_id)
    guest.until_linked(host_id)
    assert host.run("[mesh.relays(), len(seen(Knocked))]") == [[], 0]

    third_id = third.join_room("Cyd", code=None)  # by way of a member; its host still decides
    offer = guest.run("await mesh.hand_offer()")
    answer = third.run("await mesh.hand_answer(offer)", offer=offer)
    guest.run("await mesh.hand_accept(answer)", answer=answer)
    host.until("mesh.waiting")
    host.run("mesh.accept(mesh.waiting[0].id)")
    third.until_linked(host_id, guest_id)
    host.until_linked(guest_id, third_id)


def test_closed_page_is_noticed_at_once_and_the_host_is_succeeded(
    pages: list[MeshPage], chromium: Browser, links_site: PyodideSite
) -> None:
    one, two, _ = pages
    with open_page(chromium, links_site) as page:
        host_id = MeshPage(page).open_room("Ann", settings="approve_all=True")
        one_id, two_id = one.join_room("Bob"), two.join_room("Cyd")
        one.until_linked(host_id, two_id)
        two.until_linked(host_id, one_id)
    for survivor, other in ((one, two_id), (two, one_id)):
        survivor.run(
            "async with asyncio.timeout(3.0):\n"
            "    while mesh.linked() != (other,): await asyncio.sleep(0.02)",
            other=other,
        )
        survivor.until("len(mesh.members) == 2")
        assert survivor.run("mesh.host") == min(one_id, two_id)


def test_two_that_cannot_connect_are_forwarded(pages: list[MeshPage]) -> None:
    host, one, two = pages
    host_id = host.open_room("Ann", settings="approve_all=True")
    quick = "links=LinkSettings(connect_ms=1500.0)"
    one_id = one.join_room("Bob", settings=quick)
    one.until_linked(host_id)
    one.run(
        "from daisychain.cluster.links import Link\n"
        "receive = Link.receive\n"
        "Link.receive = lambda link, body: link.peer == mesh.host and receive(link, body)"
    )
    two_id = two.join_room("Cyd", settings=quick)
    two.until_linked(host_id)
    one.until("seen(Unreachable)") if one_id < two_id else two.until("seen(Unreachable)")
    caller, other = (one, "Cyd") if one_id < two_id else (two, "Bob")
    sentence = caller.run("seen(Unreachable)[0].sentence")
    assert other in sentence
    assert "Wi-Fi" in sentence
    two.until(f"[row.way for row in mesh.link_report() if row.id == '{one_id}'] == ['forwarded']")

    size = 3 * MIB
    hops = [one_id, host_id, two_id]
    two.run("mesh.bulk.expect('', [header(size, origin=0, target=2)])", size=size)
    host.run("mesh.bulk.route(1, 1, 1, hops)", hops=hops)
    sent = one.run(
        "data = noise(size, 1)\nawait mesh.send_bulk(mesh.host, header(size, target=2), data)\n"
        "await digest(data)",
        size=size,
    )
    two.until("seen(Bulk)")
    assert two.run("await digest(seen(Bulk)[0].data)") == sent
    one.run("Link.receive = receive")
    one.until("len(mesh.linked()) == 2")


def test_browser_and_cpython_seal_alike_and_say_when_they_may_not(pages: list[MeshPage]) -> None:
    page = pages[0]

    async def seal() -> tuple[str, str]:
        keys = await derive_room_keys(CODE, open_crypto())
        return keys.topic.hex(), (await Sealer(keys, b"native----", 7).seal(b"hello")).hex()

    pool = ThreadPoolExecutor()  # Playwright's own event loop runs on this thread
    topic, sealed = pool.submit(asyncio.run, seal()).result()
    opened = page.run(
        "from daisychain.cluster.seal import Sealer, derive_room_keys\n"
        "from daisychain.platform.crypto import open_crypto\n"
        "keys = await derive_room_keys(code, open_crypto())\n"
        "sealer = Sealer(keys, b'browser---', 7)\n"
        "opened = await sealer.open(bytes.fromhex(sealed))\n"
        "damaged = await sealer.open(bytes.fromhex(sealed)[:-1] + b'?')\n"
        "answer = await sealer.seal(b'hi')\n"
        "[keys.topic.hex(), opened.sender.decode(), opened.body.decode(), damaged, answer.hex()]",
        code=CODE,
        sealed=sealed,
    )
    assert opened[:4] == [topic, "native----", "hello", None]

    async def read(answer: str) -> tuple[bytes, bytes]:
        keys = await derive_room_keys(CODE, open_crypto())
        message = await Sealer(keys, b"native----", 8).open(bytes.fromhex(answer))
        assert message is not None
        return message.sender, message.body

    came = pool.submit(asyncio.run, read(opened[4])).result()
    pool.shutdown()
    assert came == (b"browser---", b"hi")
    page.page.page.evaluate(
        "Object.defineProperty(crypto, 'subtle', {value: undefined, configurable: true})"
    )
    try:
        with pytest.raises(Error, match=r"may not use the browser's cryptography.*over https"):
            page.join_room("Ann")
    finally:
        page.page.page.evaluate("delete crypto.subtle")


def test_hostile_member_is_counted_and_harms_nobody(pages: list[MeshPage]) -> None:
    host, rogue, _ = pages
    host_id = host.open_room("Ann", settings="approve_all=True")
    rogue_id = rogue.join_room("Mallory")
    host.until_linked(rogue_id)
    rogue.until_linked(host_id)
    host.run("mesh.bulk.expect('', [header(100_000)])")
    rogue.run(
        "from js import ArrayBuffer\n"
        "raw = mesh._neighbours.by_id[mesh.host].link._control._connection\n"
        "raw._connection.createDataChannel('evil')\n"
        "raw._control.send(ArrayBuffer.new(9))\n"
        "raw._control.send('x' * 70_000)\n"
        "raw._control.send('~{')\n"
        "raw._control.send('not for the mesh')\n"
        "raw._bulk.send('text')\n"
        "raw._bulk.send(ArrayBuffer.new(200_000))\n"
        "frame = noise(100, 1)\n"
        "raw._bulk.send(frame)\n"
        "frame.set(to_js(header(100_000)))\n"
        "raw._bulk.send(frame)\n"
        "await mesh.send_bulk(mesh.host, header(5, step=2), to_js(b'12345'))\n"
        "await mesh.send_bulk(mesh.host, header(100_000), noise(100_000, 1))"
    )
    host.until("seen(Bulk)")
    host.until("mesh.dropped()['control foreign'] == 3")
    host.until("[event.text for event in seen(Control)] == ['not for the mesh']")
    dropped = host.run("mesh.dropped()")
    assert (dropped["bulk malformed"], dropped["bulk unexpected"]) == (4, 1)
    assert dropped["control malformed"] == 1
    assert host.run("[mesh.linked(), seen(Bulk)[0].data.length]") == [[rogue_id], 100_000]


RESTART = """
link = mesh._neighbours.by_id[mesh.linked()[0]].link
connection = link._control._connection._connection

def keys():
    lines = connection.remoteDescription.sdp.split(chr(10))
    return [line for line in lines if line.startswith("a=ice-ufrag")]

before = keys()
None
"""
"""Looks at the name under which the other end's ICE is known, which a restart changes."""


def test_ice_restarts_beneath_a_transfer(pages: list[MeshPage]) -> None:
    host, guest, _ = pages
    host.open_room("Ann", settings="approve_all=True")
    guest_id = guest.join_room("Bob", settings="approve_all=True")
    host.until_linked(guest_id)
    for page in (host, guest):
        page.run(RESTART)
    guest.run("mesh.bulk.expect(mesh.host, [header(size)])", size=8 * MIB)
    sent = host.run(
        "data = noise(size, 1)\nsending = asyncio.ensure_future("
        "mesh.send_bulk(peer, header(size), data))\nlink._offer(link._control, restart=True)\n"
        "await digest(data)",
        peer=guest_id,
        size=8 * MIB,
    )
    for page in (host, guest):
        page.until("keys() and keys() != before")
    guest.until("seen(Bulk)")
    assert guest.run("await digest(seen(Bulk)[0].data)") == sent
    host.until("link.state == 'connected'")
    assert not host.run("seen(LinkDown)")


def test_pages_meet_over_an_mqtt_broker(pages: list[MeshPage]) -> None:
    host, guest, _ = pages
    with mosquitto() as address:
        settings = f"approve_all=True, relays=({address!r},)"
        host_id = host.open_room("Ann", settings=settings)
        guest_id = guest.join_room("Bob", settings=settings)
        host.until_linked(guest_id)
        guest.until_linked(host_id)


def test_turn_relay_is_used_and_reported(pages: list[MeshPage]) -> None:
    host, guest, third = pages
    with coturn() as url:

        def settings(password: str) -> str:
            server = f"IceServer({url!r}, 'dc', {password!r})"
            ice = f"ConnectionSettings(ice=IceSettings(({server},), relay_only=True))"
            return f"approve_all=True, links=LinkSettings(connection={ice}, connect_ms=3000.0)"

        host_id = host.open_room("Ann", settings=settings("secret"))
        guest_id = guest.join_room("Bob", settings=settings("secret"))
        host.until_linked(guest_id)
        guest.until_linked(host_id)
        size = 2 * MIB
        guest.run("mesh.bulk.expect(mesh.host, [header(size)])", size=size)
        sent = host.run(
            "data = noise(size, 1)\nawait mesh.send_bulk(peer, header(size), data)\n"
            "await digest(data)",
            peer=guest_id,
            size=size,
        )
        guest.until("seen(Bulk)")
        assert guest.run("await digest(seen(Bulk)[0].data)") == sent
        host.until("mesh.link_report()[0].candidates == 'relay-relay'")
        guest.until("mesh.link_report()[0].way == 'relayed'")
        third.join_room("Cyd", settings=settings("wrong"))
        third.until("seen(Unreachable)")
        assert "its TURN relay alone" in third.run("seen(Unreachable)[0].sentence")


def test_firefox_and_chromium_in_one_room(pages: list[MeshPage], links_site: PyodideSite) -> None:
    host = pages[0]
    host_id = host.open_room("Ann", settings="approve_all=True")
    size = 4 * MIB
    scenario = HELPERS + FIREFOX_SCENARIO
    parameters = json.dumps({"code": CODE, "size": size, "host_id": host_id})
    expression = (
        f"window.booted && (window.once ??= window.runPython({json.dumps(scenario)}, "
        f"{json.dumps(parameters)}))"
    )
    with ThreadPoolExecutor() as pool:
        firefox = pool.submit(run_firefox, links_site.url, expression, 120.0)
        host.run("await until(lambda: seen(Control), timeout_s=110.0)")
        guest_id, text = host.run("[seen(Control)[0].peer, seen(Control)[0].text]")
        assert text == "ready"
        host.run("mesh.bulk.expect(peer, [header(size, bucket=1)])", peer=guest_id, size=size)
        sent = host.run(
            "data = noise(size, 1)\nawait mesh.send_bulk(peer, header(size), data)\n"
            "await digest(data)",
            peer=guest_id,
            size=size,
        )
        host.until("seen(Bulk)")
        came = host.run("await digest(seen(Bulk)[0].data)")
        answer = json.loads(firefox.result())
    assert answer == {"came": sent, "sent": came, "way": "direct", "dropped": 0}
