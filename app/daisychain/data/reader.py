"""Reads units of a parquet dataset through the port: retries, expired addresses, damaged groups."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence

from daisychain.data.hub import Listing, file_address
from daisychain.data.port import ChunkRequest, DataFile, Fetched, PortFailure, TokenBlock
from daisychain.data.retry import Retry
from daisychain.data.slices import MAX_UNPACKED_BYTES, Footer, Unit
from daisychain.data.tokenizer import Tokenizer

MAX_FOOTER_BYTES = 1 << 24
FOOTER_GUESS_BYTES = (1 << 16, 1 << 22)
FOOTER_GUESS_SHARE = 512
"""FineWeb-Edu's footers are 1/760 of their files: one request gets them, also for small files."""

EXPIRED_STATUS = frozenset({400, 401, 403, 404, 410})
"""What storage hosts answer when a signed address is no longer valid."""


class DatasetReader:
    """Footers and rows of a list of files, each file by an address or as the person's own."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        retry: Retry,
        files: Sequence[DataFile],
        listing: Listing,
        told: Collection[int] = (),
    ) -> None:
        """``files[i]`` is where ``listing.files[i]`` is to be had; ``told`` are the files whose
        footers came from another device."""
        self.tokenizer, self.retry, self.listing = tokenizer, retry, listing
        self._files, self._told = files, told
        self._own: dict[int, Footer] = {}
        self._checking = asyncio.Lock()
        self.corrections: list[str] = []
        """One sentence for each file whose footer another device told wrongly."""
        self._resolved: dict[int, str] = {}
        self._resolving: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.received_bytes = 0

    async def footer(self, number: int) -> Footer:
        """The footer of a file, without groups if it has no rows.  Raises PortFailure naming it."""
        facts = self.listing.files[number]
        low, high = FOOTER_GUESS_BYTES
        guess = min(max(facts.bytes // FOOTER_GUESS_SHARE, low), high)

        async def read(file: DataFile) -> Fetched:
            column, port = self.listing.spec.column, self.tokenizer.port
            return await port.read_footer(file, facts.bytes, column, guess, MAX_FOOTER_BYTES)

        what = f"the footer of {facts.path}"
        try:
            fetched = await self._fetch(number, what, read)
        except PortFailure as failure:
            if failure.kind != "damaged":
                raise
            # Bytes may be spoilt on the way: what is damaged twice is damaged at its source.
            fetched = await self._fetch(number, what, read)
        footer = fetched.value
        if not isinstance(footer, Footer):
            raise TypeError("the port answered something else than a footer")
        return footer

    async def rows(self, footer: Footer, unit: Unit, least_tokens: int) -> TokenBlock:
        """The tokens of a unit.  Raises PortFailure of kind ``damaged`` if its group is broken.

        Where a footer that another device told leads nowhere, the file's own says where the group
        is.  What the told one says of its rows stays in force: every device plans with it.
        """
        if unit.file not in self._told:
            return await self._read(footer, unit, least_tokens)
        if unit.file not in self._own:
            try:
                return await self._read(footer, unit, least_tokens)
            except PortFailure as failure:
                if failure.kind != "damaged":
                    raise
                async with self._checking:
                    if unit.file not in self._own:
                        self._own[unit.file] = await self.footer(unit.file)
                if self._own[unit.file] == footer:
                    raise
        return await self._read(self._corrected(footer, unit), unit, least_tokens)

    def _corrected(self, told: Footer, unit: Unit) -> Footer:
        """The file's own footer, if a group has the rows and the size that the room plans with."""
        own, path = self._own[unit.file], self.listing.files[unit.file].path
        true = own.groups[unit.group] if unit.group < len(own.groups) else None
        group = told.groups[unit.group]
        if true is None or (true.rows, true.unpacked) != (group.rows, group.unpacked):
            has = f"{true.rows} rows in {true.unpacked} bytes" if true else "no such row group"
            raise PortFailure(
                "damaged",
                f"row group {unit.group} of {path}: the room plans with {group.rows} rows in "
                f"{group.unpacked} bytes, the file has {has}",
                do="It is passed over on every device.",
            )
        if true != group or own.optional != told.optional:
            sentence = f"The room's footer is wrong at row group {unit.group} of {path}."
            if not any(path in other for other in self.corrections):
                self.corrections.append(f"{sentence} The file's own is used.")
        return own

    async def _read(self, footer: Footer, unit: Unit, least_tokens: int) -> TokenBlock:
        facts, group = self.listing.files[unit.file], footer.groups[unit.group]
        key = f"{facts.identity} {group.start}-{group.end}" if facts.identity else ""
        chunk = ChunkRequest(
            start=group.start,
            end=group.end,
            rows=group.rows,
            codec=group.codec,
            optional=footer.optional,
            file_bytes=facts.bytes,
            max_unpacked_bytes=MAX_UNPACKED_BYTES,
            cache_key=key,
        )
        tokenizer = self.tokenizer
        fetched = await self._fetch(
            unit.file,
            f"row group {unit.group} of {facts.path}",
            lambda file: tokenizer.port.read_rows(
                file, chunk, unit.first, unit.last, tokenizer.end_of_text, least_tokens
            ),
        )
        block = fetched.value
        if not isinstance(block, TokenBlock):
            raise TypeError("the port answered something else than tokens")
        return block

    async def _fetch(
        self, number: int, what: str, call: Callable[[DataFile], Awaitable[Fetched]]
    ) -> Fetched:
        """Through the address that last answered, and through the Hub again once that expires: by
        one request, while the file's others wait for what it finds."""

        async def attempt() -> Fetched:
            while resolved := self._resolved.get(number):
                try:
                    return await call(DataFile(resolved))
                except PortFailure as failure:
                    if failure.kind != "status" or failure.status not in EXPIRED_STATUS:
                        raise
                    if self._resolved.get(number) == resolved:
                        del self._resolved[number]
            if not self._files[number].url:
                return await call(self._files[number])
            async with self._resolving[number]:
                if not self._resolved.get(number):
                    fetched = await call(self._files[number])
                    self._resolved[number] = fetched.url
                    return fetched
            return await attempt()

        fetched = await self.retry.run(what, attempt)
        self.received_bytes += fetched.received_bytes
        return fetched


def remote_files(hub: str, listing: Listing) -> list[DataFile]:
    """The address of each file of a listing."""
    return [DataFile(file_address(hub, listing.spec, file.path)) for file in listing.files]
