"""Base64 as servers write it: also as a data URL, in lines, with the letters of URLs, or without its padding."""

from __future__ import annotations

import binascii

_STANDARD = str.maketrans("-_", "+/")


def base64_bytes(text: str) -> bytes | None:
    """The bytes; None for text that is no base64."""
    if text.startswith("data:"):
        text = text.partition(";base64,")[2]
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        plain = "".join(text.split()).translate(_STANDARD).rstrip("=")
    try:
        return binascii.a2b_base64(plain + "=" * (-len(plain) % 4), strict_mode=True)
    except ValueError:
        return None
