"""The kernels of a model as functions on tensors, collected into one program."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import prod

from daisychain.kernels.catalog import Kind
from daisychain.model.config import ModelConfig
from daisychain.numbers import tables
from daisychain.numbers.formats import gemm_shift
from daisychain.plan import ProgramBuilder


@dataclass(frozen=True)
class Wide:
    """A wide tensor: buffer, and the scalar words of its maximum and exponent."""

    buffer: str
    max: int
    exp: int


@dataclass(frozen=True)
class Narrow:
    """A narrow tensor: buffer, and the scalar word of its exponent."""

    buffer: str
    exp: int


@dataclass(frozen=True)
class Batched:
    """Strides of a GEMM operand: row, outer batch, inner batch (elements)."""

    row: int
    outer: int = 0
    inner: int = 0


class Graph:
    """A program in the making for ``rows`` sequences of ``config.context`` tokens, ``n`` in all.

    ``weights`` and ``transposed`` are the narrow weights by parameter name; ``gradients`` fills
    during the backward pass.
    """

    def __init__(self, config: ModelConfig, rows: int) -> None:
        self.c, self.rows = config, rows
        self.n = rows * config.context
        self.b = ProgramBuilder()
        self.ids = "ids"
        self.weights: dict[str, Narrow] = {}
        self.transposed: dict[str, Narrow] = {}
        self.gradients: dict[str, Wide] = {}
        self._names = count(1)
        self._tensor_ids = count(1)

    def tables(self, *names: str) -> None:
        """Constant buffers with these tables of the kernels."""
        shape = self.c.context, self.c.head_dim
        known: dict[str, tuple[int, Callable[[], Iterable[int]]]] = {
            "exp2": (tables.EXP_ENTRIES, tables.exp2_table),
            "log2": (tables.LOG_ENTRIES, tables.log2_table),
            "sigmoid": (tables.SIGMOID_ENTRIES, tables.sigmoid_table),
            "slope": (tables.SIGMOID_ENTRIES, tables.silu_slope_table),
            "angles": (prod(shape), partial(tables.rope_table, *shape)),
        }
        for name in names:
            entries, make = known[name]
            self.b.constant(name, "i32", entries, partial(_words, make))

    def for_one_token(self, ids: str) -> Graph:
        """The same program, weights and names, for a single token whose id is in ``ids``."""
        view = copy(self)
        view.rows, view.n, view.ids = 1, 1, ids
        return view

    def tensor_id(self) -> int:
        """A fresh id for the random bits of one tensor."""
        return next(self._tensor_ids)

    def temporary(self, kind: Kind, size: int) -> str:
        return self.b.temporary(f"temporary {next(self._names)}", kind, size)

    def wide(self, count: int) -> Wide:
        return Wide(self.temporary("i32", count), self.b.scalar(), self.b.scalar())

    def release(self, *tensors: Wide | Narrow) -> None:
        self.b.release(*(t.buffer for t in tensors))

    def narrow(self, x: Wide, count: int, *, stochastic: bool = False) -> Narrow:
        """Narrows and releases x."""
        out = Narrow(self.temporary("narrow", count), self.b.scalar())
        words = {"count": count, "x_max": x.max, "x_exp": x.exp, "out_exp": out.exp}
        if stochastic:
            self.b.call(
                "narrow_stochastic", x.buffer, out.buffer, **words, tensor_id=self.tensor_id()
            )
        else:
            self.b.call("narrow", x.buffer, out.buffer, **words)
        self.release(x)
        return out

    def add(self, x: Wide, y: Wide, count: int) -> Wide:
        """x + y; releases both."""
        out = self.wide(count)
        self.b.call(
            "add",
            x.buffer,
            y.buffer,
            out.buffer,
            count=count,
            x_max=x.max,
            x_exp=x.exp,
            y_max=y.max,
            y_exp=y.exp,
            out_max=out.max,
            out_exp=out.exp,
        )
        self.release(x, y)
        return out

    def transpose_into(self, source: str, target: str, rows: int, cols: int) -> None:
        self.b.call(
            "transpose",
            source,
            target,
            rows=rows,
            cols=cols,
            outer=1,
            inner=1,
            group=1,
            in_row=cols,
            in_outer=0,
            in_inner=0,
            in_group=0,
        )

    def transpose(self, x: Narrow, rows: int, cols: int) -> Narrow:
        out = self.temporary("narrow", rows * cols)
        self.transpose_into(x.buffer, out, rows, cols)
        return Narrow(out, x.exp)

    def transpose_heads(self, x: Narrow, rows: int, cols: int, group: int, at: Batched) -> Narrow:
        """Per (sequence, key-value head): [group][rows][cols] to [cols][group*rows].

        ``at``: row stride, stride of a sequence, stride of one head.
        """
        outer, inner = self.rows, self.c.kv_heads
        out = self.temporary("narrow", outer * inner * group * rows * cols)
        self.b.call(
            "transpose",
            x.buffer,
            out,
            rows=rows,
            cols=cols,
            outer=outer,
            inner=inner,
            group=group,
            in_row=at.row,
            in_outer=at.outer,
            in_inner=group * at.inner,
            in_group=at.inner,
        )
        return Narrow(out, x.exp)

    def gemm(
        self,
        a: Narrow,
        b: Narrow,
        shape: tuple[int, int, int],
        *,
        at: tuple[Batched, Batched, Batched] | None = None,
        batch: tuple[int, int] = (1, 1),
        b_group: int = 1,
        causal: bool = False,
        shift: int | None = None,
        out: Wide | None = None,
        count: int | None = None,
    ) -> Wide:
        """C = A B^T of shape (m, n, k), optionally batched over (outer, inner)."""
        m, n, k = shape
        sa, sb, sc = at or (Batched(k), Batched(k), Batched(n))
        out = out or self.wide(count or m * n)
        self.b.call(
            "gemm3",
            a.buffer,
            b.buffer,
            out.buffer,
            m=m,
            n=n,
            k=k,
            g=gemm_shift(k) if shift is None else shift,
            causal=int(causal),
            outer=batch[0],
            inner=batch[1],
            a_row=sa.row,
            a_outer=sa.outer,
            a_inner=sa.inner,
            b_row=sb.row,
            b_outer=sb.outer,
            b_inner=sb.inner,
            b_group=b_group,
            c_row=sc.row,
            c_outer=sc.outer,
            c_inner=sc.inner,
            a_exp=a.exp,
            b_exp=b.exp,
            out_max=out.max,
            out_exp=out.exp,
        )
        return out

    def weight_gradient(self, name: str, dy: Narrow, x: Narrow, out: int, into: int) -> None:
        """G = dY^T X of a [out, into] matrix."""
        dy_t, x_t = self.transpose(dy, self.n, out), self.transpose(x, self.n, into)
        self.gemm(dy_t, x_t, (out, into, self.n), out=self.gradient(name, out * into))
        self.release(dy_t, x_t)

    def gradient(self, name: str, count: int) -> Wide:
        """The (persistent) gradient tensor of a parameter."""
        g = Wide(self.b.buffer(f"gradient {name}", "i32", count), self.b.scalar(), self.b.scalar())
        self.gradients[name] = g
        return g

    # ------------------------------------------------------------ shapes used by both passes

    def per_token(self, width: int) -> Batched:
        """[sequence][token][head][head_dim] as a batch over sequences and heads."""
        return Batched(width, self.c.context * width, self.c.head_dim)

    def per_score(self) -> Batched:
        """[sequence][head][query][key] as a batch over sequences and heads."""
        t = self.c.context
        return Batched(t, self.c.heads * t * t, t * t)

    def per_transposed(self, rows: int, cols: int) -> Batched:
        """[sequence][kv head][rows][cols]."""
        return Batched(cols, self.c.kv_heads * rows * cols, rows * cols)

    @property
    def group(self) -> int:
        return self.c.heads // self.c.kv_heads

    @property
    def scores(self) -> int:
        return self.rows * self.c.heads * self.c.context

    def rope(self, x: Narrow, heads: int, *, backward: bool = False, moving: bool = False) -> Wide:
        """Rotates [tokens, heads*head_dim]; releases x.  ``moving``: from Step.POSITION on."""
        out = self.wide(self.n * heads * self.c.head_dim)
        self.b.call(
            "rope",
            x.buffer,
            "angles",
            out.buffer,
            rows=self.n,
            heads=heads,
            head_dim=self.c.head_dim,
            context=self.c.context,
            moving=int(moving),
            backward=int(backward),
            x_exp=x.exp,
            out_max=out.max,
            out_exp=out.exp,
        )
        self.release(x)
        return out


def _words(make: Callable[[], Iterable[int]]) -> bytes:
    return array("i", make()).tobytes()
