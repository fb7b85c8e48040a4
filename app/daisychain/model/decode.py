"""Generation as plans: one token a pass over a cache of keys and values.

``add_decode_plans`` adds to a program that has the weights:

===============  ================================================================================
``decode_reset``  forgets everything; positions start at 0
``decode``        takes token ``prompt[position]``, writes ``logits``, moves on
===============  ================================================================================

``logits`` holds an exponent and then one mantissa a token of the vocabulary.
"""

from __future__ import annotations

from daisychain.kernels.catalog import Step
from daisychain.model.config import FINAL_NORM, layer_name
from daisychain.model.graph import Batched, Graph, Narrow, Wide
from daisychain.model.layers import embed, feed_forward, head_name, linear, norm
from daisychain.numbers import tables
from daisychain.numbers.formats import constant_digits

CACHE_EXPONENT = -20
"""Keys and values are cached at 2^-20; they saturate at 1,040, far beyond what norms let occur."""

PROMPT = "prompt"
LOGITS = "logits"


def add_decode_plans(graph: Graph) -> None:
    """Adds the plans, the caches, the buffers ``prompt`` [context] and ``logits`` [1 + V]."""
    _Decode(graph).add()


class _Decode:
    def __init__(self, graph: Graph) -> None:
        graph.b.buffer("decoded id", "u32", 1)
        self.f = graph.for_one_token("decoded id")
        self.c, self.b = graph.c, graph.b
        self.caches: list[Wide] = []

    def add(self) -> None:
        f, c, b = self.f, self.c, self.b
        b.buffer(PROMPT, "u32", c.context)
        b.buffer(LOGITS, "i32", 1 + c.vocabulary_rows)
        first = b.scalar_words
        b.begin("decode")
        b.call("load_token", PROMPT, "decoded id", count=c.context)
        x = embed(f)
        cache_words = b.scalars(4 * c.layers)
        cleared = b.scalar_words
        for layer in range(c.layers):
            x = self._layer(layer, x, cache_words + 4 * layer)
        final = norm(f, FINAL_NORM, x)
        logits = linear(f, head_name(f), final.h, c.vocabulary_rows, c.width)
        b.call("emit", logits.buffer, LOGITS, count=c.vocabulary_rows, x_exp=logits.exp)
        b.call("advance", by=1)
        f.release(x, final.h, final.xhat, logits)
        b.release(final.inv_rms, final.inv_exp)
        b.call_first("decode", "zero_scalars", start=cleared, count=b.scalar_words - cleared)
        b.call_first("decode", "zero_scalars", start=first, count=cache_words - first)
        b.begin("decode_reset")
        b.call("zero_scalars", start=int(Step.POSITION), count=1)
        b.call("zero_scalars", start=cache_words, count=4 * c.layers)
        for cache in self.caches:
            b.call("zero", cache.buffer, count=c.context * c.kv_width)

    def _layer(self, layer: int, x: Wide, words: int) -> Wide:
        f, c = self.f, self.c
        kept = norm(f, layer_name(layer, "input_layernorm"), x)
        q, k, v = (
            linear(f, layer_name(layer, f"self_attn.{part}_proj"), kept.h, width, c.width)
            for part, width in (("q", c.width), ("k", c.kv_width), ("v", c.kv_width))
        )
        q = f.rope(f.narrow(q, c.width), c.heads, moving=True)
        k = f.rope(f.narrow(k, c.kv_width), c.kv_heads, moving=True)
        keys = self._append(f"keys {layer}", k, words)
        values = self._append(f"values {layer}", v, words + 2)
        attended = self._attention(f.narrow(q, c.width), keys, values)
        y = linear(f, layer_name(layer, "self_attn.o_proj"), attended, c.width, c.width)
        x = f.add(x, y, c.width)
        f.release(kept.h, kept.xhat, attended)
        self.b.release(kept.inv_rms, kept.inv_exp)
        x, kept, gate, up, activated = feed_forward(f, layer, x)
        f.release(kept.h, kept.xhat, gate, up, activated)
        self.b.release(kept.inv_rms, kept.inv_exp)
        return x

    def _append(self, name: str, row: Wide, words: int) -> Narrow:
        """Stores the row; the whole cache as narrow.  Releases the row."""
        c = self.c
        count = c.context * c.kv_width
        cache = Wide(self.b.buffer(name, "i32", count), words, words + 1)
        self.caches.append(cache)
        self.b.call(
            "cache_append",
            row.buffer,
            cache.buffer,
            cols=c.kv_width,
            cache_e=CACHE_EXPONENT,
            x_exp=row.exp,
            cache_max=cache.max,
            cache_exp=cache.exp,
        )
        self.f.release(row)
        out = Narrow(self.f.temporary("narrow", count), self.b.scalar())
        self.b.call(
            "narrow",
            cache.buffer,
            out.buffer,
            count=count,
            x_max=cache.max,
            x_exp=cache.exp,
            out_exp=out.exp,
        )
        return out

    def _attention(self, q: Narrow, keys: Narrow, values: Narrow) -> Narrow:
        """All heads of one query over the cache; releases its operands."""
        f, c, t = self.f, self.c, self.c.context
        scores = f.gemm(
            q,
            keys,
            (1, t, c.head_dim),
            at=(Batched(0, 0, c.head_dim), Batched(c.kv_width, 0, c.head_dim), Batched(0, 0, t)),
            batch=(1, c.heads),
            b_group=f.group,
            count=c.heads * t,
        )
        scale_m, scale_l, scale_e = constant_digits(
            tables.log2_e() / tables.square_root(c.head_dim)
        )
        numerators = Narrow(f.temporary("narrow", c.heads * t), self.b.scalar())
        z = f.temporary("i32", c.heads)
        self.b.call(
            "softmax",
            scores.buffer,
            "exp2",
            numerators.buffer,
            z,
            rows=c.heads,
            cols=t,
            moving=1,
            scale_m=scale_m,
            scale_l=scale_l,
            scale_e=scale_e,
            x_exp=scores.exp,
            out_exp=numerators.exp,
        )
        f.release(scores, q, keys)
        values_t = f.transpose_heads(values, t, c.head_dim, 1, Batched(c.kv_width, 0, c.head_dim))
        summed = f.gemm(
            numerators,
            values_t,
            (1, c.head_dim, t),
            at=(Batched(0, 0, t), Batched(t, 0, c.head_dim * t), Batched(0, 0, c.head_dim)),
            batch=(1, c.heads),
            b_group=f.group,
            count=c.width,
        )
        f.release(values_t, values)
        out = f.wide(c.width)
        self.b.call(
            "row_div",
            summed.buffer,
            z,
            out.buffer,
            rows=1,
            heads=c.heads,
            head_dim=c.head_dim,
            context=1,
            x_exp=summed.exp,
            v_exp=values.exp,
            out_max=out.max,
            out_exp=out.exp,
        )
        f.release(summed, numerators)
        self.b.release(z)
        return f.narrow(out, c.width)
