"""Reads the instructions of a WebAssembly module (core specification 2.0, threads, SIMD)."""

from __future__ import annotations

from collections.abc import Iterator

HEADER = b"\0asm\1\0\0\0"
CODE_SECTION = 10
SIMD, MISC, ATOMIC = 0xFD, 0xFC, 0xFE
FIRST_RELAXED_SIMD = 0x100
"""SIMD instructions from this number on belong to the relaxed SIMD proposal."""

_BLOCKS = (0x02, 0x03, 0x04)
_ONE_INDEX = (0x0C, 0x0D, 0x10, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x41, 0x42, 0xD0, 0xD2)
_NO_IMMEDIATE = (0x00, 0x01, 0x05, 0x0B, 0x0F, 0x1A, 0x1B, 0xD1)
_MISC_IMMEDIATES = {**dict.fromkeys(range(8), 0), 8: 2, 9: 1, 10: 2, 11: 1}


class _Reader:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def leb(self) -> int:
        """A LEB128 number, taken as unsigned: signed ones are only skipped."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def skip_memarg(self) -> None:
        alignment = self.leb()
        if alignment & 0x40:
            self.leb()
        self.leb()


def instructions(module: bytes) -> Iterator[tuple[int, int]]:
    """(opcode, number behind a prefix opcode or 0) of every instruction of every function."""
    assert module[:8] == HEADER
    reader = _Reader(module, 8)
    while reader.at < len(module):
        section, size = reader.byte(), reader.leb()
        end = reader.at + size
        if section == CODE_SECTION:
            for _ in range(reader.leb()):
                yield from _function(reader)
            assert reader.at == end, "the code section was read wrongly"
        reader.at = end


def _function(reader: _Reader) -> Iterator[tuple[int, int]]:
    size = reader.leb()
    end = reader.at + size
    for _ in range(reader.leb()):
        reader.leb()
        reader.byte()
    while reader.at < end:
        yield _instruction(reader)
    assert reader.at == end, "a function was read wrongly"


def _instruction(reader: _Reader) -> tuple[int, int]:
    """Reads one instruction past its immediates."""
    opcode = reader.byte()
    if opcode == SIMD:
        return opcode, _simd(reader)
    if opcode == ATOMIC:
        number = reader.leb()
        if number == 3:
            reader.byte()
        else:
            reader.skip_memarg()
        return opcode, number
    if opcode == MISC:
        number = reader.leb()
        for _ in range(_MISC_IMMEDIATES[number]):
            reader.leb()
        return opcode, number
    _skip_immediates(reader, opcode)
    return opcode, 0


def _skip_immediates(reader: _Reader, opcode: int) -> None:
    if opcode in _ONE_INDEX or opcode in _BLOCKS:
        reader.leb()
    elif opcode == 0x0E:  # br_table
        for _ in range(reader.leb() + 1):
            reader.leb()
    elif opcode == 0x11:  # call_indirect
        reader.leb()
        reader.leb()
    elif opcode == 0x1C:  # select with types
        for _ in range(reader.leb()):
            reader.byte()
    elif 0x28 <= opcode <= 0x3E:  # loads and stores
        reader.skip_memarg()
    elif opcode in (0x3F, 0x40):  # memory.size, memory.grow
        reader.byte()
    elif opcode in (0x43, 0x44):  # f32.const, f64.const
        reader.at += 4 if opcode == 0x43 else 8
    else:
        assert opcode in _NO_IMMEDIATE or 0x45 <= opcode <= 0xC4, f"opcode {opcode:#x}"


def _simd(reader: _Reader) -> int:
    number = reader.leb()
    if number <= 11 or number in (92, 93):  # loads and stores
        reader.skip_memarg()
    elif number in (12, 13):  # v128.const, i8x16.shuffle
        reader.at += 16
    elif 21 <= number <= 34:  # lanes
        reader.byte()
    elif 84 <= number <= 91:  # loads and stores of a lane
        reader.skip_memarg()
        reader.byte()
    return number
