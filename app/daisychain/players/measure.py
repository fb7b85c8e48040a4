"""How fast a player is: the number by which the choice between equals is made."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from daisychain.plan import Program, ProgramBuilder
from daisychain.players.player import Player

Clock = Callable[[], float]
"""Milliseconds on a clock that never goes back."""

SAMPLE_KERNELS = ("add", "gemm3")

ROWS, COLUMNS, INNER = 128, 256, 256
SUMMANDS = 32768

SAMPLE_MACS = ROWS * COLUMNS * INNER
"""Multiply-adds of one sample."""

OPERAND_BYTES = bytes(range(1, 252))
"""What the operands repeat: no zeros, which the CPU's matrix product leaves out."""

TARGET_MS = 40.0
"""What a measurement is sized for, above the read-back's own time; half of it is taken."""

GROWTH = 512.0
"""One step of sizing grows the number of samples at most so much."""

LIMIT_MS = 300.0
"""No further step after this long."""


def sample_program() -> Program:
    """A matrix product and a sum with its maximum, about as a training step mixes them."""
    builder = ProgramBuilder()
    a = builder.buffer("a", "narrow", ROWS * INNER)
    b = builder.buffer("b", "narrow", COLUMNS * INNER)
    c = builder.buffer("c", "i32", ROWS * COLUMNS)
    total = builder.buffer("total", "i32", SUMMANDS)
    builder.buffer("record", "u32", 4)
    builder.begin("sample")
    sizes = {"m": ROWS, "n": COLUMNS, "k": INNER, "g": 7, "causal": 0, "outer": 1, "inner": 1}
    strides = dict.fromkeys(("a_outer", "a_inner", "b_outer", "b_inner", "c_outer", "c_inner"), 0)
    rows = {"a_row": INNER, "b_row": INNER, "b_group": 1, "c_row": COLUMNS}
    words = {name: builder.scalar() for name in ("a_exp", "b_exp", "out_max", "out_exp")}
    builder.call("gemm3", a, b, c, **sizes, **strides, **rows, **words)
    names = ("x_max", "x_exp", "y_max", "y_exp", "out_max", "out_exp")
    builder.call("add", c, c, total, count=SUMMANDS, **{name: builder.scalar() for name in names})
    return builder.build()


def speed_text(sample_ms: float) -> str:
    """12.1 GMAC/s: of matrix products, by the time that a sample took."""
    return f"{SAMPLE_MACS / sample_ms / 1e6:,.1f} GMAC/s"


async def sample_ms(player: Player, clock_ms: Clock) -> float:
    """Milliseconds of one sample; loads a program of its own, takes about a third of a second.

    The read-back's latency, up to 100 ms in Firefox, is measured with an empty run and taken off.
    """
    program = sample_program()
    await player.load(program)
    for name in ("a", "b"):
        size = program.buffers[name].size_bytes
        player.write(name, (OPERAND_BYTES * (size // len(OPERAND_BYTES) + 1))[:size])
    start = clock_ms()

    async def timed_ms(samples: int) -> float:
        began = clock_ms()
        await player.run(["sample"] * samples, "record")
        return clock_ms() - began

    await timed_ms(1)  # first use of the kernels: drivers compile and allocate late
    empty_ms = await timed_ms(0)
    samples = 1
    while True:
        net_ms = await timed_ms(samples) - empty_ms
        if net_ms >= TARGET_MS / 2 or clock_ms() - start >= LIMIT_MS:
            return max(net_ms, 1e-3) / samples
        samples = ceil(samples * TARGET_MS / max(net_ms, TARGET_MS / GROWTH))
