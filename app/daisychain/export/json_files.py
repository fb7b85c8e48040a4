"""JSON files of strangers: read strictly, into plain objects."""

from __future__ import annotations

import json
from typing import Any

from daisychain.errors import DataError

MAX_JSON_BYTES = 1 << 20
MAX_JSON_VALUES = 1 << 22
"""Each takes some 60 bytes once read; the largest tokenizers have a third of that."""


def read_object(data: bytes | memoryview, name: str) -> dict[str, Any]:
    """The JSON object in a file called ``name``.  Raises DataError when it is none."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no JSON")

    text = bytes(data)
    if sum(map(text.count, (b",", b"[", b"{"))) > MAX_JSON_VALUES:
        raise DataError(f"The file {name} holds too many values.", "Nothing of it is used.")
    try:
        value = json.loads(text.decode("utf-8"), parse_constant=refuse)
    except UnicodeDecodeError as cause:
        raise DataError(f"The file {name} is not UTF-8.", "Nothing of it is used.") from cause
    except (ValueError, RecursionError) as cause:
        raise DataError(f"The file {name} is not JSON.", "Nothing of it is used.") from cause
    if not isinstance(value, dict):
        raise DataError(f"The file {name} holds no JSON object.", "Nothing of it is used.")
    return value


def write_object(value: dict[str, Any]) -> bytes:
    """The bytes of a JSON file that people may read."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def whole(value: Any, least: int, most: int) -> int | None:
    """``value`` if it is a whole number within the limits."""
    return value if type(value) is int and least <= value <= most else None
