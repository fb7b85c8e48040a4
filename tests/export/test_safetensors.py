"""The safetensors reader and writer: against the reference library, and against hostile files."""

from __future__ import annotations

import contextlib
import json
import struct
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import example, given
from hypothesis import strategies as st

from daisychain.errors import DataError
from daisychain.export.safetensors import MAX_HEADER_BYTES, Tensor, decode, encode


def tensor(values: np.ndarray[Any, Any], dtype: str) -> Tensor:
    return Tensor(dtype, values.shape, memoryview(values.tobytes()))


ODD = {
    "a": tensor(np.arange(3, dtype=np.uint8), "U8"),
    "b": tensor(np.arange(5, dtype=np.float32), "F32"),
    "ünï": tensor(np.arange(7, dtype=np.float16).reshape(7, 1), "F16"),
    "scalar": tensor(np.array(2.5, np.float64), "F64"),
    "empty": tensor(np.zeros((0, 4), np.float32), "F32"),
}


def written(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    return b"".join(encode(tensors, metadata or {}))


def test_the_reference_reads_odd_lengths() -> None:
    data = written(ODD, {"format": "pt"})
    found = safetensors.numpy.load(data)
    assert set(found) == set(ODD)
    for name, value in found.items():
        assert value.tobytes() == ODD[name].data.tobytes()
        assert value.shape == ODD[name].shape


def test_the_head_is_padded_with_spaces_and_tensors_are_aligned() -> None:
    for length in range(1, 9):
        data = written({"x" * length: ODD["a"], "y": ODD["b"]})
        (size,) = struct.unpack_from("<Q", data)
        header = data[8 : 8 + size]
        assert (8 + size) % 8 == 0
        assert header.rstrip(b" ").endswith(b"}")
        assert b"\0" not in header
        for entry in json.loads(header).values():
            width = {"F32": 4, "U8": 1}[entry["dtype"]]
            assert entry["data_offsets"][0] % width == 0


def test_we_read_what_the_reference_writes() -> None:
    arrays = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "y": np.arange(3, dtype=np.int64)}
    file = decode(memoryview(safetensors.numpy.save(arrays, {"format": "np"})))
    assert file.metadata == {"format": "np"}
    assert {n: (t.dtype, t.shape, bytes(t.data)) for n, t in file.tensors.items()} == {
        "x": ("F32", (3, 4), arrays["x"].tobytes()),
        "y": ("I64", (3,), arrays["y"].tobytes()),
    }


def test_what_was_written_is_read() -> None:
    file = decode(memoryview(written(ODD, {"a": "b"})))
    assert dict(file.tensors) == ODD
    assert file.metadata == {"a": "b"}


def made(header: Any, content: bytes = b"", length: int | None = None) -> memoryview:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return memoryview(struct.pack("<Q", len(text) if length is None else length) + text + content)


def entry(first: int, end: int, shape: list[Any], dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, end]}


HOSTILE: dict[str, tuple[memoryview, str]] = {
    "nothing": (memoryview(b""), "only 0 bytes"),
    "huge header": (made({}, length=2**63), "header claims"),
    "over the limit": (made({}, length=MAX_HEADER_BYTES + 1), "are allowed"),
    "header past the end": (made({}, length=100), "the file ends before"),
    "NUL padding": (made(b'{"a":1}\0'), "not JSON"),
    "no object": (made([1]), "no JSON object"),
    "not UTF-8": (made(b'{"\xff":1}'), "not UTF-8"),
    "deep": (made(b'{"a":' + b"[" * 100_000), "not JSON"),
    "long number": (made(b'{"a":' + b"9" * 5_000 + b"}"), "not JSON"),
    "twice": (made(b'{"a":1,"a":1}'), "twice"),
    "metadata": (made({"__metadata__": {"a": 1}}), "metadata"),
    "entry": (made({"a": 3}), "malformed"),
    "missing key": (made({"a": {"dtype": "U8", "shape": [1]}}, b"x"), "malformed"),
    "type": (made({"a": entry(0, 1, [1], "F3")}, b"x"), "unknown type"),
    "outside": (made({"a": entry(0, 2, [2])}, b"x"), "outside"),
    "backwards": (made({"a": entry(1, 0, [0])}, b"x"), "outside"),
    "negative": (made({"a": entry(-1, 0, [1])}, b"x"), "outside"),
    "fraction": (made({"a": entry(0, 1, [1.0])}, b"x"), "shape"),
    "true": (made({"a": entry(0, 1, [True])}, b"x"), "shape"),
    "overflow": (made({"a": entry(0, 1, [2**62, 2**62])}, b"x"), "as many bytes"),
    "many dimensions": (made({"a": entry(0, 1, [1] * 9)}, b"x"), "shape"),
    "overlap": (made({"a": entry(0, 2, [2]), "b": entry(1, 3, [2])}, b"xyz"), "overlaps"),
    "same place": (made({"a": entry(0, 2, [2]), "b": entry(0, 2, [2])}, b"xy"), "overlaps"),
    "gap": (made({"a": entry(0, 1, [1]), "b": entry(2, 3, [1])}, b"xyz"), "gap"),
    "rest": (made({"a": entry(0, 1, [1])}, b"xyz"), "belong to no tensor"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name: str) -> None:
    data, reason = HOSTILE[name]
    with pytest.raises(DataError, match=reason):
        decode(data)


@given(st.binary(max_size=200), st.integers(0, 400))
@example(b"", 0)
def test_damage_never_raises_anything_else(noise: bytes, at: int) -> None:
    data = bytearray(written(ODD))
    data[at : at + len(noise)] = noise
    with contextlib.suppress(DataError):
        decode(memoryview(bytes(data)))
