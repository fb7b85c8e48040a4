# ruff: noqa: RUF001 - ambiguous characters are the point
"""Thousands of lines of every script and trap for tokenizers, the same each time."""

from __future__ import annotations

import random

SURROGATES = range(0xD800, 0xE000)
WHITE = (
    " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2007\u2009\u200a\u200b\u2028"
    "\u2029\u202f\u205f\u2060\u3000\ufeff"
)
PIECES = [
    "don't",
    "WON'T",
    "I'M",
    "we've",
    "THEY'LL",
    "it's",
    "'s",
    "'S",
    "'ſ",
    "'K",
    "x'y",
    "''",
    "'",
    "'ll've",
    "naïve",
    "Straße",
    "İstanbul",
    "ﬁne",
    "é",
    "def",
    "f(x):",
    "return",
    "x**2",
    "==",
    "{a[0]:>10.3f};",
    '//#!$%^&*()_+-=[]{}|\\:;"<>,.?/~`',
    "0",
    "1",
    "12",
    "123",
    "1234567890",
    "٣٤٥",
    "５６",
    "ⅧⅨ",
    "½",
    "²",
    "一二三",
    "3.14159",
    "0x1F",
    "1e-9",
    "Привет",
    "мир",
    "Ελληνικά",
    "עברית",
    "العربية",
    "हिन्दी",
    "বাংলা",
    "தமிழ்",
    "ไทย",
    "ລາວ",
    "ქართული",
    "한국어",
    "日本語",
    "中文",
    "ᠮᠣᠩᠭᠣᠯ",
    "አማርኛ",
    "ꦗꦮ",
    "𐍈",
    "𝔘𝔫𝔦",
    "\U0001f642",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "\U0001f3f3\ufe0f\u200d\U0001f308",
    "\U0001f44d\U0001f3fd",
    "\U0001f1e9\U0001f1ea",
    "❤️",
    "☃",
    "\x00",
    "\x7f",
    "�",
    "<|endoftext|>",
    "<|pad|>",
    "<|endoftext",
    "<s>",
]


def code_point_sweep() -> list[str]:
    """Every code point up to the last ideograph, assigned or not, and a few above."""
    lines, line = [], ""
    for code in (*range(0x323B0), *range(0xE0000, 0xE01F0), 0xF0000, 0x10FFFF):
        if code in SURROGATES:
            continue
        line += chr(code) + ("", " ", "a", "'s", "\n", "7", ".")[code % 7]
        if len(line) > 120:
            lines.append(line)
            line = ""
    return [*lines, line]


def mixtures(count: int) -> list[str]:
    """Pieces and white space of all kinds in random order."""
    chance = random.Random(20_26)
    lines = []
    for _ in range(count):
        parts = []
        for _ in range(chance.randint(0, 12)):
            parts.append(chance.choice(PIECES))
            parts.append("".join(chance.choices(WHITE, k=chance.choice((0, 1, 1, 1, 2, 5)))))
        lines.append("".join(parts))
    return lines


def long_words() -> list[str]:
    """Words on which quadratic merging or backtracking would show."""
    chance = random.Random(7)
    letters = "".join(chance.choices("etaoinshrdlu", k=40_000))
    return [
        letters,
        "a" * 9_999,
        "7" * 20_000,
        " " * 5_000 + "x",
        "\n" * 3_000,
        "ab" * 5_000,
        "é" * 999,
    ]


def all_lines() -> list[str]:
    """Every kind: 6,000 lines, since the sweep's ideographs are thinned to every other line."""
    sweep = code_point_sweep()
    return [*sweep[:800], *sweep[800::2], *mixtures(3_600), *long_words(), ""]
