"""Byte-level byte-pair encoding in Python, for the command line.

The page encodes in JavaScript (app/js/data/bpe.js); both agree with the reference implementation on
every character that Python's version of Unicode knows (tests/data/test_byte_pairs.py).
"""

from __future__ import annotations

import heapq
import json
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

from daisychain.errors import DataError

WHITE_SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
BYTE_LEVEL_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""GPT-2's pattern, which ByteLevel applies by itself."""

Split = Callable[[str], list[str]]


def byte_alphabet() -> list[str]:
    """The printable character that stands for each byte."""
    kept = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in kept else next(others)) for byte in range(256)]


class BytePairs:
    """A tokenizer.json of a byte-level BPE model.  Raises DataError for every other kind."""

    def __init__(self, tokenizer_json: bytes) -> None:
        try:
            spec = json.loads(tokenizer_json)
            model = spec["model"]
            self._ids: dict[str, int] = dict(model["vocab"])
            merges = [tuple(m.split(" ") if isinstance(m, str) else m) for m in model["merges"]]
            self._ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
            added = list(spec.get("added_tokens") or ())
            self.added = {str(t["content"]): int(t["id"]) for t in added}
            self._special = frozenset(int(t["id"]) for t in added if t.get("special"))
            self._splits = _splits(spec.get("pre_tokenizer"))
            normalizer = spec.get("normalizer")
            if normalizer is not None and normalizer["type"] != "NFC":
                raise _unsupported(f"the normalizer {normalizer['type']}")
            self._normalizes = normalizer is not None
            odd = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
            if any(model.get(name) for name in odd):
                raise _unsupported("BPE that is not byte-level")
            self._keeps_words = bool(model.get("ignore_merges"))
            self.size = 1 + max([*self._ids.values(), *self.added.values()])
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as cause:
            raise DataError(
                "The file tokenizer.json cannot be read.", "It is damaged or of another kind."
            ) from cause
        self._alphabet = byte_alphabet()
        names = sorted(map(re.escape, self.added), key=len, reverse=True)
        self._added_names = re.compile(f"({'|'.join(names)})") if names else None
        self._words: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Ids of a text; names of added tokens in it become those tokens."""
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        parts = self._added_names.split(text) if self._added_names else [text]
        out: list[int] = []
        for part in parts:
            if part in self.added:
                out.append(self.added[part])
            else:
                out += self._encode_part(part)
        return out

    def token_bytes(self, token: int) -> bytes:
        """The bytes that one token stands for; those of an added token are its name."""
        return self._bytes[token]

    @property
    def special(self) -> frozenset[int]:
        """Ids of added tokens that stand for no text."""
        return self._special

    @cached_property
    def _bytes(self) -> list[bytes]:
        values = {character: byte for byte, character in enumerate(self._alphabet)}
        out = [b""] * self.size
        for name, token in self._ids.items():
            known = all(character in values for character in name)
            out[token] = bytes(map(values.__getitem__, name)) if known else name.encode()
        for name, token in self.added.items():
            out[token] = name.encode()
        return out

    def _encode_part(self, text: str) -> list[int]:
        pieces = [unicodedata.normalize("NFC", text) if self._normalizes else text]
        for split in self._splits:
            pieces = [part for piece in pieces for part in split(piece)]
        return [token for piece in pieces for token in self._encode_word(piece)]

    def _encode_word(self, word: str) -> list[int]:
        if word not in self._words:
            characters = [self._alphabet[byte] for byte in word.encode()]
            name = "".join(characters)
            if self._keeps_words and name in self._ids:
                characters = [name]
            try:
                self._words[word] = [self._ids[part] for part in self._merged(characters)]
            except KeyError as cause:
                raise _unsupported("a vocabulary without every byte") from cause
        return self._words[word]

    def _merged(self, parts: list[str]) -> list[str]:
        """Merges the pair of lowest rank, leftmost first, until no pair has a rank."""
        following = [*range(1, len(parts)), -1]
        before = list(range(-1, len(parts) - 1))
        waiting: list[tuple[int, int, str, str]] = []

        def offer(left: int) -> None:
            if left >= 0 and following[left] >= 0:
                pair = parts[left], parts[following[left]]
                if pair in self._ranks:
                    heapq.heappush(waiting, (self._ranks[pair], left, *pair))

        for left in range(len(parts)):
            offer(left)
        while waiting:
            _, left, *pair = heapq.heappop(waiting)
            right = following[left]
            if right < 0 or [parts[left], parts[right]] != pair:
                continue  # one of the two has been merged since
            parts[left], parts[right] = "".join(pair), ""
            following[left] = following[right]
            if following[left] >= 0:
                before[following[left]] = left
            offer(left)
            offer(before[left])
        return [part for part in parts if part]


def _unsupported(what: str) -> DataError:
    return DataError(
        f"The tokenizer is of a kind that cannot be used here ({what}).",
        do="Choose a byte-level BPE tokenizer.",
    )


def _splits(spec: Any) -> list[Split]:
    """The pre-tokenizer's stages as functions from a text to its pieces."""
    stages = _flat(spec)
    if not stages or stages[-1].get("type") != "ByteLevel":
        raise _unsupported("the pre-tokenizer does not end in ByteLevel")
    out: list[Split] = []
    for stage in stages:
        kind = stage.get("type")
        if kind == "Split" and stage["behavior"] == "Isolated" and not stage["invert"]:
            pattern = stage["pattern"]
            text = pattern.get("String")
            out.append(_isolate(translate(pattern["Regex"]) if text is None else re.escape(text)))
        elif kind == "Digits":
            digits = f"[{_members('N')}]"
            out.append(_isolate(digits if stage["individual_digits"] else f"{digits}+"))
        elif kind == "ByteLevel" and not stage.get("add_prefix_space"):
            if stage.get("use_regex") is not False:
                out.append(_isolate(translate(BYTE_LEVEL_PATTERN)))
        else:
            raise _unsupported(f"the pre-tokenizer {kind}")
    return out


