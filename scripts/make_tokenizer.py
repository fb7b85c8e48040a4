"""Train the byte-level BPE tokenizer of 16,512 tokens: ``data/tokenizer.json``.

The training text (10.7 MB: OpenStax textbooks under CC BY 4.0 and public-domain works, listed in
NOTICE) is not part of the repository; give the folder that holds its ``.txt`` files:

    python scripts/make_tokenizer.py FOLDER

The files are read in the order of their names, so one set of texts gives one tokenizer.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY_TOKENS = 16_512
END_OF_TEXT = "<|endoftext|>"
PADDING = "<|pad|>"
WHITE_SPACE = r"\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
r"""Spelt out, because ``\s`` of Rust's and of JavaScript's engines differ in U+0085 and U+FEFF."""

SPLIT = "|".join(
    (
        r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,2}",
        rf" ?[^{WHITE_SPACE}\p{{L}}\p{{N}}]+[\r\n]*",
        rf"[{WHITE_SPACE}]*[\r\n]+",
        rf"[{WHITE_SPACE}]+(?![^{WHITE_SPACE}])",
        rf"[{WHITE_SPACE}]+",
    )
)
"""The GPT-4 shape: a word takes one leading non-letter, digits go in runs of one or two."""

DATA = Path(__file__).resolve().parent.parent / "data"


def documents(folder: Path) -> Iterator[str]:
    """Paragraph blocks of every text file, in the order of the file names."""
    for path in sorted(folder.glob("*.txt")):
        yield from path.read_text(encoding="utf-8").split("\n\n\n")


def train(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_TOKENS,
        special_tokens=[END_OF_TEXT, PADDING],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents(folder), trainer)
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the folder with the training texts (*.txt)")
    folder = parser.parse_args().folder
    if not any(folder.glob("*.txt")):
        sys.exit(f"No .txt file in {folder}.")
    tokenizer = train(folder)
    if tokenizer.get_vocab_size() != VOCABULARY_TOKENS:
        sys.exit(f"The text gave {tokenizer.get_vocab_size()} tokens, not {VOCABULARY_TOKENS}.")
    compact = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
    (DATA / "tokenizer.json").write_text(compact + "\n", encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "pad_token": PADDING,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1_000_000_000,
    }
    (DATA / "tokenizer_config.json").write_text(
        json.dumps(config, indent=2) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
