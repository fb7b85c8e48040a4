"""Room codes: strength, tolerance of typing, links."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.cluster.room_code import (
    ALPHABET,
    BITS_PER_SYMBOL,
    MIN_SYMBOLS,
    NEW_SYMBOLS,
    format_room_code,
    new_room_code,
    parse_room_code,
    room_in_fragment,
    room_link,
)
from daisychain.errors import ClusterError

codes = st.text(ALPHABET, min_size=MIN_SYMBOLS, max_size=NEW_SYMBOLS)


def test_strength() -> None:
    assert MIN_SYMBOLS * BITS_PER_SYMBOL >= 50
    assert NEW_SYMBOLS * BITS_PER_SYMBOL >= 80
    assert not set(ALPHABET) & set("ILOU")
    assert new_room_code(lambda bits: (1 << bits) - 1) == "Z" * NEW_SYMBOLS
    assert len({new_room_code() for _ in range(50)}) == 50


@given(st.integers(0, 2**80 - 1))
def test_every_bit_counts(bits: int) -> None:
    code = new_room_code(lambda _bits: bits)
    assert sum(ALPHABET.index(s) << 5 * p for p, s in enumerate(reversed(code))) == bits


@given(codes, st.sampled_from([" ", "-", "\u2013", " - ", "\n", "_"]), st.booleans())
def test_typing_is_forgiven(code: str, separator: str, lower: bool) -> None:
    typed = separator.join(format_room_code(code).split("-"))
    typed = typed.replace("1", "l").replace("0", "o").replace("V", "u")
    assert parse_room_code(f"  {typed.lower() if lower else typed}\t") == code


@given(codes)
def test_link_carries_the_code_in_the_fragment(code: str) -> None:
    link = room_link("https://example.org/x/?start=room&seed=1#room=OLD", code)
    address, fragment = link.split("#")
    assert address == "https://example.org/x/?start=join"
    assert parse_room_code(room_in_fragment(fragment) or "") == code
    assert parse_room_code(link) == code


@pytest.mark.parametrize(
    "text",
    ["", "   ", "#a=b", "ABCDEFGHJ", "A" * 65, "ABCDEFGH!KMNP", "#room=", "https://a.example/x"],
)
def test_refusals_are_sentences(text: str) -> None:
    with pytest.raises(ClusterError) as refusal:
        parse_room_code(text)
    assert str(refusal.value).endswith(".")


@given(st.text(max_size=200))
def test_any_text_is_a_code_or_a_sentence(text: str) -> None:
    try:
        code = parse_room_code(text)
    except ClusterError:
        return
    assert set(code) <= set(ALPHABET)
    assert len(code) >= MIN_SYMBOLS
