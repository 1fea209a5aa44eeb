"""The body of `POST /v1/rerank`, and what a provider answers to it (docs/fields.md, "Rerank").

`decode_rerank_request(body)` is the only way in; it raises nothing but `BadRequest` errors. Null equals absence.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

from msgspec import Meta, Struct

from gateway.schemas.chat_response import CompletionUsage
from gateway.schemas.duplicate_keys import Examined, unexplained_names
from gateway.schemas.empty_fields import drop_nulls
from gateway.schemas.request_fields import OWN, Core, RequestFields, Sampling
from gateway.schemas.validation import BodyDecoder

MAX_DOCUMENTS = 1000


class TextDocument(Struct):
    """A document as an object; its other members are not read."""

    text: str


Documents = Annotated[list[str | TextDocument], Meta(min_length=1, max_length=MAX_DOCUMENTS)]


class RerankRequest(RequestFields, kw_only=True, dict=True):
    """A valid rerank request; an absent or null field is None."""

    model: Core[Annotated[str, Meta(min_length=1, max_length=256)]]
    query: Core[Annotated[str, Meta(min_length=1)]]
    documents: Core[Documents]
    top_n: Core[Annotated[int, Meta(ge=1, le=2**31 - 1)] | None] = None  # the gateway cuts the results
    return_documents: Core[bool | None] = None  # the gateway adds them
    max_tokens_per_doc: Sampling[Annotated[int, Meta(ge=1, le=2**31 - 1)] | None] = None

    @cached_property
    def texts(self) -> list[str]:
        """The text of each document, in the order of the request."""
        return [one if isinstance(one, str) else one.text for one in self.documents]

    @property
    def wanted(self) -> int:
        """How many results are asked for."""
        count = len(self.documents)
        return count if self.top_n is None else min(self.top_n, count)


class RankedDocument(Struct):
    """One result: the place of a document in the request, from 0, and its relevance, of which more is better."""

    index: int
    relevance_score: float


class RerankAnswer(Struct):
    """What a provider gives back, in any order. `usage`: `prompt_tokens`, `search_units` or both, as the upstream says.

    A provider may return more results than `top_n`: the gateway sorts and cuts them.
    """

    results: list[RankedDocument]
    usage: CompletionUsage | None = None


_body = BodyDecoder(RerankRequest, own=OWN, large_fields=frozenset({"documents"}))


def decode_rerank_request(body: bytes | Examined) -> RerankRequest:
    """The request in `body`; raises only BadRequest errors, each with the wire's code and the exact param."""
    request, fields = _body.decode(body)
    unexplained_names(body, len(fields))
    drop_nulls(fields)
    request.take_fields(fields)
    return request
