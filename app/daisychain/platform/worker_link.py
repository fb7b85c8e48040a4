"""A module Worker of the page: requests with numbers, their answers, and its end.

A request is {id, op, ...}, its answer {id, contents} or {id, failure: {name, message, ...}}.  A
Worker that the browser ends (for want of memory, say) raises no event in the page.  So from its
start on it holds a lock, and the page waits for that lock: whoever gets it knows that the Worker is
gone.  Without locks (the page is no secure context) only errors are noticed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from daisychain.errors import DaisyChainError
from daisychain.platform import start_worker
from daisychain.platform.javascript import to_js

START_TIMEOUT_S = 20.0
"""A Worker that does not answer for so long is done without."""

Describe = Callable[..., DaisyChainError]
"""The sentence for a failure: ``describe(name, message, **facts)``, by its JavaScript name and
message and what else its Worker says of it."""


class WorkerLink:
    """One Worker of ``js/<script>.js``; ``on_lost`` hears when, once started, it is gone."""

    def __init__(
        self,
        script: str,
        describe: Describe,
        on_lost: Callable[[DaisyChainError], None] = lambda error: None,
    ) -> None:
        from pyodide.ffi import create_proxy

        self._describe, self._on_lost = describe, on_lost
        self._lock = f"daisychain {script} {secrets.token_hex(8)}"
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._requests = 0
        self._is_started = False
        self._ended: DaisyChainError | None = None
        self._worker = start_worker(script)
        self._proxies = [create_proxy(self._on_message), create_proxy(self._on_error)]
        self._worker.onmessage, self._worker.onerror = self._proxies

    async def start(self, **arguments: Any) -> None:
        """The first request; answered when the Worker is there and holds its lock."""
        import js
        from pyodide.ffi import create_once_callable

        await self.ask("start", lock=self._lock, **arguments)
        self._is_started = True
        if locks := getattr(js.navigator, "locks", None):
            locks.request(self._lock, create_once_callable(self._on_free_lock))

    async def ask(self, operation: str, give: Sequence[Any] = (), **arguments: Any) -> Any:
        """The contents of the answer; raises what ``describe`` makes of a failure.

        ``give``: typed arrays among the arguments whose memory goes over to the Worker, since a
        copy of megabytes stops the page for tens of milliseconds; they are empty afterwards.
        Python's bytes among them are copied all the same.
        """
        if self._ended:
            raise self._ended
        self._requests += 1
        number = self._requests
        future = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        self._post({"id": number, "op": operation, **arguments}, give)
        return await future

    def tell(self, operation: str, give: Sequence[Any] = (), **arguments: Any) -> None:
        """A request without an answer; ``give`` as in `ask`."""
        if self._ended:
            raise self._ended
        self._post({"op": operation, **arguments}, give)

    def _post(self, request: dict[str, Any], give: Sequence[Any]) -> None:
        import js

        arrays = [array for array in give if not isinstance(array, bytes)]
        buffers = js.Set.new(to_js([array.buffer for array in arrays]))  # parts may share one
        self._worker.postMessage(to_js(request), js.Array.from_(buffers))

    def end(self, error: DaisyChainError) -> None:
        """Ends the Worker at once; what waits for it, and later requests, raise ``error``."""
        if self._ended:
            return
        self._ended = error
        self._worker.terminate()
        for proxy in self._proxies:
            proxy.destroy()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(error)

    def _on_message(self, event: Any) -> None:
        future = self._pending.pop(int(event.data.id), None)
        if future is None or future.done():
            return
        failure = getattr(event.data, "failure", None)
        if failure is None:
            future.set_result(event.data.contents)
        else:
            future.set_exception(self._describe(**failure.to_py()))

    def _on_error(self, event: Any) -> None:
        event.preventDefault()
        self._lost(getattr(event, "message", "") or "its script could not be loaded")

    def _on_free_lock(self, lock: Any) -> None:
        self._lost("the browser ended its Worker, perhaps for want of memory")

    def _lost(self, message: str) -> None:
        if self._ended:
            return
        error = self._describe("Error", message)
        self.end(error)
        if self._is_started:
            self._on_lost(error)
