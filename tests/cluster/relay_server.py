"""A pairing relay on loopback for tests: starts, dies and comes back on the same port."""

from __future__ import annotations

from aiohttp import web

from tools.relay import Relay, RelayLimits, add_relay


class RelayServer:
    """One aiohttp server with only ``/relay``."""

    def __init__(self, limits: RelayLimits | None = None) -> None:
        self._limits = limits
        self._runner: web.AppRunner | None = None
        self.port = 0
        self.relay: Relay | None = None

    @property
    def url(self) -> str:
        """Its WebSocket address."""
        return f"ws://127.0.0.1:{self.port}/relay"

    async def start(self) -> RelayServer:
        """Listen; the second time on the port of the first."""
        app = web.Application()
        self.relay = add_relay(app, limits=self._limits)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        """Cut all connections and stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
