"""Files that somebody made to do harm: refused in a sentence, before they cost memory."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.errors import DataError
from daisychain.export.archive import MAX_DIRECTORY_BYTES
from daisychain.export.checkpoint import RUN_FILE, read_archive, write_checkpoint
from daisychain.export.hugging_face import TOKENIZER_FILE, WEIGHTS_FILE
from daisychain.export.json_files import MAX_JSON_VALUES, read_object
from tests.export.models import trained

SLACK_BYTES = 12 << 20
"""What reading may take beside the file itself."""


@cache
def archived() -> bytes:
    return b"".join(asyncio.run(write_checkpoint(trained())))


@cache
def files() -> dict[str, bytes]:
    """Those of a model without a run: no manifest tells what they have to be."""
    with zipfile.ZipFile(io.BytesIO(archived())) as found:
        names = (n for n in found.namelist() if n != "manifest.json" and "/" not in n)
        return {name: found.read(name) for name in names}


def zipped(changed: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as made:
        for name, data in (files() | changed).items():
            made.writestr(name, data)
    return out.getvalue()


def refused(data: bytes, reason: str) -> int:
    """Bytes that Python took at most until it said no."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=reason):
            asyncio.run(read_archive(data))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def end_record(directory_bytes: int, entries: int = 1) -> bytes:
    return b"PK\5\6" + struct.pack("<4H2IH", 0, 0, entries, entries, directory_bytes, 0, 0)


def huge_directory() -> bytes:
    entry = b"PK\1\2" + bytes(24) + struct.pack("<H", 1) + bytes(16) + b"a"
    count = 2 * MAX_DIRECTORY_BYTES // len(entry)
    return b"PK" + entry * count + end_record(len(entry) * count, count & 0xFFFF)


def of_64_bits() -> bytes:
    """An end record that is harmless by itself, and one of 64 bits before it."""
    directory = huge_directory()[2:-22]
    wide = b"PK\6\6" + struct.pack("<Q2H2I4Q", 44, 45, 45, 0, 0, 1, 1, len(directory), 0)
    locator = b"PK\6\7" + struct.pack("<IQI", 0, len(directory), 1)
    return b"PK" + directory + wide + locator + end_record(47)


def safetensors_of(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header


def encrypted() -> bytes:
    """The flag of config.json's entry in the directory says that it is encrypted."""
    data = bytearray(zipped({}))
    name = data.rindex(b"config.json", 0, data.rindex(b"generation_config.json"))
    assert data[name - 46 : name - 42] == b"PK\1\2"
    data[name - 46 + 8] |= 1
    return bytes(data)


def renamed(folder: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, data in files().items():
            made.writestr(f"{'' if name == WEIGHTS_FILE else folder}{name}", data)
    return out.getvalue()


def many_tensors() -> bytes:
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"{n}": entry for n in range(12_000)}, separators=(",", ":"))
    return safetensors_of(header.encode())


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "huge directory": (huge_directory, "directory claims"),
    "64 bits": (of_64_bits, "64-bit kind"),
    "encrypted": (encrypted, "is encrypted"),
    "unknown method": (lambda: zipped({}, zipfile.ZIP_BZIP2), "unknown method"),
    "names that leave the folder": (lambda: renamed("../"), "no file config.json"),
    "absolute names": (lambda: renamed("/etc/"), "no file config.json"),
    "a page": (lambda: b"<!DOCTYPE html>\n" + bytes(1 << 20), "inference kit"),
    "a text": (lambda: b"Dear reader, " * 1000, "no checkpoint"),
    "a tokenizer of lists": (
        lambda: zipped({TOKENIZER_FILE: b"[" + b"[]," * MAX_JSON_VALUES + b"[]]"}),
        "too many values",
    ),
    "a bomb of a tokenizer": (
        lambda: zipped({TOKENIZER_FILE: bytes(70 << 20)}, zipfile.ZIP_DEFLATED),
        "may have",
    ),
    "a bomb in the weights": (
        lambda: zipped({WEIGHTS_FILE: bytes(70 << 20)}, zipfile.ZIP_DEFLATED),
        "may have",
    ),
    "deep": (lambda: zipped({WEIGHTS_FILE: safetensors_of(b'{"a":' * 50_000)}), "not JSON"),
    "many tensors": (lambda: zipped({WEIGHTS_FILE: many_tensors()}), "12,000 tensors"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_cost_nothing(name: str) -> None:
    make, reason = HOSTILE[name]
    data = make()
    assert refused(data, reason) < len(data) + SLACK_BYTES


@given(
    st.sampled_from(["config.json", TOKENIZER_FILE, WEIGHTS_FILE]),
    st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=6)), min_size=1, max_size=3),
)
@settings(max_examples=100, deadline=None)
def test_damage_in_a_file_never_raises_anything_else(
    name: str, changes: list[tuple[float, bytes]]
) -> None:
    data = bytearray(files()[name])
    for place, noise in changes:
        at = int(place * len(data))
        data[at : at + len(noise)] = noise
    with contextlib.suppress(DataError):
        asyncio.run(read_archive(zipped({name: bytes(data)})))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.sampled_from(sorted(json.loads(files()["config.json"]))), values)
@settings(max_examples=60, deadline=None)
def test_no_value_in_the_config_raises_anything_else(key: str, value: object) -> None:
    config = json.loads(files()["config.json"]) | {key: value}
    with contextlib.suppress(DataError):
        asyncio.run(read_archive(zipped({"config.json": json.dumps(config).encode()})))


@given(st.binary(max_size=60))
def test_json_is_an_object_or_a_sentence(data: bytes) -> None:
    with contextlib.suppress(DataError):
        assert isinstance(read_object(data, RUN_FILE), dict)


@given(st.integers(0, 1 << 17), st.binary(max_size=30))
@settings(max_examples=60, deadline=None)
def test_noise_after_an_archive_is_harmless(cut: int, tail: bytes) -> None:
    data = archived()
    with contextlib.suppress(DataError):
        found = asyncio.run(read_archive(data[: max(4, len(data) - cut)] + tail))
        assert found == trained()
