"""Counts the audio, the images and the tool input in a chat answer, for charges without an upstream count.

Sharp edge: a plugin or an upstream may put any value into these fields; what cannot be read counts as nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gateway.billing.delivered import Delivered
from gateway.billing.usage import text_units
from gateway.schemas.chat_response import ChatMessage, Delta, ToolCall, ToolCallDelta

PCM_RATE = 48_000  # bytes a second: 24 kHz, 16 bits, mono; the only format of a stream
#: Bytes a second of audio, by the format that the caller requested; 64 kbit/s for the others.
RATES = {"pcm16": PCM_RATE, "wav": PCM_RATE, "flac": 28_000}
USUAL_RATE = 8_000


def count_message(message: Delta | ChatMessage, delivered: Delivered, *, audio_rate: int = PCM_RATE) -> None:
    """Add the content of a delta or of a whole message to `delivered`; `audio_rate` is in bytes a second.

    UnicodeEncodeError for a text with a lone surrogate, which cannot be sent; `delivered` is unchanged then.
    """
    quarters = reasoning = 0
    if message.content:
        quarters += text_units(message.content, "strict")
    if message.reasoning_content:
        reasoning = text_units(message.reasoning_content, "strict")
        quarters += reasoning
    if message.refusal:
        quarters += text_units(message.refusal, "strict")
    if message.tool_calls:
        quarters += sum(map(_call_units, message.tool_calls))
    if message.function_call:
        quarters += text_units(message.function_call.arguments or "", "strict")
    if message.audio:
        quarters += _count_audio(message.audio, delivered, audio_rate)
    delivered.reasoning_quarter_tokens += reasoning
    if message.images:
        images = _decoded(message.images)
        delivered.add_media(images=len(images) if isinstance(images, list) else 0)
    delivered.text_quarter_tokens += quarters


def _call_units(call: ToolCallDelta | ToolCall) -> int:
    """Quarter tokens of the arguments or of the input of a call, or of a part of them."""
    if call.function:
        return text_units(call.function.arguments or "", "strict")
    return text_units(call.custom.input or "", "strict") if call.custom else 0


def _count_audio(audio: Any, delivered: Delivered, rate: int) -> int:
    """Add the audio; returns the quarter tokens of its transcript."""
    document = _decoded(audio)
    if not isinstance(document, dict):
        return 0
    data, transcript = document.get("data"), document.get("transcript")
    quarters = text_units(transcript, "strict") if isinstance(transcript, str) else 0
    if isinstance(data, str):
        delivered.add_media(audio_ms=len(data) * 3 // 4 * 1000 // rate)
    return quarters


def _decoded(value: Any) -> Any:
    if not isinstance(value, Raw):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, RecursionError):
        return None
