"""Pairing over real relays on loopback: relays that die, flood, replay or lie do no harm."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from daisychain.cluster.identity import id_text, member_id
from daisychain.cluster.seal import RoomKeys
from daisychain.cluster.signalling import Signalling, decode_object
from daisychain.cluster.transports import (
    Allowance,
    RelayAddress,
    TransportTiming,
    parse_relay_address,
)
from daisychain.errors import SettingsError
from daisychain.platform.crypto import open_crypto
from tests.cluster.mosquitto import mosquitto
from tests.cluster.relay_server import RelayServer

PAGE = "http://127.0.0.1:8000/"
QUICK = TransportTiming(first_pause_s=0.05, longest_pause_s=0.2, handshake_s=2.0)
ALICE, BOB, CAROL = (member_id(bytes([n]) * 32) for n in range(3))


class Board:
    """One participant and what it heard."""

    def __init__(
        self, me: str, keys: RoomKeys, *relays: str, timing: TransportTiming = QUICK
    ) -> None:
        self.heard: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.changes = 0
        addresses = [parse_relay_address(relay, PAGE) for relay in relays]
        self.signalling = Signalling(
            keys,
            me,
            addresses,
            lambda sender, body: self.heard.put_nowait((sender, body)),
            self._changed,
            timing,
        )

    def _changed(self) -> None:
        self.changes += 1

    async def until_up(self, count: int = 1) -> None:
        while sum(relay.state == "up" for relay in self.signalling.relays()) < count:
            await asyncio.sleep(0.01)


async def keys_of(secret: int = 1) -> RoomKeys:
    return RoomKeys(bytes([secret]) * 16, await open_crypto().aes_gcm_key(bytes([secret] * 32)))


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


@contextlib.asynccontextmanager
async def boards(*all_boards: Board) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await asyncio.gather(*(board.signalling.close() for board in all_boards))


@pytest.mark.parametrize("user", ["", "secret"])
def test_two_kinds_of_relay_deliver_once(user: str) -> None:
    async def test(broker: str) -> None:
        server = await RelayServer().start()
        keys = await keys_of()
        alice, bob = (Board(me, keys, server.url, broker) for me in (ALICE, BOB))
        stranger = Board(CAROL, await keys_of(2), server.url, broker)
        async with boards(alice, bob, stranger):
            await asyncio.gather(*(board.until_up(2) for board in (alice, bob, stranger)))
            for number in range(20):
                alice.signalling.send({"n": number})
            assert [(await bob.heard.get())[1]["n"] for _ in range(20)] == list(range(20))
            bob.signalling.send({"only": "alice"}, to=ALICE)
            bob.signalling.send({"only": "carol"}, to=CAROL)
            assert await alice.heard.get() == (BOB, {"only": "alice", "to": ALICE})
            await asyncio.sleep(0.3)
            assert alice.heard.empty()
            assert bob.heard.empty()
            assert stranger.heard.empty()
        await server.stop()

    with mosquitto(user) as broker:
        run(lambda: test(broker))


def test_wrong_broker_password_is_said() -> None:
    async def test(broker: str) -> None:
        board = Board(ALICE, await keys_of(), broker.replace("secret", "wrong"))
        async with boards(board):
            while not (error := board.signalling.relays()[0].error):
                await asyncio.sleep(0.01)
            assert "refused" in error
            assert "secret" not in board.signalling.relays()[0].url

    with mosquitto("secret") as broker:
        run(lambda: test(broker))


def test_relay_killed_and_back() -> None:
    async def test() -> None:
        server = await RelayServer().start()
        keys = await keys_of()
        alice, bob = (Board(me, keys, server.url) for me in (ALICE, BOB))
        async with boards(alice, bob):
            await asyncio.gather(alice.until_up(), bob.until_up())
            await server.stop()
            while alice.signalling.up or bob.signalling.up:
                await asyncio.sleep(0.01)
            alice.signalling.send({"said": "while down"})
            await asyncio.sleep(0.3)
            await server.start()
            await bob.until_up()
            while bob.heard.empty():  # heard now, or said again by whoever needs an answer
                alice.signalling.send({"said": "again"})
                await asyncio.sleep(0.05)
            assert alice.changes >= 3
        await server.stop()

    run(test)


class HostileRelay:
    """Accepts everybody, then repeats, damages or invents messages."""

    def __init__(self, respond: Callable[[bytes], list[bytes]]) -> None:
        self._respond = respond
        self._sockets: list[web.WebSocketResponse] = []
        self.connections = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self._sockets.append(socket)
        self.connections += 1
        with contextlib.suppress(ConnectionError):
            async for message in socket:
                for answer in self._respond(message.data):
                    for other in list(self._sockets):
                        if not other.closed:
                            await other.send_bytes(answer)
        return socket

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/relay", self.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"ws://127.0.0.1:{runner.addresses[0][1]}/relay"
        await runner.cleanup()


def test_silent_relay_is_left_and_a_retry_comes_at_once() -> None:
    async def test() -> None:
        hostile = HostileRelay(lambda frame: [])
        async with hostile.serve() as url:
            timing = TransportTiming(handshake_s=0.05, ping_s=0.05, silent_s=0.15, first_pause_s=60)
            board = Board(ALICE, await keys_of(), url, timing=timing)
            async with boards(board):
                await board.until_up()
                while board.signalling.up:
                    await asyncio.sleep(0.01)
                assert hostile.connections == 1
                board.signalling.retry()
                while hostile.connections < 2:
                    await asyncio.sleep(0.01)

    run(test)


def test_answering_relay_is_kept() -> None:
    async def test() -> None:
        server = await RelayServer().start()
        timing = TransportTiming(handshake_s=0.05, ping_s=0.05, silent_s=0.2)
        board = Board(ALICE, await keys_of(), server.url, timing=timing)
        async with boards(board):
            await board.until_up()
            await asyncio.sleep(0.6)
            assert board.signalling.up
            assert board.changes == 1
        await server.stop()

    run(test)


def replayer(frame: bytes) -> list[bytes]:
    """The damaged copy comes first, so that it must not stand for the true one."""
    damaged = frame[:40] + bytes([frame[40] ^ 1]) + frame[41:] if len(frame) > 40 else frame
    return [damaged, frame, frame] if frame[:1] == b"\x02" else []


def test_replays_and_damage_are_counted_and_dropped() -> None:
    async def test() -> None:
        recorded: list[bytes] = []

        def respond(frame: bytes) -> list[bytes]:
            recorded.append(frame)
            return replayer(frame)

        async with HostileRelay(respond).serve() as url:
            keys = await keys_of()
            alice, bob = Board(ALICE, keys, url), Board(BOB, keys, url)
            async with boards(alice, bob):
                await asyncio.gather(alice.until_up(), bob.until_up())
                await asyncio.sleep(0.1)
                for number in range(5):
                    alice.signalling.send({"n": number})
                assert [(await bob.heard.get())[1]["n"] for _ in range(5)] == list(range(5))
                while bob.signalling.sealer.unopened < 5:
                    await asyncio.sleep(0.01)
                assert bob.heard.empty()
                bob.signalling._known.clear()  # so old that the first filter forgot them
                for frame in recorded:
                    if frame[:1] == b"\x02":
                        bob.signalling._receive(frame[17:])
                await asyncio.sleep(0.05)
                assert bob.heard.empty()
                assert bob.signalling.sealer.replayed >= 5

    run(test)


def test_flood_is_bounded_and_the_relay_is_left_alone() -> None:
    topic = bytes([1]) * 16

    def flood(frame: bytes) -> list[bytes]:
        noise = (n.to_bytes(64, "little") for n in range(4000))
        return [b"\x02" + topic + payload for payload in noise]

    async def test() -> None:
        hostile = HostileRelay(flood)
        server = await RelayServer().start()
        async with hostile.serve() as url:
            keys = await keys_of()
            timing = replace(QUICK, longest_pause_s=30.0)
            alice, bob = (Board(me, keys, server.url, url, timing=timing) for me in (ALICE, BOB))
            async with boards(alice, bob):
                while bob.signalling.relays()[1].dropped_messages < QUICK.flood_messages:
                    await asyncio.sleep(0.01)
                await bob.until_up()
                await alice.until_up()
                while bob.heard.empty():
                    alice.signalling.send({"still": "heard"})
                    await asyncio.sleep(0.05)
                assert "flood" in bob.signalling.relays()[1].error
        await server.stop()

    run(test)


@pytest.mark.parametrize("noise", [b"", b"\x02", b"\xff" * 40, bytes(60_000)])
def test_garbage_from_a_relay_only_costs_its_connection(noise: bytes) -> None:
    async def test() -> None:
        hostile = HostileRelay(lambda frame: [noise])
        async with hostile.serve() as url:
            board = Board(ALICE, await keys_of(), url, "mqtt+" + url)
            async with boards(board):
                while hostile.connections < 4:
                    await asyncio.sleep(0.01)
                assert board.heard.empty()

    run(test)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/relay", RelayAddress("relay", "ws://127.0.0.1:8000/relay")),
        ("wss://r.example/x?y=1", RelayAddress("relay", "wss://r.example/x?y=1")),
        ("mqtt+wss://b.example:8084/mqtt", RelayAddress("mqtt", "wss://b.example:8084/mqtt")),
        ("mqtt+wss://u:p%40@b.example", RelayAddress("mqtt", "wss://b.example/", "u", "p@")),
        (" ws://[::1]:9/relay ", RelayAddress("relay", "ws://[::1]:9/relay")),
    ],
)
def test_addresses(text: str, expected: RelayAddress) -> None:
    assert parse_relay_address(text, PAGE) == expected
    assert "p@" not in repr(expected)


@pytest.mark.parametrize("text", ["ftp://x/", "wss://", "mqtt+x", "wss://h:port/", "wss://[::1/"])
def test_bad_addresses_are_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(SettingsError, match="is no address"):
        parse_relay_address(text, PAGE)


def test_open_relay_on_an_https_page_is_refused_but_not_on_this_device() -> None:
    with pytest.raises(SettingsError, match="not encrypted"):
        parse_relay_address("ws://192.168.1.7/relay", "https://example.org/")
    assert parse_relay_address("ws://localhost/relay", "https://example.org/").kind == "relay"
    assert parse_relay_address("/relay", "https://example.org/a/").url == "wss://example.org/relay"


def test_allowance() -> None:
    now = 0.0
    allowance = Allowance(2.0, 3.0, lambda: now)
    assert [allowance.take() for _ in range(5)] == [True, True, True, False, False]
    now = 1.0
    assert [allowance.take() for _ in range(3)] == [True, True, False]


@given(st.one_of(st.binary(max_size=60), st.text(max_size=60)))
def test_any_bytes_decode_to_an_object_or_none(data: bytes | str) -> None:
    value = decode_object(data)
    assert value is None or isinstance(value, dict)


def test_deep_nesting_is_no_crash() -> None:
    assert decode_object("[" * 100_000) is None
    assert decode_object('{"a":' * 100_000) is None
    assert decode_object(b"\xff\xfe") is None


def test_ids_are_text_and_bytes() -> None:
    assert id_text(bytes(10)) == "0" * 16
    assert len({ALICE, BOB, CAROL}) == 3
