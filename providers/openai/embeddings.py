"""Embeddings of OpenAI-compatible servers: the caller's fields as sent, and vectors as lists or base64, as they come.

Servers answer with either form whatever was asked for, and some leave `index` out; both are taken. Sharp edge: an
answer whose indices are not those of the inputs is none, for a vector in the wrong place is worse than an error.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from gateway import EmbeddingAnswer, EmbeddingRequest, Embeddings, Target, completion_usage
from gateway.errors import UpstreamInvalidResponse
from gateway.plugins.upstream_errors import error_of_document

from .._shared.documents import decoded
from .server import OpenAIServer, SharedOptions, fields_body


class WireEmbedding(Struct):
    """One vector as it comes."""

    embedding: list[float] | str
    index: int | None = None


class WireEmbeddings(Struct):
    """The answer as it comes."""

    data: list[WireEmbedding] = []
    usage: Any = None
    error: Any = UNSET


_decoder = msgspec.json.Decoder(WireEmbeddings)


class OpenAIEmbeddings(OpenAIServer, Embeddings):
    """`POST /embeddings`."""

    takes_tokens = True

    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        """One JSON answer."""
        body = embedding_body(request, target, self.options)
        return read_embeddings(await self.post_whole("/embeddings", body, target), self.hidden)


def embedding_body(request: EmbeddingRequest, target: Target, options: SharedOptions) -> bytes:
    """The JSON to send for `request` to `target`."""
    return fields_body(dict(request.fields), target, options)


def read_embeddings(body: bytes, hidden: Sequence[str] = ()) -> EmbeddingAnswer:
    """The vectors in a JSON body, in the order of their inputs; an error that rides in it is raised."""
    answer = decoded(_decoder, body)
    if answer.error:
        raise error_of_document(answer.error, hidden)
    if not answer.data:
        raise UpstreamInvalidResponse(detail="an answer without vectors")
    usage = completion_usage(answer.usage) if isinstance(answer.usage, dict) else None
    return EmbeddingAnswer([_vector(item) for item in _in_order(answer.data)], usage)


def _in_order(items: list[WireEmbedding]) -> list[WireEmbedding]:
    indices = [item.index for item in items]
    if all(index is None for index in indices):
        return items
    if set(indices) != set(range(len(items))):
        raise UpstreamInvalidResponse(detail="vectors are not numbered from 0 without gaps")
    return sorted(items, key=lambda item: item.index or 0)


def _vector(item: WireEmbedding) -> list[float] | bytes:
    if isinstance(item.embedding, list):
        return item.embedding
    try:
        return binascii.a2b_base64(item.embedding, strict_mode=True)
    except (binascii.Error, ValueError):
        raise UpstreamInvalidResponse(detail="a vector that is not base64") from None
