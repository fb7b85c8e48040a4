"""The CPU player in Chromium: each kernel, two Workers, other libraries beside it.

    PYTHONPATH=app python -m bench.bench_wasm           # kernels of a step, GMAC/s by GEMM shape
    PYTHONPATH=app python -m bench.bench_wasm --peers   # the same model in jax-js, TensorFlow.js

All players take their steps in turn in one page, so that whatever else the machine does hits all of
them; times are the least and the median of the rounds, ratios those of the least and the median of
each round's.  A plain page gives each one thread; on a cross-origin isolated one ours has one and
``--workers`` of them and the libraries as many threads as they take.
Ours trains on exact integers and hashes its weights at every step; theirs in float32, jax-js with
relaxed (fused) multiply-adds.  The libraries are installed into .cache/bench.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import statistics
import struct
import subprocess
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright

from daisychain.kernels.catalog import Step
from daisychain.model.config import ModelConfig, binary32_bits
from daisychain.model.llama import Model, build_program
from daisychain.numbers.random_bits import step_key
from daisychain.plan import Call
from daisychain.players.wasm_layout import lay_out
from tests.browser.engines import launch_chromium
from tests.players.test_wasm_browsers import isolated_server
from tests.players.wasm_recording import copy_player, packed_layout
from tests.servers import plain_server
from tools.bootstrap import ensure_node, run_step

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ROOT / ".cache" / "bench"
VERSIONS = (
    "@jax-js/jax@0.1.25",
    "@tensorflow/tfjs-core@4.22.0",
    "@tensorflow/tfjs-backend-wasm@4.22.0",
)
PEERS = {"jax-js": "wasm_jax_worker.mjs", "TensorFlow.js": "wasm_tfjs_worker.mjs"}
STEP = ("begin", "update", "hash", "grad", "norm")

SHAPES = {
    "nano": {"width": 64, "layers": 2, "heads": 4, "hidden": 192, "context": 64, "rows": 8},
    "tiny": {"width": 128, "layers": 4, "heads": 4, "hidden": 384, "context": 128, "rows": 8},
}


def build(shape: dict[str, int]) -> Model:
    fields = {name: value for name, value in shape.items() if name != "rows"}
    config = ModelConfig(kv_heads=shape["heads"], **fields)
    return build_program(config, rows=shape["rows"], micro_batches=1, seed=1)


def configuration(model: Model, shape: dict[str, int], workers: int) -> str:
    """What the page needs, as JSON with bytes in base64."""
    words = np.random.default_rng(1).integers(0, shape["vocabulary"], 2 * model.tokens)
    inputs = struct.pack("<2I", *step_key(1, 0, 0)) + words.astype("<u4").tobytes()
    scalars = struct.pack("<4I", *(binary32_bits(x) for x in (1e-9, 10.0, 20.0, 1 / model.tokens)))
    layout = lay_out(model.program, workers)
    writes = [(layout.buffers[name][0], data) for name, data in model.program.constants.items()]
    writes += [(layout.buffers["inputs"][0], inputs), (layout.scalars + 4 * Step.LR, scalars)]
    return json.dumps(
        {
            "shape": shape,
            "workers": workers,
            "step": STEP,
            "layout": packed_layout(layout),
            "writes": [(at, {"base64": base64.b64encode(data).decode()}) for at, data in writes],
            "record": layout.buffers["record"],
            "microBatch": layout.scalars + 4 * Step.MICRO_BATCH,
        }
    )


def install_peers(folder: Path) -> None:
    """Bundles the other libraries' models into ``folder``."""
    node = ensure_node()
    if not (PACKAGES / "node_modules/@jax-js").is_dir():
        PACKAGES.mkdir(parents=True, exist_ok=True)
        (PACKAGES / "package.json").write_text("{}")
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock")
        command = [*node.npm, "install", "--prefix", PACKAGES, *options, *VERSIONS]
        run_step(command, "The libraries to compare with could not be installed.")
    modules = PACKAGES / "node_modules"
    esbuild = [ROOT / "node_modules/.bin/esbuild", "--bundle", "--format=esm", "--log-level=error"]
    for script in PEERS.values():
        subprocess.run(
            [*esbuild, ROOT / "bench" / script, f"--outfile={folder / script}"],
            check=True,
            env={**os.environ, "NODE_PATH": str(modules)},
        )
    for path in (modules / "@tensorflow/tfjs-backend-wasm/wasm-out").glob("*.wasm"):
        shutil.copy(path, folder)


