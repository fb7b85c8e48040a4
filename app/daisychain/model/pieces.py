"""The backward pass in pieces, so that gradients can leave while the rest is being computed.

Parameters come in groups, in the order in which the backward pass completes them.  For group i the
plan ``grad i`` holds the calls of ``grad`` up to its last gradient, from where the group before
left off, and ``accumulate_first i`` or ``accumulate_next i`` adds that group's gradients to the
sums.  All pieces together make the calls of the whole plans: the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from daisychain.model.llama import Model
from daisychain.plan import Call

ACCUMULATE = ("accumulate_first", "accumulate_next")


def in_pieces(model: Model, groups: Sequence[Sequence[str]]) -> Model:
    """``model`` with the plans of the pieces; it must be built for several micro-batches.

    Each group names neighbouring parameters.  Raises ValueError if the backward pass does not
    complete the groups in their order, or if they do not hold every parameter once.
    """
    names = [p.name for p in model.parameters]
    if sorted(name for group in groups for name in group) != sorted(names):
        raise ValueError("the groups do not hold every parameter once")
    plans = dict(model.program.plans)
    ends = [_end(plans["grad"], group) for group in groups]
    if sorted(set(ends)) != ends:
        raise ValueError("the backward pass does not complete the groups in their order")
    ends[-1] = len(plans["grad"])
    for i, (start, end) in enumerate(pairwise([0, *ends])):
        plans[f"grad {i}"] = plans["grad"][start:end]
        for plan in ACCUMULATE:
            plans[f"{plan} {i}"] = _accumulation(plans[plan], names, groups[i])
    program = replace(model.program, plans=plans)
    return replace(model, program=program, pieces=tuple(map(tuple, groups)))


def _end(calls: Sequence[Call], group: Sequence[str]) -> int:
    """Behind the last call that has to do with a gradient of the group."""
    gradients = {f"gradient {name}" for name in group}
    return max(i for i, call in enumerate(calls) if gradients & set(call.buffers)) + 1


def _accumulation(
    calls: Sequence[Call], names: Sequence[str], group: Sequence[str]
) -> tuple[Call, ...]:
    """The group's part of an accumulation: its additions, its words handed over."""
    *additions, handover = calls
    first = min(map(names.index, group))
    if set(names[first : first + len(group)]) != set(group):
        raise ValueError("the parameters of a group are not neighbours")
    words = handover.named_params()
    words = {name: word + 2 * first for name, word in words.items()} | {"count": 2 * len(group)}
    moved = replace(handover, params=tuple(words.values()))
    return (*additions[first : first + len(group)], moved)
