"""The inference kit's file: what it holds, what it must not hold, how large it is."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
import re
import subprocess
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daisychain import cli
from daisychain.building import model_config
from daisychain.errors import DataError
from daisychain.export.checkpoint import write_checkpoint
from daisychain.export.kit import (
    KitParts,
    NarrowWeights,
    high_bytes,
    kit_bytes,
    make_kit,
    short_tokenizer,
    shown_facts,
)
from daisychain.generate import Sampling, choose
from daisychain.model.config import parameters
from daisychain.players.oracle import pack_narrow
from daisychain.settings import resolve
from tests.export.models import trained
from tools.bootstrap import ROOT, ensure_node_modules

TOKENIZER = (ROOT / "data/tokenizer.json").read_bytes()
RUNTIME_BYTES = 400_000


@pytest.fixture(scope="session")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with js/kit.js as the site has it."""
    folder = tmp_path_factory.mktemp("bundled")
    node = ensure_node_modules().node
    subprocess.run([node, ROOT / "tools/bundle.mjs", folder / "js"], cwd=ROOT, check=True)
    return folder


@cache
def kit_text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made(bundled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kit of the small run, from the command line."""
    folder = tmp_path_factory.mktemp("kit")
    checkpoint = folder / "run.zip"
    checkpoint.write_bytes(b"".join(asyncio.run(write_checkpoint(trained()))))
    out = folder / "kit.html"
    assert cli.main(["kit", str(checkpoint), str(out), "--site", str(bundled)]) == 0
    assert cli.main(["kit", str(checkpoint), str(out), "--site", str(bundled)]) == 1
    return out


def without_weights(text: str) -> str:
    return re.sub(r'(<script type="text/plain" id="\w+">)[^<]*', r"\1", text)


def colours(sheet: str) -> list[dict[str, str]]:
    """The colours by name, for light and for dark."""
    rules = re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)
    return [dict(re.findall(r"--([\w-]+): (#\w+);", rule)) for rule in rules]


def test_the_kit_wears_the_page_s_colours() -> None:
    page = colours((ROOT / "app/assets/style.css").read_text())
    kit = colours((ROOT / "app/daisychain/export/kit.html").read_text())
    assert [len(scheme) for scheme in kit] == [7, 7]
    for own, whole in zip(kit, page, strict=True):
        assert own.items() <= whole.items()


def test_no_address_and_nothing_that_a_file_may_not_do(made: Path) -> None:
    text = without_weights(kit_text(made))
    assert not re.search(r"\w+://|\bsrc=|\bhref=|url\(|@import", text)
    assert not re.search(r"\bimport\b|fetch\(|XMLHttpRequest|WebSocket|Worker\(|eval\(", text)
    packed = re.search(r'id="runtime">([^<]*)<', kit_text(made))
    assert packed is not None
    assert b"://" not in zlib.decompress(base64.b64decode(packed[1]))


def test_the_policy_allows_its_own_script_and_style_alone(made: Path) -> None:
    text = kit_text(made)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    style = text.partition("<style>")[2].partition("</style>")[0]

    def hashed(part: str) -> str:
        digest = hashlib.sha256(part.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    assert policy[1] == (
        f"default-src 'none'; script-src {hashed(script)} 'wasm-unsafe-eval'; "
        f"style-src {hashed(style)}; base-uri 'none'; form-action 'none'"
    )
    assert text.count("<script>") == 1
    assert text.index("Content-Security-Policy") < text.index("<style>")


def test_it_says_what_it_is(made: Path) -> None:
    found = re.search(r'id="kit">([^<]*)<', kit_text(made))
    assert found is not None
    facts = dict(json.loads(found[1])["facts"])
    assert facts["Devices"] == "NumPy"
    assert facts["Parameters"] == f"{sum(p.count for p in parameters(trained().config)):,}"
    assert "16-bit" in facts["Precision"]
    assert re.search(r"<title>A language model of [\d,]+ parameters", kit_text(made))


def test_its_facts_are_for_people() -> None:
    facts: dict[str, Any] = {
        "parameters": 1163584,
        "step": 40,
        "tokens": 20480,
        "data": "embedded corpus",
        "devices": "Chrome 156 on Linux (wasm), phone",
        "loss": 7.35159,
        "saved": "2026-12-01T16:25:29+02:00",
        "weights_hash": "3f45",
        "password": "no",
    }
    weights = NarrowWeights(trained().config, {}, {})
    assert shown_facts(KitParts(weights, 8, b"", 0, facts, b"")) == [
        ("Parameters", "1,163,584"),
        ("Steps", "40"),
        ("Tokens trained on", "20,480"),
        ("Text", "embedded corpus"),
        ("Devices", "Chrome 156 on Linux (wasm), phone"),
        ("Training loss, nats a token", "7.3516"),
        ("Made", "1 December 2026, 14:25 UTC"),
        ("Hash of the weights", "3f45"),
        ("Precision", "8-bit mantissas: close to the trained model, at half the size"),
    ]
    for odd in ("yesterday", "0001-01-01T00:00:00+14:00", 3):
        facts = {"saved": odd}
        assert ("Made", str(odd)) in shown_facts(KitParts(weights, 8, b"", 0, facts, b""))


def kit_of(config: Any, mantissas: dict[str, bytes], bundled: Path, bits: int = 16) -> bytes:
    weights = NarrowWeights(config, mantissas, {p.name: -9 for p in parameters(config)})
    script = (bundled / "js/kit.js").read_bytes()
    facts: dict[str, Any] = {"devices": "</script><b>", "step": 7, "loss": 2.5}
    return b"".join(make_kit(KitParts(weights, bits, TOKENIZER, 0, facts, script)))


@pytest.mark.parametrize("preset", ["nano", "medium"])
def test_the_runtime_is_small(preset: str, bundled: Path) -> None:
    config = model_config(resolve({"preset": preset}))
    size = len(kit_of(config, {p.name: b"" for p in parameters(config)}, bundled))
    assert size <= RUNTIME_BYTES, f"{size:,}"


@pytest.mark.parametrize("bits", [8, 16])
def test_its_size_is_known_beforehand(bits: int, bundled: Path) -> None:
    config = model_config(resolve({"preset": "nano"}))
    weights = {p.name: bytes(2 * p.count) for p in parameters(config)}
    size = len(kit_of(config, weights, bundled, bits))
    assert abs(size / kit_bytes(sum(p.count for p in parameters(config)), bits) - 1) < 0.05


def test_facts_of_strangers_stay_text(bundled: Path) -> None:
    config = trained().config
    text = kit_of(config, {p.name: b"" for p in parameters(config)}, bundled).decode()
    assert "\\u003c/script>\\u003cb>" in text
    assert "<b>" not in text


def test_a_script_that_cannot_be_inlined_is_refused(bundled: Path) -> None:
    config = trained().config
    weights = NarrowWeights(config, {p.name: b"" for p in parameters(config)}, {})
    for script in (b"'</script>'", b"'<!--'"):
        with pytest.raises(DataError, match="cannot stand inside"):
            make_kit(KitParts(weights, 16, TOKENIZER, 0, {}, script))


def test_high_bytes_are_the_rounded_mantissas() -> None:
    m = np.random.default_rng(1).integers(-32639, 32640, 64).astype(np.int16)
    high = np.frombuffer(high_bytes(pack_narrow(m)), np.int8).astype(np.int32)
    assert np.abs(m - 256 * high).max() <= 128


def test_without_a_built_site_there_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = tmp_path / "run.zip"
    checkpoint.write_bytes(b"".join(asyncio.run(write_checkpoint(trained()))))
    arguments = ["kit", str(checkpoint), str(tmp_path / "k.html"), "--site", str(tmp_path)]
    assert cli.main(arguments) == 1
    assert "build.py site" in capsys.readouterr().err


def asked_of_node(script: str, question: object) -> Any:
    done = subprocess.run(
        [ensure_node_modules().node, Path(__file__).with_name(script)],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_a_gpu_is_fed_in_parts_and_goes_on_where_they_end() -> None:
    prompt = [100 + i for i in range(40)]
    answer = asked_of_node("kit_gpu.mjs", {"prompt": prompt, "next": 7, "vocabulary": 9})
    assert answer["calls"] == [
        ["write", "prompt", 0, *prompt],
        ["run", "logits", "decode_reset", *["decode"] * 32],
        ["run", "logits", *["decode"] * 8],
        ["write", "prompt", 4 * 40, 7],
        ["run", "logits", "decode"],
    ]
    assert (answer["exponent"], answer["mantissas"]) == (-5, [*range(-4, 5)])
    assert answer["equal"] == [False, True, [1, 2, 3, 4, 5]]
    assert answer["wrong"] == [True, False, [1, 2, 3, 4, 5]]
    assert answer["slow"] == [False, False, [1, 2, 3]]


def test_a_short_tokenizer_is_the_whole_one() -> None:
    spec, short = json.loads(TOKENIZER), json.loads(short_tokenizer(TOKENIZER))
    model = short["model"]
    made = model["vocab"][-len(model["merges"]) :]
    merges = [[n[:left], n[left:]] for n, left in zip(made, model["merges"], strict=True)]
    assert [m.split(" ") if isinstance(m, str) else m for m in spec["model"]["merges"]] == merges
    assert spec["model"]["vocab"] == {name: i for i, name in enumerate(model["vocab"])}
    spec["model"]["merges"].reverse()
    odd = short_tokenizer(json.dumps(spec).encode())
    assert json.loads(odd) == spec


def test_its_choice_of_tokens_is_that_of_the_page() -> None:
    generator = random.Random(3)
    mantissas = [generator.randrange(-4000, 4000) for _ in range(300)] + [4100, 4100]
    samplings = [Sampling(), Sampling(0.8, 40, 1.0, 5), Sampling(1.5, 0, 0.7, 6), Sampling(9.0)]
    given = [
        {"temperature": s.temperature, "topK": s.top_k, "topP": s.top_p, "seed": s.seed}
        for s in samplings
    ]
    question = {"mantissas": mantissas, "exponent": -9, "samplings": given, "draws": 50}
    answer = asked_of_node("kit_sampling.mjs", question)
    for sampling, choices in zip(samplings, answer, strict=True):
        for number, found in enumerate(choices):
            own = choose(mantissas, -9, sampling, number)
            assert found["token"] == own.token
            assert found["probability"] == pytest.approx(own.probability)
            assert [token for token, _ in found["likeliest"]] == [t for t, _ in own.likeliest]
