"""The classes of the standards, imported when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any


def _response() -> Any:
    from openresponses_types.types import ResponseResource

    return ResponseResource


def _chat() -> Any:
    from openai.types.chat import ChatCompletion

    return ChatCompletion


def _message() -> Any:
    from anthropic.types import Message

    return Message


def _gemini() -> Any:
    from google.genai.types import GenerateContentResponse

    return GenerateContentResponse


def _embeddings() -> Any:
    from openai.types import CreateEmbeddingResponse, Embedding

    class EitherForm(Embedding):
        """A vector of numbers, or their base64 if the request asked for it."""

        embedding: list[float] | str  # type: ignore[assignment]

    class EitherForms(CreateEmbeddingResponse):
        """The answer with these."""

        data: list[EitherForm]  # type: ignore[assignment]

    return EitherForms


#: The class of a whole answer, by dialect.
WHOLE: Mapping[str, Callable[[], Any]] = {
    "responses": _response,
    "chat": _chat,
    "messages": _message,
    "gemini": _gemini,
    "embeddings": _embeddings,
}


def event_class(dialect: str, name: str) -> Any:
    """The class of an event of a stream; None for one of which the standard says nothing."""
    if dialect == "responses":
        return _response_events().get(name)
    if dialect == "messages":
        return _message_event(name)
    if dialect == "chat":
        return _chunk()
    return _gemini() if dialect == "gemini" else None


@cache
def _response_events() -> Mapping[str, Any]:
    from openresponses_types import types

    named = {}
    for kind in vars(types).values():
        field = getattr(kind, "model_fields", {}).get("type")
        if field is not None and kind.__name__.endswith("StreamingEvent"):
            [value] = field.annotation
            named[str(value)] = kind
    return named


@cache
def _message_event(name: str) -> Any:
    from anthropic.types import RawMessageStreamEvent

    return None if name in ("ping", "error") else RawMessageStreamEvent


@cache
def _chunk() -> Any:
    from openai.types.chat import ChatCompletionChunk

    return ChatCompletionChunk
