"""The in-memory source and the tokenizer's face, on the reference reader."""

from __future__ import annotations

import math
from array import array
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.data import Tokenizer, open_source, open_tokenizer
from daisychain.data.port import TokenBlock
from daisychain.data.source import Heldout, HeldoutBatch, TokenSource, WindowSource
from daisychain.errors import DataError, SettingsError
from tests.data.reference import ROOT, ArrayTokens, ReferencePort, run_apart


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return run_apart(open_tokenizer(port=ReferencePort()))


def embedded(tokenizer: Tokenizer, seed: int = 1, micro_batches: int = 1) -> TokenSource:
    return run_apart(
        open_source(
            "embedded",
            seed=seed,
            context=64,
            micro_batches=micro_batches,
            tokenizer=tokenizer,
        )
    )


def heldout(source: TokenSource, rows: int, limit: int | None = None) -> list[HeldoutBatch]:
    async def collect() -> list[HeldoutBatch]:
        return [batch async for batch in source.heldout_batches(rows, limit)]

    return run_apart(collect())


def test_tokenizer_facts(tokenizer: Tokenizer) -> None:
    assert tokenizer.size == 16_512
    assert tokenizer.end_of_text == 0
    assert tokenizer.special == {0, 1}
    ids = run_apart(tokenizer.encode("Hello<|endoftext|> world"))
    assert 0 in ids
    assert tokenizer.decode(ids) == "Hello world"
    assert run_apart(tokenizer.encode("")) == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.text_bytes(ids) == len("Hello world")
    with pytest.raises(DataError, match="not in the vocabulary"):
        tokenizer.token_bytes(16_512)


@settings(max_examples=200, deadline=None)
@given(text=st.text().filter(lambda text: "<|" not in text))
def test_incremental_decoding_equals_whole_and_shows_no_broken_character(
    tokenizer: Tokenizer, text: str
) -> None:
    tokens = run_apart(tokenizer.encode(text))
    decoder = tokenizer.decoder()
    parts = [decoder.push(token) for token in tokens]
    assert "".join(parts) + decoder.flush() == text == tokenizer.decode(tokens)
    if "\ufffd" not in text:
        assert "\ufffd" not in "".join(parts)


def test_incremental_decoder_ends_a_broken_character(tokenizer: Tokenizer) -> None:
    snowman = run_apart(tokenizer.encode("\u2603"))
    assert len(snowman) > 1
    decoder = tokenizer.decoder()
    assert [decoder.push(token) for token in snowman[:-1]] == [""] * (len(snowman) - 1)
    assert decoder.push(tokenizer.end_of_text) == "\ufffd"
    assert decoder.push(snowman[0]) == ""
    assert decoder.flush() == "\ufffd"


def test_batches_are_windows_with_the_next_token_as_target(tokenizer: Tokenizer) -> None:
    source = embedded(tokenizer)
    ids, targets = run_apart(source.batch(3, 0, 5))
    assert len(ids) == len(targets) == 5 * 64
    assert isinstance(ids, array)
    for row in range(5):
        start = row * 64
        assert ids[start + 1 : start + 64] == targets[start : start + 63]


def test_same_seed_same_tokens_and_micro_batches_are_apart(tokenizer: Tokenizer) -> None:
    one, two = embedded(tokenizer, 7, 2), embedded(tokenizer, 7, 2)
    other = embedded(tokenizer, 8, 2)
    first = run_apart(one.batch(5, 1, 4))
    assert first == run_apart(two.batch(5, 1, 4))
    assert first != run_apart(one.batch(5, 0, 4))
    assert first != run_apart(other.batch(5, 1, 4))
    with pytest.raises(DataError, match="Micro-batch 2"):
        run_apart(one.batch(0, 2, 4))


def test_heldout_bytes_are_exact(tokenizer: Tokenizer) -> None:
    source = embedded(tokenizer)
    batches = heldout(source, 8)
    assert len(batches) == 28
    assert all(batch.tokens == len(batch.ids) == len(batch.targets) == 512 for batch in batches)
    for batch in batches[:3]:
        assert batch.bytes == len(tokenizer.decode(batch.targets).encode("utf-8"))
    assert len(heldout(source, 8, limit=2)) == 2
    assert heldout(source, 8)[3].ids == batches[3].ids
    assert math.isclose(source.heldout_bytes_per_token, 4.69, abs_tol=0.02)


def test_heldout_shorter_than_a_batch_starts_again(tokenizer: Tokenizer) -> None:
    held = Heldout(ArrayTokens(range(2, 22)), 4, tokenizer)
    (batch,) = held.batches(8, None)
    assert list(batch.ids) == [*range(2, 18), *range(2, 18)]
    assert list(batch.targets) == [*range(3, 19), *range(3, 19)]
    assert batch.bytes == 2 * tokenizer.text_bytes(range(3, 19))
    assert not list(Heldout(ArrayTokens([]), 4, tokenizer).batches(8, None))


def test_text_too_short_for_one_row(tokenizer: Tokenizer) -> None:
    block = TokenBlock(ArrayTokens(range(64)), 1, 64)
    held = Heldout(ArrayTokens([]), 64, tokenizer)
    with pytest.raises(DataError, match=r"only 64 tokens.*needs 65"):
        WindowSource("tiny", tokenizer, block, held, seed=1, context=64)


def test_cursor_is_checked(tokenizer: Tokenizer) -> None:
    source = embedded(tokenizer)
    source.restore(embedded(tokenizer).cursor())
    with pytest.raises(DataError, match="differ in seed"):
        source.restore(embedded(tokenizer, seed=2).cursor())
    with pytest.raises(DataError, match="differ in source"):
        source.restore({})


def test_unknown_source(tokenizer: Tokenizer) -> None:
    with pytest.raises(SettingsError, match="no data named 'nonsense'"):
        run_apart(open_source("nonsense", seed=1, context=64, tokenizer=tokenizer))


def test_credits_name_every_training_text() -> None:
    notice = Path(ROOT / "NOTICE").read_text(encoding="utf-8")
    for words in ("Rice University", "Creative Commons Attribution 4.0", "openstax.org", "CC0"):
        assert words in notice
