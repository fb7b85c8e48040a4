"""The Llama architecture, forward and backward, as plans of integer kernel calls.

``build_program`` gives one program with these plans:

=================  =============================================================================
``begin``          clears the record; run first in every command buffer
``init``           initial weights from the seed, moments zero
``refresh``        narrow and transposed weights from the master weights (after a load)
``update``         AdamW from the gradients of the step before, then as ``refresh``
``hash``           128-bit hash of the weights into the record
``grad``           takes the next micro-batch, forward and backward, loss into the record
``accumulate_first``, ``accumulate_next``  add the micro-batch's gradients to the step's
``norm``           sums of squares of the step's gradients into the record
``eval``           takes the next micro-batch, forward only, loss into the record
``decode...``      generation, see ``model.decode``
=================  =============================================================================

The arithmetic of every call is defined in docs/NUMBERS.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daisychain.kernels.catalog import HASH_RANGE_WORDS
from daisychain.model.backward import Backward
from daisychain.model.config import ModelConfig, Parameter, initial_scale_bits, parameters
from daisychain.model.decode import add_decode_plans
from daisychain.model.forward import Forward
from daisychain.model.graph import Graph, Narrow, Wide
from daisychain.numbers.random_bits import MASK, arx
from daisychain.plan import Program

EVAL_BATCHES = 8
"""Micro-batches that one upload of ``inputs`` can hold at least."""

BINARY32_ONE = 0x3F800000

INIT_KEY = (0x13198A2E, 0x03707344)
"""The next 64 bits of pi's fraction (see random_bits.SEED_KEY)."""


@dataclass(frozen=True)
class RecordLayout:
    """Word offsets of the step record, the one thing read back in a step."""

    loss: int
    hash: int
    norms: int
    tensors: int

    NORM_WORDS = 5

    @property
    def words(self) -> int:
        return self.norms + self.tensors * self.NORM_WORDS


