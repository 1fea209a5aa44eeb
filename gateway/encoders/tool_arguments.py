"""Arguments of a tool call for dialects that write them as an object and not as a text."""

from __future__ import annotations

import msgspec
from msgspec import Raw

_encoder = msgspec.json.Encoder()


def arguments_object(arguments: str) -> Raw:
    """The arguments as an undecoded object; other JSON, and text that is none, is wrapped in one."""
    text = arguments.strip() or "{}"
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = text
    if isinstance(value, dict):
        return Raw(text.encode())
    return Raw(b"{}" if value is None else _encoder.encode({"invalid_json": arguments}))
