"""Programs that only generate: narrow weights and the plans of ``model.decode``, no training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daisychain.model.config import ModelConfig, parameters
from daisychain.model.decode import add_decode_plans
from daisychain.model.graph import Graph, Narrow
from daisychain.model.llama import weight_buffer
from daisychain.plan import Program

LOAD = "load"
"""The plan that makes narrow weights from binary32 ones."""


@dataclass(frozen=True)
class Inference:
    """A program with the plans ``decode`` and ``decode_reset``.

    ``exponents`` names for each parameter the word of ``scalars`` with its narrow weights'
    exponent; the weights are in ``narrow_buffer``.
    """

    config: ModelConfig
    program: Program
    exponents: Mapping[str, int]


def narrow_buffer(name: str) -> str:
    """Buffer of a parameter's narrow weights."""
    return f"narrow {name}"


def build_inference(config: ModelConfig, from_binary32: bool = False) -> Inference:
    """The program for a model; ``from_binary32`` adds the master weights and the plan ``load``."""
    graph = Graph(config, 1)
    b = graph.b
    graph.tables("exp2", "sigmoid", "angles")
    for p in parameters(config):
        narrow = b.buffer(narrow_buffer(p.name), "narrow", p.count)
        graph.weights[p.name] = Narrow(narrow, b.scalar())
    if from_binary32:
        _add_load_plan(graph)
    add_decode_plans(graph)
    exponents = {name: narrow.exp for name, narrow in graph.weights.items()}
    return Inference(config, b.build(), exponents)


def _add_load_plan(graph: Graph) -> None:
    b, wanted = graph.b, parameters(graph.c)
    maxima = b.scalars(len(wanted))
    b.begin(LOAD)
    b.call("zero_scalars", start=maxima, count=len(wanted))
    for word, p in enumerate(wanted, maxima):
        master = b.buffer(weight_buffer(p.name), "u32", p.count)
        narrow = graph.weights[p.name]
        b.call("weight_max", master, count=p.count, p_max=word)
        b.call(
            "narrow_weights",
            master,
            narrow.buffer,
            count=p.count,
            p_max=word,
            out_exp=narrow.exp,
        )
