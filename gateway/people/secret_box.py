"""Encrypts secrets that the database stores, with a key that is derived from the pepper: AES-256-GCM.

The stored form is `v1:` and the base64 of nonce and ciphertext. The owner's id is authenticated with it, so a stored
secret that is copied to another row does not open.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from binascii import Error as Base64Error

from gateway.accounts.pepper import Peppers, derive

PURPOSE = "second factors"
PREFIX = "v1:"
NONCE = 12  # bytes


class SealedError(Exception):
    """A stored secret does not open: it is damaged, or the pepper that it was encrypted with is gone."""


class SecretBox:
    """Seals with the current pepper, and opens what the current or the previous one has sealed."""

    def __init__(self, peppers: Peppers) -> None:
        self._keys = [derive(pepper, PURPOSE) for pepper in (peppers.current, peppers.previous) if pepper]

    def seal(self, secret: str, owner: str) -> str:
        """The stored form of a secret of this owner."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 30 ms to import, and few commands need it

        nonce = os.urandom(NONCE)
        sealed = AESGCM(self._keys[0]).encrypt(nonce, secret.encode(), owner.encode())
        return PREFIX + b64encode(nonce + sealed).decode()

    def open(self, stored: str, owner: str) -> tuple[str, bool]:
        """The secret, and whether the stored form is the current one; SealedError.

        A text without the prefix is a secret that an older version stored as it is.
        """
        if not stored.startswith(PREFIX):
            return stored, False
        try:
            content = b64decode(stored.removeprefix(PREFIX), validate=True)
        except Base64Error:
            raise SealedError from None
        for number, key in enumerate(self._keys):
            secret = _decrypted(key, content, owner.encode())
            if secret is not None:
                return secret.decode(), number == 0
        raise SealedError


def _decrypted(key: bytes, content: bytes, owner: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(content[:NONCE], content[NONCE:], owner)
    except (InvalidTag, ValueError):  # ValueError: too short
        return None
