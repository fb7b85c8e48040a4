"""Try the real Hub: ``python3 build.py livecheck [DATASET]``, for machines with internet.

Asks for what the page asks for (listing, footer, one row group, each with an Origin header as from
a page) and reports whether ranges, CORS and the compression are as the data Worker needs them, and
how fast the bytes come.  Downloads a few megabytes.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message

import pyarrow.parquet as pq

from daisychain.data.hub import (
    HUB_ADDRESS,
    Listing,
    choose_split,
    file_address,
    parquet_files,
    tree_address,
)
from daisychain.data.reader import FOOTER_GUESS_BYTES, FOOTER_GUESS_SHARE
from daisychain.data.slices import MAX_CHUNK_BYTES, MAX_UNPACKED_BYTES
from daisychain.data.spec import FINEWEB_EDU, parse_dataset
from daisychain.errors import DaisyChainError, DataError

ORIGIN = "https://daisychain.example"
TIMEOUT_S = 60.0
CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "ZSTD", "GZIP", "BROTLI", "LZ4", "LZ4_RAW"})


@dataclass(frozen=True)
class Answer:
    """One answer of the Hub or of its storage host."""

    status: int
    url: str
    headers: Message
    body: bytes
    seconds: float

    @property
    def host(self) -> str:
        return self.url.split("/")[2]

    @property
    def cors(self) -> bool:
        return self.headers.get("Access-Control-Allow-Origin") in ("*", ORIGIN)


class Report:
    """Lines of the report; ``failures`` counts what the page could not live with."""

    def __init__(self, write: Callable[[str], object] = print) -> None:
        self._write, self.failures = write, 0

    def line(self, what: str, good: bool | None, detail: str) -> None:
        """``good`` is None for what is only worth knowing."""
        mark = {True: "ok", False: "FAILS", None: "note"}[good]
        self.failures += good is False
        self._write(f"{mark:<6}{what:<28}{detail}")


def ask(url: str, headers: dict[str, str] | None = None, method: str = "GET") -> Answer:
    """One request as a page would send it; statuses other than 2xx are answers too."""
    request = urllib.request.Request(
        url, method=method, headers={"Origin": ORIGIN, **(headers or {})}
    )
    start = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            body = response.read(MAX_CHUNK_BYTES)
            seconds = time.monotonic() - start
            return Answer(response.status, response.url, response.headers, body, seconds)
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.url or url, error.headers, b"", time.monotonic() - start)


def ask_range(url: str, start: int, end: int) -> Answer:
    return ask(url, {"Range": f"bytes={start}-{end - 1}"})


def check_listing(report: Report, hub: str, name: str) -> Listing:
    spec = parse_dataset(name)
    answer = ask(tree_address(hub, spec))
    good = answer.status == 200 and answer.cors
    report.line("listing", good, f"{answer.host}: {answer.status}, CORS {answer.cors}")
    if answer.status != 200:
        raise DataError(f"The list of files of {name} could not be had.")
    listing = choose_split(spec, list(parquet_files(json.loads(answer.body))))
    size = sum(file.bytes for file in listing.files)
    report.line("files", bool(listing.files), f"{len(listing.files)} files, {size:,} bytes")
    return listing


def check_range(report: Report, what: str, answer: Answer, start: int, end: int, size: int) -> None:
    wanted = f"bytes {start}-{end - 1}/{size}"
    sent = answer.headers.get("Content-Range", "none")
    good = answer.status == 206 and sent == wanted and len(answer.body) == end - start
    report.line(what, good, f"{answer.host}: {answer.status}, Content-Range {sent}")
    report.line(f"{what}, CORS", answer.cors, "readable by pages" if answer.cors else "hidden")
    exposed = answer.headers.get("Access-Control-Expose-Headers", "").lower()
    shown = "content-range" in exposed or "*" in exposed
    report.line(f"{what}, header shown", None, f"Content-Range {'exposed' if shown else 'hidden'}")


def check_file(report: Report, hub: str, listing: Listing) -> None:
    file = listing.files[0]
    address = file_address(hub, listing.spec, file.path)
    low, high = FOOTER_GUESS_BYTES
    start = max(0, file.bytes - min(max(file.bytes // FOOTER_GUESS_SHARE, low), high))
    tail = ask_range(address, start, file.bytes)
    check_range(report, "footer", tail, start, file.bytes, file.bytes)
    length = int.from_bytes(tail.body[-8:-4], "little") + 8
    one = length <= len(tail.body)
    report.line("footer in one request", None, f"{length:,} of {len(tail.body):,} bytes asked for")
    preflight = ask(
        tail.url,
        {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "range"},
        "OPTIONS",
    )
    report.line("preflight", None, f"{preflight.host}: {preflight.status} (not needed by pages)")
    if tail.status != 206:
        return
    if not one:
        rest = ask_range(tail.url, file.bytes - length, start)
        tail = Answer(206, tail.url, tail.headers, rest.body + tail.body, tail.seconds)
    check_row_group(report, tail, file.bytes)


def check_row_group(report: Report, tail: Answer, size: int) -> None:
    # A file of the right length with nothing but its footer: enough for pyarrow to read that.
    metadata = pq.read_metadata(io.BytesIO(b"PAR1" + tail.body))
    schema = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    texts = [i for i, c in enumerate(schema) if c.converted_type == "UTF8" and "." not in c.path]
    report.line("text columns", bool(texts), ", ".join(schema[i].name for i in texts) or "none")
    if not texts:
        return
    place = next((i for i in texts if schema[i].name == "text"), texts[0])
    chunk = metadata.row_group(0).column(place)
    rows = metadata.row_group(0).num_rows
    report.line("compression", chunk.compression in CODECS, chunk.compression)
    packed, unpacked = chunk.total_compressed_size, chunk.total_uncompressed_size
    fits = packed <= MAX_CHUNK_BYTES and unpacked <= MAX_UNPACKED_BYTES
    detail = f"{metadata.num_row_groups} of about {rows} rows, {packed:,} -> {unpacked:,} bytes"
    report.line("row groups", fits, detail)
    if not fits:
        return
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    answer = ask_range(tail.url, start, start + packed)
    check_range(report, "row group", answer, start, start + packed, size)
    rate = len(answer.body) / max(answer.seconds, 1e-9) / 1e6
    report.line(
        "speed", None, f"{len(answer.body):,} bytes in {answer.seconds:.2f} s, {rate:.2f} MB/s"
    )


def livecheck(hub: str, name: str, report: Report) -> int:
    """Run all checks; the number of those that failed."""
    try:
        check_file(report, hub, check_listing(report, hub, name))
    except (urllib.error.URLError, TimeoutError) as error:
        report.line("connection", False, f"{hub} cannot be reached ({error})")
    except DaisyChainError as error:
        report.line("dataset", False, str(error))
    return report.failures


def main() -> int:
    parser = argparse.ArgumentParser(prog="build.py livecheck", description=__doc__.splitlines()[0])
    parser.add_argument("dataset", nargs="?", default=FINEWEB_EDU)
    parser.add_argument("--hub", default=HUB_ADDRESS)
    options = parser.parse_args()
    return min(livecheck(options.hub, options.dataset, Report()), 1)


if __name__ == "__main__":
    sys.exit(main())
