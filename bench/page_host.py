"""What does a step cost the host, Python and JavaScript, beside the device?  In the real page.

usage: python3 -m bench.page_host [--preset tiny] [--steps 12] [--player webgpu|wasm]
One sequence a step (host time does not depend on the batch, an emulated GPU's time does).
Prints the median and the largest of each part of a step after the first, in ms.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

from tests.browser.engines import launch_chromium
from tests.servers import running_app
from tools.bootstrap import ensure_node_modules
from tools.server import make_app
from tools.site import build_site

PARTS = ("host_ms", "gpu_ms", "data_ms", "ms")
TIMEOUT_MS = 1_800_000


def measure(options: argparse.Namespace) -> list[dict[str, float]]:
    query = f"preset={options.preset}&steps={options.steps}&player={options.player}"
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        build_site(ensure_node_modules().node, Path(folder))
        with running_app(make_app(Path(folder))) as url:
            page = launch_chromium(driver).new_page()
            page.goto(f"{url}?start=solo&{query}&batch=1&eval_every=0&save_every=0")
            page.wait_for_function(
                "() => { const s = daisychain.state();"
                "  return s.phase === 'error' || (s.phase === 'idle' && s.step > 0); }",
                timeout=TIMEOUT_MS,
            )
            records = page.evaluate("daisychain.log().filter((r) => 'loss' in r)")
    return list(records)[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--player", default="webgpu")
    options = parser.parse_args()
    records = measure(options)
    print(f"| {options.preset}, {options.player} | median ms | most ms |\n|---|---|---|")
    for part in PARTS:
        values = [record[part] for record in records]
        print(f"| {part} | {median(values):.2f} | {max(values):.2f} |")


if __name__ == "__main__":
    main()
