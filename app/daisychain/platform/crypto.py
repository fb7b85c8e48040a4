"""PBKDF2-SHA256 and AES-256-GCM: WebCrypto in the page, the ``cryptography`` package in CPython."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from daisychain.errors import ClusterError
from daisychain.platform.javascript import to_js


class AesGcmKey(Protocol):
    """One AES-256-GCM key; nonces are 12 bytes, the 16-byte tag follows the ciphertext."""

    async def encrypt(self, nonce: bytes, plaintext: bytes, context: bytes) -> bytes:
        """Ciphertext and tag; ``context`` is authenticated but not sent."""

    async def decrypt(self, nonce: bytes, ciphertext: bytes, context: bytes) -> bytes | None:
        """The plaintext, or None when key, nonce, context or ciphertext do not belong together."""


class Crypto(Protocol):
    """What the cluster needs of a cryptographic library."""

    async def pbkdf2_sha256(
        self, password: bytes, salt: bytes, iterations: int, size_bytes: int
    ) -> bytes:
        """PBKDF2 with HMAC-SHA256 (RFC 8018)."""

    async def aes_gcm_key(self, key: bytes) -> AesGcmKey:
        """Import a key of 32 bytes."""


def open_crypto() -> Crypto:
    """The platform's cryptography; raises ClusterError where the browser withholds it."""
    if sys.platform == "emscripten":
        return BrowserCrypto()
    return NativeCrypto()


class BrowserCrypto:
    """WebCrypto, which browsers offer only to https pages and to localhost."""

    def __init__(self) -> None:
        import js

        subtle: Any = getattr(getattr(js, "crypto", None), "subtle", None)
        if subtle is None:
            raise ClusterError(
                "This page may not use the browser's cryptography.",
                "Browsers allow it only on https addresses and on localhost, and rooms need it.",
                "Open the page over https, or on the device that serves it as http://localhost.",
            )
        self._subtle = subtle

    async def pbkdf2_sha256(
        self, password: bytes, salt: bytes, iterations: int, size_bytes: int
    ) -> bytes:
        """PBKDF2 with HMAC-SHA256 (RFC 8018)."""
        usages = to_js(["deriveBits"])
        key = await self._subtle.importKey("raw", to_js(password), "PBKDF2", False, usages)
        method = {"name": "PBKDF2", "hash": "SHA-256", "salt": salt, "iterations": iterations}
        bits = await self._subtle.deriveBits(to_js(method), key, 8 * size_bytes)
        return bytes(bits.to_bytes())

    async def aes_gcm_key(self, key: bytes) -> AesGcmKey:
        """Import a key of 32 bytes; it cannot be read back."""
        usages = to_js(["encrypt", "decrypt"])
        handle = await self._subtle.importKey("raw", to_js(key), "AES-GCM", False, usages)
        return _BrowserAesGcmKey(self._subtle, handle)


class _BrowserAesGcmKey:
    def __init__(self, subtle: Any, handle: Any) -> None:
        self._subtle, self._handle = subtle, handle

    def _method(self, nonce: bytes, context: bytes) -> Any:
        return to_js({"name": "AES-GCM", "iv": nonce, "additionalData": context})

    async def encrypt(self, nonce: bytes, plaintext: bytes, context: bytes) -> bytes:
        method = self._method(nonce, context)
        sealed = await self._subtle.encrypt(method, self._handle, to_js(plaintext))
        return bytes(sealed.to_bytes())

    async def decrypt(self, nonce: bytes, ciphertext: bytes, context: bytes) -> bytes | None:
        from pyodide.ffi import JsException

        method = self._method(nonce, context)
        try:
            opened = await self._subtle.decrypt(method, self._handle, to_js(ciphertext))
        except JsException:
            return None
        return bytes(opened.to_bytes())


class NativeCrypto:
    """CPython: hashlib and the ``cryptography`` package."""

    async def pbkdf2_sha256(
        self, password: bytes, salt: bytes, iterations: int, size_bytes: int
    ) -> bytes:
        """PBKDF2 with HMAC-SHA256 (RFC 8018)."""
        import hashlib

        return hashlib.pbkdf2_hmac("sha256", password, salt, iterations, size_bytes)

    async def aes_gcm_key(self, key: bytes) -> AesGcmKey:
        """Import a key of 32 bytes."""
        return _NativeAesGcmKey(key)


class _NativeAesGcmKey:
    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(key)

    async def encrypt(self, nonce: bytes, plaintext: bytes, context: bytes) -> bytes:
        return self._cipher.encrypt(nonce, plaintext, context)

    async def decrypt(self, nonce: bytes, ciphertext: bytes, context: bytes) -> bytes | None:
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(nonce, ciphertext, context)
        except InvalidTag:
            return None
