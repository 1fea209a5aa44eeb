"""Texts that clients keep for the gateway: encrypted by a key of the pepper, and bound to an account: AES-256-GCM.

The form is `gwc1.` and the base64 of nonce and ciphertext. Only the account for which a text was sealed can send it
back. During a rotation of the pepper, texts of the previous one open, too.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING

from gateway.accounts.pepper import Peppers, derive
from gateway.schemas.responses.compaction import PREFIX

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

PURPOSE = "compaction"
NONCE = 12  # bytes


class SealedText:
    """Seals with the current pepper, and opens what the current or the previous one has sealed."""

    __slots__ = ("_keys", "is_ready")

    def __init__(self, peppers: Peppers) -> None:
        self.is_ready = False  # whether the first use imports nothing any more
        self._keys = [derive(pepper, PURPOSE) for pepper in (peppers.current, peppers.previous) if pepper]

    async def prepare(self) -> None:
        """Import the cipher in a thread: it takes 20 ms, and only workers with requests of Responses need it."""
        await asyncio.to_thread(_cipher)
        self.is_ready = True

    def seal(self, text: str, account: str) -> str:
        """The sealed form of a text of this account; lone surrogates are replaced."""
        nonce = os.urandom(NONCE)
        sealed = _cipher()(self._keys[0]).encrypt(nonce, text.encode("utf-8", "replace"), account.encode())
        return PREFIX + b64encode(nonce + sealed).decode()

    def open(self, sealed: str, account: str) -> str | None:
        """The text; None if it was changed, or sealed for another account or by another gateway."""
        from cryptography.exceptions import InvalidTag

        cipher = _cipher()
        try:
            content = b64decode(sealed.removeprefix(PREFIX), validate=True)
        except (Base64Error, ValueError):
            return None
        for key in self._keys:
            try:
                return cipher(key).decrypt(content[:NONCE], content[NONCE:], account.encode()).decode()
            except (InvalidTag, ValueError):  # ValueError: too short
                continue
        return None


def _cipher() -> type[AESGCM]:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM
