"""Admission: the oracle passes, a device that computes anything else is refused by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from daisychain.errors import DataError
from daisychain.kernels.catalog import CATALOG, Step
from daisychain.kernels.oracle import ORACLES
from daisychain.numbers import softfloat
from daisychain.plan import Call
from daisychain.players.admission import (
    UNIT_KERNELS,
    KernelRefused,
    admit,
    first_difference,
    golden_sets,
)
from daisychain.players.golden import PLAN, decode, encode
from daisychain.players.oracle import OraclePlayer, pack_narrow
from scripts import make_golden

Oracle = Callable[..., None]
DECAY, BETA_1, GAIN_1, BETA_2, GAIN_2, EPSILON = (
    int(np.float32(x).view(np.uint32)) for x in (0.1, 0.9, 0.1, 0.95, 0.05, 1e-10)
)


class FaultyPlayer(OraclePlayer):
    """An oracle whose kernel ``kernel`` is another function, as a wrong device has it."""

    def __init__(self, kernel: str, function: Oracle) -> None:
        super().__init__()
        self.kernel, self.function = kernel, function

    def execute(self, call: Call) -> None:
        if call.kernel != self.kernel:
            super().execute(call)
            return
        arrays = [self.array(name) for name in call.buffers]
        self.function(SimpleNamespace(**call.named_params()), self.scalars, *arrays)


def refusal(kernel: str, function: Oracle) -> KernelRefused:
    with pytest.raises(KernelRefused) as caught:
        asyncio.run(admit(FaultyPlayer(kernel, function), golden_sets(), [kernel]))
    return caught.value


def test_the_oracle_passes_with_every_kernel() -> None:
    asyncio.run(admit(OraclePlayer(), golden_sets(), list(CATALOG)))


def test_golden_vectors_cover_the_catalogue_and_are_current() -> None:
    """golden.bin is what scripts/make_golden.py makes of today's kernels, cases and oracle."""
    covered = {case.kernel for golden in golden_sets() for case in golden.cases}
    assert covered | set(UNIT_KERNELS) == set(CATALOG)
    assert golden_sets() == decode(make_golden.make())
    assert make_golden.TARGET.stat().st_size <= 250_000


def test_a_kernel_without_golden_vectors_is_refused() -> None:
    with pytest.raises(KernelRefused, match=r"The kernel rope was refused .*no golden vector"):
        asyncio.run(admit(OraclePlayer(), [golden_sets()[0].only(["add"])], ["add", "rope"]))


@pytest.mark.parametrize("kernel", sorted(set(CATALOG) - set(UNIT_KERNELS)))
def test_a_kernel_that_is_off_by_one_is_refused(kernel: str) -> None:
    """Whatever a kernel writes last: one bit of it, or of its scalar words, is noticed."""

    def off_by_one(p: Any, s: Any, *arrays: Any) -> None:
        ORACLES[kernel](p, s, *arrays)
        written = [
            array
            for array, operand in zip(arrays, CATALOG[kernel].operands, strict=True)
            if operand.access != "read"
        ]
        if written:
            written[-1][-1] ^= 1
        else:
            words = ("out_max", "p_max", "start", "target")
            s[next((getattr(p, w) for w in words if hasattr(p, w)), Step.POSITION)] ^= 1

    assert refusal(kernel, off_by_one).kernel == kernel


def test_a_wrong_product_is_refused_with_its_inputs() -> None:
    def wrong(p: Any, s: Any, out: Any) -> None:
        ORACLES["unit_products"](p, s, out)
        out[256 * (-128 + 128) + 127 + 128] += 1

    error = refusal("unit_products", wrong)
    assert str(error).startswith(
        "The kernel unit_products was refused on this device"
        " (all inputs: out, element 255 is -16255, not -16256)."
    )


def test_a_gemm_that_truncates_is_refused() -> None:
    def truncating(p: Any, s: Any, a: Any, b: Any, out: Any) -> None:
        ORACLES["gemm3"](p, s, a, b, out)
        out -= out & 1

    assert refusal("gemm3", truncating).difference.startswith("out, element ")


