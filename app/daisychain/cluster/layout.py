"""The exchange layout of the model: which tensors finish together in the backward pass."""

from __future__ import annotations

from daisychain.cluster.reduce_plan import Layout, Rows
from daisychain.model.config import EMBEDDING, ModelConfig, parameters

SMALLEST_BUCKET = 1 << 20
"""Neighbouring groups are merged up to this many parameters: small flows cost more than overlap
gains."""


def model_layout(config: ModelConfig, smallest_bucket: int = SMALLEST_BUCKET) -> Layout:
    """Buckets from the output back to the embedding: head and final norm, then each layer from
    the last to the first, then the embedding, whose gradient (tied or not) is ready last."""
    tensors = [Rows.of(p.name, p.rows, p.cols) for p in parameters(config)]
    groups: dict[int, list[Rows]] = {}
    for tensor in tensors:
        part = tensor.name.split(".")
        layer = int(part[2]) if part[1] == "layers" else config.layers
        groups.setdefault(-1 if tensor.name == EMBEDDING else layer, []).append(tensor)
    buckets: list[list[Rows]] = []
    for group in sorted(groups, reverse=True):
        if buckets and sum(tensor.elements for tensor in buckets[-1]) < smallest_bucket:
            buckets[-1] += groups[group]
        else:
            buckets.append(groups[group])
    return Layout(tuple(map(tuple, buckets)), tuple(tensor.name for tensor in tensors))