@dataclass(frozen=True)
class Model:
    """A built program with the facts that the trainer needs; ``pieces`` as in `model.pieces`."""

    config: ModelConfig
    rows: int
    micro_batches: int
    seed: int
    program: Program
    record: RecordLayout
    parameters: tuple[Parameter, ...]
    pieces: tuple[tuple[str, ...], ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch."""
        return self.rows * self.config.context

    @property
    def input_words(self) -> int:
        """Words of one entry of ``inputs``: two key words, ids, targets."""
        return 2 + 2 * self.tokens


HASH_RANGES = "hash ranges"


def hash_range_count(p: Parameter) -> int:
    """Ranges of 64 KiB that a parameter's weights are hashed in."""
    return -(-p.count // HASH_RANGE_WORDS)


def weight_buffer(name: str) -> str:
    """Buffer of a parameter's binary32 master weights."""
    return f"weight {name}"


def moment_buffers(name: str) -> tuple[str, str]:
    """Buffers of AdamW's first and second moments."""
    return f"moment1 {name}", f"moment2 {name}"


def build_program(config: ModelConfig, rows: int, micro_batches: int, seed: int) -> Model:
    """The program for micro-batches of ``rows`` sequences, ``micro_batches`` of them a step."""
    graph = Graph(config, rows)
    all_parameters = parameters(config)
    record = RecordLayout(0, 2, 6, len(all_parameters))
    b = graph.b
    b.buffer("record", "u32", record.words)
    b.buffer("inputs", "u32", max(micro_batches, EVAL_BATCHES) * (2 + 2 * graph.n))
    b.buffer("ids", "u32", graph.n)
    b.buffer("targets", "u32", graph.n)
    graph.tables("exp2", "log2", "sigmoid", "slope", "angles")
    b.begin("begin")
    b.call("fill", "record", count=record.words, bits=0)
    master_max = _add_weights(graph, all_parameters)
    _add_initial_plans(graph, all_parameters, master_max, seed)
    _add_hash_plan(graph, all_parameters, record)
    _add_passes(graph, record)
    gradients = _add_accumulation(graph, all_parameters) if micro_batches > 1 else graph.gradients
    _add_norm_plan(graph, all_parameters, gradients, record)
    _add_update_plan(graph, all_parameters, gradients, master_max)
    add_decode_plans(graph)
    return Model(config, rows, micro_batches, seed, b.build(), record, all_parameters)


def _add_weights(graph: Graph, all_parameters: Sequence[Parameter]) -> int:
    """Persistent buffers; the first of the consecutive words with the weights' maxima."""
    b = graph.b
    master_max = b.scalars(len(all_parameters))
    for p in all_parameters:
        for name in (weight_buffer(p.name), *moment_buffers(p.name)):
            b.buffer(name, "u32", p.count)
        w = Narrow(b.buffer(f"narrow {p.name}", "narrow", p.count), b.scalar())
        graph.weights[p.name] = w
        if p.is_matrix:
            transposed = b.buffer(f"transposed {p.name}", "narrow", p.count)
            graph.transposed[p.name] = Narrow(transposed, w.exp)
    return master_max


def _add_initial_plans(
    graph: Graph, all_parameters: Sequence[Parameter], master_max: int, seed: int
) -> None:
    b = graph.b
    b.begin("init")
    for index, p in enumerate(all_parameters):
        for moment in moment_buffers(p.name):
            b.call("fill", moment, count=p.count, bits=0)
        if p.deviation is None:
            b.call("fill", weight_buffer(p.name), count=p.count, bits=BINARY32_ONE)
            continue
        key_a, key_b = arx(index, *arx(seed & MASK, *INIT_KEY))
        b.call(
            "init_weights",
            weight_buffer(p.name),
            count=p.count,
            key_a=key_a,
            key_b=key_b,
            scale_bits=initial_scale_bits(p.deviation),
        )
    for plan in ("init", "refresh"):
        b.begin(plan)
        b.call("zero_scalars", start=master_max, count=len(all_parameters))
        for index, p in enumerate(all_parameters):
            word = master_max + index
            b.call("weight_max", weight_buffer(p.name), count=p.count, p_max=word)
            _narrow_weights(graph, p, word)


def _narrow_weights(graph: Graph, p: Parameter, max_word: int) -> None:
    w = graph.weights[p.name]
    graph.b.call(
        "narrow_weights",
        weight_buffer(p.name),
        w.buffer,
        count=p.count,
        p_max=max_word,
        out_exp=w.exp,
    )
    if p.is_matrix:
        graph.transpose_into(w.buffer, graph.transposed[p.name].buffer, p.rows, p.cols)


def _add_hash_plan(graph: Graph, all_parameters: Sequence[Parameter], record: RecordLayout) -> None:
    b, first = graph.b, 0
    ranges = sum(hash_range_count(p) for p in all_parameters)
    b.buffer(HASH_RANGES, "u32", 4 * ranges)
    b.begin("hash")
    for p in all_parameters:
        b.call("hash_ranges", weight_buffer(p.name), HASH_RANGES, count=p.count, first_range=first)
        first += hash_range_count(p)
    b.call("hash_root", HASH_RANGES, "record", count=4 * ranges, offset=record.hash)


def _add_passes(graph: Graph, record: RecordLayout) -> None:
    """Plans grad and eval.  Each first clears the maxima that it raises."""
    b, first = graph.b, graph.b.scalar_words
    b.begin("grad")
    forward = Forward(graph, record.loss)
    forward.run()
    b.plans["eval"] = list(b.plans["grad"])
    b.call_first("eval", "zero_scalars", start=first, count=b.scalar_words - first)
    Backward(graph, forward).run()
    b.call_first("grad", "zero_scalars", start=first, count=b.scalar_words - first)


def _add_accumulation(graph: Graph, all_parameters: Sequence[Parameter]) -> dict[str, Wide]:
    """Sums over micro-batches.  Words: one set to read, one to raise, then handed over."""
    b, count = graph.b, 2 * len(all_parameters)
    current, raised = b.scalars(count), b.scalars(count)
    sums: dict[str, Wide] = {}
    for index, p in enumerate(all_parameters):
        word = current + 2 * index
        sums[p.name] = Wide(b.buffer(f"sum {p.name}", "i32", p.count), word, word + 1)
    for plan, first in (("accumulate_first", 1), ("accumulate_next", 0)):
        b.begin(plan)
        for index, p in enumerate(all_parameters):
            g, total = graph.gradients[p.name], sums[p.name]
            b.call(
                "accumulate",
                g.buffer,
                total.buffer,
                count=p.count,
                first=first,
                x_max=g.max,
                x_exp=g.exp,
                acc_max=total.max,
                acc_exp=total.exp,
                out_max=raised + 2 * index,
                out_exp=raised + 2 * index + 1,
            )
        b.call("move_scalars", source=raised, target=current, count=count)
    return sums


def _add_norm_plan(
    graph: Graph,
    all_parameters: Sequence[Parameter],
    gradients: dict[str, Wide],
    record: RecordLayout,
) -> None:
    graph.b.begin("norm")
    for index, p in enumerate(all_parameters):
        g = gradients[p.name]
        graph.b.call(
            "sum_squares",
            g.buffer,
            "record",
            count=p.count,
            x_max=g.max,
            x_exp=g.exp,
            offset=record.norms + index * RecordLayout.NORM_WORDS,
        )


def _add_update_plan(
    graph: Graph,
    all_parameters: Sequence[Parameter],
    gradients: dict[str, Wide],
    master_max: int,
) -> None:
    b = graph.b
    b.begin("update")
    b.call("zero_scalars", start=master_max, count=len(all_parameters))
    for index, p in enumerate(all_parameters):
        b.call(
            "adamw",
            weight_buffer(p.name),
            *moment_buffers(p.name),
            gradients[p.name].buffer,
            count=p.count,
            decay=int(p.is_matrix),
            g_exp=gradients[p.name].exp,
            p_max=master_max + index,
        )
        _narrow_weights(graph, p, master_max + index)