def soft_adamw(p: Any, s: Any, param: Any, m: Any, v: Any, g: Any) -> None:
    """AdamW on softfloat: exact unless softfloat is disturbed."""
    f = softfloat
    lr, i1, i2, clip = (int(s[w]) for w in (Step.LR, Step.BIAS_1, Step.BIAS_2, Step.CLIP))
    e = int(s[p.g_exp : p.g_exp + 1].view(np.int32)[0])
    for i in range(p.count):
        grad = f.mul(f.from_wide(int(g[i]), e), clip)
        m[i] = first = f.add(f.mul(int(m[i]), BETA_1), f.mul(grad, GAIN_1))
        v[i] = second = f.add(f.mul(int(v[i]), BETA_2), f.mul(f.mul(grad, grad), GAIN_2))
        update = f.div(f.mul(first, i1), f.add(f.sqrt(f.mul(second, i2)), EPSILON))
        if p.decay:
            update = f.add(update, f.mul(int(param[i]), DECAY))
        param[i] = f.sub(int(param[i]), f.mul(update, lr))
    ORACLES["weight_max"](p, s, param)


def test_adamw_on_soft_floats_passes() -> None:
    player = FaultyPlayer("adamw", soft_adamw)
    asyncio.run(admit(player, golden_sets(), ["adamw"]))


def test_rounding_toward_zero_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def toward_zero(m: int, e: int) -> int:
        shift = max(e + m.bit_length() - 24, softfloat.EXPONENT_MIN) - e
        return nearest(m >> shift << shift if shift > 0 else m, e)

    nearest = softfloat._round
    monkeypatch.setattr(softfloat, "_round", toward_zero)
    assert refusal("adamw", soft_adamw).kernel == "adamw"


def test_ties_away_from_zero_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(m: int, e: int) -> int:
        shift = max(e + m.bit_length() - 24, softfloat.EXPONENT_MIN) - e
        return nearest((m + (1 << shift >> 1)) >> shift << shift if shift > 0 else m, e)

    nearest = softfloat._round
    monkeypatch.setattr(softfloat, "_round", away)
    assert refusal("adamw", soft_adamw).kernel == "adamw"


def test_flushing_denormals_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def flushed(m: int, e: int) -> int:
        pattern = nearest(m, e)
        return pattern if pattern >= 0x00800000 else 0

    nearest = softfloat._round
    monkeypatch.setattr(softfloat, "_round", flushed)
    assert refusal("adamw", soft_adamw).kernel == "adamw"


def test_losing_the_sign_of_zero_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def signless(x: int) -> int:
        return 0 if x == softfloat.SIGN else x

    exact = softfloat.add
    monkeypatch.setattr(softfloat, "add", lambda x, y: signless(exact(x, y)))
    assert refusal("adamw", soft_adamw).kernel == "adamw"


def test_only_keeps_what_its_kernels_need() -> None:
    golden = golden_sets()[0].only(["rope", "narrow"])
    assert {call.kernel for call in golden.program.plans[PLAN]} == {"rope", "narrow"}
    assert {case.kernel for case in golden.cases} == {"rope", "narrow"}
    used = {name for call in golden.program.plans[PLAN] for name in call.buffers}
    assert set(golden.program.buffers) == used | {"record"}


def test_golden_file_survives_a_round_trip_and_damage_is_told() -> None:
    sets = tuple(golden.only(["fill", "rope"]) for golden in golden_sets()[:1])
    data = encode(sets)
    assert decode(data) == sets
    for damaged in (b"", data[:-9], data[:30] + b"xx" + data[32:], b"another file"):
        with pytest.raises(DataError, match=r"golden\.bin is damaged"):
            decode(damaged)


def test_first_difference_reads_every_kind() -> None:
    words = np.array([1, -2, 3], np.int32)
    other = np.array([1, -2, 4], np.int32)
    assert first_difference("i32", words.tobytes(), other.tobytes()) == "element 2 is 3, not 4"
    big = np.array([0xFFFFFFFF], np.uint32).tobytes()
    assert first_difference("u32", big, bytes(4)) == "element 0 is 4294967295, not 0"
    narrow = np.arange(-8, 8, dtype=np.int16) * 300
    changed = narrow.copy()
    changed[9] = 32639
    assert (
        first_difference("narrow", pack_narrow(changed), pack_narrow(narrow))
        == "element 9 is 32639, not 300"
    )
