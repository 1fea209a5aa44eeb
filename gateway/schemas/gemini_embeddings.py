"""The bodies of `:embedContent` and `:batchEmbedContents`, as embedding requests (docs/fields.md, "Gemini").

Each content is one text. Raises nothing but `BadRequest` errors, which name fields of this dialect.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta

from gateway.errors import BadRequest, InvalidValue
from gateway.schemas.duplicate_keys import Examined, own_request, unexplained_names
from gateway.schemas.embeddings import MAX_INPUTS, EmbeddingRequest, decode_embedding_request
from gateway.schemas.forbidden import header_name, is_forbidden
from gateway.schemas.gemini_contents import Content, Opaque
from gateway.schemas.gemini_names import rewritten, snake_names
from gateway.schemas.request_fields import OWN, Core, Hint, RequestFields
from gateway.schemas.schema_errors import invalid
from gateway.schemas.validation import BodyDecoder

Dimensions = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class EmbedContent(RequestFields, kw_only=True, rename="camel"):
    """One text to embed."""

    content: Core[Content]
    output_dimensionality: Core[Dimensions | None] = None
    task_type: Hint[Opaque] = UNSET
    title: Hint[Opaque] = UNSET
    model: Hint[str | None] = None
    embed_content_config: Hint[Opaque] = UNSET


class OneOfBatch(msgspec.Struct, rename="camel", kw_only=True):
    """The same, in a batch."""

    content: Content
    output_dimensionality: Dimensions | None = None
    task_type: Opaque = UNSET
    title: Opaque = UNSET
    model: str | None = None


class EmbedBatch(RequestFields, kw_only=True):
    """Several texts, with the same settings."""

    requests: Core[Annotated[list[OneOfBatch], Meta(min_length=1, max_length=MAX_INPUTS)]]


LEFT_OUT = {"taskType": "task_type", "title": "title"}
_one = BodyDecoder(EmbedContent, own=OWN, large_fields=frozenset({"content"}))
_batch = BodyDecoder(EmbedBatch, own=OWN, large_fields=frozenset({"requests"}))
_SNAKE = snake_names(EmbedContent) | snake_names(EmbedBatch)


def decode_embed_content(body: bytes | Examined, model: str, *, batch: bool) -> EmbeddingRequest:
    """The request in `body` for `model`."""
    names = unexplained_names(body, 0)
    content: bytes | Examined = body
    removed: list[str] = []
    if not names.isdisjoint(_SNAKE) or any(map(is_forbidden, names)):
        plain = body if isinstance(body, bytes) else body.content
        written, removed = rewritten(plain, EmbedBatch if batch else EmbedContent)
        content = written if isinstance(body, bytes) else Examined(written, body.names, None)
    items: list[EmbedContent | OneOfBatch]
    if batch:
        items = list(_batch.decode(content)[0].requests)
        places = [f"requests[{number}]." for number in range(len(items))]
    else:
        items, places = [_one.decode(content)[0]], [""]
    request = _translated(items, places, model)
    left_out = [name for name, field in LEFT_OUT.items() if any(getattr(one, field) is not UNSET for one in items)]
    request.dropped = tuple(map(header_name, [*removed, *left_out]))
    return request


def _translated(items: list[EmbedContent | OneOfBatch], places: list[str], model: str) -> EmbeddingRequest:
    texts = [_text(one.content, f"{place}content") for one, place in zip(items, places, strict=True)]
    dimensions = items[0].output_dimensionality
    for one, place in zip(items, places, strict=True):
        if one.output_dimensionality != dimensions:
            raise invalid(f"{place}outputDimensionality", "all texts of a batch need the same value")
    document: dict[str, Any] = {"model": model, "input": texts}
    if dimensions is not None:
        document["dimensions"] = dimensions
    try:
        return decode_embedding_request(own_request(document))
    except BadRequest as error:
        raise InvalidValue("Invalid 'content': it cannot be served.", param="content", detail=error.message) from None


def _text(content: Content, path: str) -> str:
    for position, part in enumerate(content.each_part):
        if part.text is None:
            raise invalid(f"{path}.parts[{position}]", "only text can be embedded")
    text = "".join(part.text or "" for part in content.each_part)
    if not text:
        raise invalid(f"{path}.parts", "expected a text that is not empty")
    return text
