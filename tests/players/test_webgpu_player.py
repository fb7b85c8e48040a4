"""The WebGPU player's own decisions, without a browser; and its JavaScript on a counting fake."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from daisychain.errors import DeviceError
from daisychain.plan import Program, ProgramBuilder
from daisychain.players.webgpu import check_limits, flatten
from tools.bootstrap import ensure_node

LIMITS = {
    "maxBufferSize": 1 << 28,
    "maxStorageBufferBindingSize": 1 << 27,
    "maxComputeWorkgroupsPerDimension": 65535,
}


def test_the_replay_loop_on_a_counting_fake() -> None:
    script = Path(__file__).with_name("webgpu_player.test.mjs")
    command = [ensure_node().node, "--test", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def embedding_program(vocabulary: int, width: int, rows: int = 8) -> Program:
    builder = ProgramBuilder()
    table = builder.buffer("embedding", "narrow", vocabulary * width)
    ids = builder.buffer("ids", "u32", rows)
    out = builder.buffer("out", "i32", rows * width)
    builder.begin("main")
    params = {name: builder.scalar() for name in ("table_exp", "out_max", "out_exp")}
    builder.call("gather", table, ids, out, rows=rows, cols=width, **params)
    return builder.build()


def test_a_binding_over_the_limit_is_refused_before_allocation() -> None:
    check_limits(embedding_program(16_512, 512), LIMITS)
    sentence = (
        r"The buffer embedding needs 129 MiB, but this GPU allows 128 MiB a buffer\."
        r" The model does not fit this device\. Choose a smaller preset"
    )
    with pytest.raises(DeviceError, match=sentence):
        check_limits(embedding_program(16_512, 4096), LIMITS)


def test_a_launch_over_the_limit_is_refused() -> None:
    builder = ProgramBuilder()
    x = builder.buffer("x", "narrow", 8)
    out = builder.buffer("out", "i32", 8)
    builder.begin("main")
    sizes = dict.fromkeys(("k", "a_row", "a_outer", "a_inner", "b_row", "b_outer", "b_inner"), 8)
    words = {name: builder.scalar() for name in ("a_exp", "b_exp", "out_max", "out_exp")}
    builder.call(
        "gemm3", x, x, out, m=1, n=64 * 65536, g=0, causal=0, outer=1, inner=1, b_group=1,
        c_row=1, c_outer=1, c_inner=1, **sizes, **words,
    )  # fmt: skip
    with pytest.raises(DeviceError, match="The kernel gemm3 needs 65536 workgroups"):
        check_limits(builder.build(), LIMITS)


def test_flat_program_lists_everything_once() -> None:
    builder = ProgramBuilder()
    x = builder.buffer("x", "u32", 300)
    t = builder.temporary("t", "u32", 300)
    builder.release(t)
    again = builder.temporary("again", "u32", 300)
    builder.begin("first")
    for name in (x, t, x, again):
        builder.call("fill", name, count=300, bits=1)
    builder.begin("second")
    builder.call("weight_max", x, count=300, p_max=17)
    builder.call("fill", x, count=300, bits=1)
    program = builder.build()
    flat = json.loads(flatten(program, "packed"))
    assert flat == {
        "scalarBytes": 4 * program.scalar_words,
        "storages": [1200, 1200],
        "buffers": [["x", 0, 1200], ["t", 1, 1200], ["again", 1, 1200]],
        "kernels": ["fill.packed", "weight_max.packed"],
        "params": [[300, 1], [300, 17]],
        "calls": [
            [0, 0, 2, 1, 1, 0],
            [0, 0, 2, 1, 1, 1],
            [0, 0, 2, 1, 1, 2],
            [1, 1, 2, 1, 1, 0],
        ],
        "plans": {"first": [0, 1, 0, 2], "second": [3, 0]},
    }
