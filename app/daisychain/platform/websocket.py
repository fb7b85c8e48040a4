"""Binary WebSockets behind one face: the browser's own in the page, aiohttp's in CPython."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import Any, Protocol

from daisychain.errors import ClusterError
from daisychain.platform.javascript import to_js

CONNECT_TIMEOUT_S = 10.0
MAX_WAITING_MESSAGES = 512


class SocketError(ClusterError):
    """A WebSocket could not be opened."""


class Socket(Protocol):
    """An open WebSocket that carries binary messages of a bounded size."""

    def send(self, data: bytes) -> None:
        """Queue a message; nothing happens once the socket is closed."""

    async def receive(self) -> bytes | None:
        """The next binary message, or None when the socket is closed."""

    def close(self) -> None:
        """Close; ``receive`` then answers None."""


async def open_socket(url: str, subprotocol: str | None, max_message_bytes: int) -> Socket:
    """Connect; raises SocketError when it fails or takes over ten seconds.

    Longer messages than ``max_message_bytes`` close the socket, text messages are ignored.
    """
    face = BrowserSocket if sys.platform == "emscripten" else NativeSocket
    return await face.open(url, subprotocol, max_message_bytes)


def _no_connection(url: str) -> SocketError:
    host = url.partition("://")[2].rpartition("@")[2].partition("/")[0]
    return SocketError(f"No connection to the relay {host}.")


class BrowserSocket:
    """A WebSocket of the page."""

    def __init__(self, socket: Any, max_message_bytes: int) -> None:
        from pyodide.ffi import create_proxy

        self._socket, self._max_message_bytes = socket, max_message_bytes
        self._waiting: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._closed = False
        self._handlers = {
            "open": create_proxy(self._on_change),
            "message": create_proxy(self._on_message),
            "close": create_proxy(self._on_close),
        }
        socket.binaryType = "arraybuffer"
        for name, handler in self._handlers.items():
            socket.addEventListener(name, handler)

    @classmethod
    async def open(cls, url: str, subprotocol: str | None, max_message_bytes: int) -> Socket:
        """Connect, see ``open_socket``."""
        import js
        from pyodide.ffi import JsException

        try:
            raw = js.WebSocket.new(url, subprotocol) if subprotocol else js.WebSocket.new(url)
        except JsException as cause:
            raise _no_connection(url) from cause
        socket = cls(raw, max_message_bytes)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                while raw.readyState == raw.CONNECTING:
                    await socket._change()
        except TimeoutError:
            pass
        finally:
            if raw.readyState != raw.OPEN:
                socket.close()
        if raw.readyState != raw.OPEN:
            raise _no_connection(url)
        return socket

    def send(self, data: bytes) -> None:
        """Queue a message; nothing happens once the socket is closed."""
        if not self._closed and self._socket.readyState == self._socket.OPEN:
            self._socket.send(to_js(data))

    async def receive(self) -> bytes | None:
        """The next binary message, or None when the socket is closed."""
        while not self._waiting:
            if self._closed:
                return None
            await self._change()
        return self._waiting.popleft()

    def close(self) -> None:
        """Close; ``receive`` then answers None."""
        self._on_close(None)
        self._socket.close()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _on_change(self, _event: Any) -> None:
        self._changed.set()

    def _on_message(self, event: Any) -> None:
        size = getattr(event.data, "byteLength", None)
        if size is None:
            return
        if size > self._max_message_bytes or len(self._waiting) >= MAX_WAITING_MESSAGES:
            self.close()
            return
        self._waiting.append(event.data.to_bytes())
        self._changed.set()

    def _on_close(self, _event: Any) -> None:
        if self._closed:
            return
        self._closed = True
        for name, handler in self._handlers.items():
            self._socket.removeEventListener(name, handler)
            handler.destroy()
        self._changed.set()


class NativeSocket:
    """A WebSocket of aiohttp."""

    def __init__(self, session: Any, socket: Any) -> None:
        self._session, self._socket = session, socket
        self._outgoing: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._writer = asyncio.ensure_future(self._write())

    @classmethod
    async def open(cls, url: str, subprotocol: str | None, max_message_bytes: int) -> Socket:
        """Connect, see ``open_socket``."""
        import aiohttp

        session = aiohttp.ClientSession()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                socket = await session.ws_connect(
                    url,
                    protocols=[subprotocol] if subprotocol else [],
                    max_msg_size=max_message_bytes,
                )
        except BaseException as cause:
            await session.close()
            if isinstance(cause, aiohttp.ClientError | OSError | TimeoutError):
                raise _no_connection(url) from cause
            raise
        return cls(session, socket)

    def send(self, data: bytes) -> None:
        """Queue a message; nothing happens once the socket is closed."""
        self._outgoing.put_nowait(data)

    async def receive(self) -> bytes | None:
        """The next binary message, or None when the socket is closed."""
        import aiohttp

        while True:
            message = await self._socket.receive()
            if message.type is aiohttp.WSMsgType.BINARY:
                return bytes(message.data)
            if message.type is not aiohttp.WSMsgType.TEXT:
                self.close()
                await self._writer
                return None

    def close(self) -> None:
        """Close; ``receive`` then answers None."""
        self._outgoing.put_nowait(None)

    async def _write(self) -> None:
        try:
            while (data := await self._outgoing.get()) is not None:
                await self._socket.send_bytes(data)
        except ConnectionError:
            pass
        finally:
            try:
                await self._socket.close()
            finally:
                await self._session.close()
