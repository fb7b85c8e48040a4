"""Test cases of every kernel: ragged shapes and extreme values, as programs of one call.

For CPython with NumPy; the expected outputs come from ``players.oracle.OraclePlayer``.
"""

from __future__ import annotations

from daisychain.kernels.cases import generation, rows, tensors, updates
from daisychain.kernels.cases.build import PLAN, Case
from daisychain.kernels.catalog import CATALOG

__all__ = ["PLAN", "Case", "cases"]


def cases(kernel: str) -> tuple[Case, ...]:
    """All cases of one kernel; the same at every call.  Raises KeyError for an unknown kernel."""
    if kernel not in CATALOG:
        raise KeyError(kernel)
    for module in (tensors, rows, updates, generation):
        if make := module.__dict__.get(kernel):
            return tuple(make())
    raise KeyError(kernel)