def make_site(folder: Path, peers: bool) -> None:
    shutil.copy(ROOT / "bench/wasm_page.html", folder / "index.html")
    shutil.copy(ROOT / "bench/wasm_profile_worker.mjs", folder)
    copy_player(folder)
    if peers:
        install_peers(folder)


def multiplications(call: Call) -> int:
    p = call.named_params()
    return p["m"] * p["n"] * p["k"] * p["outer"] * p["inner"]


def print_profile(model: Model, times_ms: list[float]) -> None:
    """Time by kernel, and GMAC/s by GEMM shape (causal ones count whole)."""
    calls = [call for plan in STEP for call in model.program.plans[plan]]
    by_kernel: dict[str, list[float]] = defaultdict(list)
    by_shape: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for call, ms in zip(calls, times_ms, strict=True):
        by_kernel[call.kernel].append(ms)
        if call.kernel == "gemm3":
            p = call.named_params()
            batch = p["outer"] * p["inner"]
            shape = f"{p['m']} x {p['n']} x {p['k']}" + (f", batch {batch}" if batch > 1 else "")
            by_shape[shape + (", causal" if p["causal"] else "")].append(
                (ms, multiplications(call))
            )
    total = sum(times_ms)
    for kernel, times in sorted(by_kernel.items(), key=lambda item: -sum(item[1])):
        if sum(times) > total / 200:
            print(f"| {kernel} | {len(times)} | {sum(times):.2f} | {sum(times) / total:.1%} |")
    for shape, pairs in sorted(by_shape.items()):
        rate = sum(macs for _, macs in pairs) / sum(ms for ms, _ in pairs) / 1e6
        print(f"| {shape} | {sum(ms for ms, _ in pairs):.2f} ms | {rate:.1f} GMAC/s |")
    print(f"step {total:.1f} ms, {model.tokens / total * 1000:.0f} tokens/s")


def print_times(tokens: int, outcome: dict[str, Any]) -> None:
    """Least and median ms, tokens/s; against the first player: of the least, median of rounds."""
    times: dict[str, list[float]] = outcome["times"]
    base = next(iter(times.values()))
    for name, own in times.items():
        ratio = statistics.median(ms / first for ms, first in zip(own, base, strict=True))
        print(
            f"| {name} | {min(own):.0f} | {statistics.median(own):.0f} "
            f"| {tokens / min(own) * 1000:.0f} | {min(own) / min(base):.2f} | {ratio:.2f} |"
        )
    print(
        f"page's thread: busy at most {outcome['gap']:.0f} ms, idle page {outcome['idle']:.0f} ms"
    )


def compare(page: Page, model: Model, texts: list[str], peers: dict[str, str], rounds: int) -> None:
    arguments = [texts, rounds, peers]
    outcome = page.evaluate("([texts, n, peers]) => bench(texts, n, peers)", arguments)
    print_times(model.tokens, outcome)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="beside ours; default: all")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="default: all")
    parser.add_argument("--vocabulary", type=int, default=16_512)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    peers = {name: PEERS[name] for name in options.peers or PEERS}
    if options.peers is None:
        peers = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        make_site(folder, bool(peers))
        browser = launch_chromium(stack.enter_context(sync_playwright()))
        pages = []
        for server in (plain_server, isolated_server):
            page = browser.new_page()
            page.set_default_timeout(0)
            page.goto(stack.enter_context(server(folder)))
            page.wait_for_function("window.ready")
            pages.append(page)
        for preset in options.shape or SHAPES:
            shape = SHAPES[preset] | {"vocabulary": options.vocabulary}
            model = build(shape)
            print(f"\n{preset}, vocabulary {options.vocabulary:,}, {model.tokens} tokens")
            alone, shared = (configuration(model, shape, n) for n in (1, options.workers))
            plain, isolated = pages
            if not peers:
                times = plain.evaluate("([text, n]) => profile(text, n)", [alone, options.rounds])
                print_profile(model, times)
            compare(plain, model, [alone], peers, options.rounds)
            compare(isolated, model, [alone, shared], peers, options.rounds)
        browser.close()


if __name__ == "__main__":
    main()
