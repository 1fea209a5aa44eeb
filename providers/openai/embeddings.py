"""Embeddings of OpenAI-compatible servers: the caller's fields as sent, and vectors as lists or base64, as they come.

Servers answer with either form whatever was asked for. Some leave `index` out; then the vectors are in the order of the
inputs. Others count from 1, or write it as text. Sharp edge: an answer whose indices are not those of the inputs is
none, for a vector in the wrong place is worse than an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Struct

from gateway import EmbeddingAnswer, EmbeddingRequest, Embeddings, Target, completion_usage
from gateway.errors import UpstreamInvalidResponse
from gateway.plugins.upstream_errors import error_of_document

from .._shared.base64_text import base64_bytes
from .._shared.documents import decoded
from .server import OpenAIServer, SharedOptions, fields_body


class WireEmbedding(Struct):
    """One vector as it comes."""

    embedding: list[float | list[float]] | str  # a list in a list: llama.cpp
    index: Any = None


class WireEmbeddings(Struct):
    """The answer as it comes."""

    data: list[WireEmbedding] = []
    usage: Any = None
    error: Any = UNSET


_decoder = msgspec.json.Decoder(WireEmbeddings)


class OpenAIEmbeddings(OpenAIServer, Embeddings):
    """`POST /embeddings`."""

    embedding_fields: ClassVar[frozenset[str] | None] = None
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
    if body[:1] == b"[":  # llama.cpp on its own path
        body = b'{"data":%b}' % body
    answer = decoded(_decoder, body, strict=True)
    if answer.error:
        raise error_of_document(answer.error, hidden)
    if not answer.data:
        raise UpstreamInvalidResponse(detail="an answer without vectors")
    usage = completion_usage(answer.usage) if isinstance(answer.usage, dict) else None
    return EmbeddingAnswer([_vector(item) for item in _in_order(answer.data)], usage)


def _in_order(items: list[WireEmbedding]) -> list[WireEmbedding]:
    indices = [_number(item.index) for item in items]
    if all(index in (None, place) for place, index in enumerate(indices)):
        return items
    known = {index for index in indices if index is not None}
    if known != set(range(len(items))) and known != set(range(1, len(items) + 1)):
        raise UpstreamInvalidResponse(detail="vectors are not numbered without gaps")
    return [item for _, item in sorted(zip(indices, items, strict=True), key=lambda numbered: numbered[0] or 0)]


def _number(index: Any) -> int | None:
    if isinstance(index, str) and index.isascii() and index.isdigit():
        return int(index[:9])
    if isinstance(index, float) and index.is_integer():
        return int(index)
    return index if type(index) is int else None


def _vector(item: WireEmbedding) -> list[float] | bytes:
    numbers: Any = item.embedding
    if isinstance(numbers, list):
        return numbers[0] if len(numbers) == 1 and isinstance(numbers[0], list) else numbers
    found = base64_bytes(numbers)
    if found is None:
        raise UpstreamInvalidResponse(detail="a vector that is not base64")
    return found
