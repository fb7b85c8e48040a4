"""Inference kits opened from the disk, with no network: the oracle's tokens on both players.

The kit of a run, in three engines: tests/browser/test_page_checkpoint.py."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from daisychain.cli import open_oracle
from daisychain.data.byte_pairs import BytePairs
from daisychain.export.checkpoint import Checkpoint
from daisychain.export.kit import SCRIPT_FILE, KitParts, make_kit, read_narrow
from daisychain.generate import Sampling, generate
from daisychain.model.config import ModelConfig, parameters
from daisychain.model.inference import build_inference, narrow_buffer
from daisychain.players.oracle import OraclePlayer, pack_narrow
from daisychain.workshop import make_check
from tests.browser.kit_page import TOKENS, open_offline, written
from tests.data.reference import run_apart
from tests.export.models import VOCABULARY, foreign, tokenizer_json

CONFIG = ModelConfig(64, 2, 4, 2, 96, 24, VOCABULARY, tied=False)
GPU_TIMEOUT_MS = 90_000
FEW_TOKENS = 10
SAMPLING = Sampling(0.9, 30, 0.95, seed=7)
PROMPT = "the thin \u00fc"


@dataclass(frozen=True)
class Kit:
    path: Path
    tokens: list[int]
    sampled: list[int]


def text_of(tokens: list[int]) -> str:
    pairs = BytePairs(tokenizer_json())
    return b"".join(map(pairs.token_bytes, tokens)).decode("utf-8", "replace")


async def narrow_oracle(checkpoint: Checkpoint, bits: int) -> tuple[OraclePlayer, KitParts]:
    """The oracle with the very weights of a kit, and what goes into that kit."""
    full = await open_oracle(checkpoint)
    config, end = checkpoint.config, checkpoint.separator[0]
    program = build_inference(config, from_binary32=True).program
    weights = await read_narrow(full, program, config)
    inference = build_inference(config)
    player = OraclePlayer()
    await player.load(inference.program)
    for p in parameters(config):
        player.write(narrow_buffer(p.name), weights.mantissas[p.name])
        if bits == 8 and p.is_matrix:
            m = player.array(narrow_buffer(p.name))
            player.write(narrow_buffer(p.name), pack_narrow((m + 128) // 256 * 256))
        player.write_scalars(inference.exponents[p.name], [weights.exponents[p.name]])
    check = await make_check(full, config, [end, 5, 9])
    parts = KitParts(weights, bits, checkpoint.tokenizer, end, {"step": 3}, b"", check)
    return player, parts


async def expected(
    player: OraclePlayer, checkpoint: Checkpoint, sampling: Sampling, limit: int
) -> list[int]:
    config = checkpoint.config
    prompt = [checkpoint.separator[0], *BytePairs(checkpoint.tokenizer).encode(PROMPT)]
    choices = generate(player, config.context, config.vocabulary, prompt, limit, sampling)
    return [choice.token async for choice in choices]


@pytest.fixture(scope="module", params=[16, 8])
def kit(
    request: pytest.FixtureRequest, site: Path, tmp_path_factory: pytest.TempPathFactory
) -> Kit:
    """A kit's file, the tokens that it must write, and those of SAMPLING."""
    folder = tmp_path_factory.mktemp("kit")
    checkpoint = foreign(CONFIG)

    async def make() -> tuple[list[int], list[int], KitParts]:
        player, parts = await narrow_oracle(checkpoint, request.param)
        greedy = await expected(player, checkpoint, Sampling(), TOKENS)
        return greedy, await expected(player, checkpoint, SAMPLING, FEW_TOKENS), parts

    tokens, sampled, parts = run_apart(make())
    path = folder / f"kit{request.param}.html"
    script = (site / SCRIPT_FILE).read_bytes()
    path.write_bytes(b"".join(make_kit(replace(parts, script=script))))
    return Kit(path, tokens, sampled)


