"""Files on this device: those that the browser keeps for the page, and those a person chose.

The page's are in the origin's private file system (OPFS): they survive a reload, a crash and a
killed tab.  In CPython they live in memory, with a quota to try.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

from daisychain.errors import DataError

FOLDER = "daisychain"
PARTIAL = ".part"
"""Ending of a file that is being written."""


class KeepError(DataError):
    """The device cannot keep a file; ``is_full`` when there is no room for it."""

    def __init__(self, what: str, do: str = "", *, is_full: bool = False) -> None:
        super().__init__(what, "Training goes on without it.", do)
        self.is_full = is_full


class KeptFiles(Protocol):
    """The page's own files by name; all methods raise KeepError."""

    async def sizes(self) -> dict[str, int]:
        """Bytes of each file, unfinished ones included."""

    async def write(self, name: str, parts: Sequence[memoryview]) -> None:
        """Puts a file in place of an older one of that name: wholly, or not at all."""

    async def read(self, name: str) -> bytes:
        """A file's content; raises DataError when there is none."""

    async def remove(self, name: str) -> None:
        """Deletes a file, if it is there."""


class MemoryFiles:
    """Files for the life of the process; ``quota_bytes`` limits them together."""

    def __init__(self, quota_bytes: int = 1 << 40) -> None:
        self.contents: dict[str, bytes] = {}
        self.quota_bytes = quota_bytes

    async def sizes(self) -> dict[str, int]:
        return {name: len(content) for name, content in self.contents.items()}

    async def write(self, name: str, parts: Sequence[memoryview]) -> None:
        content = b"".join(parts)
        others = sum(len(c) for n, c in self.contents.items() if n != name)
        if others + len(content) > self.quota_bytes:
            raise _full(len(content))
        self.contents[name] = content

    async def read(self, name: str) -> bytes:
        if name not in self.contents:
            raise _missing(name)
        return self.contents[name]

    async def remove(self, name: str) -> None:
        self.contents.pop(name, None)


class _Refused(Exception):
    """A promise of the browser was broken; ``name`` is that of its error."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


async def _call(target: Any, method: str, *arguments: Any) -> Any:
    """What the promise of a method gives.  Raises _Refused, also where there is no such method.

    Chromium's QuotaExceededError is no DOMException any more; Pyodide 314 does not take it for an
    error and would wait for ever.
    """
    from pyodide.code import run_js

    settled = run_js(
        """async (target, method, ...others) => {
          try {
            return { value: await target[method](...others) };
          } catch ({ name, message }) {
            return { name, message };
          }
        }"""
    )
    outcome = await settled(target, method, *arguments)
    name = getattr(outcome, "name", None)
    if name is not None:
        raise _Refused(str(name), str(outcome.message))
    return outcome.value


class OriginFiles:
    """Files in the browser's private file system."""

    async def sizes(self) -> dict[str, int]:
        folder = await self._folder()
        out = {}
        async for entry in folder.values():
            out[str(entry.name)] = int((await _call(entry, "getFile")).size)
        return out

    async def write(self, name: str, parts: Sequence[memoryview]) -> None:
        from daisychain.platform.javascript import to_js

        folder = await self._folder()
        stream = None
        try:
            handle = await _call(folder, "getFileHandle", name + PARTIAL, to_js({"create": True}))
            stream = await _call(handle, "createWritable")
            for part in parts:
                await _call(stream, "write", to_js(part))
            await _call(stream, "close")
            await _call(handle, "move", name)
        except _Refused as error:
            if stream is not None:
                await self._give_up(stream)
            await self.remove(name + PARTIAL)
            if error.name == "QuotaExceededError":
                raise _full(sum(map(len, parts))) from error
            if error.name == "TypeError":  # there is no such method
                raise _no_storage() from error
            raise KeepError(f"The browser could not keep a file ({error}).") from error

    @staticmethod
    async def _give_up(stream: Any) -> None:
        try:
            await _call(stream, "abort")
        except _Refused:
            return

    async def read(self, name: str) -> bytes:
        folder = await self._folder()
        try:
            handle = await _call(folder, "getFileHandle", name)
            file = await _call(handle, "getFile")
        except _Refused as error:
            raise _missing(name) from error
        return await blob_bytes(file, int(file.size))

    async def remove(self, name: str) -> None:
        folder = await self._folder()
        try:
            await _call(folder, "removeEntry", name)
        except _Refused:
            return

    async def _folder(self) -> Any:
        import js

        from daisychain.platform.javascript import to_js

        try:
            root = await _call(js.navigator.storage, "getDirectory")
            return await _call(root, "getDirectoryHandle", FOLDER, to_js({"create": True}))
        except (AttributeError, _Refused) as error:
            raise _no_storage() from error


def kept_files() -> KeptFiles:
    """The files of this page."""
    return OriginFiles() if sys.platform == "emscripten" else _process_files


_process_files = MemoryFiles()


def blob(data: bytes) -> Any:
    """``data`` as a File or Blob is given to the data Worker."""
    if sys.platform != "emscripten":
        return data
    import js

    from daisychain.platform.javascript import to_js

    return js.Blob.new(to_js([to_js(data)]))


async def blob_bytes(file: Any, max_bytes: int) -> bytes:
    """The content of a File or Blob; raises DataError when it is too large or cannot be read."""
    if sys.platform != "emscripten":
        return bytes(file)
    if int(file.size) > max_bytes:
        raise DataError(f"The file is larger than the {max_bytes:,} bytes allowed.")
    try:
        return bytes((await _call(file, "arrayBuffer")).to_bytes())
    except _Refused as error:
        raise DataError(f"The file cannot be read ({error}).") from error


def _full(size_bytes: int) -> KeepError:
    return KeepError(
        f"The browser has no room for a save of {size_bytes / 1e6:,.0f} MB.",
        "Free some space on the device, or download a checkpoint now and then.",
        is_full=True,
    )


def _no_storage() -> KeepError:
    return KeepError(
        "This browser keeps no files for the page, so there is no automatic save.",
        "Download a checkpoint now and then; a private window or an old browser is the reason.",
    )


def _missing(name: str) -> DataError:
    return DataError(f"The save {name} is not there any more.")
