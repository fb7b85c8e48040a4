"""The reference reader over HTTP: urllib for the ranges, pyarrow for what they hold."""

from __future__ import annotations

import asyncio
import io
import re
import urllib.error
import urllib.request
from email.message import Message
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from daisychain.data.port import (
    ChunkRequest,
    DataFile,
    Fetched,
    JsonAnswer,
    PortFailure,
    TokenBlock,
    TokenTable,
)
from daisychain.data.slices import Footer, RowGroup
from tests.data.reference import ArrayTokens, ReferencePort


def http_get(url: str, wanted: tuple[int, int] | None = None) -> tuple[int, bytes, Message, str]:
    """One GET; failures as the data Worker tells them apart."""
    headers = {"Range": f"bytes={wanted[0]}-{wanted[1] - 1}"} if wanted else {}
    host = url.split("/")[2]
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as response:
            try:
                body = response.read()
            except Exception as error:
                raise PortFailure("short", f"{host} broke off ({error})", host=host) from error
            return response.status, body, response.headers, response.url
    except urllib.error.HTTPError as error:
        raise PortFailure(
            "status",
            f"{host} answered {error.code}",
            host=host,
            status=error.code,
            retry_after=error.headers.get("Retry-After") or "",
        ) from error
    except urllib.error.URLError as error:
        raise PortFailure("network", f"{host} cannot be reached", host=host) from error


class HttpReferencePort(ReferencePort):
    """Reads datasets of a Hub; ``waits`` has every pause that was asked for, none is made."""

    sparse: ClassVar[dict[int, bytearray]] = {}
    """What is known of each file, told apart by their sizes; a room's members share a footer."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.read: list[tuple[int, int, int, int]] = []

    async def load_tokenizer(self, file: DataFile, max_bytes: int) -> TokenTable:
        if not file.url.startswith("http"):
            return await super().load_tokenizer(file, max_bytes)
        _, body, _, _ = await asyncio.to_thread(http_get, file.url)
        return self.use_tokenizer(body.decode())

    async def read_json(self, file: DataFile, max_bytes: int) -> JsonAnswer:
        _, body, headers, _ = await asyncio.to_thread(http_get, file.url)
        following = re.search(r'<([^>]*)>; rel="next"', headers.get("Link") or "")
        return JsonAnswer(body.decode(), following[1] if following else "")

    async def _range(self, file: DataFile, start: int, end: int, size: int) -> tuple[bytes, str]:
        if file.handle is not None:
            return file.handle[start:end], ""
        status, body, headers, url = await asyncio.to_thread(http_get, file.url, (start, end))
        if status != 206:
            raise PortFailure("whole", "sent the whole file where a part was asked for")
        sent, _, total = (headers.get("Content-Range") or "").removeprefix("bytes ").partition("/")
        if sent != f"{start}-{end - 1}":
            raise PortFailure("range", f"sent bytes {sent}")
        if int(total) != size:
            raise PortFailure("changed", f"the file has {total} bytes")
        if len(body) != end - start:
            raise PortFailure("short", f"sent {len(body)} of {end - start} bytes")
        return body, url

    def _buffer(self, size: int) -> bytearray:
        return self.sparse.setdefault(size, bytearray(size))

    async def read_footer(
        self, file: DataFile, file_bytes: int, column: str, guess_bytes: int, max_bytes: int
    ) -> Fetched:
        start = max(0, file_bytes - guess_bytes)
        body, url = await self._range(file, start, file_bytes, file_bytes)
        buffer = self._buffer(file_bytes)
        buffer[start:] = body
        parquet = self._open(buffer)
        names = [field.name for field in parquet.schema_arrow if field.type == pa.string()]
        name = column or ("text" if "text" in names else names[0])
        if name not in names:
            raise PortFailure("column", f"it has no text column named {name}")
        place = parquet.schema_arrow.get_field_index(name)
        groups = []
        for number in range(parquet.num_row_groups):
            chunk = parquet.metadata.row_group(number).column(place)
            first = chunk.dictionary_page_offset or chunk.data_page_offset
            groups.append(
                RowGroup(
                    parquet.metadata.row_group(number).num_rows,
                    first,
                    first + chunk.total_compressed_size,
                    chunk.total_uncompressed_size,
                    chunk.compression,
                )
            )
        return Fetched(Footer(name, True, tuple(groups)), url, len(body))

    @staticmethod
    def _open(buffer: bytearray) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(io.BytesIO(bytes(buffer)))
        except (pa.ArrowInvalid, OSError) as error:
            raise PortFailure("damaged", str(error)) from error

    async def read_rows(
        self, file: DataFile, chunk: ChunkRequest, first: int, last: int, separator: int, least: int
    ) -> Fetched:
        buffer = self._buffer(chunk.file_bytes)
        body, url = await self._range(file, chunk.start, chunk.end, chunk.file_bytes)
        buffer[chunk.start : chunk.end] = body
        parquet = self._open(buffer)
        for number in range(parquet.num_row_groups):
            metadata = parquet.metadata.row_group(number)
            for place in range(metadata.num_columns):
                column = metadata.column(place)
                if chunk.start in (column.dictionary_page_offset, column.data_page_offset):
                    name = column.path_in_schema
                    try:
                        table = parquet.read_row_group(number, columns=[name])
                    except (pa.ArrowInvalid, OSError) as error:
                        raise PortFailure("damaged", str(error)) from error
                    if table.num_rows != chunk.rows:
                        raise PortFailure("damaged", f"it has {table.num_rows} rows")
                    texts = table.column(0).to_pylist()[first:last]
                    self.read.append((chunk.file_bytes, number, first, last))
                    return Fetched(self._padded(texts, separator, least), url, len(body))
        raise PortFailure("damaged", "no column chunk starts there")

    def _padded(self, texts: list[str | None], separator: int, least: int) -> TokenBlock:
        block = self.block([text for text in texts if text is not None], separator)
        ids = list(block.tokens.ids(0, len(block.tokens)))
        ids += [separator] * (least - len(ids))
        return TokenBlock(ArrayTokens(ids), block.documents, block.bytes)

    async def wait(self, seconds: float, wakes: bool) -> None:
        self.waits.append(seconds)

    async def cached_bytes(self) -> int:
        return 0

    async def clear_cache(self) -> None:
        """Nothing is kept."""
