"""The relay server: passes messages on within a topic, keeps nothing, and its limits hold."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from tests.cluster.relay_server import RelayServer
from tools.relay import RelayLimits

A, B = b"a" * 16, b"b" * 16


def subscribe(topic: bytes) -> bytes:
    return b"\x01" + topic


def publish(topic: bytes, payload: bytes) -> bytes:
    return b"\x02" + topic + payload


def with_clients(
    test: Callable[..., Awaitable[None]], count: int, limits: RelayLimits | None = None
) -> None:
    async def main() -> None:
        server = await RelayServer(limits).start()
        async with aiohttp.ClientSession() as session:
            sockets = [await session.ws_connect(server.url) for _ in range(count)]
            await asyncio.wait_for(test(server, *sockets), 20)
        await server.stop()

    asyncio.run(main())


Socket = aiohttp.ClientWebSocketResponse


def test_passes_on_to_the_others_of_the_topic() -> None:
    async def test(server: RelayServer, one: Socket, two: Socket, other: Socket) -> None:
        await one.send_bytes(subscribe(A))
        await two.send_bytes(subscribe(A))
        await other.send_bytes(subscribe(B))
        await two.send_bytes(b"\x03" + B)
        assert await two.receive_bytes() == b"\x03" + B
        await two.send_bytes(publish(A, b"first"))
        assert await one.receive_bytes() == publish(A, b"first")
        await one.send_bytes(publish(A, b"second"))
        assert await two.receive_bytes() == publish(A, b"second")
        await one.send_bytes(subscribe(B))
        await other.send_bytes(publish(B, b"x"))
        assert await one.receive_bytes() == publish(B, b"x")
        await one.send_bytes(publish(B, b"third"))
        assert await other.receive_bytes() == publish(B, b"third")
        for socket in (one, two, other):
            await socket.close()
        while server.relay is not None and (server.relay.clients or server.relay.topics):
            await asyncio.sleep(0.01)

    with_clients(test, 3)


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"\x01" + A[:-1]],
        [b"\x01" + A + b"x"],
        [b"\x03" + A + b"x"],
        [b"\x04" + A],
        [b"\x02" + A + b"not subscribed"],
        [subscribe(bytes([n]) * 16) for n in range(5)],
        [subscribe(A), publish(A, bytes(17_000))],
        [subscribe(A)] + [publish(A, b"flood")] * 300,
    ],
)
def test_breaches_are_cut_off(frames: list[bytes]) -> None:
    async def test(server: RelayServer, rogue: Socket) -> None:
        try:
            for frame in frames:
                await rogue.send_bytes(frame)
        except ConnectionError:
            return
        while (message := await rogue.receive()).type is aiohttp.WSMsgType.BINARY:
            pass
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)

    with_clients(test, 1)


def test_text_is_cut_off() -> None:
    async def test(server: RelayServer, rogue: Socket) -> None:
        await rogue.send_str("hello")
        assert (await rogue.receive()).type is aiohttp.WSMsgType.CLOSE

    with_clients(test, 1)


def test_topic_and_relay_fill_up() -> None:
    async def test(server: RelayServer, *sockets: Socket) -> None:
        for socket in sockets:
            await socket.send_bytes(subscribe(A))
        assert (await sockets[2].receive()).type is aiohttp.WSMsgType.CLOSE
        async with aiohttp.ClientSession() as session:
            third = await session.ws_connect(server.url)
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(server.url)
            await third.close()

    with_clients(test, 3, RelayLimits(subscribers_per_topic=2, connections=3))


def test_slow_reader_loses_messages_but_delays_nobody() -> None:
    async def test(server: RelayServer, slow: Socket, fast: Socket, sender: Socket) -> None:
        for socket in (slow, fast):
            await socket.send_bytes(subscribe(A))
        await sender.send_bytes(subscribe(A))
        payload = bytes(16_000)
        received = 0
        for _ in range(600):
            await sender.send_bytes(publish(A, payload))
            await fast.receive_bytes()
            received += 1
        assert received == 600
        assert server.relay is not None
        assert server.relay.dropped_messages > 0

    limits = RelayLimits(messages_per_s=1e6, burst_messages=1e6, queued_messages=8)
    with_clients(test, 3, limits)
