"""The backward pass: from dlogits to a wide gradient a parameter."""

from __future__ import annotations

from fractions import Fraction

from daisychain.model.config import EMBEDDING, HEAD, layer_name
from daisychain.model.forward import Forward, KeptLayer
from daisychain.model.graph import Graph, Narrow, Wide
from daisychain.model.layers import KeptNorm
from daisychain.numbers import tables
from daisychain.numbers.formats import constant16

LOGITS_SHIFT = 7
"""g of GEMM3 for rows of dlogits: sum|m| <= 2^15 + V bounds them (docs/NUMBERS.md)."""


class Backward:
    """Adds the calls of one backward pass to a graph; fills ``graph.gradients``."""

    def __init__(self, graph: Graph, forward: Forward) -> None:
        self.f, self.c, self.b, self.forward = graph, graph.c, graph.b, forward

    def run(self) -> None:
        f, c, n = self.f, self.c, self.f.n
        v, forward = c.vocabulary_rows, self.forward
        dlogits, head = forward.dlogits, forward.head_name
        dlogits_t = f.transpose(dlogits, n, v)
        h_t = f.transpose(forward.final.h, n, c.width)
        of_logits = f.gemm(
            dlogits_t,
            h_t,
            (v, c.width, n),
            out=None if c.tied else f.gradient(HEAD, v * c.width),
        )
        f.release(dlogits_t, h_t)
        dh = f.gemm(dlogits, f.transposed[head], (n, c.width, v), shift=LOGITS_SHIFT)
        f.release(dlogits)
        dx = self._norm(forward.final, dh)
        for layer in reversed(range(c.layers)):
            dx = self._layer(layer, forward.layers[layer], dx)
        self._embedding(dx, of_logits)

    def _sr(self, x: Wide, count: int) -> Narrow:
        return self.f.narrow(x, count, stochastic=True)

    def _norm(self, norm: KeptNorm, dh: Wide) -> Wide:
        """Gradient of an RMSNorm's input; releases dh and what the norm kept."""
        f, d, n = self.f, self.c.width, self.f.n
        w = f.weights[norm.name]
        dy = self._sr(dh, n * d)
        mean_m, mean_e = constant16(Fraction(1, d))
        dx = f.wide(n * d)
        self.b.call(
            "rmsnorm_backward",
            dy.buffer,
            norm.xhat.buffer,
            w.buffer,
            norm.inv_rms,
            norm.inv_exp,
            dx.buffer,
            rows=n,
            cols=d,
            mean_m=mean_m,
            mean_e=mean_e,
            dy_exp=dy.exp,
            xhat_exp=norm.xhat.exp,
            w_exp=w.exp,
            rows_max=norm.rows_max,
            out_max=dx.max,
            out_exp=dx.exp,
        )
        g = f.gradient(norm.name, d)
        self.b.call(
            "rmsnorm_weight_grad",
            dy.buffer,
            norm.xhat.buffer,
            g.buffer,
            rows=n,
            cols=d,
            dy_exp=dy.exp,
            xhat_exp=norm.xhat.exp,
            out_max=g.max,
            out_exp=g.exp,
        )
        f.release(dy, norm.xhat, norm.h)
        self.b.release(norm.inv_rms, norm.inv_exp)
        return dx

    def _through(self, name: str, dy: Narrow, out: int, into: int) -> Wide:
        """dX = dY W of a [out, into] matrix."""
        return self.f.gemm(dy, self.f.transposed[name], (self.f.n, into, out))

    def _layer(self, layer: int, kept: KeptLayer, dx: Wide) -> Wide:
        f, c, n = self.f, self.c, self.f.n
        dx, t = self._branch(dx)
        dh = self._feed_forward(layer, kept, t)
        dx = f.add(dx, self._norm(kept.norm2, dh), n * c.width)
        dx, t = self._branch(dx)
        dh = self._attention(layer, kept, t)
        return f.add(dx, self._norm(kept.norm1, dh), n * c.width)

    def _branch(self, dx: Wide) -> tuple[Wide, Narrow]:
        """dx stays for the residual path; its narrow copy enters the branch."""
        f, count = self.f, self.f.n * self.c.width
        out = Narrow(f.temporary("narrow", count), self.b.scalar())
        self.b.call(
            "narrow_stochastic",
            dx.buffer,
            out.buffer,
            count=count,
            x_max=dx.max,
            x_exp=dx.exp,
            tensor_id=f.tensor_id(),
            out_exp=out.exp,
        )
        return dx, out

    def _feed_forward(self, layer: int, kept: KeptLayer, t: Narrow) -> Wide:
        f, c, n = self.f, self.c, self.f.n
        gate, up, down = (layer_name(layer, f"mlp.{p}_proj") for p in ("gate", "up", "down"))
        f.weight_gradient(down, t, kept.activated, c.width, c.hidden)
        dy = self._sr(self._through(down, t, c.width, c.hidden), n * c.hidden)
        f.release(t, kept.activated)
        wide_z, wide_u = f.wide(n * c.hidden), f.wide(n * c.hidden)
        self.b.call(
            "swiglu_backward",
            dy.buffer,
            kept.gate.buffer,
            kept.up.buffer,
            "sigmoid",
            "slope",
            wide_z.buffer,
            wide_u.buffer,
            count=n * c.hidden,
            dy_exp=dy.exp,
            z_exp=kept.gate.exp,
            u_exp=kept.up.exp,
            dz_max=wide_z.max,
            dz_exp=wide_z.exp,
            du_max=wide_u.max,
            du_exp=wide_u.exp,
        )
        f.release(dy, kept.gate, kept.up)
        dz, du = self._sr(wide_z, n * c.hidden), self._sr(wide_u, n * c.hidden)
        f.weight_gradient(gate, dz, kept.norm2.h, c.hidden, c.width)
        f.weight_gradient(up, du, kept.norm2.h, c.hidden, c.width)
        dh = f.add(
            self._through(gate, dz, c.hidden, c.width),
            self._through(up, du, c.hidden, c.width),
            n * c.width,
        )
        f.release(dz, du)
        return dh

    def _attention(self, layer: int, kept: KeptLayer, t: Narrow) -> Wide:
        f, c, n = self.f, self.c, self.f.n
        q, k, v, o = (layer_name(layer, f"self_attn.{p}_proj") for p in "qkvo")
        f.weight_gradient(o, t, kept.attended, c.width, c.width)
        do = self._sr(self._through(o, t, c.width, c.width), n * c.width)
        f.release(t, kept.attended)
        dq, dk, dv = self._heads(kept, do)
        terms = []
        for name, dy, width in ((q, dq, c.width), (k, dk, c.kv_width), (v, dv, c.kv_width)):
            f.weight_gradient(name, dy, kept.norm1.h, width, c.width)
            terms.append(self._through(name, dy, width, c.width))
            f.release(dy)
        dh = f.add(terms[0], terms[1], n * c.width)
        return f.add(dh, terms[2], n * c.width)

    def _heads(self, kept: KeptLayer, do: Narrow) -> tuple[Narrow, Narrow, Narrow]:
        """Gradients of q, k (before RoPE) and v."""
        f, c, t, n = self.f, self.c, self.c.context, self.f.n
        tokens_q, tokens_kv = f.per_token(c.width), f.per_token(c.kv_width)
        long = f.group * t
        wide_dp = f.gemm(
            do,
            kept.v,
            (t, t, c.head_dim),
            at=(tokens_q, tokens_kv, f.per_score()),
            batch=(f.rows, c.heads),
            b_group=f.group,
            causal=True,
            count=f.scores * t,
        )
        dp = self._sr(wide_dp, f.scores * t)
        p_t = self._transposed_probabilities(kept)
        do_t = f.transpose_heads(do, t, c.head_dim, f.group, tokens_q)
        wide_dv = f.gemm(
            p_t,
            do_t,
            (t, c.head_dim, long),
            at=(f.per_transposed(t, long), f.per_transposed(c.head_dim, long), tokens_kv),
            batch=(f.rows, c.kv_heads),
            count=n * c.kv_width,
        )
        f.release(p_t, do_t, do, kept.v)
        dv = self._sr(wide_dv, n * c.kv_width)
        ds = self._softmax(kept, dp)
        k_t = f.transpose_heads(kept.k, t, c.head_dim, 1, tokens_kv)
        wide_dq = f.gemm(
            ds,
            k_t,
            (t, c.head_dim, t),
            at=(f.per_score(), f.per_transposed(c.head_dim, t), tokens_q),
            batch=(f.rows, c.heads),
            b_group=f.group,
            count=n * c.width,
        )
        ds_t = f.transpose_heads(ds, t, t, f.group, f.per_score())
        q_t = f.transpose_heads(kept.q, t, c.head_dim, f.group, tokens_q)
        wide_dk = f.gemm(
            ds_t,
            q_t,
            (t, c.head_dim, long),
            at=(f.per_transposed(t, long), f.per_transposed(c.head_dim, long), tokens_kv),
            batch=(f.rows, c.kv_heads),
            count=n * c.kv_width,
        )
        f.release(ds, k_t, ds_t, q_t, kept.q, kept.k)
        dq = self._unrotate(wide_dq, c.heads)
        return dq, self._unrotate(wide_dk, c.kv_heads), dv

    def _unrotate(self, x: Wide, heads: int) -> Narrow:
        count = self.f.n * heads * self.c.head_dim
        return self._sr(self.f.rope(self._sr(x, count), heads, backward=True), count)

    def _transposed_probabilities(self, kept: KeptLayer) -> Narrow:
        f, t = self.f, self.c.context
        p = Narrow(f.temporary("narrow", f.scores * t), self.b.scalar())
        self.b.call(
            "probabilities",
            kept.numerators.buffer,
            kept.z,
            p.buffer,
            rows=f.scores,
            cols=t,
            out_exp=p.exp,
        )
        p_t = f.transpose_heads(p, t, t, f.group, f.per_score())
        f.release(p)
        return p_t

    def _softmax(self, kept: KeptLayer, dp: Narrow) -> Narrow:
        f, t = self.f, self.c.context
        scale_m, scale_e = constant16(1 / tables.square_root(self.c.head_dim))
        out = f.wide(f.scores * t)
        self.b.call(
            "softmax_backward",
            kept.numerators.buffer,
            kept.z,
            dp.buffer,
            out.buffer,
            rows=f.scores,
            cols=t,
            scale_m=scale_m,
            scale_e=scale_e,
            dp_exp=dp.exp,
            out_max=out.max,
            out_exp=out.exp,
        )
        f.release(dp, kept.numerators)
        self.b.release(kept.z)
        return self._sr(out, f.scores * t)

    def _embedding(self, dx: Wide, of_logits: Wide) -> None:
        """Scatter of dx by token id, plus (tied) the gradient through the logits."""
        f, c, n = self.f, self.c, self.f.n
        count = c.vocabulary_rows * c.width
        scattered = f.wide(count) if c.tied else f.gradient(EMBEDDING, count)
        self.b.call("zero", scattered.buffer, count=count)
        self.b.call(
            "scatter_add",
            dx.buffer,
            "ids",
            scattered.buffer,
            rows=n,
            cols=c.width,
            x_max=dx.max,
            x_exp=dx.exp,
            tensor_id=f.tensor_id(),
            out_exp=scattered.exp,
        )
        self.b.call("absmax", scattered.buffer, count=count, out_max=scattered.max)
        f.release(dx)
        if c.tied:
            g = f.gradient(EMBEDDING, count)
            self.b.call(
                "add",
                of_logits.buffer,
                scattered.buffer,
                g.buffer,
                count=count,
                x_max=of_logits.max,
                x_exp=of_logits.exp,
                y_max=scattered.max,
                y_exp=scattered.exp,
                out_max=g.max,
                out_exp=g.exp,
            )
            f.release(of_logits, scattered)
