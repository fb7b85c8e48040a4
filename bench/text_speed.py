"""How fast does text become tokens?  The page's encoder, the library it replaces, and Rust's.

    python bench/text_speed.py

English prose (the embedded corpus, 1.4 MB), one thread, MB of UTF-8 a second, best of three.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pyarrow.parquet as pq
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 3


def page_speeds() -> dict[str, float]:
    """MB/s of each JavaScript part, under Node."""
    command = ["node", "bench/text_speed.mjs"]
    runs = [
        json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
        for _ in range(ROUNDS)
    ]
    return {name: max(run[name] for run in runs) for name in runs[0]}


def rust_speed() -> float:
    """MB/s of PyPI tokenizers, a document at a time."""
    texts = pq.read_table(ROOT / "data/embedded.parquet")["text"].to_pylist()
    size = sum(len(text.encode()) for text in texts)
    best = 0.0
    for _ in range(ROUNDS):
        tokenizer = Tokenizer.from_file(str(ROOT / "data/tokenizer.json"))
        start = time.perf_counter()
        for text in texts:
            tokenizer.encode(text)
        best = max(best, size / 1e6 / (time.perf_counter() - start))
    return best


def main() -> None:
    speeds = page_speeds() | {"PyPI tokenizers (Rust)": rust_speed()}
    for name, speed in speeds.items():
        print(f"{name:<32}{speed:8.2f} MB/s")


if __name__ == "__main__":
    main()
