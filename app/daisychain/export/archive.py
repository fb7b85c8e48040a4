"""Zip archives of checkpoints: entries stored as they are, read within limits.

Zip's own directory may lie in every field, so a reader asks for each file by name with the most
bytes that it may have, and nothing is unpacked beyond that.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from daisychain.errors import DataError
from daisychain.platform import sleep_ms

CHUNK_BYTES = 1 << 20
"""Between two such parts the page gets time to live."""

MAX_ENTRIES = 64
MAX_DIRECTORY_BYTES = 1 << 18
MAX_FILE_BYTES = 0xFFFFFFFE
"""Zip's 32-bit sizes; larger ones would need its 64-bit extension."""

MAX_OPENED_BYTES = (1 << 31) - 1
"""Python in a page holds no longer bytes."""

_LOCAL_MAGIC, _LOCAL_BYTES = b"PK\x03\x04", 30
_END_MAGIC, _END_BYTES, _MAX_COMMENT_BYTES = b"PK\x05\x06", 22, 0xFFFF
_LOCATOR64_MAGIC, _LOCATOR64_BYTES = b"PK\x06\x07", 20
_UTF8_NAMES = 0x800
_DOS_DATE = 0x21
"""1 January 1980: equal contents give equal files."""


class Files(Protocol):
    """Files by name: an archive or a folder."""

    def names(self) -> Sequence[str]:
        """All names, ``/`` between folders."""

    def read(self, name: str, max_bytes: int) -> memoryview:
        """A whole file.  Raises DataError when it is missing, damaged or larger than allowed."""


@dataclass(frozen=True)
class Entry:
    """A file to be written: its content is the parts, one after the other."""

    name: str
    parts: Sequence[memoryview]

    @property
    def size_bytes(self) -> int:
        return sum(len(part) for part in self.parts)


async def chunks(parts: Sequence[memoryview]) -> AsyncIterator[memoryview]:
    """The parts in pieces of at most CHUNK_BYTES; other tasks run in between."""
    for part in parts:
        for start in range(0, len(part), CHUNK_BYTES):
            yield part[start : start + CHUNK_BYTES]
            await sleep_ms(0)


async def pack(entries: Sequence[Entry]) -> list[memoryview]:
    """The bytes of an archive as parts; the entries' content is not copied."""
    out: list[memoryview] = []
    directory, at = b"", 0
    for entry in entries:
        size, name = entry.size_bytes, entry.name.encode()
        if at + size > MAX_FILE_BYTES:
            raise DataError(
                f"The checkpoint is larger than {MAX_FILE_BYTES >> 30} GiB.",
                "An archive of this kind cannot hold it.",
                "Save the weights alone, as bfloat16.",
            )
        crc = 0
        async for piece in chunks(entry.parts):
            crc = zlib.crc32(piece, crc)
        facts = struct.pack("<5H3I", 10, _UTF8_NAMES, 0, 0, _DOS_DATE, crc, size, size)
        head = _LOCAL_MAGIC + facts + struct.pack("<2H", len(name), 0) + name
        directory += b"PK\x01\x02" + struct.pack("<H", 0x0314) + facts
        directory += struct.pack("<5H2I", len(name), 0, 0, 0, 0, 0o644 << 16, at) + name
        out += [memoryview(head), *entry.parts]
        at += len(head) + size
    count = len(entries)
    end = struct.pack("<4H2IH", 0, 0, count, count, len(directory), at, 0)
    return [*out, memoryview(directory + b"PK\x05\x06" + end)]


