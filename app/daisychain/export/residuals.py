"""The file of what error feedback owes on one device, as a checkpoint of a room holds it.

=====================  =====================================================================
``own mantissas``      I16, one an element of the exchange layout: of its own contributions
``own exponents``      I32, one a row of the layout
``reduced mantissas``  the same of the rows that it reduced for all, as member ``me`` among the
``reduced exponents``  ``owners`` (member indices in the metadata); absent if it reduced none
=====================  =====================================================================

All sizes follow from the model's shape and the owners, and are checked before anything is copied.
"""

from __future__ import annotations

import sys
from array import array

from daisychain.cluster.layout import model_layout
from daisychain.cluster.machine import Owed
from daisychain.cluster.reduce_plan import Layout, shards_of
from daisychain.cluster.roster import MAX_MEMBERS
from daisychain.errors import DataError
from daisychain.export.safetensors import Tensor, TensorFile, encode
from daisychain.model.config import ModelConfig

RESIDUALS_FILE = "daisychain/residuals.safetensors"
MAX_EXPONENT = 1_024
"""Beyond it no binary32 gradient can be."""


def residuals_limit(config: ModelConfig) -> int:
    """Bytes that the tensors of such a file have at most."""
    own = _own_size(model_layout(config))
    return 2 * sum(_bytes(own))


def encode_residuals(owed: Owed, config: ModelConfig) -> list[memoryview]:
    """The file as parts."""
    layout = model_layout(config)
    tensors = _tensors("own", owed.own, *_own_size(layout))
    metadata = {}
    if owed.owners:
        size = _reduced_size(layout, owed.owners, owed.me)
        tensors |= _tensors("reduced", owed.reduced, *size)
        metadata = {"owners": ",".join(map(str, owed.owners)), "me": str(owed.me)}
    return encode(tensors, metadata)


def decode_residuals(file: TensorFile, config: ModelConfig) -> Owed:
    """What a file of this model's layout says.  Raises DataError for the first flaw."""
    layout, tensors = model_layout(config), dict(file.tensors)
    own = _joined(tensors, "own", *_own_size(layout))
    if not file.metadata:
        found = Owed(own)
    else:
        owners, me = _owners(file.metadata.get("owners", ""), file.metadata.get("me", ""))
        size = _reduced_size(layout, owners, me)
        found = Owed(own, _joined(tensors, "reduced", *size), owners, me)
    if tensors:
        raise _malformed("it holds more than belongs there")
    return found


def _own_size(layout: Layout) -> tuple[int, int]:
    """Elements and rows."""
    return layout.elements, layout.rows


def _reduced_size(layout: Layout, owners: tuple[int, ...], me: int) -> tuple[int, int]:
    place = owners.index(me)
    shards = [cut[place] for cut in shards_of(layout, len(owners))]
    return sum(s.elements for s in shards), sum(s.rows for s in shards)


def _bytes(size: tuple[int, int]) -> tuple[int, int]:
    elements, rows = size
    return 2 * elements, 4 * rows


def _tensors(name: str, data: bytes, elements: int, rows: int) -> dict[str, Tensor]:
    view = memoryview(data)
    return {
        f"{name} mantissas": Tensor("I16", (elements,), view[: 2 * elements]),
        f"{name} exponents": Tensor("I32", (rows,), view[2 * elements :]),
    }


def _joined(tensors: dict[str, Tensor], name: str, elements: int, rows: int) -> bytes:
    """Mantissas, then exponents, as the reducer holds them."""
    mantissas = tensors.pop(f"{name} mantissas", None)
    exponents = tensors.pop(f"{name} exponents", None)
    if mantissas is None or (mantissas.dtype, mantissas.shape) != ("I16", (elements,)):
        raise _malformed(f"the {name} mantissas are not those of this model")
    if exponents is None or (exponents.dtype, exponents.shape) != ("I32", (rows,)):
        raise _malformed(f"the {name} exponents are not those of this model")
    values = array("i", bytes(exponents.data))
    if sys.byteorder == "big":
        values.byteswap()
    if rows and max(max(values), -min(values)) > MAX_EXPONENT:
        raise _malformed(f"the {name} exponents are absurd")
    return bytes(mantissas.data) + bytes(exponents.data)


def _owners(owners: str, me: str) -> tuple[tuple[int, ...], int]:
    texts = owners.split(",")
    known = {str(index): index for index in range(MAX_MEMBERS)}
    if len(texts) > MAX_MEMBERS or len(set(texts)) < len(texts) or me not in texts:
        raise _malformed("its owners are malformed")
    if not known.keys() >= set(texts):
        raise _malformed("its owners are malformed")
    return tuple(known[text] for text in texts), known[me]


def _malformed(reason: str) -> DataError:
    return DataError(
        f"What error feedback owes cannot be read from this checkpoint: {reason}.",
        "Nothing of it is used.",
        "Choose another file, or an older save.",
    )
