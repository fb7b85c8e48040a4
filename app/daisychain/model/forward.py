"""The forward pass: from token ids to losses and dlogits, keeping what backward needs."""

from __future__ import annotations

from dataclasses import dataclass

from daisychain.model.config import FINAL_NORM, layer_name
from daisychain.model.graph import Graph, Narrow, Wide
from daisychain.model.layers import KeptNorm, embed, feed_forward, head_name, linear, norm
from daisychain.numbers import tables
from daisychain.numbers.formats import constant_digits


@dataclass(frozen=True)
class KeptLayer:
    """Activations of one layer kept for backward: all narrow, besides row scales and Z."""

    norm1: KeptNorm
    q: Narrow
    k: Narrow
    v: Narrow
    numerators: Narrow
    z: str
    attended: Narrow
    norm2: KeptNorm
    gate: Narrow
    up: Narrow
    activated: Narrow


class Forward:
    """Adds the calls of one forward pass to a graph."""

    def __init__(self, graph: Graph, loss_offset: int) -> None:
        self.f, self.c, self.b = graph, graph.c, graph.b
        self.loss_offset = loss_offset
        self.layers: list[KeptLayer] = []
        self.head_name = head_name(graph)

    def run(self) -> None:
        f, c, n = self.f, self.c, self.f.n
        self.b.call("load_micro_batch", "inputs", "ids", "targets", count=n)
        x = embed(f)
        for layer in range(c.layers):
            x = self._layer(layer, x)
        self.final = norm(f, FINAL_NORM, x)
        f.release(x)
        self._loss()

    def _layer(self, layer: int, x: Wide) -> Wide:
        f, c, n = self.f, self.c, self.f.n
        norm1 = norm(f, layer_name(layer, "input_layernorm"), x)
        rotated = []
        for part, heads in (("q", c.heads), ("k", c.kv_heads)):
            width = heads * c.head_dim
            name = layer_name(layer, f"self_attn.{part}_proj")
            plain = f.narrow(linear(f, name, norm1.h, width, c.width), n * width)
            rotated.append(f.narrow(f.rope(plain, heads, backward=False), n * width))
        q, k = rotated
        name = layer_name(layer, "self_attn.v_proj")
        v = f.narrow(linear(f, name, norm1.h, c.kv_width, c.width), n * c.kv_width)
        numerators, z, attended = self._attention(q, k, v)
        name = layer_name(layer, "self_attn.o_proj")
        x = f.add(x, linear(f, name, attended, c.width, c.width), n * c.width)
        x, norm2, gate, up, activated = feed_forward(f, layer, x)
        self.layers.append(
            KeptLayer(norm1, q, k, v, numerators, z, attended, norm2, gate, up, activated)
        )
        return x

    def _attention(self, q: Narrow, k: Narrow, v: Narrow) -> tuple[Narrow, str, Narrow]:
        f, c, t = self.f, self.c, self.c.context
        scores = f.gemm(
            q,
            k,
            (t, t, c.head_dim),
            at=(f.per_token(c.width), f.per_token(c.kv_width), f.per_score()),
            batch=(f.rows, c.heads),
            b_group=f.group,
            causal=True,
            count=f.scores * t,
        )
        scale = tables.log2_e() / tables.square_root(c.head_dim)
        scale_m, scale_l, scale_e = constant_digits(scale)
        numerators = Narrow(f.temporary("narrow", f.scores * t), self.b.scalar())
        z = f.temporary("i32", f.scores)
        self.b.call(
            "softmax",
            scores.buffer,
            "exp2",
            numerators.buffer,
            z,
            rows=f.scores,
            cols=t,
            moving=0,
            scale_m=scale_m,
            scale_l=scale_l,
            scale_e=scale_e,
            x_exp=scores.exp,
            out_exp=numerators.exp,
        )
        f.release(scores)
        v_t = f.transpose_heads(v, t, c.head_dim, 1, f.per_token(c.kv_width))
        summed = f.gemm(
            numerators,
            v_t,
            (t, c.head_dim, t),
            at=(f.per_score(), f.per_transposed(c.head_dim, t), f.per_token(c.width)),
            batch=(f.rows, c.heads),
            b_group=f.group,
            count=f.n * c.width,
        )
        f.release(v_t)
        out = f.wide(f.n * c.width)
        self.b.call(
            "row_div",
            summed.buffer,
            z,
            out.buffer,
            rows=f.n,
            heads=c.heads,
            head_dim=c.head_dim,
            context=t,
            x_exp=summed.exp,
            v_exp=v.exp,
            out_max=out.max,
            out_exp=out.exp,
        )
        f.release(summed)
        return numerators, z, f.narrow(out, f.n * c.width)

    def _loss(self) -> None:
        f, c, n = self.f, self.c, self.f.n
        v = c.vocabulary_rows
        logits = linear(f, self.head_name, self.final.h, v, c.width)
        scale_m, scale_l, scale_e = constant_digits(tables.log2_e())
        loss = f.temporary("i32", n)
        self.dlogits = Narrow(f.temporary("narrow", n * v), self.b.scalar())
        self.b.call(
            "cross_entropy",
            logits.buffer,
            "targets",
            "exp2",
            "log2",
            loss,
            self.dlogits.buffer,
            rows=n,
            cols=v,
            valid=c.vocabulary,
            scale_m=scale_m,
            scale_l=scale_l,
            scale_e=scale_e,
            x_exp=logits.exp,
            tensor_id=f.tensor_id(),
            out_exp=self.dlogits.exp,
        )
        f.release(logits)
        self.b.call("sum_loss", loss, "record", count=n, offset=self.loss_offset)
        self.b.release(loss)
