"""The kernels' tables: their bits, and what they cost the page."""

from __future__ import annotations

from array import array
from hashlib import sha256

import pytest

from daisychain.numbers import tables


def digest(values: object) -> str:
    return sha256(array("i", values).tobytes()).hexdigest()[:32]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("context", "head_dim", "expected"),
    [
        (8, 16, "aad288a671969700fa7557de41bdaaa2"),
        (64, 16, "7d90fed9a7db1527e287ed765c4e490a"),
        (128, 32, "ced004273d8c5c0d9c07f9b624cd1227"),
        (129, 128, "fce55a373ade22c546f94ab1e142063f"),
        (256, 32, "616f27d768f6693aab4fdf45ed99477b"),
        (512, 64, "21da34aeca64bcf519647af5ed2a1216"),
        (1000, 40, "4b6e1791df649949efb71ad19ccc3cfd"),
        (4096, 8, "5c6f1810dfe81d163dabe1b8d98c9504"),
        (4096, 512, "2def8d2018be083a6888444c452cdf0f"),
    ],
)
def test_bits_of_the_rotations(context: int, head_dim: int, expected: str) -> None:
    """As repeated rotation with 128 fraction bits gave them, entry by entry."""
    assert digest(tables.rope_table(context, head_dim)) == expected


def test_bits_of_the_other_tables() -> None:
    assert digest(tables.exp2_table()) == "615102d3f9111a4a0cc517856f2e4581"
    assert digest(tables.log2_table()) == "c2605535d9db58fc3370699f528f5708"
    assert digest(tables.sigmoid_table()) == "1d1ede2dbe658ad39e25cbc0878522b5"
    assert digest(tables.silu_slope_table()) == "6914854ddba5f882802ebf6cb54c7b39"
    assert digest(tables.rsqrt_table()) == "7f8c88e203039170cf2bd4e147c11563"


def test_a_table_is_made_one_frequency_at_a_time_and_kept() -> None:
    tables.rope_table(8, 8)
    assert len(list(tables.rope_work(64, 24))) == 12
    assert list(tables.rope_work(64, 24)) == []
    assert tables.rope_table(64, 24) is tables.rope_table(64, 24)
