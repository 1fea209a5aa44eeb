"""How many tokens a request will cost, before anyone has counted (wire contract 5.4).

Estimates back holds and token-rate limits, and stand in where an upstream reports no usage. They lean upward: a hold
that is too large is released, one that is too small has let money go.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from gateway.schemas.chat_request import ChatRequest
from gateway.usage import text_units, tokens_of

PER_MESSAGE = 3
PER_NAME = 1
AT_END = 3
PER_TOOL = 8
TOOLS = 12
IMAGE = 1100  # an image of unknown size
LOW_DETAIL_IMAGE = 85
AUDIO_BASE64_PER_TOKEN = 4267  # 10 tokens a second of 16-bit 16 kHz sound, in base64 characters
FILE_BASE64_PER_TOKEN = 4  # a token per 3 bytes
SAFETY = 5, 4  # held: estimate times 5/4


class PromptEstimate(Struct, frozen=True):
    """Tokens a prompt will have, and how many of its parts are media whose size is anyone's guess."""

    tokens: int
    media: int


def chat_prompt(request: ChatRequest, *, factor: float = 1.0) -> PromptEstimate:
    """The prompt of a chat request, text times the model family's factor."""
    units, tokens, media = 0, AT_END, 0
    for message in request.messages:
        tokens += PER_MESSAGE
        content = message.content
        if isinstance(content, str):
            units += text_units(content)
        elif content:
            for part in content:
                more_units, more_tokens = _part(part)
                units += more_units
                tokens += more_tokens
                media += more_tokens > 0
        if getattr(message, "name", None):
            tokens += PER_NAME
        for call in getattr(message, "tool_calls", None) or ():
            units += _call_units(call)
    tools = request.fields.get("tools")  # legacy functions are written there too
    if tools is not None:
        units += len(bytes(tools))
        tokens += TOOLS + PER_TOOL * len(request.as_tools)
    schema = request.fields.get("response_format")
    if schema is not None:
        units += len(bytes(schema))
    return PromptEstimate(tokens + tokens_of(units, factor=factor), media)


def with_safety(tokens: int) -> int:
    """The tokens to hold money for."""
    return -(-tokens * SAFETY[0] // SAFETY[1])


def _part(part: Any) -> tuple[int, int]:
    """Quarter tokens of text, and whole tokens of media, in one content part."""
    text = getattr(part, "text", None) or getattr(part, "refusal", None)
    if text:
        return text_units(text), 0
    image = getattr(part, "image_url", None)
    if image is not None:
        return 0, LOW_DETAIL_IMAGE if getattr(image, "detail", None) == "low" else IMAGE
    audio = getattr(part, "input_audio", None)
    if audio is not None:
        return 0, len(audio.data) // AUDIO_BASE64_PER_TOKEN + 1
    file = getattr(part, "file", None)
    if file is not None and getattr(file, "file_data", None):
        return 0, len(file.file_data) // FILE_BASE64_PER_TOKEN + 1
    return 0, 0


def _call_units(call: Any) -> int:
    function = getattr(call, "function", None)
    if function is not None:
        return len(function.name or "") + len(function.arguments or "")
    return len(msgspec.json.encode(call))
