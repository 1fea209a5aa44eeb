"""The body of `POST /v1/embeddings`, and what a provider answers to it (wire contract 1.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, cast

from msgspec import Meta, Raw, Struct, field

from gateway.schemas.chat_response import CompletionUsage

if TYPE_CHECKING:
    FieldTable = dict[str, Raw]
    Names = tuple[str, ...]
else:
    FieldTable = Names = Raw  # as in chat_request: a caller's field of that name passes unread, and is overwritten

NonEmpty = Annotated[str, Meta(min_length=1)]
Token = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Tokens = Annotated[list[Token], Meta(min_length=1, max_length=2048)]

#: A vector: its numbers, or the same as little-endian IEEE float32, which is half the work for everyone.
Vector = list[float] | bytes


class EmbeddingRequest(Struct, kw_only=True):
    """A valid embeddings request; an absent or null field is None."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    input: NonEmpty | list[NonEmpty] | Tokens | list[Tokens]
    dimensions: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    encoding_format: Literal["float", "base64"] | None = None
    user: str | None = None

    #: Every top-level field as sent, forbidden ones removed.
    fields: FieldTable = field(default_factory=dict)
    #: Names of unknown top-level fields that are in `fields`.
    extra: Names = ()
    #: What was removed, written so that it may stand in `x-gateway-dropped-params`.
    dropped: Names = ()

    @property
    def inputs(self) -> list[str] | list[list[int]]:
        """One entry per vector, in order: texts, or lists of token numbers."""
        if isinstance(self.input, str):
            return [self.input]
        if self.input and isinstance(self.input[0], int):
            return [cast("list[int]", self.input)]
        return cast("list[str] | list[list[int]]", self.input)


class EmbeddingAnswer(Struct):
    """What a provider gives back: one vector per input, in the inputs' order; usage when the upstream told it."""

    vectors: list[Vector]
    usage: CompletionUsage | None = None
