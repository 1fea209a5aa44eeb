"""Ids and tokens that cannot be guessed, and the hashes under which tokens are stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b32encode

from gateway.accounts.pepper import derive

TOKEN_BYTES = 32  # 256 bits
ADMIN_TOKEN = "gwa_"  # noqa: S105 - the beginning of every admin token


def new_id(prefix: str) -> str:
    """The prefix, `_` and 16 characters of a-z and 2-7."""
    return f"{prefix}_" + b32encode(secrets.token_bytes(10)).decode().lower()


def new_token(prefix: str = "") -> str:
    """The prefix and 256 random bits as 43 characters that may stand in a URL."""
    return prefix + secrets.token_urlsafe(TOKEN_BYTES)


def token_hash(token: str) -> bytes:
    """The hash of a session's, link's or invitation's token, 32 bytes."""
    return hashlib.sha256(token.encode()).digest()


class AdminTokenHash:
    """The HMAC of an admin token, with a key derived from the pepper: the database alone cannot check tokens."""

    def __init__(self, pepper: bytes) -> None:
        self._key = derive(pepper, "admin-token")

    def __call__(self, token: str) -> bytes:
        return hmac.digest(self._key, token.encode(), "sha256")