class Archive:
    """A zip archive in memory; see ``Files``.  A single folder around all files is looked through.

    Raises DataError when it is no archive or an absurd one.
    """

    def __init__(self, data: bytes) -> None:
        _check_directory(data)
        self._data = memoryview(data)
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, RuntimeError, ValueError, OverflowError, struct.error) as cause:
            raise _damaged("its directory cannot be read") from cause
        listed = [info for info in self._zip.infolist() if not _is_noise(info.filename)]
        if len(listed) > MAX_ENTRIES:
            raise _damaged(f"it lists {len(listed):,} files, {MAX_ENTRIES} are allowed")
        folder = _common_folder([info.filename for info in listed])
        self._infos: dict[str, zipfile.ZipInfo] = {}
        for info in listed:
            name = info.filename.removeprefix(folder)
            if name in self._infos:
                raise _damaged(f"the file {name[:80]!r} occurs twice")
            self._infos[name] = info

    def names(self) -> Sequence[str]:
        return list(self._infos)

    def read(self, name: str, max_bytes: int) -> memoryview:
        info = self._infos.get(name)
        if info is None:
            raise DataError(f"The archive has no file {name}.", do="Choose a whole checkpoint.")
        if info.file_size > max_bytes:
            raise DataError(
                f"The file {name} in the archive claims {info.file_size:,} bytes.",
                f"It may have {max_bytes:,} at most.",
                "Choose another file.",
            )
        if info.flag_bits & 1:
            raise _damaged(f"the file {name} is encrypted")
        if info.compress_type == zipfile.ZIP_STORED:
            return self._stored(name, info)
        if info.compress_type != zipfile.ZIP_DEFLATED:
            raise _damaged(f"the file {name} is packed by an unknown method")
        try:
            with self._zip.open(info) as file:
                return memoryview(file.read(max_bytes + 1))
        except (
            zipfile.BadZipFile,
            RuntimeError,
            zlib.error,
            EOFError,
            ValueError,
            OSError,
        ) as cause:
            raise _damaged(f"the file {name} cannot be unpacked") from cause

    def _stored(self, name: str, info: zipfile.ZipInfo) -> memoryview:
        """The entry's bytes where they lie; their checksum is compared."""
        start = info.header_offset
        head = self._data[start : start + _LOCAL_BYTES]
        if len(head) < _LOCAL_BYTES or bytes(head[:4]) != _LOCAL_MAGIC:
            raise _damaged(f"the file {name} is not where the directory says")
        first = start + _LOCAL_BYTES + sum(struct.unpack_from("<2H", head, 26))
        content = self._data[first : first + info.file_size]
        if len(content) != info.file_size or info.compress_size != info.file_size:
            raise _damaged(f"the file {name} is cut off")
        if zlib.crc32(content) != info.CRC:
            raise _damaged(f"the checksum of the file {name} is wrong")
        return content


def _check_directory(data: bytes) -> None:
    """Raises DataError when reading the directory could take much memory.

    The end record is the one that ``zipfile`` takes.
    """
    at = data.rfind(_END_MAGIC, max(0, len(data) - _END_BYTES - _MAX_COMMENT_BYTES))
    if at < 0 or at + _END_BYTES > len(data):
        raise _damaged("its directory cannot be read")
    if data[max(0, at - _LOCATOR64_BYTES) : at].startswith(_LOCATOR64_MAGIC):
        raise _damaged("it is of the 64-bit kind, which no checkpoint needs")
    (size,) = struct.unpack_from("<I", data, at + 12)
    if size > MAX_DIRECTORY_BYTES:
        raise _damaged(f"its directory claims {size:,} bytes")


def _is_noise(name: str) -> bool:
    """Folders, and what macOS adds to archives."""
    parts = name.split("/")
    return not parts[-1] or parts[0] == "__MACOSX" or parts[-1] == ".DS_Store"


def _common_folder(names: Sequence[str]) -> str:
    """The folder that holds all files, or an empty text."""
    if any(name == "config.json" for name in names) or not names:
        return ""
    folder = names[0].partition("/")[0] + "/"
    return folder if all(name.startswith(folder) for name in names) else ""


def _damaged(reason: str) -> DataError:
    return DataError(
        f"The archive is damaged: {reason}.",
        "Nothing of it is used.",
        "Choose another file, or download it again.",
    )
