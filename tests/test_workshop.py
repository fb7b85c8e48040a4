"""Texts from a session's model: while it trains, at rest, sampled by the run itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from daisychain.errors import DataError, SettingsError
from daisychain.generate import Sampling
from daisychain.session import TrainingSession
from daisychain.workshop import SAMPLE_PROMPT, Piece, TextRequest
from tests.test_saving import finished, make


async def written(
    session: TrainingSession, request: TextRequest, go_on: Callable[[int], bool] = lambda n: True
) -> list[Piece]:
    pieces: list[Piece] = []

    def hear(piece: Piece) -> bool:
        pieces.append(piece)
        return go_on(len(pieces))

    await session.write(request, hear)
    return pieces


def tokens(pieces: list[Piece]) -> list[int]:
    return [piece.token for piece in pieces]


def test_texts_while_it_trains_change_no_bit() -> None:
    session = make(steps=6)
    plain = finished(make(steps=6))["weights_hash"]
    found: list[list[Piece]] = []

    async def go() -> None:
        run = asyncio.create_task(session.run())
        while session.state()["step"] < 2:
            await asyncio.sleep(0)
        request = TextRequest("in the", 12)
        found.append(await written(session, request))
        step = session.state()["step"]
        await run
        assert step < 6
        found.append(await written(session, request))
        found.append(await written(session, request))

    asyncio.run(go())
    assert session.state()["weights_hash"] == plain
    assert tokens(found[1]) == tokens(found[2])
    for pieces in found:
        assert 0 < len(pieces) <= 12
        assert all(0 < piece.probability <= 1 for piece in pieces)
        assert all(len(piece.likeliest) == 5 for piece in pieces[:1])


def test_a_text_ends_when_it_is_told_to() -> None:
    session = make(steps=1)
    texts: list[list[Piece]] = []

    async def go() -> None:
        await session.run()
        hot = Sampling(temperature=3.0, seed=4)
        texts.append(await written(session, TextRequest("the", 40, hot)))
        texts.append(await written(session, TextRequest("the", 40, hot), lambda n: n < 5))
        stop = "".join(piece.text for piece in texts[0][2:6])
        assert len([piece for piece in texts[0][2:6] if piece.text]) > 1
        texts.append(await written(session, TextRequest("the", 40, hot, stop)))
        with pytest.raises(SettingsError):
            await written(session, TextRequest("the", 40, Sampling(temperature=11)))

    asyncio.run(go())
    whole, cut, stopped = texts
    assert tokens(cut) == tokens(whole)[:5]
    assert tokens(stopped) == tokens(whole)[: len(stopped)]
    assert len(stopped) < len(whole)


def test_a_text_has_whole_characters_to_its_end() -> None:
    session = make(steps=1)
    texts: list[list[Piece]] = []

    async def go() -> None:
        await session.run()
        hot = Sampling(temperature=10.0, seed=4)
        texts.append(await written(session, TextRequest("the", 60, hot)))
        heads = [n for n, token in enumerate(tokens(texts[0])) if bytes_of(token) >= b"\xc2"]
        texts.append(await written(session, TextRequest("the", heads[-1] + 1, hot)))

    def bytes_of(token: int) -> bytes:
        return session.tokenizer.token_bytes(token)

    asyncio.run(go())
    for pieces in texts:
        data = b"".join(bytes_of(piece.token) for piece in pieces if piece.likeliest)
        assert "".join(piece.text for piece in pieces) == data.decode("utf-8", "replace")
    assert texts[1][-1] == Piece("\ufffd", session.tokenizer.end_of_text, 1.0, ())


def test_the_run_writes_samples_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daisychain.workshop.SAMPLE_TOKENS", 6)
    session = make(steps=5, sample_every=2)
    plain = finished(make(steps=5))["weights_hash"]
    texts: list[list[Piece]] = []

    async def go() -> None:
        await session.run()
        texts.append(await written(session, TextRequest(SAMPLE_PROMPT, 6)))

    asyncio.run(go())
    assert session.state()["weights_hash"] == plain
    samples = [record for record in session.log() if "sample" in record]
    assert [record["step"] for record in samples] == [2, 4, 5]
    assert all(record["prompt"] == SAMPLE_PROMPT for record in samples)
    assert samples[-1]["sample"] == "".join(piece.text for piece in texts[0]) != ""


def test_there_is_nothing_to_write_with_before_the_start() -> None:
    with pytest.raises(DataError):
        asyncio.run(written(make(), TextRequest("the")))
