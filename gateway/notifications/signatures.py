"""Signatures of Standard Webhooks: `v1,` and the base64 of HMAC-SHA256 over id, time and body, one per secret.

A secret is `whsec_` and the base64 of 24 to 64 random bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

PREFIX = "whsec_"
SHORTEST, LONGEST = 24, 64  # bytes


class BadSecret(ValueError):
    """A text is no secret of a webhook; the message does not have it."""


def new_secret() -> str:
    """A secret of 32 random bytes."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signing_key(secret: str) -> bytes:
    """The bytes of a secret; BadSecret for any other text."""
    if not secret.startswith(PREFIX):
        raise BadSecret("a secret of a webhook begins with whsec_; `gateway notify secret` makes one")
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise BadSecret("a secret of a webhook is base64 behind whsec_") from None
    if not SHORTEST <= len(key) <= LONGEST:
        raise BadSecret(f"a secret of a webhook has {SHORTEST} to {LONGEST} bytes")
    return key


def signed_headers(keys: Sequence[bytes], event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of a message; `timestamp` is that of the attempt, in Unix seconds."""
    content = b"%s.%d.%s" % (event_id.encode(), timestamp, body)
    signatures = (base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in keys)
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
