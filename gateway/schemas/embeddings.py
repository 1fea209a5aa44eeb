"""The body of `POST /v1/embeddings`, and what a provider answers to it (docs/fields.md, "Embeddings").

`decode_embedding_request(body)` is the only way in; it raises nothing but `BadRequest` errors. Null equals absence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from gateway.schemas.chat_response import CompletionUsage
from gateway.schemas.duplicate_keys import Examined, unexplained_names
from gateway.schemas.empty_fields import drop_nulls
from gateway.schemas.request_fields import OWN, Core, Hint, RequestFields, Semantic
from gateway.schemas.schema_errors import check_one_kind
from gateway.schemas.validation import BodyDecoder

MAX_INPUTS = 2048

NonEmpty = Annotated[str, Meta(min_length=1)]
Token = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Tokens = Annotated[list[Token], Meta(min_length=1)]
if TYPE_CHECKING:
    Input = str | list[str] | list[int] | list[list[int]]
else:
    # msgspec tells one kind of array in a union, not four: that all items are of one kind is a rule of its own.
    Input = NonEmpty | Annotated[list[NonEmpty | Token | Tokens], Meta(min_length=1, max_length=MAX_INPUTS)]

#: A vector: its numbers, or the same as little-endian IEEE float32, which is half the work for everyone.
Vector = list[float] | bytes


class EmbeddingRequest(RequestFields, kw_only=True):
    """A valid embeddings request; an absent or null field is None."""

    model: Core[Annotated[str, Meta(min_length=1, max_length=256)]]
    input: Core[Input]
    dimensions: Semantic[Annotated[int, Meta(ge=1, le=2**31 - 1)] | None] = None
    encoding_format: Core[Literal["float", "base64"] | None] = None  # the gateway writes both
    user: Hint[str | None] = None

    @property
    def inputs(self) -> list[str] | list[list[int]]:
        """One entry per vector, in order: texts, or lists of token numbers."""
        if isinstance(self.input, str):
            return [self.input]
        if isinstance(self.input[0], int):
            return [self.input]
        return self.input

    @property
    def is_tokens(self) -> bool:
        """Whether the inputs are token numbers, which mean something to one family of models only."""
        return not isinstance(self.input, str) and not isinstance(self.input[0], str)


class EmbeddingAnswer(Struct):
    """What a provider gives back: one vector per input, in the inputs' order; usage when the upstream told it."""

    vectors: list[Vector]
    usage: CompletionUsage | None = None


_body = BodyDecoder(EmbeddingRequest, own=OWN, large_fields=frozenset({"input"}))


def decode_embedding_request(body: bytes | Examined) -> EmbeddingRequest:
    """The request in `body`; raises only BadRequest errors, each with the wire's code and the exact param."""
    request, fields = _body.decode(body)
    unexplained_names(body, len(fields))
    check_one_kind(request.input, "input")
    drop_nulls(fields)
    request.take_fields(fields)
    return request
