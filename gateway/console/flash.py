"""A message for the next page, such as "The key is revoked": signed text in a cookie that is read once."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

SIGNATURE = 16  # bytes
MAX = 500  # characters


def write_flash(anchor: str, text: str) -> str:
    """The value of the cookie; it is made with the secret of the session `anchor`."""
    content = text[:MAX].encode()
    return urlsafe_b64encode(_signature(anchor, content) + content).decode().rstrip("=")


def read_flash(anchor: str, value: str) -> str:
    """The text; empty for a value that was not made for this session."""
    try:
        content = urlsafe_b64decode(value + "=" * (-len(value) % 4))
        signature, content = content[:SIGNATURE], content[SIGNATURE:]
        return content.decode() if hmac.compare_digest(signature, _signature(anchor, content)) else ""
    except ValueError:
        return ""


def _signature(anchor: str, content: bytes) -> bytes:
    return hmac.digest(anchor.encode(), b"flash" + content, "sha256")[:SIGNATURE]
