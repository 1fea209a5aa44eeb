"""Audio as the body of an answer, forwarded as it arrives, or as base64 inside a document.

A page or a document without audio is an error. Sharp edge: only bytes that begin like audio count as one in a
document or under the type of a text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from gateway import Answer, SpeechChunk, sound_format
from gateway.errors import UpstreamInvalidResponse
from gateway.plugins.upstream_errors import error_of_answer

from .base64_text import base64_bytes
from .documents import json_object, raise_error_inside

#: Where documents have audio: in these fields, or in these of an object in one of them.
FIELDS = ("audio", "audio_base64", "audioContent", "audio_data", "data")
PCM_TYPES = frozenset({"audio/pcm", "audio/l16", "audio/raw", "audio/x-raw"})


async def audio_of(answer: Answer, hidden: Sequence[str] = ()) -> AsyncIterator[SpeechChunk]:
    """The bytes; raises for a document, for text, and for an empty body."""
    media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type == "application/json":
        body = await answer.read()
        raise_error_inside(body, hidden)
        audio = _audio_in(json_object(body))
        if audio:
            yield SpeechChunk(audio)
            return
        error = error_of_answer(500, {}, body, hidden)
        raise UpstreamInvalidResponse(detail=f"a document instead of audio: {error.detail}")
    spoke = False
    while piece := await answer.read_chunk():
        if not spoke and media_type.startswith("text/") and not sound_format(piece):
            raise UpstreamInvalidResponse(detail=f"{media_type} instead of audio")
        yield SpeechChunk(piece, format="" if spoke or media_type not in PCM_TYPES else "pcm")
        spoke = True
    if not spoke:
        raise UpstreamInvalidResponse(detail="no audio")


def _audio_in(document: dict[str, Any]) -> bytes:
    """The audio in a document; empty if there is none."""
    for name in FIELDS:
        value = document.get(name)
        if isinstance(value, dict):
            audio = _audio_in(value)
        else:
            audio = (base64_bytes(value) or b"") if isinstance(value, str) else b""
        if sound_format(audio):
            return audio
    return b""
