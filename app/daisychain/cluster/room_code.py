"""Room codes: one secret that names a room and locks its pairing messages.

A code is a string of Crockford base32 symbols (5 bits each; I, L, O and U do not occur, and are
read as 1, 1, 0 and V).  New rooms get 16 symbols, 80 bits, since whoever logs a relay can guess
offline; a typed code of at least 10 symbols, 50 bits, is accepted.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from urllib.parse import quote, unquote

from daisychain.errors import ClusterError

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
BITS_PER_SYMBOL = 5
MIN_SYMBOLS, NEW_SYMBOLS, MAX_SYMBOLS = 10, 16, 64
GROUP_SYMBOLS = 4
FRAGMENT_KEY = "room"

_LOOK_ALIKES = str.maketrans("ILOU", "110V")
_SEPARATORS = re.compile(r"[\s\-_.,:/+\u2010-\u2015]+")


def new_room_code(random_bits: Callable[[int], int] = secrets.randbits) -> str:
    """A fresh canonical code of 80 random bits."""
    bits = random_bits(NEW_SYMBOLS * BITS_PER_SYMBOL)
    return "".join(
        ALPHABET[bits >> BITS_PER_SYMBOL * place & 31] for place in reversed(range(NEW_SYMBOLS))
    )


def parse_room_code(text: str) -> str:
    """The canonical code in what a person typed, pasted or scanned: a code or a whole link.

    Case, spaces, dashes and look-alikes do not matter.  Raises ClusterError with a sentence for
    the person when the text cannot be a code.
    """
    text = text[: 16 * MAX_SYMBOLS]
    if "#" in text or "://" in text:
        text = room_in_fragment(text.partition("#")[2]) or ""
    code = _SEPARATORS.sub("", text).upper().translate(_LOOK_ALIKES)
    if not code:
        raise ClusterError("There is no room code here.", do="Type the code or open the link.")
    strange = sorted({symbol for symbol in code if symbol not in ALPHABET})
    if strange:
        raise ClusterError(
            f"A room code has only letters and digits, not {' '.join(strange[:4])}",
            do="Check the code on the other device.",
        )
    if not MIN_SYMBOLS <= len(code) <= MAX_SYMBOLS:
        raise ClusterError(
            f"A room code has {MIN_SYMBOLS} to {MAX_SYMBOLS} letters and digits, this has "
            f"{len(code)}.",
            means="A shorter code could be guessed by a stranger.",
            do="Check the code on the other device.",
        )
    return code


def format_room_code(code: str) -> str:
    """The code in groups of four, as people read it aloud: ``K7QD-M2XP-9RTW-4HBN``."""
    groups = range(0, len(code), GROUP_SYMBOLS)
    return "-".join(code[start : start + GROUP_SYMBOLS] for start in groups)


def room_in_fragment(fragment: str) -> str | None:
    """The raw value of ``room`` in an address's fragment (with or without ``#``), or None."""
    for item in fragment.removeprefix("#").split("&"):
        key, _, value = item.partition("=")
        if key == FRAGMENT_KEY:
            return unquote(value)
    return None


def room_link(page: str, code: str, query: str = "start=join") -> str:
    """The link that joins the room: the page's address, the query, and the code in the fragment.

    The fragment never leaves the browser, so no server sees the code.
    """
    bare = re.split(r"[?#]", page, maxsplit=1)[0]
    return f"{bare}?{query}#{FRAGMENT_KEY}={quote(format_room_code(code))}"
