"""The signature of every kernel: operands, parameters, launch size.  One table, three mirrors.

A kernel exists three times: the NumPy oracle (``kernels/oracle``, the definition), WGSL
(``webgpu/<name>.wgsl``) and WebAssembly (``wasm/kernels.c``).  All agree to the bit.  The
arithmetic follows docs/NUMBERS.md.

Operands are flat buffers of one ``Kind``:

* ``narrow``: int16 mantissas, |m| <= 32639, m = 256*hi + lo.  The byte layout shared by all players
  is *interleaved*: 16 bytes hold 8 consecutive values, first their 8 ``hi`` bytes, then their 8
  ``lo`` bytes (as ``vec4<u32>``: x, y = hi of 0..3, 4..7; z, w = lo).  The last axis of a narrow
  tensor is always a multiple of 8.
* ``i32`` and ``u32``: 32-bit words.  A *wide* tensor is i32 mantissas, |m| <= 2^30 + 2^24.

``scalars`` is one u32 buffer that every kernel sees besides its operands.  Its first
``STEP_WORDS`` words are written by the host each step (``Step``); the rest are exponents (i32 bit
patterns) and maxima (u32, only ever raised by atomicMax, cleared by ``zero_scalars``).  A parameter
that ends in ``_exp`` or ``_max`` is the index of such a word; every other parameter is a plain
number.  A tensor's value is m * 2^exp.  A kernel that writes a wide tensor also raises its ``_max``
word to max|m| and stores its ``_exp`` word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

Kind = Literal["narrow", "i32", "u32"]
Access = Literal["read", "write", "update"]
Groups = tuple[int, int, int]

WORKGROUP = 256
MAX_GROUPS_X = 1024
"""Elementwise kernels walk their tensor in strides of the whole grid, at most this many groups."""

BYTES_PER_ELEMENT: dict[Kind, int] = {"narrow": 2, "i32": 4, "u32": 4}


class Step(IntEnum):
    """Words of ``scalars`` that the host writes before each step."""

    KEY_A = 0
    KEY_B = 1
    LR = 2
    BIAS_1 = 3
    BIAS_2 = 4
    CLIP = 5
    POSITION = 6
    MICRO_BATCH = 7


STEP_WORDS = 16


@dataclass(frozen=True)
class Operand:
    """One buffer argument of a kernel."""

    name: str
    kind: Kind
    access: Access


@dataclass(frozen=True)
class Kernel:
    """Signature of a kernel.  ``groups`` gives the launch size of the WebGPU mirror."""

    name: str
    operands: tuple[Operand, ...]
    params: tuple[str, ...]
    groups: Callable[[Mapping[str, int]], Groups]


def _ceil(n: int, d: int) -> int:
    return -(-n // d)


def _spread(threads: int) -> Groups:
    return (max(1, min(_ceil(threads, WORKGROUP), MAX_GROUPS_X)), 1, 1)


def _per_value(p: Mapping[str, int]) -> Groups:
    return _spread(p["count"])


def _per_eight(p: Mapping[str, int]) -> Groups:
    return _spread(_ceil(p["count"], 8))


def _per_row_eight(p: Mapping[str, int]) -> Groups:
    return _spread(_ceil(p["rows"] * p["cols"], 8))


def _row_groups(rows: int) -> Groups:
    """A workgroup a row; the row index is y * 32768 + x."""
    return (min(rows, 32768), _ceil(rows, 32768), 1)


def _per_row(p: Mapping[str, int]) -> Groups:
    return _row_groups(p["rows"])


def _per_column_eight(p: Mapping[str, int]) -> Groups:
    return (_ceil(p["cols"], 8), 1, 1)


def _per_block(p: Mapping[str, int]) -> Groups:
    return _spread(p["outer"] * p["inner"] * p["group"] * (p["rows"] // 8) * (p["cols"] // 8))


def _one(_: Mapping[str, int]) -> Groups:
    return (1, 1, 1)


GEMM_TILE = 64


def _gemm(p: Mapping[str, int]) -> Groups:
    """Tiles of 64 x 64: x over columns, y over rows, z over the batch."""
    return (_ceil(p["n"], GEMM_TILE), _ceil(p["m"], GEMM_TILE), p["outer"] * p["inner"])


HASH_RANGE_WORDS = 16384
"""Weights are hashed in ranges of 64 KiB."""


def _per_hash_range(p: Mapping[str, int]) -> Groups:
    return _row_groups(_ceil(p["count"], HASH_RANGE_WORDS))


def _kernel(
    name: str, operands: str, params: str, groups: Callable[[Mapping[str, int]], Groups]
) -> Kernel:
    """Operands as 'name:kind:access', parameters as words."""
    letters: dict[str, Access] = {"r": "read", "w": "write", "u": "update"}
    kinds: dict[str, Kind] = {"n": "narrow", "i": "i32", "u": "u32"}
    parsed = []
    for word in operands.split():
        operand, kind, access = word.split(":")
        parsed.append(Operand(operand, kinds[kind], letters[access]))
    return Kernel(name, tuple(parsed), tuple(params.split()), groups)


_ALL = (
    # --- housekeeping
    _kernel("zero_scalars", "", "start count", _per_value),
    # scalars[target + i] = scalars[source + i]; scalars[source + i] = 0
    _kernel("move_scalars", "", "source target count", _per_value),
    _kernel("zero", "out:i:w", "count", _per_value),
    _kernel("absmax", "x:i:r", "count out_max", _per_value),
    # --- batches: takes entry j = scalars[Step.MICRO_BATCH] of ``inputs``, an array of
    # [key_a, key_b, ids[count], targets[count]], into ids, targets and the key words; j += 1
    _kernel("load_micro_batch", "inputs:u:r ids:u:w targets:u:w", "count", _one),
    # --- embedding: out[r,:] = table[ids[r],:] << 13; scatter_add is its transpose
    _kernel(
        "gather",
        "table:n:r ids:u:r out:i:w",
        "rows cols table_exp out_max out_exp",
        _per_row_eight,
    ),
    _kernel(
        "scatter_add",
        "x:i:r ids:u:r out:i:u",
        "rows cols x_max x_exp tensor_id out_exp",
        _per_row_eight,
    ),
    # --- formats
    _kernel("narrow", "x:i:r out:n:w", "count x_max x_exp out_exp", _per_eight),
    _kernel(
        "narrow_stochastic", "x:i:r out:n:w", "count x_max x_exp tensor_id out_exp", _per_eight
    ),
    _kernel(
        "add", "x:i:r y:i:r out:i:w", "count x_max x_exp y_max y_exp out_max out_exp", _per_value
    ),
    # acc = acc + x (first = 0) or acc = x (first = 1), with the exponent rule of ``add``
    _kernel(
        "accumulate",
        "x:i:r acc:i:u",
        "count first x_max x_exp acc_max acc_exp out_max out_exp",
        _per_value,
    ),
    # narrow -> narrow.  Input element (o, i, g, row, col) lies at o*in_outer + i*in_inner +
    # g*in_group + row*in_row + col; output is [outer*inner][cols][group*rows] (index g*rows + row).
    _kernel(
        "transpose",
        "x:n:r out:n:w",
        "rows cols outer inner group in_row in_outer in_inner in_group",
        _per_block,
    ),
    # --- GEMM3.  Batch z = o*inner + i.  A row r at o*a_outer + i*a_inner + r*a_row; B row likewise
    # with i // b_group; C element (r, c) at o*c_outer + i*c_inner + r*c_row + c.  causal = 1 writes
    # 0 where c > r (before the maximum).
    _kernel(
        "gemm3",
        "a:n:r b:n:r out:i:w",
        "m n k g causal outer inner a_row a_outer a_inner b_row b_outer b_inner b_group "
        "c_row c_outer c_inner a_exp b_exp out_max out_exp",
        _gemm,
    ),
    # --- RMSNorm.  root_m, root_e: sqrt(cols); static_exp: bits(isqrt cols) - 29.
    # rows_max holds max(row exponent) + 4096.
    _kernel(
        "rmsnorm",
        "x:i:r out:i:w inv_rms:i:w inv_exp:i:w",
        "rows cols root_m root_e static_e x_exp rows_max out_max out_exp",
        _per_row,
    ),
    _kernel(
        "scale",
        "x:n:r w:n:r out:i:w",
        "rows cols x_exp w_exp out_max out_exp",
        _per_row_eight,
    ),
    # mean_m, mean_e: 1/cols
    _kernel(
        "rmsnorm_backward",
        "dy:n:r xhat:n:r w:n:r inv_rms:i:r inv_exp:i:r out:i:w",
        "rows cols mean_m mean_e dy_exp xhat_exp w_exp rows_max out_max out_exp",
        _per_row,
    ),
    _kernel(
        "rmsnorm_weight_grad",
        "dy:n:r xhat:n:r out:i:w",
        "rows cols dy_exp xhat_exp out_max out_exp",
        _per_column_eight,
    ),
    # --- RoPE on [rows, heads*head_dim]; table[t][j] = cos, sin in Q14 (i32 pairs, j < head_dim/2);
    # position = row % context + scalars[Step.POSITION] * moving; backward = 1 turns the other way
    _kernel(
        "rope",
        "x:n:r table:i:r out:i:w",
        "rows heads head_dim context moving backward x_exp out_max out_exp",
        lambda p: _spread(p["rows"] * p["heads"] * p["head_dim"] // 8),
    ),
    # --- attention.  rows = batch*heads*T; causal.  A row's query position is row % cols, or with
    # moving = 1 scalars[Step.POSITION] for all rows
    # scale_m, scale_l, scale_e: log2(e)/sqrt(head_dim), two digits (exp_rows in docs/NUMBERS.md)
    _kernel(
        "softmax",
        "scores:i:r table:i:r out:n:w z:i:w",
        "rows cols moving scale_m scale_l scale_e x_exp out_exp",
        _per_row,
    ),
    # out[r, h*head_dim + j] = x / z[(r // T)*heads*T + h*T + r % T]
    _kernel(
        "row_div",
        "x:i:r z:i:r out:i:w",
        "rows heads head_dim context x_exp v_exp out_max out_exp",
        lambda p: _spread(p["rows"] * p["heads"] * p["head_dim"]),
    ),
    _kernel("probabilities", "p:n:r z:i:r out:n:w", "rows cols out_exp", _per_row_eight),
    # scale_m, scale_e: 1/sqrt(head_dim)
    _kernel(
        "softmax_backward",
        "p:n:r z:i:r dp:n:r out:i:w",
        "rows cols scale_m scale_e dp_exp out_max out_exp",
        _per_row,
    ),
    # --- SwiGLU; tables of 1,026 Q14 values
    _kernel(
        "swiglu",
        "z:n:r u:n:r sigmoid:i:r out:i:w",
        "count z_exp u_exp out_max out_exp",
        _per_eight,
    ),
    _kernel(
        "swiglu_backward",
        "dy:n:r z:n:r u:n:r sigmoid:i:r slope:i:r dz:i:w du:i:w",
        "count dy_exp z_exp u_exp dz_max dz_exp du_max du_exp",
        _per_eight,
    ),
    # --- loss.  dlogits narrow, exponent -14, stochastic.  Columns >= valid are no tokens; a target
    # of 2^32 - 1 is ignored (loss 0, gradient row 0).  loss: Q16 base 2 a row.
    _kernel(
        "cross_entropy",
        "logits:i:r targets:u:r exp_table:i:r log_table:i:r loss:i:w dlogits:n:w",
        "rows cols valid scale_m scale_l scale_e x_exp tensor_id out_exp",
        _per_row,
    ),
    # record[offset] += sum(loss >> 16), record[offset+1] += sum(loss & 0xffff)
    _kernel("sum_loss", "loss:i:r record:u:u", "count offset", _one),
    # --- generation, one token at a time.  load_token: ids[0] = prompt[scalars[Step.POSITION]]
    _kernel("load_token", "prompt:u:r ids:u:w", "count", _one),
    # row scalars[Step.POSITION] of cache [][cols] = x at the static exponent cache_e, saturated at
    # 2^30 + 2^24; raises cache_max, sets cache_exp = cache_e
    _kernel("cache_append", "x:i:r cache:i:u", "cols cache_e x_exp cache_max cache_exp", _one),
    # out[0] = exponent, out[1 + i] = x[i]
    _kernel("emit", "x:i:r out:i:w", "count x_exp", _per_value),
    # scalars[Step.POSITION] += by
    _kernel("advance", "", "by", _one),
    # --- optimizer.  sum of squares of the nearest-narrowed tensor: the four 16-bit limbs of each
    # block sum (2,048 elements) added to record[offset..offset+3]; 2*exponent at record[offset+4]
    _kernel("sum_squares", "x:i:r record:u:u", "count x_max x_exp offset", _per_eight),
    _kernel("adamw", "p:u:u m:u:u v:u:u g:i:r", "count decay g_exp p_max", _per_value),
    # p_max: maximum of (bits & 0x7fffffff)
    _kernel("weight_max", "p:u:r", "count p_max", _per_value),
    _kernel("narrow_weights", "p:u:r out:n:w", "count p_max out_exp", _per_eight),
    # sum of four 16-bit uniforms, centred, times the binary32 ``scale_bits``
    _kernel("init_weights", "p:u:w", "count key_a key_b scale_bits", _per_eight),
    _kernel("fill", "out:u:w", "count bits", _per_value),
    # --- 128-bit hash of weight bits: 4 words a range of 64 KiB, then one root
    _kernel("hash_ranges", "x:u:r ranges:u:u", "count first_range", _per_hash_range),
    _kernel("hash_root", "ranges:u:r record:u:u", "count offset", _one),
    # --- admission: all products and all splits of the INT8 units as this device computes them
    _kernel("unit_products", "out:i:w", "count", _per_value),
    _kernel("unit_splits", "out:i:w", "count", _per_value),
)

CATALOG: dict[str, Kernel] = {kernel.name: kernel for kernel in _ALL}
