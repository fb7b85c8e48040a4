"""Arithmetic on whole arrays of 32-bit lanes with Python's long integers: the page has no NumPy.

An array of little-endian words is one long integer; adding, shifting and masking it works on all
lanes at once, as fast as copying, as long as no lane overflows into the next.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from functools import lru_cache

CHUNK_BYTES = 1 << 20
"""Arrays are worked on in parts of this size: a multiple of every element's size."""

EXPONENT = 0x7F800000
LEAST_EXPONENT = 0x00800000
SIGN = 0x80000000


@lru_cache(maxsize=16)
def _lanes(word: int, count: int) -> int:
    """``count`` lanes that all hold ``word``."""
    return int.from_bytes(struct.pack("<I", word) * count, "little")


def _parts(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]


def is_finite(data: memoryview) -> bool:
    """Whether no binary32 number in ``data`` is infinite or no number at all."""
    for part in _parts(data):
        count = len(part) // 4
        exponents = int.from_bytes(part, "little") & _lanes(EXPONENT, count)
        if exponents + _lanes(LEAST_EXPONENT, count) & _lanes(SIGN, count):
            return False
    return True


def _converted(
    data: memoryview, ratio: float, convert: Callable[[memoryview], bytes | bytearray]
) -> bytes:
    out = bytearray(int(len(data) * ratio))
    at = 0
    for part in _parts(data):
        converted = convert(part)
        out[at : at + len(converted)] = converted
        at += len(converted)
    return bytes(out)


def to_bfloat16(data: memoryview) -> bytes:
    """Finite binary32 numbers rounded to bfloat16, ties to even."""
    return _converted(data, 0.5, _round_to_bfloat16)


def _round_to_bfloat16(part: memoryview) -> bytearray:
    count = len(part) // 4
    words = int.from_bytes(part, "little")
    words += _lanes(0x7FFF, count) + (words >> 16 & _lanes(1, count))
    rounded = words.to_bytes(len(part), "little")
    out = bytearray(len(part) // 2)
    out[0::2], out[1::2] = rounded[2::4], rounded[3::4]
    return out


def from_bfloat16(data: memoryview) -> bytes:
    """bfloat16 numbers as binary32, exactly."""
    return _converted(data, 2, _widen_bfloat16)


def _widen_bfloat16(part: memoryview) -> bytearray:
    out = bytearray(2 * len(part))
    out[2::4], out[3::4] = part[0::2], part[1::2]
    return out


def from_binary16(data: memoryview) -> bytes:
    """binary16 numbers as binary32, exactly."""
    return _converted(
        data, 2, lambda part: array("f", struct.unpack(f"<{len(part) // 2}e", part)).tobytes()
    )
