"""Every WebAssembly kernel equals its oracle to the bit, whatever the number of Workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from daisychain.kernels.cases import PLAN, Case, cases
from daisychain.kernels.cases.build import CaseBuilder, Integers, i32_bytes, spread
from daisychain.kernels.cases.rows import cross_entropy_case
from daisychain.kernels.catalog import CATALOG
from daisychain.numbers.formats import NARROW_MAX
from daisychain.players.oracle import OraclePlayer
from daisychain.players.player import Player
from daisychain.players.wasm import WasmPlayer
from tests.players.wasm_runner import WasmtimeDevice


@pytest.fixture(scope="module", params=(1, 2, 3), ids=lambda parts: f"{parts} parts")
def player(request: pytest.FixtureRequest) -> Iterator[WasmPlayer]:
    player = WasmPlayer(WasmtimeDevice(request.param))
    yield player
    player.close()


async def play(player: Player, case: Case) -> dict[str, bytes]:
    """Contents of the case's outputs and of the scalars after the call."""
    await player.load(case.program)
    for name, data in case.inputs.items():
        player.write(name, data)
    player.write_scalars(0, case.scalars)
    await player.run([PLAN], next(iter(case.program.buffers)))
    contents = await player.read_many(case.outputs)
    return dict(zip(case.outputs, contents, strict=True)) | {"scalars": await player.read_scalars()}


@pytest.mark.parametrize("kernel", CATALOG)
def test_kernel_equals_its_oracle(kernel: str, player: WasmPlayer) -> None:
    for case in cases(kernel):
        expected = asyncio.run(play(OraclePlayer(), case))
        found = asyncio.run(play(player, case))
        for name in expected:
            assert found[name] == expected[name], f"{case.name}: {name}"


def gemm_case(name: str, values: Integers, n: int) -> Case:
    """GEMM3 of the m x k ``values`` and n rows of extreme ones."""
    m, k = values.shape
    c = CaseBuilder("gemm3", name)
    a = c.narrow("a", values)
    b = c.narrow("b", spread(c.rng, (n, k), NARROW_MAX, "extreme"))
    out = c.result("out", "i32", m * n)
    sizes = {"m": m, "n": n, "k": k, "g": 7, "causal": 0, "outer": 1, "inner": 1, "b_group": 1}
    strides = dict.fromkeys(("a_outer", "a_inner", "b_outer", "b_inner", "c_outer", "c_inner"), 0)
    rows = {"a_row": k, "b_row": k, "c_row": n}
    words = {"a_exp": a.exp_word, "b_exp": b.exp_word}
    words |= {"out_max": out.max_word, "out_exp": out.exp_word}
    return c.finish(a, b, out, **sizes, **strides, **rows, **words)


