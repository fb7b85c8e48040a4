"""The same Llama network in NumPy float64, forward and backward, and AdamW in float64.

The reference that the integer model is measured against (tests/model, bench/parity.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from daisychain.model.config import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    RMS_EPSILON,
    ROPE_BASE,
    ModelConfig,
    layer_name,
)

Array = npt.NDArray[Any]
Weights = dict[str, Array]


def loss_and_gradients(c: ModelConfig, w: Weights, ids: Array, targets: Array, back: bool = True):
    """Mean loss (nats) of ids, targets [rows][context], and d(mean loss)/d(weight) by name."""
    net = _Network(c, w, ids.shape)
    loss = net.forward(ids, targets)
    return loss, (net.backward(ids, targets) if back else {})


def next_token_logits(c: ModelConfig, w: Weights, tokens: Array) -> Array:
    """Logits [vocabulary] of the token after ``tokens``."""
    net = _Network(c, w, (1, len(tokens)))
    net.forward(tokens[None], np.zeros((1, len(tokens)), np.int64))
    return np.asarray(net.h[-1] @ net.head.T)[: c.vocabulary]


class _Network:
    def __init__(self, c: ModelConfig, w: Weights, shape: tuple[int, ...]) -> None:
        self.c, self.w, (self.rows, self.t) = c, w, shape
        self.n = self.rows * self.t
        half = c.head_dim // 2
        angle = np.arange(self.t)[:, None] * ROPE_BASE ** (-np.arange(half) / half)
        self.cos, self.sin = np.cos(angle), np.sin(angle)
        self.mask = np.triu(np.ones((self.t, self.t), bool), 1)
        self.head = w[EMBEDDING] if c.tied else w[HEAD]
        self.kept: list[dict[str, Any]] = []

    def _norm(self, x: Array, name: str) -> tuple[Array, tuple[Array, Array, str]]:
        inv = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + RMS_EPSILON)
        return x * inv * self.w[name], (x * inv, inv, name)

    def _norm_back(self, dh: Array, kept: tuple[Array, Array, str], g: Weights) -> Array:
        xhat, inv, name = kept
        g[name] = (dh * xhat).sum(0)
        t = dh * self.w[name]
        return inv * (t - xhat * (t * xhat).mean(-1, keepdims=True))

    def _heads(self, x: Array, heads: int) -> Array:
        return x.reshape(self.rows, self.t, heads, -1).transpose(0, 2, 1, 3)

    def _flat(self, x: Array) -> Array:
        return x.transpose(0, 2, 1, 3).reshape(self.n, -1)

    def _rope(self, x: Array, sign: int) -> Array:
        half = self.c.head_dim // 2
        a, b, sin = x[..., :half], x[..., half:], sign * self.sin
        return np.concatenate([a * self.cos - b * sin, a * sin + b * self.cos], -1)

    def forward(self, ids: Array, targets: Array) -> float:
        c, w = self.c, self.w
        x, group = w[EMBEDDING][ids.reshape(-1)], c.heads // c.kv_heads
        for layer in range(c.layers):
            h1, n1 = self._norm(x, layer_name(layer, "input_layernorm"))
            q, k, v = (h1 @ w[layer_name(layer, f"self_attn.{p}_proj")].T for p in "qkv")
            q = self._rope(self._heads(q, c.heads), 1)
            k = self._rope(self._heads(k, c.kv_heads), 1)
            k, v = (np.repeat(y, group, 1) for y in (k, self._heads(v, c.kv_heads)))
            s = np.where(self.mask, -np.inf, q @ k.swapaxes(2, 3) * c.head_dim**-0.5)
            p = np.exp(s - s.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            o = self._flat(p @ v)
            x = x + o @ w[layer_name(layer, "self_attn.o_proj")].T
            h2, n2 = self._norm(x, layer_name(layer, "post_attention_layernorm"))
            z, u = (h2 @ w[layer_name(layer, f"mlp.{p}_proj")].T for p in ("gate", "up"))
            sig = 1 / (1 + np.exp(-z))
            a = z * sig * u
            x = x + a @ w[layer_name(layer, "mlp.down_proj")].T
            self.kept.append({"h1": h1, "n1": n1, "q": q, "k": k, "v": v, "p": p, "o": o})
            self.kept[-1].update({"h2": h2, "n2": n2, "z": z, "u": u, "sig": sig, "a": a})
        self.h, self.final = self._norm(x, FINAL_NORM)
        logits = (self.h @ self.head.T)[:, : c.vocabulary]
        logits -= logits.max(-1, keepdims=True)
        e = np.exp(logits)
        total = e.sum(-1, keepdims=True)
        self.p = e / total
        row = np.arange(self.n)
        return float((np.log(total[:, 0]) - logits[row, targets.reshape(-1)]).mean())

    def backward(self, ids: Array, targets: Array) -> Weights:
        c, w, g = self.c, self.w, {}
        self.p[np.arange(self.n), targets.reshape(-1)] -= 1
        dl = np.zeros((self.n, self.head.shape[0]))
        dl[:, : c.vocabulary] = self.p / self.n
        g[EMBEDDING if c.tied else HEAD] = dl.T @ self.h
        dx = self._norm_back(dl @ self.head, self.final, g)
        for layer in reversed(range(c.layers)):
            dx = self._layer_back(layer, self.kept[layer], dx, g)
        embedding = np.zeros_like(w[EMBEDDING])
        np.add.at(embedding, ids.reshape(-1), dx)
        g[EMBEDDING] = g.get(EMBEDDING, 0) + embedding
        return g

    def _layer_back(self, layer: int, kept: dict[str, Any], dx: Array, g: Weights) -> Array:
        c, w, group = self.c, self.w, self.c.heads // self.c.kv_heads
        attention = {p: layer_name(layer, f"self_attn.{p}_proj") for p in "qkvo"}
        gate, up, down = (layer_name(layer, f"mlp.{p}_proj") for p in ("gate", "up", "down"))
        z, u, sig = kept["z"], kept["u"], kept["sig"]
        g[down] = dx.T @ kept["a"]
        da = dx @ w[down]
        dz, du = da * u * sig * (1 + z * (1 - sig)), da * z * sig
        g[gate], g[up] = dz.T @ kept["h2"], du.T @ kept["h2"]
        dx = dx + self._norm_back(dz @ w[gate] + du @ w[up], kept["n2"], g)
        g[attention["o"]] = dx.T @ kept["o"]
        do = self._heads(dx @ w[attention["o"]], c.heads)
        p, v = kept["p"], kept["v"]
        dp = do @ v.swapaxes(2, 3)
        ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * c.head_dim**-0.5
        fold = lambda y: y.reshape(self.rows, c.kv_heads, group, self.t, -1).sum(2)  # noqa: E731
        dq = self._flat(self._rope(ds @ kept["k"], -1))
        dk = self._flat(self._rope(fold(ds.swapaxes(2, 3) @ kept["q"]), -1))
        dv = self._flat(fold(p.swapaxes(2, 3) @ do))
        dh = np.zeros_like(dx)
        for part, dy in (("q", dq), ("k", dk), ("v", dv)):
            g[attention[part]] = dy.T @ kept["h1"]
            dh += dy @ w[attention[part]]
        return dx + self._norm_back(dh, kept["n1"], g)


class AdamW:
    """The optimizer of kernel ``adamw`` in float64; gradients of the mean loss."""

    def __init__(self, w: Weights) -> None:
        self.m = {k: np.zeros_like(v) for k, v in w.items()}
        self.v = {k: np.zeros_like(v) for k, v in w.items()}
        self.t = 0

    def step(self, w: Weights, g: Weights, lr: float) -> None:
        self.t += 1
        norm = np.sqrt(sum((x * x).sum() for x in g.values()))
        clip = min(1.0, 1.0 / (norm + 1e-9))
        b1, b2 = 1 - 0.9**self.t, 1 - 0.95**self.t
        for k, x in g.items():
            x = x * clip
            self.m[k] = self.m[k] * 0.9 + x * 0.1
            self.v[k] = self.v[k] * 0.95 + x * x * 0.05
            u = (self.m[k] / b1) / (np.sqrt(self.v[k] / b2) + 1e-10)
            w[k] = w[k] - lr * (u + (0.1 * w[k] if w[k].ndim == 2 else 0))
