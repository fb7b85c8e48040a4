"""Text from a model: feed the prompt, pick a token from the logits, repeat.

Greedy choice is the largest integer logit, the lowest id among equals: the same on every player.
Sampling needs probabilities only to choose by; they are computed here in binary64.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import exp, ldexp

from daisychain.errors import SettingsError
from daisychain.model.decode import LOGITS, PROMPT
from daisychain.numbers.random_bits import step_key
from daisychain.players.player import Player

DRAW_KEY_STEP = 0xFFFFFFFE
"""Step number in the keys of sampling (training steps stay far below)."""

FEED_TOKENS = 32
"""Tokens of a prompt in one command buffer: graphics drivers end one that takes seconds."""


@dataclass(frozen=True)
class Sampling:
    """``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 mean no limit."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 10:
            raise SettingsError("The temperature must be from 0 to 10.")
        if self.top_k < 0 or not 0 < self.top_p <= 1:
            raise SettingsError("Top-k must be 0 or more, top-p above 0 and at most 1.")


@dataclass(frozen=True)
class Choice:
    """A chosen token, its probability at temperature 1, and the likeliest tokens with theirs."""

    token: int
    probability: float
    likeliest: tuple[tuple[int, float], ...]


async def generate(
    player: Player,
    context: int,
    vocabulary: int,
    prompt: Sequence[int],
    limit: int,
    sampling: Sampling,
    shown: int = 5,
) -> AsyncIterator[Choice]:
    """Up to ``limit`` tokens after ``prompt`` (at least one token).

    A full context slides: its later half is fed again.  The player's program has the plans of
    ``model.decode``.
    """
    if not prompt:
        raise SettingsError("A prompt needs at least one token.")
    if any(not 0 <= token < vocabulary for token in prompt):
        raise SettingsError("The prompt has a token outside of the model's vocabulary.")
    tokens = list(prompt)[-context:]
    logits = await _feed(player, tokens)
    for number in range(limit):
        mantissas, exponent = _unpack(logits, vocabulary)
        choice = choose(mantissas, exponent, sampling, number, shown)
        yield choice
        if number + 1 == limit:
            return
        if len(tokens) == context:
            tokens = [*tokens[context // 2 :], choice.token]
            logits = await _feed(player, tokens)
        else:
            tokens.append(choice.token)
            player.write(PROMPT, struct.pack("<I", choice.token), 4 * (len(tokens) - 1))
            logits = await player.run(["decode"], LOGITS)


async def _feed(player: Player, tokens: Sequence[int]) -> bytes:
    """A fresh cache and all tokens; the logits after the last."""
    player.write(PROMPT, struct.pack(f"<{len(tokens)}I", *tokens))
    plans, logits = ["decode_reset"], b""
    for start in range(0, len(tokens), FEED_TOKENS):
        plans += ["decode"] * len(tokens[start : start + FEED_TOKENS])
        logits = await player.run(plans, LOGITS)
        plans = []
    return logits


def _unpack(data: bytes, vocabulary: int) -> tuple[tuple[int, ...], int]:
    words = struct.unpack_from(f"<{vocabulary + 1}i", data)
    return words[1:], words[0]


def choose(
    mantissas: Sequence[int], exponent: int, sampling: Sampling, number: int, shown: int = 5
) -> Choice:
    """Picks token ``number`` of a text from its logits."""
    top, unit = max(mantissas), ldexp(1.0, exponent)

    def weights(tokens: Sequence[int], temperature: float) -> list[float]:
        return [exp((mantissas[token] - top) * unit / temperature) for token in tokens]

    is_greedy = sampling.temperature == 0
    count = max(shown, 1 if is_greedy else sampling.top_k or len(mantissas))
    order = nlargest(count, range(len(mantissas)), key=mantissas.__getitem__)
    token = order[0]
    if not is_greedy:
        kept = order[: sampling.top_k or len(order)]
        token = _draw(kept, weights(kept, sampling.temperature), sampling, number)
    total = sum([exp((m - top) * unit) for m in mantissas])
    named = [token, *order[:shown]]
    probabilities = [weight / total for weight in weights(named, 1.0)]
    likeliest = tuple(zip(named[1:], probabilities[1:], strict=True))
    return Choice(token, probabilities[0], likeliest)


def _draw(kept: list[int], weights: list[float], sampling: Sampling, number: int) -> int:
    """One of ``kept`` (likeliest first) by weight, after the cut at ``top_p``."""
    bound = sampling.top_p * sum(weights)
    mass, count = 0.0, 0
    while count < len(kept) and (count == 0 or mass < bound):
        mass += weights[count]
        count += 1
    high, low = step_key(sampling.seed, DRAW_KEY_STEP, number)
    target = mass * ((high << 21 | low >> 11) / (1 << 53))
    for token, weight in zip(kept[:count], weights[:count], strict=True):
        target -= weight
        if target < 0:
            return token
    return kept[count - 1]
