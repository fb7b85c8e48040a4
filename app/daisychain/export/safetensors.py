"""safetensors files: a strict reader and a writer.

A file is a u64 length, a JSON header of that many bytes, and the tensors' bytes, one after the
other without gaps.  Everything in a file may be hostile: each length is checked against what is
there before anything is made of it.  Source: the format's description in safetensors 0.6.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from daisychain.errors import DataError

DTYPE_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E5M2": 1,
    "F8_E4M3": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
}

LENGTH_BYTES = 8
ALIGNMENT_BYTES = 8
MAX_HEADER_BYTES = 1 << 20
MAX_TENSORS = 4_096
MAX_DIMENSIONS = 8
METADATA = "__metadata__"
_ENTRY_KEYS = {"dtype", "shape", "data_offsets"}


@dataclass(frozen=True)
class Tensor:
    """One tensor; ``data`` holds its elements, little-endian, last axis fastest."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview = field(repr=False)


@dataclass(frozen=True)
class TensorFile:
    """The contents of a file."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]


def encode(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> list[memoryview]:
    """A file as parts: its head, and the tensors' own data, not copied.

    The head is padded with spaces so that the data begin at a multiple of 8 bytes, and wide
    elements come first so that every tensor is aligned to its elements.
    """
    ordered = sorted(tensors, key=lambda name: -DTYPE_BYTES[tensors[name].dtype])
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    end = 0
    for name in ordered:
        tensor = tensors[name]
        if len(tensor.data) != DTYPE_BYTES[tensor.dtype] * prod(tensor.shape):
            raise ValueError(f"{name} has {len(tensor.data)} bytes for the shape {tensor.shape}")
        start, end = end, end + len(tensor.data)
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(LENGTH_BYTES + len(text)) % ALIGNMENT_BYTES)
    head = memoryview(struct.pack("<Q", len(text)) + text)
    return [head, *(tensors[name].data for name in ordered)]


def decode(data: memoryview) -> TensorFile:
    """The tensors of a file, as views of ``data``.  Raises DataError for the first flaw."""
    header_bytes = _header_bytes(data)
    start = LENGTH_BYTES + header_bytes
    entries = _read_header(bytes(data[LENGTH_BYTES:start]))
    metadata = _read_metadata(entries.pop(METADATA, {}))
    if len(entries) > MAX_TENSORS:
        raise _damaged(f"it claims {len(entries):,} tensors")
    content = data[start:]
    spans: list[tuple[int, int, str]] = []
    tensors: dict[str, Tensor] = {}
    for name, entry in entries.items():
        dtype, shape, (first, end) = _read_entry(name, entry, len(content))
        spans.append((first, end, name))
        tensors[name] = Tensor(dtype, shape, content[first:end])
    _check_spans(spans, len(content))
    return TensorFile(tensors, metadata)


def _damaged(reason: str) -> DataError:
    return DataError(
        f"The safetensors file is damaged: {reason}.",
        "Nothing of it is used.",
        "Choose another file, or download it again.",
    )


def _header_bytes(data: memoryview) -> int:
    if len(data) < LENGTH_BYTES:
        raise _damaged(f"it has only {len(data)} bytes")
    (length,) = struct.unpack_from("<Q", data)
    if length > MAX_HEADER_BYTES:
        raise _damaged(f"its header claims {length:,} bytes, {MAX_HEADER_BYTES:,} are allowed")
    if length > len(data) - LENGTH_BYTES:
        raise _damaged(f"its header claims {length:,} bytes, but the file ends before")
    return int(length)


def _read_header(text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) != len(pairs):
            raise _damaged("a name occurs twice in its header")
        return entries

    if not text.startswith(b"{"):
        raise _damaged("its header is no JSON object")
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except UnicodeDecodeError as cause:
        raise _damaged("its header is not UTF-8") from cause
    except (ValueError, RecursionError) as cause:
        raise _damaged("its header is not JSON") from cause
    return dict(header)


def _read_metadata(metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _damaged("its metadata are not texts")
    return metadata


def _read_entry(name: str, entry: Any, size: int) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    """dtype, shape and span of one tensor, each within the file."""
    shown = name[:80]
    if not isinstance(entry, dict) or set(entry) != _ENTRY_KEYS:
        raise _damaged(f"the entry {shown!r} is malformed")
    dtype, shape, span = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise _damaged(f"the tensor {shown!r} is of the unknown type {str(dtype)[:20]!r}")
    if not _are_sizes(shape) or len(shape) > MAX_DIMENSIONS:
        raise _damaged(f"the shape of the tensor {shown!r} is malformed")
    if not _are_sizes(span) or len(span) != 2 or not span[0] <= span[1] <= size:
        raise _damaged(f"the tensor {shown!r} lies outside of the file")
    if span[1] - span[0] != DTYPE_BYTES[dtype] * prod(shape):
        raise _damaged(f"the tensor {shown!r} does not have as many bytes as its shape says")
    return dtype, tuple(shape), (span[0], span[1])


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 1 << 63 for v in values)


def _check_spans(spans: list[tuple[int, int, str]], size: int) -> None:
    """Tensors follow each other without gaps or overlaps and fill the file."""
    at = 0
    for first, end, name in sorted(spans):
        if first != at:
            flaw = "overlaps another" if first < at else "comes after a gap"
            raise _damaged(f"the tensor {name[:80]!r} {flaw}")
        at = end
    if at != size:
        raise _damaged(f"{size - at:,} bytes at its end belong to no tensor")