def test_it_writes_the_oracles_tokens(chromium: Browser, kit: Kit) -> None:
    with open_offline(chromium, kit.path.as_uri()) as page:
        found = written(page, PROMPT)
        assert found["tokens"] == kit.tokens
        assert len(set(kit.tokens)) > 5
        assert found["text"] == PROMPT + text_of(kit.tokens)
        assert found["requests"] == []
        assert found["checked"].startswith("Checked") == kit.path.name.startswith("kit16")
        page.locator("[data-i]").first.hover()
        expect(page.locator("#likeliest")).to_contain_text("Likeliest")

        wishes = {"temperature": "0.9", "top-k": "30", "top-p": "0.95", "seed": "7"}
        found = written(page, PROMPT, limit=str(FEW_TOKENS), **wishes)
        assert found["tokens"] == kit.sampled != kit.tokens[:FEW_TOKENS]
        whole = (n for n in range(3, FEW_TOKENS) if text_of(kit.sampled[n - 1 : n]).isascii())
        end = next(whole)  # the last token is no part of a character
        stop = text_of(kit.sampled[:end])
        found = written(page, PROMPT, limit=str(FEW_TOKENS), stop=stop, **wishes)
        assert found["tokens"] == kit.sampled[:end]


FAULTY_GPU = """
  const { requestDevice } = GPUAdapter.prototype;
  GPUAdapter.prototype.requestDevice = async function (...given) {
    window.device = await requestDevice.apply(this, given);
    return device;
  };
  const { writeBuffer } = GPUQueue.prototype;
  GPUQueue.prototype.writeBuffer = function (buffer, offset, source, start, size) {
    const bytes = new Uint8Array((source.buffer ?? source).slice(0), start, size);
    if (window.spoils && size > 1000) bytes[size >> 1] ^= 4;
    writeBuffer.call(this, buffer, offset, bytes);
  };
"""
"""Flips a bit of every large upload while ``window.spoils``; the device is ``window.device``."""


@pytest.mark.parametrize("kit", [8], indirect=True)
def test_a_gpu_writes_only_the_processors_text(chromium: Browser, kit: Kit) -> None:
    with open_offline(chromium, kit.path.as_uri(), FAULTY_GPU) as page:
        expect(page.locator("html[data-state=ready]")).to_be_attached(timeout=GPU_TIMEOUT_MS)
        said = page.locator("#said")
        page.get_by_text("How it chooses").click()
        page.evaluate("window.spoils = true")
        page.get_by_label("Computed by").select_option("gpu")
        expect(said).to_contain_text(
            "computes other numbers than the processor", timeout=GPU_TIMEOUT_MS
        )
        expect(page.get_by_label("Computed by")).to_have_value("cpu")

        page.evaluate("window.spoils = false")
        page.get_by_label("Computed by").select_option("gpu")
        expect(said).to_contain_text("every number that the GPU computes", timeout=GPU_TIMEOUT_MS)
        found = written(page, PROMPT, limit=str(FEW_TOKENS))
        assert (found["tokens"], found["player"]) == (kit.tokens[:FEW_TOKENS], "gpu")

        page.get_by_role("button", name="Write").click()
        expect(page.locator("[data-token]").nth(3)).to_be_attached()
        page.evaluate("device.destroy()")
        found = written(page, PROMPT, limit=str(FEW_TOKENS))
        assert (found["tokens"], found["player"]) == (kit.tokens[:FEW_TOKENS], "cpu")


@pytest.mark.parametrize("kit", [16], indirect=True)
def test_another_computation_is_noticed(chromium: Browser, kit: Kit) -> None:
    path = kit.path
    text = path.read_text(encoding="utf-8")
    head, _, rest = text.partition('"tokens":[')
    spoilt = path.with_name("spoilt.html")
    spoilt.write_text(f'{head}"tokens":[1,{rest}', encoding="utf-8")
    with open_offline(chromium, spoilt.as_uri()) as page:
        expect(page.locator("#said")).to_contain_text(
            "computes other tokens", timeout=GPU_TIMEOUT_MS
        )
        expect(page.locator("#write")).to_be_disabled()
