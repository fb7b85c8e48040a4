"""Oracles: SwiGLU, forward and backward."""

from __future__ import annotations

import numpy as np

from daisychain.kernels.oracle.primitives import (
    Array,
    Params,
    exponent,
    mul16,
    mulq,
    rounding_shift,
    store_wide,
    write_wide,
)


def _lookup(table: Array, z: Array, e: int) -> Array:
    """The table at |z| in Q12, its step 1/64 interpolated by 6 bits; f(-z) = 1 - f(z), Q14."""
    t = np.abs(z.astype(np.int64))
    shift = e + 12
    if shift <= 0:
        t = np.minimum(rounding_shift(t, -shift), 65535)
    else:
        t = np.minimum(np.minimum(t, 65535) << min(shift, 16), 65535)
    i = t >> 6
    left, right = table[i].astype(np.int64), table[i + 1].astype(np.int64)
    f = left + (((right - left) * (t & 63) + 32) >> 6)
    return np.asarray(np.where(z < 0, 16384 - f, f))


def _silu(z: Array, e: int, sigmoid: Array) -> Array:
    """z * sigmoid(z) at z's own exponent: |silu(z)| <= |z|."""
    return rounding_shift(mul16(z, _lookup(sigmoid, z, e)), 14)


def swiglu(p: Params, s: Array, z: Array, u: Array, sigmoid: Array, out: Array) -> None:
    ez = exponent(s, p.z_exp)
    m = mul16(_silu(z[: p.count], ez, sigmoid), u[: p.count])
    write_wide(s, p, out, m, ez + exponent(s, p.u_exp))


def swiglu_backward(
    p: Params,
    s: Array,
    dy: Array,
    z: Array,
    u: Array,
    sigmoid: Array,
    slope: Array,
    dz: Array,
    du: Array,
) -> None:
    dy, z, u = dy[: p.count], z[: p.count], u[: p.count]
    ey, ez, eu = (exponent(s, word) for word in (p.dy_exp, p.z_exp, p.u_exp))
    grad_z = mulq(mul16(dy, u), _lookup(slope, z, ez), 15)
    store_wide(s, p.dz_max, p.dz_exp, dz, grad_z, ey + eu + 1)
    store_wide(s, p.du_max, p.du_exp, du, mul16(dy, _silu(z, ez, sigmoid)), ey + ez)
