"""`POST /v1/embeddings`: texts or tokens in, vectors out, as numbers or as base64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from gateway.api.endpoints.context_window import check_window
from gateway.billing.quote import Quote
from gateway.billing.token_estimate import embedding_tokens, with_safety
from gateway.billing.usage import Usage, is_possible
from gateway.billing.usage_bounds import NOTHING, Bounds, bound_usage
from gateway.catalog import Model
from gateway.encoders.embeddings import validate, write_list
from gateway.errors import UnsupportedValue
from gateway.http_server.reply import JSON
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint, RequestSize
from gateway.inference.services import Services
from gateway.plugins.provider import Embeddings
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.schemas.duplicate_keys import Examined
from gateway.schemas.embeddings import EmbeddingAnswer, EmbeddingRequest, decode_embedding_request


class EmbeddingsEndpoint(Endpoint[EmbeddingRequest]):
    """Text embeddings."""

    name = "embeddings"
    capability = Embeddings
    answers = EmbeddingAnswer
    prompt_param = "input"
    names_model = True

    def decode(self, body: bytes | Examined, account: str, services: Services) -> EmbeddingRequest:
        return decode_embedding_request(body)

    def quote(
        self, request: EmbeddingRequest, model: Model, body_size: int, adapted: Sequence[Adapted[EmbeddingRequest]] = ()
    ) -> Quote:
        sizes = embedding_tokens(request, factor=model.token_factor)
        check_window(model, max(sizes), "An input", param="input", counted=request.is_tokens)
        return _quote(model, sum(sizes), counted=request.is_tokens)

    def quote_size(self, model: Model, size: RequestSize) -> Quote:
        return _quote(model, size.tokens, counted=False)

    def check_candidate(self, request: EmbeddingRequest, candidate: Candidate) -> None:
        if request.is_tokens and not _provider(candidate).takes_tokens:
            raise UnsupportedValue("This model does not support token numbers as 'input'; send text.", param="input")

    async def attempt(self, adapted: Adapted[EmbeddingRequest]) -> EmbeddingAnswer:
        candidate, request = adapted.candidate, adapted.request
        return await validate(await _provider(candidate).embed(request, candidate.target), request)

    async def encode(self, call: Call, answer: EmbeddingAnswer, services: Services) -> tuple[bytes, str]:
        usage, used = answer.usage, call.quote.prompt
        if usage is not None and is_possible(usage) and usage.prompt_tokens:
            reported = Usage(in_text=usage.prompt_tokens, provider_cost=Usage.of_chat(usage).provider_cost)
            used = call.accept_count(bound_usage(reported, Bounds(call.body_size), NOTHING))
        if used.estimated:
            call.reply.headers["x-gateway-estimated"] = "true"
        body = await self.write(answer, call, tokens=used.in_text)
        call.used = used
        return body, JSON

    async def write(self, answer: EmbeddingAnswer, call: Call, *, tokens: int) -> bytes:
        """The JSON document of the answer."""
        base64 = call.request.encoding_format == "base64"
        return await write_list(answer.vectors, base64=base64, model=call.public_model, tokens=tokens)


def _quote(model: Model, tokens: int, *, counted: bool) -> Quote:
    return Quote.of(
        model,
        prompt=Usage(in_text=tokens, estimated=not counted),
        worst_case=Usage(in_text=tokens if counted else with_safety(tokens), estimated=True),
    )


def _provider(candidate: Candidate) -> Embeddings:
    """The candidate's provider, whose capability the router has checked."""
    return cast("Embeddings", candidate.provider)
