"""Generation on the oracle against a float64 forward pass of the same weights."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from math import exp

import numpy as np
import pytest

from bench.float64_llama import next_token_logits
from daisychain.errors import SettingsError
from daisychain.generate import Sampling, choose, generate
from daisychain.model.config import ModelConfig
from daisychain.model.decode import LOGITS, PROMPT
from daisychain.model.llama import Model, build_program, weight_buffer
from daisychain.players.oracle import OraclePlayer

CONFIGS = {
    "tied": ModelConfig(
        width=32, layers=2, heads=4, kv_heads=4, hidden=64, context=16, vocabulary=83
    ),
    "grouped-untied": ModelConfig(
        width=32, layers=2, heads=4, kv_heads=2, hidden=40, context=24, vocabulary=83, tied=False
    ),
}


async def opened(config: ModelConfig) -> tuple[OraclePlayer, Model, dict[str, np.ndarray]]:
    """A player with weights that make distinct predictions, and the weights in float64."""
    model = build_program(config, rows=1, micro_batches=1, seed=9)
    player = OraclePlayer()
    await player.load(model.program)
    rng = np.random.default_rng(4)
    weights = {}
    for p in model.parameters:
        shape = (p.rows, p.cols) if p.is_matrix else (p.cols,)
        w = (rng.standard_normal(shape) * 0.3 + (not p.is_matrix)).astype(np.float32)
        player.write(weight_buffer(p.name), w.tobytes())
        weights[p.name] = w.astype(np.float64)
    await player.run(["refresh"], "record")
    return player, model, weights


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_match_float64(name: str) -> None:
    async def go() -> None:
        config = CONFIGS[name]
        player, _, weights = await opened(config)
        tokens = np.random.default_rng(1).integers(0, config.vocabulary, config.context)
        player.write(PROMPT, tokens.astype(np.uint32).tobytes())
        await player.run(["decode_reset"], LOGITS)
        for length in range(1, config.context + 1):
            data = np.frombuffer(await player.run(["decode"], LOGITS), np.int32)
            ours = np.ldexp(data[1 : 1 + config.vocabulary].astype(np.float64), data[0])
            expected = next_token_logits(config, weights, tokens[:length])
            assert np.abs(ours - expected).max() < 0.01 * np.abs(expected).max(), length

    asyncio.run(go())


def collect(name: str, prompt: list[int], limit: int, sampling: Sampling) -> list[int]:
    async def go() -> list[int]:
        player, model, _ = await opened(CONFIGS[name])
        config = model.config
        steps = generate(player, config.context, config.vocabulary, prompt, limit, sampling)
        return [choice.token async for choice in steps]

    return asyncio.run(go())


def test_greedy_is_the_argmax_of_the_whole_text_while_it_fits() -> None:
    config = CONFIGS["tied"]

    async def expected() -> list[int]:
        _, _, weights = await opened(config)
        text = [5, 7]
        for _ in range(10):
            text.append(int(next_token_logits(config, weights, np.array(text)).argmax()))
        return text[2:]

    assert collect("tied", [5, 7], 10, Sampling()) == asyncio.run(expected())


def test_a_full_context_slides_on() -> None:
    tokens = collect("tied", list(range(16)), 25, Sampling())
    assert len(tokens) == 25


def test_of_a_prompt_beyond_the_context_the_end_counts() -> None:
    prompt = [(7 * n) % 83 for n in range(40)]
    assert collect("tied", prompt, 4, Sampling()) == collect("tied", prompt[-16:], 4, Sampling())


def test_a_long_prompt_is_fed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = collect("tied", list(range(11)), 8, Sampling())
    runs: list[list[str]] = []

    class Listening(OraclePlayer):
        async def run(self, plans: Sequence[str], read: str) -> bytes:
            runs.append(list(plans))
            return await super().run(plans, read)

    monkeypatch.setattr("daisychain.generate.FEED_TOKENS", 4)
    monkeypatch.setitem(globals(), "OraclePlayer", Listening)
    assert collect("tied", list(range(11)), 8, Sampling()) == whole
    assert runs[1] == ["decode_reset", *["decode"] * 4]
    assert max(plans.count("decode") for plans in runs) == 4


def test_a_second_text_does_not_remember_the_first() -> None:
    async def go() -> None:
        player, model, _ = await opened(CONFIGS["tied"])
        texts = []
        for prompt in ([3], [60, 61, 62], [3]):
            steps = generate(player, 16, model.config.vocabulary, prompt, 6, Sampling())
            texts.append([choice.token async for choice in steps])
        assert texts[0] == texts[2]

    asyncio.run(go())


def test_sampling_follows_the_probabilities() -> None:
    mantissas, exponent = (1000, 0, -1500, 500), -9
    weights = [exp(m * 2.0**exponent) for m in mantissas]
    draws = Counter(
        choose(mantissas, exponent, Sampling(temperature=1, seed=3), n).token for n in range(4000)
    )
    for token, w in enumerate(weights):
        assert draws[token] / 4000 == pytest.approx(w / sum(weights), abs=0.03)
    cut = Sampling(temperature=1, top_k=2)
    assert {choose(mantissas, exponent, cut, n).token for n in range(200)} == {0, 3}
    cold = Sampling(temperature=0.5, seed=3)
    squares = [w * w for w in weights]
    draws = Counter(choose(mantissas, exponent, cold, n).token for n in range(4000))
    for token, w in enumerate(squares):
        assert draws[token] / 4000 == pytest.approx(w / sum(squares), abs=0.03)
    wide = Sampling(temperature=1, top_p=0.95)  # the likeliest two hold 0.90
    assert {choose(mantissas, exponent, wide, n).token for n in range(200)} == {0, 1, 3}
    others = Sampling(temperature=1, seed=4)
    assert [choose(mantissas, exponent, others, n).token for n in range(50)] != [
        choose(mantissas, exponent, Sampling(temperature=1, seed=3), n).token for n in range(50)
    ]
    nucleus = Sampling(temperature=1, top_p=0.5)
    assert {choose(mantissas, exponent, nucleus, n).token for n in range(200)} == {0}


def test_equal_logits_give_the_lowest_id() -> None:
    assert choose((5, 9, 9, 1), -4, Sampling(), 0).token == 1


def test_probabilities_are_those_at_temperature_one() -> None:
    choice = choose((0, 1024), -10, Sampling(temperature=0), 0)
    assert choice.probability == pytest.approx(exp(1) / (1 + exp(1)))
    assert [t for t, _ in choice.likeliest] == [1, 0]


@pytest.mark.parametrize("prompt", [[], [83], [-1]])
def test_prompts_outside_the_vocabulary_are_refused(prompt: list[int]) -> None:
    with pytest.raises(SettingsError):
        collect("tied", prompt, 1, Sampling())


def test_absurd_sampling_is_refused() -> None:
    for bad in ({"temperature": -1.0}, {"temperature": 99.0}, {"top_k": -1}, {"top_p": 0.0}):
        with pytest.raises(SettingsError):
            Sampling(**bad)
