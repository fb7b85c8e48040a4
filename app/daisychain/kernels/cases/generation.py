"""Cases of the kernels of generation."""

from __future__ import annotations

from collections.abc import Iterator

from daisychain.kernels.cases.build import PATTERNS, Case, CaseBuilder, u32_bytes, wide_values
from daisychain.kernels.catalog import Step


def load_token() -> Iterator[Case]:
    for position in (0, 11, 40):
        c = CaseBuilder("load_token", f"position {position}")
        prompt = c.data("prompt", "u32", u32_bytes(c.rng.integers(0, 1 << 32, 24)))
        c.set_step(Step.POSITION, position)
        yield c.finish(prompt, c.output("ids", "u32", 1), count=24)


def advance() -> Iterator[Case]:
    c = CaseBuilder("advance", "by one")
    c.set_step(Step.POSITION, 41)
    yield c.finish(by=1)


def emit() -> Iterator[Case]:
    c = CaseBuilder("emit", "ragged")
    x = c.wide("x", wide_values(c.rng, 1001, "mixed"), -27)
    yield c.finish(x, c.output("out", "i32", 1002), count=1001, x_exp=x.exp_word)


def cache_append() -> Iterator[Case]:
    for exponent in (-40, -21, -20, -18, 12, 60, -80):
        for pattern in PATTERNS[:4]:
            c = CaseBuilder("cache_append", f"{pattern} 2^{exponent}")
            x = c.wide("x", wide_values(c.rng, 72, pattern), exponent)
            cache = c.output("cache", "i32", 5 * 72)
            c.set_step(Step.POSITION, 3)
            yield c.finish(
                x,
                cache,
                cols=72,
                cache_e=-20,
                x_exp=x.exp_word,
                cache_max=c.word(17),
                cache_exp=c.word(),
            )
