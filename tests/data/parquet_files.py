"""Parquet files in FineWeb-Edu's column layout, made by pyarrow when a test needs them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

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
PHRASES = """
the of and to in a is that for it as was with be by on not he his but at are this have from
or had an they which one you were all her she there would their we him been has when who will
no more if out so up said what its about than into them can only other time new some could
science teaches light energy water cells history people world numbers learning
"""


def prose(rows: int, seed: int, words: int = 60) -> list[str]:
    """Documents of made-up English, each opened by its own number."""
    chance = random.Random(seed)
    return [
        f"Document {seed}-{row}. "
        + " ".join(chance.choices(PHRASES.split(), k=chance.randint(5, 2 * words)))
        for row in range(rows)
    ]


def write_parquet(
    path: Path,
    texts: Sequence[str | None],
    *,
    codec: str = "snappy",
    row_group_rows: int = 10,
    **options: object,
) -> Path:
    """FineWeb-Edu's columns around the texts."""
    count = len(texts)
    table = pa.table(
        {
            "text": pa.array(texts, pa.string()),
            "id": [f"<urn:uuid:{row:032x}>" for row in range(count)],
            "dump": ["CC-MAIN-2024-10"] * count,
            "url": [f"https://example.org/{row}" for row in range(count)],
            "file_path": ["s3://commoncrawl/x.warc.gz"] * count,
            "language": ["en"] * count,
            "language_score": [0.97] * count,
            "token_count": [len((text or "").split()) for text in texts],
            "score": [3.1] * count,
            "int_score": [3] * count,
        },
        schema=SCHEMA,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression=codec, row_group_size=row_group_rows, **options)
    return path
