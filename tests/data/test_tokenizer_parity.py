"""The page's tokenizer against the Rust reference: the site's own and others of the Hub's kinds."""

from __future__ import annotations

import base64
import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from daisychain.data.byte_pairs import BytePairs
from daisychain.data.tokenizer import IncrementalDecoder
from daisychain.data.tokenizer import Tokenizer as Tokens
from tests.data.lines import PIECES, all_lines, mixtures
from tests.data.reference import ROOT, ReferencePort, read_tokenizer
from tools.bootstrap import ensure_node_modules

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)


def page_encode(spec: dict[str, Any], lines: list[str], plain: bool = False) -> dict[str, Any]:
    node = ensure_node_modules().node
    done = subprocess.run(
        [node, ROOT / "tests/data/encode_lines.mjs"],
        input=json.dumps({"spec": spec, "lines": lines, "plain": plain}),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def differences(rust: Tokenizer, lines: list[str], ids: list[list[int]]) -> list[str]:
    expected = rust.encode_batch(lines, add_special_tokens=False)
    rows = zip(lines, ids, expected, strict=True)
    return [line for line, own, reference in rows if own != reference.ids]


@functools.cache
def own_spec() -> str:
    return (ROOT / "data/tokenizer.json").read_text(encoding="utf-8")


def test_own_tokenizer_on_thousands_of_lines() -> None:
    """Ids equal the reference's, and decoding gives every line back."""
    lines = all_lines()
    assert len(lines) > 5_000
    result = page_encode(json.loads(own_spec()), lines, plain=True)
    assert result["kind"] == "ByteLevelBpe"
    rust = Tokenizer.from_str(own_spec())
    rust.encode_special_tokens = True
    assert differences(rust, lines, result["ids"]) == []
    _, table = read_tokenizer(own_spec())
    assert base64.b64decode(result["bytes"]) == table.data
    assert result["ends"] == list(table.ends)
    for line, ids in zip(lines, result["ids"], strict=True):
        parts = [table.data[table.ends[i - 1] if i else 0 : table.ends[i]] for i in ids]
        assert b"".join(parts).decode("utf-8") == line


def test_special_tokens_in_a_text() -> None:
    lines = [*mixtures(600), "<|endoftext|>", "a<|endoftext|><|pad|>b", "<|endoftext"]
    result = page_encode(json.loads(own_spec()), lines)
    assert differences(Tokenizer.from_str(own_spec()), lines, result["ids"]) == []


def test_lone_surrogates_count_as_replacement_characters() -> None:
    spec = json.loads(own_spec())
    broken = page_encode(spec, ["a\ud800b", "\udc00", "x\ud83d"])["ids"]
    assert broken == page_encode(spec, ["a\ufffdb", "\ufffd", "x\ufffd"])["ids"]


def split(*patterns: str) -> pre_tokenizers.PreTokenizer:
    stages = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*stages, last])


def trained(pre_tokenizer: pre_tokenizers.PreTokenizer, **parts: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(**parts.pop("model", {})))
    tokenizer.pre_tokenizer = pre_tokenizer
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    trainer = trainers.BpeTrainer(
        vocab_size=1_500,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = [" ".join(PIECES), (ROOT / "NOTICE").read_text(encoding="utf-8")] * 3
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


KINDS = {
    "gpt2": lambda: trained(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "prefix": lambda: trained(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "llama3": lambda: trained(split(LLAMA_3), model={"ignore_merges": True}),
    "cl100k": lambda: trained(split(CL100K)),
    "o200k": lambda: trained(split(O200K)),
    "deepseek": lambda: trained(split(*DEEPSEEK)),
    "qwen": lambda: trained(split(LLAMA_3), normalizer=normalizers.NFC()),
    "digits": lambda: trained(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_tokenizers_of_the_hub(kind: str, tmp_path: Path) -> None:
    rust = KINDS[kind]()
    # Normal forms follow the browser's Unicode version: no sweep through all of it for those.
    lines = mixtures(500) + ([] if kind == "qwen" else all_lines()[::9])
    result = page_encode(json.loads(rust.to_str()), lines)
    assert result["kind"] == "ByteLevelBpe"
    assert differences(rust, lines, result["ids"]) == []


def test_added_tokens_that_are_text() -> None:
    """Runs of spaces of GPT-NeoX and others: found in every text, and decoded as what they are."""
    rust = trained(pre_tokenizers.ByteLevel(add_prefix_space=False))
    rust.add_tokens([AddedToken(" " * n, normalized=False) for n in (2, 4, 8)])
    lines = ["if x:\n        y\n    z  <|endoftext|>", " " * 15, *mixtures(300)]
    for plain in (False, True):
        rust.encode_special_tokens = plain
        result = page_encode(json.loads(rust.to_str()), lines, plain)
        assert result["kind"] == "ByteLevelBpe"
        assert differences(rust, lines, result["ids"]) == []
    pairs = BytePairs(rust.to_str().encode())
    _, table = read_tokenizer(rust.to_str())
    for tokenizer in (Tokens(ReferencePort(), "with spaces", table), pairs):
        assert tokenizer.special == {0}
        decoder = IncrementalDecoder(tokenizer)
        shown = "".join(map(decoder.push, result["ids"][1]))
        assert shown + decoder.flush() == lines[1]


def test_the_library_serves_what_the_encoder_does_not() -> None:
    rust = trained(pre_tokenizers.ByteLevel(add_prefix_space=False))
    rust.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    lines = ["one <mask> two", "plain words", "Привет 123"]
    result = page_encode(json.loads(rust.to_str()), lines)
    assert result["kind"] == "LibraryTokenizer"
    assert differences(rust, lines, result["ids"]) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": {"type": "WordPiece", "vocab": {}}}, "no byte-level BPE"),
        ({"model": {"type": "BPE", "vocab": {"a": 2**40}, "merges": []}}, "out of range"),
    ],
)
def test_tokenizers_of_other_kinds_are_refused(change: dict[str, Any], words: str) -> None:
    spec = json.loads(own_spec()) | change
    with pytest.raises(AssertionError, match=words):
        page_encode(spec, ["x"])


def test_merges_with_unknown_tokens_are_refused() -> None:
    spec = json.loads(own_spec())
    spec["model"]["merges"].append(["zzz", "yyy"])
    with pytest.raises(AssertionError, match="names an unknown token"):
        page_encode(spec, ["x"])
