"""Write ``app/js/data/unicode_categories.js``: the general category of every code point.

    python scripts/make_unicode_categories.py

Browsers follow different Unicode versions, so ``\\p{L}`` differs between them; members of one run
must split text alike.  The table is read from the reference itself, the regex engine inside PyPI
``tokenizers``, code point by code point.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Regex, pre_tokenizers

CATEGORIES = [
    "Cn",
    "Cc",
    "Cf",
    "Co",
    "Cs",
    "Ll",
    "Lm",
    "Lo",
    "Lt",
    "Lu",
    "Mc",
    "Me",
    "Mn",
    "Nd",
    "Nl",
    "No",
    "Pc",
    "Pd",
    "Pe",
    "Pf",
    "Pi",
    "Po",
    "Ps",
    "Sc",
    "Sk",
    "Sm",
    "So",
    "Zl",
    "Zp",
    "Zs",
]
CODE_POINTS = 0x110000
SURROGATES = range(0xD800, 0xE000)
BLOCK = 0x1000
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
OUTPUT = Path(__file__).resolve().parent.parent / "app" / "js" / "data" / "unicode_categories.js"

HEADER = """\
// Made by scripts/make_unicode_categories.py from PyPI tokenizers; do not edit.
/**
 * Runs of one general category over all code points: a letter (the index in CATEGORIES, A is 0,
 * then ! # $ %) and the run's length in base 36, where an absent length is 1.
 */
export const CATEGORIES =
  "{categories}".split(
    " ",
  );

export const RUNS =
{lines};
"""


def members(category: str) -> set[int]:
    """Every code point that the reference puts in the category."""
    split = pre_tokenizers.Split(Regex(rf"\p{{{category}}}"), "removed")
    found: set[int] = set()
    for start in range(0, CODE_POINTS, BLOCK):
        block = [c for c in range(start, start + BLOCK) if c not in SURROGATES]
        if block:
            text = "".join(map(chr, block))
            kept = {ord(c) for piece, _ in split.pre_tokenize_str(text) for c in piece}
            found.update(c for c in block if c not in kept)
    return found


def letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else "!#$%"[index - 26]


def base36(value: int) -> str:
    digits = ""
    while value:
        value, digit = divmod(value, 36)
        digits = DIGITS[digit] + digits
    return digits


def main() -> None:
    table = [0] * CODE_POINTS
    for c in SURROGATES:
        table[c] = CATEGORIES.index("Cs")
    for index, category in enumerate(CATEGORIES):
        if category not in ("Cn", "Cs"):
            for c in members(category):
                table[c] = index
    text, start = "", 0
    for c in range(1, CODE_POINTS + 1):
        if c == CODE_POINTS or table[c] != table[start]:
            text += letter(table[start]) + (base36(c - start) if c - start > 1 else "")
            start = c
    lines = [f'  "{text[i : i + 90]}"' for i in range(0, len(text), 90)]
    OUTPUT.write_text(
        HEADER.format(categories=" ".join(CATEGORIES), lines=" +\n".join(lines)), encoding="ascii"
    )


if __name__ == "__main__":
    main()
