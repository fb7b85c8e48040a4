"""Python's own encoder against the Rust reference."""

from __future__ import annotations

import json
import random
import sys
import unicodedata

import pytest
from tokenizers import Tokenizer

from daisychain.data import IncrementalDecoder
from daisychain.data.byte_pairs import BytePairs
from daisychain.errors import DataError
from tests.data.lines import all_lines
from tests.data.reference import ROOT

JSON = (ROOT / "data/tokenizer.json").read_bytes()


def newer_than_python(line: str) -> bool:
    """Whether a character is unknown to this Python's Unicode, or a surrogate."""
    return any(unicodedata.category(c) in ("Cn", "Cs") for c in line)


@pytest.fixture(scope="module")
def own() -> BytePairs:
    return BytePairs(JSON)


def test_ids_equal_the_reference(own: BytePairs) -> None:
    lines = [line for line in all_lines() if not newer_than_python(line)]
    lines = random.Random(5).sample(lines, 2000)
    rust = Tokenizer.from_str(JSON.decode())
    for line in lines:
        assert own.encode(line) == rust.encode(line).ids, line


def test_decoding_gives_the_text_back(own: BytePairs) -> None:
    text = "Ünïcode \U0001f600 and\n\n<|endoftext|>\ttabs"
    decoder = IncrementalDecoder(own)
    decoded = "".join(map(decoder.push, own.encode(text))) + decoder.flush()
    assert decoded == text.replace("<|endoftext|>", "")
    assert own.encode("a<|endoftext|>")[-1] == own.added["<|endoftext|>"]


def test_lone_surrogates_count_as_replacement(own: BytePairs) -> None:
    assert own.encode("a\ud800b") == own.encode("a\ufffdb")


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"model": {"type": "Unigram", "vocab": [["a", 0.0]]}},
        {"model": 3},
    ],
)
def test_other_kinds_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(DataError):
        BytePairs(json.dumps(json.loads(JSON) | change).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_damaged_files_are_refused(data: bytes) -> None:
    with pytest.raises(DataError):
        BytePairs(data)


def test_every_character_alone(own: BytePairs) -> None:
    rust = Tokenizer.from_str(JSON.decode())
    codes = [c for c in range(sys.maxunicode + 1) if c % 97 == 0]
    for c in codes:
        if not newer_than_python(chr(c)):
            text = f"a {chr(c)}b"
            assert own.encode(text) == rust.encode(text).ids, hex(c)
