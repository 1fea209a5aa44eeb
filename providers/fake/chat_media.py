"""The audio, the images and the custom tool call of a scripted chat answer, and their tokens."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

import msgspec
from msgspec import Raw

from gateway import Delta, ToolCallDelta
from gateway.schemas.chat_response import CustomCall

from .images import png
from .script import Script

PCM_RATE = 48_000  # bytes a second
PER_SECOND = 20  # tokens of audio
PER_IMAGE = 1290  # tokens
GREY = (128, 128, 128)


def media_deltas(script: Script, *, calls: int) -> Iterator[Delta]:
    """The deltas; `calls` other tool calls came before."""
    if script.custom_input:
        custom = CustomCall("run", script.custom_input)
        yield Delta(tool_calls=[ToolCallDelta(calls, "call_fake_custom", "custom", custom=custom)])
    for _ in range(script.audio_seconds):
        yield Delta(audio=_json({"id": "audio_fake", "data": b64encode(bytes(PCM_RATE)).decode()}))
    for _ in range(script.images):
        url = f"data:image/png;base64,{b64encode(png(GREY)).decode()}"
        yield Delta(images=_json([{"type": "image_url", "image_url": {"url": url}}]))


def media_tokens(script: Script) -> int:
    """The output tokens of all of it."""
    words = len(script.custom_input.split())
    return words + script.audio_seconds * PER_SECOND + script.images * PER_IMAGE


def _json(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))
