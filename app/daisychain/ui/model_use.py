"""The parts of the page that use the model of the run that is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from daisychain import platform
from daisychain.errors import DeviceError
from daisychain.export.checkpoint import write_checkpoint
from daisychain.export.kit import MAX_SCRIPT_BYTES, SCRIPT_FILE
from daisychain.platform.dom import Dom
from daisychain.ui import phases
from daisychain.ui.backing import Session
from daisychain.ui.keeping import Keeping, Parts
from daisychain.ui.texts import Texts
from daisychain.workshop import Tell, TextRequest


class ModelUse:
    """``session`` gives the one that is shown, ``file_name`` a name for what is kept of it."""

    def __init__(
        self, dom: Dom, session: Callable[[], Session | None], file_name: Callable[[], str]
    ) -> None:
        self._session = session
        self.texts = Texts(dom, self._write)
        self.keeping = Keeping(dom, self._checkpoint, self._kit, file_name)

    def clear(self) -> None:
        """A new run begins."""
        self.texts.clear()
        self.keeping.clear()

    def draw(self, state: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> None:
        has_model = phases.has_model(state)
        self.texts.draw(has_model, records)
        self.keeping.draw(has_model, state)

    def _shown(self) -> Session:
        """Raises DeviceError where there is none any more."""
        session = self._session()
        if session is None:
            raise DeviceError("The run is closed.")
        return session

    async def _write(self, request: TextRequest, tell: Tell) -> None:
        await self._shown().write(request, tell)

    async def _checkpoint(self, dtype: str) -> Parts:
        return await write_checkpoint(await self._shown().checkpoint(), dtype)

    async def _kit(self, bits: str) -> Parts:
        script = await platform.fetch_bytes(SCRIPT_FILE, MAX_SCRIPT_BYTES)
        return await self._shown().kit(int(bits), script)
