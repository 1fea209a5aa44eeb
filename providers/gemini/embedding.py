"""Embeddings: the caller's texts as batches, and the vectors back (docs/providers/gemini.md).

Sharp edges: Gemini takes 100 texts in a batch; and a vector shortened on request comes with a length other than 1, so
it is brought back to 1, as callers of cosine similarity expect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from gateway import CompletionUsage, EmbeddingAnswer, EmbeddingRequest
from gateway.errors import UnsupportedValue, UpstreamInvalidResponse
from gateway.schemas.embeddings import Vector

from .._shared.documents import decoded
from .address import resource
from .wire import read_answer

BATCH = 100  # texts in one call


class WireVector(Struct):
    """One embedding."""

    values: list[float]


class WireVectors(Struct, rename="camel"):
    """The answer to a batch; few models count tokens here."""

    embeddings: list[WireVector] | None = None
    embedding: WireVector | None = None  # of one text, where a server answers as `embedContent` does
    usage_metadata: Any = None

    @property
    def vectors(self) -> list[Vector]:
        """The vectors, in the order of the texts."""
        return [one.values for one in self.embeddings or ([self.embedding] if self.embedding else [])]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(WireVectors)


def batch_bodies(request: EmbeddingRequest, model: str, *, vertex: bool, task_type: str = "") -> list[bytes]:
    """One body per batch; raises the 400 for inputs given as token numbers, which are OpenAI's own."""
    texts = [one for one in request.inputs if isinstance(one, str)]
    if len(texts) < len(request.inputs):
        raise UnsupportedValue("This model takes texts, not token numbers.", param="input")
    settings: dict[str, Any] = {"taskType": task_type} if task_type else {}
    if request.dimensions is not None:
        settings["outputDimensionality"] = request.dimensions
    if vertex:  # which names the model in the URL only
        settings = {"embedContentConfig": settings} if settings else {}
    else:
        settings["model"] = resource(model)
    requests = [{"content": {"parts": [{"text": text}]}, **settings} for text in texts]
    return [_encoder.encode({"requests": requests[at : at + BATCH]}) for at in range(0, len(requests), BATCH)]


def read_vectors(body: bytes, hidden: Sequence[str] = ()) -> WireVectors:
    """The vectors in a JSON body; an error that rides in it is raised."""
    with suppress(UpstreamInvalidResponse):
        answer = decoded(_decoder, body, strict=True)
        if answer.vectors:
            return answer
    read_answer(body, hidden)  # raises what the document says
    raise UpstreamInvalidResponse(detail="an answer without embeddings")


def unit(values: list[float]) -> list[float]:
    """The vector brought to length 1; one of zeros stays as it is."""
    length = math.sqrt(math.fsum(value * value for value in values))
    return [value / length for value in values] if length else values


def prompt_usage(answers: Sequence[WireVectors]) -> CompletionUsage | None:
    """Tokens of all batches; None unless every batch counted them."""
    total = 0
    for answer in answers:
        metadata = answer.usage_metadata
        count = metadata.get("promptTokenCount") if isinstance(metadata, dict) else None
        if isinstance(count, bool) or not isinstance(count, int) or count <= 0:
            return None
        total += count
    return CompletionUsage(prompt_tokens=total, total_tokens=total)


def joined(answers: Sequence[WireVectors], request: EmbeddingRequest) -> EmbeddingAnswer:
    """The vectors of all batches in the order of the inputs."""
    vectors: list[Vector] = [vector for answer in answers for vector in answer.vectors]
    if len(vectors) != len(request.inputs) or not all(vectors):
        raise UpstreamInvalidResponse(detail=f"{len(vectors)} embeddings for {len(request.inputs)} inputs")
    if request.dimensions is not None:
        vectors = [unit(vector) for vector in vectors if isinstance(vector, list)]
    return EmbeddingAnswer(vectors, usage=prompt_usage(answers))