def _flat(spec: Any) -> Sequence[Any]:
    if isinstance(spec, dict) and spec.get("type") == "Sequence":
        return [stage for part in spec["pretokenizers"] for stage in _flat(part)]
    return [spec] if isinstance(spec, dict) else []


def _isolate(pattern: str) -> Split:
    """Every match a piece of its own, and what lies between matches too."""
    regex = re.compile(pattern)

    def split(text: str) -> list[str]:
        pieces, end = [], 0
        for match in regex.finditer(text):
            pieces += [text[end : match.start()], match[0]]
            end = match.end()
        return [piece for piece in (*pieces, text[end:]) if piece]

    return split


@lru_cache(maxsize=32)
def _members(category: str) -> str:
    """The characters of a general category, or of all that begin with a letter, as ranges."""
    codes = [c for c in range(sys.maxunicode + 1) if _is_in(c, category)]
    if not codes:
        raise _unsupported(f"the Unicode property {category}")
    starts = [c for c, before in zip(codes, [-2, *codes], strict=False) if c != before + 1]
    ends = [c for c, after in zip(codes, [*codes[1:], -2], strict=True) if after != c + 1]
    return "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in zip(starts, ends, strict=True))


def _is_in(code: int, category: str) -> bool:
    return unicodedata.category(chr(code)).startswith(category)


_PIECE = re.compile(r"\\[pP]\{\^?[A-Za-z]{1,2}\}|\\.|\[\^?|\]|.", re.DOTALL)


def translate(pattern: str) -> str:
    """A pattern of tokenizer.json (Oniguruma) as Python's; raises DataError where they differ."""
    out, in_class = "", False
    for piece in _PIECE.findall(pattern):
        if piece.startswith("[") and in_class:
            raise _unsupported("nested character classes")
        if piece.startswith("[") or piece == "]":
            in_class = piece != "]"
            out += piece
        elif piece[:2] in ("\\p", "\\P") or piece in ("\\s", "\\S", "\\d", "\\D"):
            out += _class(piece, in_class)
        elif piece in ("\\w", "\\W", "\\h", "\\H", "\\X", "\\R"):
            raise _unsupported(f"the pattern {piece}")
        else:
            out += piece
    return out


def _class(piece: str, in_class: bool) -> str:
    name = piece[2:].strip("{^}") or {"s": "", "d": "Nd"}[piece[1].lower()]
    negated = piece[1].isupper() != ("^" in piece)
    members = _members(name) if name else WHITE_SPACE
    if not in_class:
        return f"[{'^' if negated else ''}{members}]"
    if negated:
        raise _unsupported("a negated class within a class")
    return members
