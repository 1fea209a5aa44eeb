"""Embeddings by Cohere's `POST /v2/embed`: the caller's texts in batches, and the vectors (docs/providers/cohere.md).

Sharp edges: Cohere takes 96 texts in a call; and it wants to know what the vectors are for. The caller may say so in
`input_type`, a field that only Cohere knows; otherwise the model's own flag does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import msgspec
from msgspec import Raw, Struct, field

from gateway import CompletionUsage, EmbeddingAnswer, EmbeddingRequest, completion_usage
from gateway.errors import InvalidValue, UpstreamInvalidResponse
from gateway.schemas.embeddings import Vector

from .._shared.chat_parts import unsupported
from .answer import read_document
from .models import InputType, ModelTraits

BATCH = 96  # texts in one call
NULL = Raw(b"null")
TEXT_TYPES = tuple(name for name in get_args(InputType) if name != "image")


class WireFloats(Struct):
    """Vectors by the type of their numbers, of which only floats are asked for."""

    floats: list[list[float]] = field(name="float")


class WireVectors(Struct):
    """The answer to a batch."""

    embeddings: WireFloats | list[list[float]]  # a list: the form of version 1
    meta: Any = None

    @property
    def floats(self) -> list[list[float]]:
        """The vectors."""
        return self.embeddings if isinstance(self.embeddings, list) else self.embeddings.floats


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(WireVectors)


def batch_bodies(request: EmbeddingRequest, model: str, traits: ModelTraits) -> list[bytes]:
    """One body per batch; raises the 400 for inputs given as token numbers, which are OpenAI's own."""
    texts = [one for one in request.inputs if isinstance(one, str)]
    if len(texts) < len(request.inputs):
        raise unsupported("input", "this model takes texts, not token numbers")
    settings: dict[str, Any] = {
        "model": model,
        "input_type": _input_type(request, traits),
        "embedding_types": ["float"],
        "truncate": "NONE",
    }
    if request.dimensions is not None:
        settings["output_dimension"] = request.dimensions
    return [_encoder.encode({**settings, "texts": texts[at : at + BATCH]}) for at in range(0, len(texts), BATCH)]


def read_vectors(body: bytes, hidden: Sequence[str] = ()) -> WireVectors:
    """The vectors in a JSON body; an error that rides in it is raised."""
    return read_document(_decoder, body, hidden, strict=True)


def joined(answers: Sequence[WireVectors], request: EmbeddingRequest) -> EmbeddingAnswer:
    """The vectors of all batches in the order of the inputs."""
    vectors: list[Vector] = []
    for position, answer in enumerate(answers):
        sent = min(BATCH, len(request.inputs) - position * BATCH)
        if len(answer.floats) != sent:
            raise UpstreamInvalidResponse(detail=f"{len(answer.floats)} embeddings for {sent} texts")
        vectors += answer.floats
    return EmbeddingAnswer(vectors, usage=_usage(answers))


def _usage(answers: Sequence[WireVectors]) -> CompletionUsage | None:
    """Tokens of all batches; None unless every one was counted."""
    total = 0.0
    for answer in answers:
        units = answer.meta.get("billed_units") if isinstance(answer.meta, dict) else None
        count = units.get("input_tokens") if isinstance(units, dict) else None
        if isinstance(count, bool) or not isinstance(count, int | float) or count < 0:
            return None
        total += count
    return completion_usage({"prompt_tokens": total, "completion_tokens": 0})


def _input_type(request: EmbeddingRequest, traits: ModelTraits) -> str:
    raw = request.fields.get("input_type", NULL)
    if raw == NULL:
        return traits.input_type
    try:
        asked = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        asked = None
    if asked not in TEXT_TYPES:
        known = ", ".join(f"'{name}'" for name in TEXT_TYPES)
        raise InvalidValue(f"Invalid 'input_type': expected one of {known}.", param="input_type")
    return str(asked)
