"""Sound as the body of an answer, forwarded as it arrives; a JSON document or text instead is an error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from gateway import Answer, SpeechChunk
from gateway.errors import UpstreamInvalidResponse
from gateway.plugins.upstream_errors import error_of_answer

from .documents import raise_error_inside


async def sound_of(answer: Answer, hidden: Sequence[str] = ()) -> AsyncIterator[SpeechChunk]:
    """The bytes; raises for a document, for text, and for an empty body."""
    media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type == "application/json":
        body = await answer.read()
        raise_error_inside(body, hidden)
        error = error_of_answer(500, {}, body, hidden)
        raise UpstreamInvalidResponse(detail=f"a document instead of a sound: {error.detail}")
    if media_type.startswith("text/"):
        raise UpstreamInvalidResponse(detail=f"{media_type} instead of a sound")
    spoke = False
    while piece := await answer.read_chunk():
        spoke = True
        yield SpeechChunk(piece)
    if not spoke:
        raise UpstreamInvalidResponse(detail="no sound")
