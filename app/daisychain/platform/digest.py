"""SHA-256 of large data: the browser's own in the page, off the page's thread; else hashlib's."""

from __future__ import annotations

import sys
from hashlib import sha256 as sha256_here
from typing import Any

from daisychain.platform.javascript import to_js


async def sha256(data: Any) -> bytes:
    """32 bytes; ``data`` is bytes or, in the page, a JavaScript Uint8Array.

    The page's WebCrypto is ten times as fast as Python there.  It takes a copy at once, so ``data``
    may change or be given away afterwards.
    """
    if sys.platform == "emscripten":
        import js

        if subtle := getattr(getattr(js, "crypto", None), "subtle", None):
            return bytes((await subtle.digest("SHA-256", to_js(data))).to_bytes())
        data = data if isinstance(data, bytes) else data.to_bytes()
    return sha256_here(data).digest()
