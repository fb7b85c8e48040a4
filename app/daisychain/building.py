"""From settings to a model's program, and what it will take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from daisychain.cluster.exchange import Exchange
from daisychain.cluster.layout import model_layout
from daisychain.cluster.reduce_plan import make_plan
from daisychain.model.config import VOCABULARY, ModelConfig, parameter_count
from daisychain.model.llama import Model, build_program
from daisychain.numbers.tables import rope_work
from daisychain.plan import Program
from daisychain.platform import monotonic_ms, sleep_ms
from daisychain.players.measure import speed_text
from daisychain.players.player import Player
from daisychain.settings import Settings

MICRO_BATCH_TOKENS = 1024
"""A micro-batch holds at most this many tokens, so that the logits fit one buffer binding."""

TURN_MS = 10.0
"""The page's other work waits about so long at most."""


def micro_batch_rows(batch: int, context: int) -> int:
    """Sequences a micro-batch: the most that divide the batch and stay below the token limit."""
    fitting = [r for r in range(1, batch + 1) if batch % r == 0]
    return max((r for r in fitting if r * context <= MICRO_BATCH_TOKENS), default=1)


def model_config(settings: Settings, vocabulary: int = VOCABULARY) -> ModelConfig:
    """The model that the settings describe, for a tokenizer's vocabulary."""
    return ModelConfig(
        width=settings.width,
        layers=settings.layers,
        heads=settings.heads,
        kv_heads=settings.kv_heads,
        hidden=settings.hidden,
        context=settings.context,
        vocabulary=vocabulary,
        tied=settings.tied,
    )


def build_model(settings: Settings, vocabulary: int = VOCABULARY) -> Model:
    """The program for the settings and a tokenizer's vocabulary."""
    rows = micro_batch_rows(settings.batch, settings.context)
    config = model_config(settings, vocabulary)
    return build_program(config, rows, settings.batch // rows, settings.seed)


async def prepare_tables(config: ModelConfig) -> None:
    """Makes the largest of the model's tables, in turns with the page's other work.

    A player asks for it when it loads the program, and would keep the page waiting.
    """
    began_ms = monotonic_ms()
    for _ in rope_work(config.context, config.head_dim):
        if monotonic_ms() - began_ms >= TURN_MS:
            await sleep_ms(0)
            began_ms = monotonic_ms()


@dataclass(frozen=True)
class Estimate:
    """What a run will take, before it starts."""

    memory_bytes: int
    parameters: int
    tokens_per_step: int
    multiplies_per_step: int
    exchange_bytes: int
    """Bytes each way a step between two devices; with many devices up to twice as many."""


def estimate(settings: Settings) -> Estimate:
    """Memory is exact: it is the sum of the program's buffers."""
    model = build_model(settings)
    passes = sum(
        params["m"] * params["n"] * params["k"] * params["outer"] * params["inner"]
        for call in model.program.plans["grad"]
        if call.kernel == "gemm3"
        for params in [call.named_params()]
    )
    return Estimate(
        model.program.memory_bytes(),
        parameter_count(model.config),
        settings.tokens_per_step,
        passes * model.micro_batches,
        exchange_bytes(model.config, Exchange(settings.exchange)),
    )


def exchange_bytes(config: ModelConfig, mode: Exchange) -> int:
    """What each of two devices sends in a step, frame headers included."""
    links = {"one": ("two",), "two": ("one",)}
    plan = make_plan(model_layout(config), tuple(links), links, mode)
    return max(device.sent for device in plan.traffic())


def kernels_in_use(player: Player, program: Program) -> list[dict[str, Any]]:
    """Name, variant and, where measured, speed of the program's kernels, all of them admitted."""
    variant = getattr(player, "variant", "")
    speeds = {"gemm3": speed_text(player.sample_ms)} if player.sample_ms else {}
    return [
        {"name": name, "variant": variant, "speed": speeds.get(name)}
        for name in sorted(program.kernels())
    ]
