"""Our files in other hands: the logits that others compute from them agree with ours.

The NumPy check always runs.  The one with transformers needs ``pip install torch transformers``:
5.6 GB and nine minutes, too much for every run of the checks.  docs/EXPERIMENTS.md has its figures.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy

from bench.float64_llama import next_token_logits
from daisychain.cli import open_oracle
from daisychain.data.byte_pairs import BytePairs
from daisychain.export.checkpoint import Checkpoint, model_entries
from daisychain.model.config import ModelConfig
from daisychain.model.decode import LOGITS, PROMPT
from tests.export.models import VOCABULARY, foreign

RELATIVE_BOUND = 0.004
"""Largest difference of two logits, against the largest logit: what 15-bit operands cost."""

CONFIGS = {
    "tied": ModelConfig(64, 2, 4, 4, 192, 32, VOCABULARY),
    "grouped-untied": ModelConfig(64, 3, 8, 2, 128, 40, VOCABULARY, tied=False),
}
TOKENS = [0, 85, 105, 257, 33, 260, 7, 99, 12, 12, 200, 148]

NEEDS = "needs pip install torch transformers, 5.6 GB: by hand, see docs/EXPERIMENTS.md"

Logits = npt.NDArray[np.float64]


def written(checkpoint: Checkpoint, folder: Path) -> None:
    for entry in model_entries(checkpoint):
        (folder / entry.name).write_bytes(b"".join(entry.parts))


def ours(checkpoint: Checkpoint) -> Logits:
    """Logits after each token, on the oracle."""

    async def go() -> list[Logits]:
        player = await open_oracle(checkpoint)
        player.write(PROMPT, np.array(TOKENS, np.uint32).tobytes())
        await player.run(["decode_reset"], LOGITS)
        out = []
        for _ in TOKENS:
            data = np.frombuffer(await player.run(["decode"], LOGITS), np.int32)
            out.append(np.ldexp(data[1 : 1 + VOCABULARY].astype(np.float64), data[0]))
        return out

    return np.array(asyncio.run(go()))


def difference(a: Logits, b: Logits) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


@pytest.mark.parametrize("name", CONFIGS)
def test_float64_llama_from_the_files(name: str, tmp_path: Path) -> None:
    """A model built from config.json and model.safetensors alone, by NumPy."""
    checkpoint = foreign(CONFIGS[name])
    written(checkpoint, tmp_path)
    facts = json.loads((tmp_path / "config.json").read_text())
    config = ModelConfig(
        facts["hidden_size"],
        facts["num_hidden_layers"],
        facts["num_attention_heads"],
        facts["num_key_value_heads"],
        facts["intermediate_size"],
        facts["max_position_embeddings"],
        facts["vocab_size"],
        facts["tie_word_embeddings"],
    )
    tensors = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    weights = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    lengths = range(1, len(TOKENS) + 1)
    theirs = [next_token_logits(config, weights, np.array(TOKENS[:n])) for n in lengths]
    assert difference(ours(checkpoint), np.array(theirs)) < RELATIVE_BOUND


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_transformers(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason=NEEDS)
    transformers = pytest.importorskip("transformers", reason=NEEDS)
    checkpoint = foreign(CONFIGS[name])
    written(checkpoint, tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert model.config.rms_norm_eps == 2.0**-20
    count = sum(
        tensor.size
        for tensor in safetensors.numpy.load_file(tmp_path / "model.safetensors").values()
    )
    assert sum(p.numel() for p in model.parameters()) == count
    with torch.no_grad():
        theirs = model(torch.tensor([TOKENS])).logits[0].double().numpy()
    assert difference(ours(checkpoint), theirs) < RELATIVE_BOUND
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "in the thin then\n \u00fc"
    ids = tokenizer(text)["input_ids"]
    assert ids == BytePairs(checkpoint.tokenizer).encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.eos_token_id == 0
