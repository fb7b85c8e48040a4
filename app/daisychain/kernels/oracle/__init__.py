"""The NumPy oracles: the definition of every kernel.

``ORACLES[name](p, scalars, *operands)`` works in place on flat arrays: narrow operands as int16,
the others as int32 and uint32; ``p`` holds the parameters by name.
"""

from __future__ import annotations

from collections.abc import Callable

from daisychain.kernels.catalog import CATALOG
from daisychain.kernels.oracle import (
    attention,
    basic,
    generation,
    hashing,
    loss,
    norm,
    optimizer,
    swiglu,
)

Oracle = Callable[..., None]


def _find(name: str) -> Oracle:
    for module in (basic, norm, attention, swiglu, loss, optimizer, hashing, generation):
        if module.__dict__.get(name) is not None:
            oracle: Oracle = module.__dict__[name]
            return oracle
    raise LookupError(f"kernel {name} has no oracle")


ORACLES: dict[str, Oracle] = {name: _find(name) for name in CATALOG}