def test_gemm3_with_zero_small_and_large_chunks(player: WasmPlayer) -> None:
    """Chunks of A that are left out, done at half the cost and done whole, in every mixture."""
    m, n, k = 70, 41, 520
    rng = np.random.default_rng(1)
    limits = rng.choice(np.array([0, 0, 127, 127, 127, 128, NARROW_MAX]), (m // 2, k // 8))
    limits = limits.repeat(2, 0).repeat(8, 1)
    values = rng.integers(-limits - (limits == 127), limits + 1)  # -128 has no high byte either
    case = gemm_case("mixed chunks", values, n)
    assert asyncio.run(play(player, case)) == asyncio.run(play(OraclePlayer(), case))


@pytest.mark.parametrize(("n", "k"), [(42, 568), (41, 272), (41, 256)])
def test_gemm3_with_tiny_chunks(player: WasmPlayer, n: int, k: int) -> None:
    """Values of 0 to 2 and a few larger ones are looked up, beside chunks of every other kind; not
    for a short K."""
    m = 303
    rng = np.random.default_rng(k)
    kinds = np.array([0, 2, 2, 2, 2, 2, 4, 9, 127, NARROW_MAX])
    limits = rng.choice(kinds, (-(-m // 4), -(-k // 16))).repeat(4, 0).repeat(16, 1)[:m, :k]
    values = rng.integers(0, limits + 1)
    is_few = (limits == 4) | (limits == 9)
    values[is_few & (values > 2) & (rng.random((m, k)) < 0.6)] = 2
    values[40:80] = 2  # the largest sums: 20 more in one row of each chunk, and too many
    values[40:60:4, :] = 4
    values[40:60:4, 3::16] = 12
    values[66:70] = 9
    case = gemm_case("tiny chunks", values, n)
    assert asyncio.run(play(player, case)) == asyncio.run(play(OraclePlayer(), case))


def test_the_last_terms_of_cross_entropy(player: WasmPlayer) -> None:
    """Beside one large value of a row 16,511 of the least term that is not 0, and of 0."""
    (case,) = (c for c in cases("cross_entropy") if c.name.startswith("2 x 16512"))
    top, octave = 10**9, np.log(2) * 2**26
    logits = top - np.round([[30 * octave], [40 * octave]]).repeat(16512, 1).astype(np.int64)
    logits[:, 7] = top
    case = replace(case, inputs={**case.inputs, "logits": i32_bytes(logits)})
    assert asyncio.run(play(player, case)) == asyncio.run(play(OraclePlayer(), case))


@pytest.mark.parametrize("spread_q16", [0, 1 << 17, 1 << 19], ids=str)
def test_gradients_beside_a_border(player: WasmPlayer, spread_q16: int) -> None:
    """p + noise just below and above a multiple of 2^16, where fewer digits alone would be wrong,
    p of every size, and rows that do not count between others."""
    rows, cols, valid = 40, 4096, 4090
    rng = np.random.default_rng(spread_q16)
    logits = np.abs(rng.normal(0, spread_q16 * 2**10, (rows, cols))).astype(np.int64)
    targets = rng.integers(0, valid, rows)
    targets[[0, 1, 7, rows - 1]] = 0xFFFFFFFF
    c = CaseBuilder("cross_entropy", "borders")
    case = cross_entropy_case(c, c.wide("logits", logits, -26), targets, cols, valid)
    assert asyncio.run(play(player, case)) == asyncio.run(play(OraclePlayer(), case))


def test_a_wide_matrix_is_transposed(player: WasmPlayer) -> None:
    """From 2,048 columns on 512 go at once, 256 rows at a time; the last ones may be fewer."""
    rows, cols = 280, 2200
    c = CaseBuilder("transpose", "wide")
    x = c.narrow("x", spread(c.rng, (rows, cols), NARROW_MAX, "extreme"))
    out = c.output("out", "narrow", rows * cols)
    sizes = {"rows": rows, "cols": cols, "outer": 1, "inner": 1, "group": 1, "in_row": cols}
    case = c.finish(x, out, **sizes, in_outer=0, in_inner=0, in_group=0)
    assert asyncio.run(play(player, case)) == asyncio.run(play(OraclePlayer(), case))


@pytest.mark.parametrize("scale_bits", [-130, -100, -15, 0, 100, 112], ids=str)
def test_weights_are_rounded_half_up(player: WasmPlayer, scale_bits: int) -> None:
    """Ties, their neighbours and tiny weights of both signs, where 2^-e is normal and where not."""
    halves = np.arange(-4.0, 4.5, 0.5, np.float32)
    around = [np.nextafter(halves, np.float32(end)) for end in (-np.inf, np.inf)]
    large = np.float32(16384.5) + np.arange(-8, 8, dtype=np.float32)
    tiny = np.float32(2.0) ** -np.arange(1, 40, dtype=np.float32)
    values = np.concatenate([[np.float32(32000)], halves, *around, large, -large, tiny, -tiny])
    values = np.ldexp(np.resize(values, 248).astype(np.float32), scale_bits)
    c = CaseBuilder("narrow_weights", f"ties {scale_bits}")
    out = c.result("out", "narrow", values.size)
    weights = c.data("p", "u32", values.tobytes())
    top = c.word(int(np.abs(values).max().view(np.uint32)))
    case = c.finish(weights, out, count=values.size, p_max=top, out_exp=out.exp_word)
    assert asyncio.run(play(player, case)) == asyncio.run(play(OraclePlayer(), case))


@pytest.mark.parametrize("kernel", ["gemm3", "scatter_add", "adamw"])
def test_a_call_is_replayed_beside_the_loaded_program(kernel: str) -> None:
    """``run_call`` gives the same contents and leaves the loaded program alone."""
    case = cases(kernel)[0]
    expected = asyncio.run(play(OraclePlayer(), case))

    async def replay() -> dict[str, bytes]:
        player = WasmPlayer(WasmtimeDevice())
        other = cases("fill")[0]
        before = await play(player, other)
        (call,) = case.program.plans[PLAN]
        inputs = {name: case.inputs[name] for name in call.buffers}
        scalars = b"".join(word.to_bytes(4, "little") for word in case.scalars)
        found = await player.run_call(call, inputs, scalars)
        assert await player.read(other.outputs[0]) == before[other.outputs[0]]
        return found

    assert asyncio.run(replay()) == expected
