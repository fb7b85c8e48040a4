"""The memory of the all-reduce in the page: ``cluster.machine.Machine`` on a module Worker.

All the work is in ``app/js/exchange_worker.js``; the main thread only hands bytes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from daisychain.cluster.machine import Operation
from daisychain.errors import ClusterError
from daisychain.platform import read_resource
from daisychain.platform.worker_link import START_TIMEOUT_S, WorkerLink

MODULE = "wasm/exchange.wasm"


async def open_exchange() -> ExchangeWorker:
    """Starts the Worker with its module; raises ClusterError when it does not start."""
    worker = ExchangeWorker()
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            await worker.start()
    except BaseException as error:
        worker.close()
        if isinstance(error, TimeoutError):
            raise _failed("TimeoutError", "its Worker does not start") from error
        raise
    return worker


class ExchangeWorker:
    """See `Machine`."""

    def __init__(self) -> None:
        self._link = WorkerLink("exchange_worker", _failed)

    async def start(self) -> None:
        await self._link.start(bytes=read_resource(MODULE))

    async def grow(self, size_bytes: int) -> None:
        await self._link.ask("grow", size=size_bytes)

    async def execute(self, operations: Sequence[Operation], give: Sequence[Any] = ()) -> list[Any]:
        results = await self._link.ask("execute", give, operations=operations)
        # Numbers come as text (some have 64 bits); a hash is text of 64 hexadecimal digits.
        return [
            int(result) if isinstance(result, str) and len(result) < 64 else result
            for result in results
        ]

    def close(self) -> None:
        self._link.end(_failed("Error", "it was closed"))


def _failed(name: str, message: str) -> ClusterError:
    return ClusterError(
        f"The exchange of gradients stopped ({message}).",
        "This tab has not enough memory for it, or the browser ended its Worker.",
        "Reload the page to join the room again, or choose a smaller preset.",
    )
