"""Parts that the forward pass and generation share: norm, linear layer, projections, SwiGLU."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from daisychain.model.config import EMBEDDING, HEAD, layer_name
from daisychain.model.graph import Graph, Narrow, Wide
from daisychain.numbers import tables
from daisychain.numbers.formats import constant16


@dataclass(frozen=True)
class KeptNorm:
    """What the backward pass of one RMSNorm needs, and its output h."""

    name: str
    xhat: Narrow
    h: Narrow
    inv_rms: str
    inv_exp: str
    rows_max: int


def norm(f: Graph, name: str, x: Wide) -> KeptNorm:
    """RMSNorm of x [n, width] by a weight tensor; x stays."""
    d, n = f.c.width, f.n
    root_m, root_e = constant16(tables.square_root(d))
    wide = f.wide(n * d)
    inv_rms, inv_exp = f.temporary("i32", n), f.temporary("i32", n)
    rows_max = f.b.scalar()
    f.b.call(
        "rmsnorm",
        x.buffer,
        wide.buffer,
        inv_rms,
        inv_exp,
        rows=n,
        cols=d,
        root_m=root_m,
        root_e=root_e,
        static_e=isqrt(d).bit_length() - 29,
        x_exp=x.exp,
        rows_max=rows_max,
        out_max=wide.max,
        out_exp=wide.exp,
    )
    xhat = f.narrow(wide, n * d)
    w = f.weights[name]
    scaled = f.wide(n * d)
    f.b.call(
        "scale",
        xhat.buffer,
        w.buffer,
        scaled.buffer,
        rows=n,
        cols=d,
        x_exp=xhat.exp,
        w_exp=w.exp,
        out_max=scaled.max,
        out_exp=scaled.exp,
    )
    return KeptNorm(name, xhat, f.narrow(scaled, n * d), inv_rms, inv_exp, rows_max)


def linear(f: Graph, name: str, h: Narrow, out: int, into: int) -> Wide:
    """h W^T of a weight matrix [out, into]."""
    return f.gemm(h, f.weights[name], (f.n, out, into))


def swiglu(f: Graph, gate: Narrow, up: Narrow) -> Narrow:
    """silu(gate) * up; both stay."""
    count = f.n * f.c.hidden
    out = f.wide(count)
    f.b.call(
        "swiglu",
        gate.buffer,
        up.buffer,
        "sigmoid",
        out.buffer,
        count=count,
        z_exp=gate.exp,
        u_exp=up.exp,
        out_max=out.max,
        out_exp=out.exp,
    )
    return f.narrow(out, count)


def feed_forward(f: Graph, layer: int, x: Wide) -> tuple[Wide, KeptNorm, Narrow, Narrow, Narrow]:
    """x + down(silu(gate h) * up h), h = norm x; releases x.  Also the norm, gate, up, product."""
    c, count = f.c, f.n * f.c.hidden
    kept = norm(f, layer_name(layer, "post_attention_layernorm"), x)
    gate, up = (
        f.narrow(linear(f, layer_name(layer, f"mlp.{p}_proj"), kept.h, c.hidden, c.width), count)
        for p in ("gate", "up")
    )
    activated = swiglu(f, gate, up)
    y = linear(f, layer_name(layer, "mlp.down_proj"), activated, c.width, c.hidden)
    return f.add(x, y, f.n * c.width), kept, gate, up, activated


def embed(f: Graph) -> Wide:
    """Rows of the embedding for ``ids``."""
    table = f.weights[EMBEDDING]
    x = f.wide(f.n * f.c.width)
    f.b.call(
        "gather",
        table.buffer,
        f.ids,
        x.buffer,
        rows=f.n,
        cols=f.c.width,
        table_exp=table.exp,
        out_max=x.max,
        out_exp=x.exp,
    )
    return x


def head_name(f: Graph) -> str:
    """The matrix that makes logits."""
    return EMBEDDING if f.c.tied else HEAD
