"""Long integers as arrays of lanes, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daisychain.export import lanes

words = st.lists(st.integers(0, 2**32 - 1), max_size=40)


def packed(values: list[int]) -> memoryview:
    return memoryview(np.array(values, np.uint32).tobytes())


@given(words)
def test_finite(values: list[int]) -> None:
    floats = np.array(values, np.uint32).view(np.float32)
    assert lanes.is_finite(packed(values)) == bool(np.isfinite(floats).all())


@given(words)
@example([0x3F808000, 0x3F818000, 0x3F808001])
def test_bfloat16_rounds_to_even(values: list[int]) -> None:
    finite = [v for v in values if v & lanes.EXPONENT != lanes.EXPONENT]
    words = np.array(finite, np.uint64)
    expected = ((words + 0x7FFF + (words >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype(
        np.uint16
    )
    assert lanes.to_bfloat16(packed(finite)) == expected.tobytes()
    widened = lanes.from_bfloat16(memoryview(expected.tobytes()))
    assert widened == (expected.astype(np.uint32) << 16).tobytes()


def test_binary16() -> None:
    halves = np.arange(2**16, dtype=np.uint16)
    halves = halves[np.isfinite(halves.view(np.float16))]
    expected = halves.view(np.float16).astype(np.float32).tobytes()
    assert lanes.from_binary16(memoryview(halves.tobytes())) == expected


@pytest.mark.parametrize("at", [0, 1, 255, 256, 257, 300])
def test_across_parts(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    monkeypatch.setattr(lanes, "CHUNK_BYTES", 1024)
    values = np.ones(301, np.float32)
    assert lanes.is_finite(memoryview(values.tobytes()))
    assert len(lanes.to_bfloat16(memoryview(values.tobytes()))) == 602
    values[at] = np.inf
    assert not lanes.is_finite(memoryview(values.tobytes()))
