"""Identifiers the gateway makes: unguessable, fixed in shape (wire contract 1.2, 3 and 4.0)."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode

# base64 yields 64 symbols and base62 has 62: the two odd ones are folded, which costs less than a bit of the 174 here.
_BASE62 = bytes.maketrans(b"-_", b"7x")


def request_id() -> str:
    """`req_` and 32 lower hex digits."""
    return "req_" + os.urandom(16).hex()


def completion_id() -> str:
    """`chatcmpl-` and 29 base62 characters."""
    return "chatcmpl-" + _base62(29)


def tool_call_id() -> str:
    """`call_` and 24 base62 characters."""
    return "call_" + _base62(24)


def padding() -> str:
    """0 to 31 characters that hide a chunk's length from whoever watches the wire."""
    return _base62(31)[: os.urandom(1)[0] & 31]


def _base62(length: int) -> str:
    return urlsafe_b64encode(os.urandom(24)).translate(_BASE62)[:length].decode()
