"""Pack the embedded corpus: ``data/embedded.parquet`` and ``data/embedded-heldout.parquet``.

    python scripts/make_corpus.py FOLDER

``FOLDER`` holds ``default.txt`` and ``default-val.txt``: four public-domain works (NOTICE names
them), paragraphs separated by one blank line, chapters and works by two; the second file is the
last 5% of each work.  The columns are FineWeb-Edu's, so one reader serves both; scores that only
its classifier could give are null.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

DOCUMENT_CHARACTERS = 4_000
ROWS_PER_GROUP = 64
ZSTD_LEVEL = 22

CANDLE = "https://www.gutenberg.org/ebooks/14474"
HISTORY = "https://www.gutenberg.org/ebooks/35461"
ALICE = "https://standardebooks.org/ebooks/lewis-carroll/alices-adventures-in-wonderland"
ASTRONOMERS = "https://www.gutenberg.org/ebooks/2298"

FILES = (
    ("default.txt", "embedded", [CANDLE, HISTORY, *[ALICE] * 12, ASTRONOMERS]),
    ("default-val.txt", "embedded-heldout", [CANDLE, HISTORY, ALICE, ASTRONOMERS]),
)
"""Source, output and the work that each piece of the source (split at two blank lines) is from."""

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("id", pa.string()),
        ("dump", pa.string()),
        ("url", pa.string()),
        ("file_path", pa.string()),
        ("language", pa.string()),
        ("language_score", pa.float64()),
        ("token_count", pa.int64()),
        ("score", pa.float64()),
        ("int_score", pa.int64()),
    ]
)

DATA = Path(__file__).resolve().parent.parent / "data"


def split_documents(piece: str) -> Iterator[str]:
    """Whole paragraphs, gathered until a document has its few thousand characters."""
    document = ""
    for paragraph in piece.strip("\n").split("\n\n"):
        document = f"{document}\n\n{paragraph}" if document else paragraph
        if len(document) >= DOCUMENT_CHARACTERS:
            yield document
            document = ""
    if document:
        yield document


def rows(
    text: str, addresses: list[str], name: str, tokenizer: Tokenizer
) -> Iterator[dict[str, object]]:
    pieces = text.split("\n\n\n")
    if len(pieces) != len(addresses):
        raise SystemExit(f"{name}: {len(pieces)} pieces, but {len(addresses)} are expected.")
    number = 0
    for address, piece in zip(addresses, pieces, strict=True):
        for document in split_documents(piece):
            yield {
                "text": document,
                "id": f"{name}-{number:04}",
                "dump": name,
                "url": address,
                "file_path": f"{name}.parquet",
                "language": "en",
                "language_score": None,
                "token_count": len(tokenizer.encode(document).ids),
                "score": None,
                "int_score": None,
            }
            number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the folder with default.txt, default-val.txt")
    folder = parser.parse_args().folder
    tokenizer = Tokenizer.from_file(str(DATA / "tokenizer.json"))
    for source, name, addresses in FILES:
        text = (folder / source).read_text(encoding="utf-8")
        table = pa.Table.from_pylist(list(rows(text, addresses, name, tokenizer)), schema=SCHEMA)
        path = DATA / f"{name}.parquet"
        pq.write_table(
            table,
            path,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            row_group_size=ROWS_PER_GROUP,
            use_dictionary=["dump", "url", "file_path", "language"],
            write_statistics=False,
            store_schema=False,
        )
        print(f"{path.name}: {table.num_rows} rows, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
