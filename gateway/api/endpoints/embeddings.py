"""`POST /v1/embeddings`: texts or tokens in, vectors out, as numbers or as base64."""

from __future__ import annotations

from typing import cast

from gateway.api.answering_handler import AnsweringHandler
from gateway.api.quote import Terms
from gateway.billing.token_estimate import embedding_tokens, with_safety
from gateway.billing.usage import Usage, is_possible
from gateway.catalog import Model
from gateway.encoders.embeddings import validate, write_list
from gateway.errors import ContextLengthExceeded, UnsupportedValue
from gateway.inference.call import Call
from gateway.plugins.provider import Embeddings
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.schemas.embeddings import EmbeddingAnswer, EmbeddingRequest, decode_embedding_request

#: Tokens that a model may put around each input; two is usual.
FRAME_CEILING = 16


class EmbeddingsHandler(AnsweringHandler[EmbeddingRequest]):
    """Text embeddings."""

    endpoint = "embeddings"
    capability = Embeddings
    answers = EmbeddingAnswer
    prompt_param = "input"
    body_size = 0
    used: Usage | None = None

    def decode(self, body: bytes) -> EmbeddingRequest:
        self.body_size = len(body)
        return decode_embedding_request(body)

    def price(self, request: EmbeddingRequest, model: Model) -> Terms[EmbeddingRequest]:
        sizes = embedding_tokens(request, factor=model.token_factor)
        _check_window(request, model, max(sizes))
        self.adapt(request, model)
        tokens = sum(sizes)
        return Terms(
            request,
            model,
            Usage(in_text=tokens, estimated=not request.is_tokens),
            Usage(in_text=tokens if request.is_tokens else with_safety(tokens), estimated=True),
            # A text token is at least one byte long, so there are no more of them than the body has bytes.
            (self.body_size + FRAME_CEILING * len(sizes), 0),
        )

    def check_candidate(self, request: EmbeddingRequest, candidate: Candidate) -> None:
        if request.is_tokens and not _embeddings(candidate).takes_tokens:
            raise UnsupportedValue("This model does not support token numbers as 'input'; send text.", param="input")

    async def serve(self, call: Call, request: EmbeddingRequest) -> None:
        async def attempt(adapted: Adapted[EmbeddingRequest]) -> EmbeddingAnswer:
            provider = _embeddings(adapted.candidate)
            return await validate(await provider.embed(adapted.request, adapted.candidate.target), adapted.request)

        answer = await self.call_whole(call, attempt)
        usage = answer.usage
        if usage is not None and is_possible(usage) and usage.prompt_tokens:
            used = Usage(in_text=usage.prompt_tokens, provider_cost=Usage.of_chat(usage).provider_cost)
        else:
            used = call.prompt
            if used.estimated:
                self.tell_estimated()
        base64 = request.encoding_format == "base64"
        model = await self.fallback_name(call) if call.fallback else call.model.name
        body = await write_list(answer.vectors, base64=base64, model=model, tokens=used.in_text)
        self.used = used
        self.deliver(call, body)

    def usage(self, call: Call) -> Usage | None:
        if self.used is None and self.client_gone and call.attempts:
            return call.prompt  # the upstream was already reading it
        return self.used


def _embeddings(candidate: Candidate) -> Embeddings:
    """The candidate's provider, whose capability the router has checked."""
    return cast("Embeddings", candidate.provider)


def _check_window(request: EmbeddingRequest, model: Model, longest: int) -> None:
    """Refuse an input that cannot fit; of text, within a factor of two an estimate proves nothing."""
    window = model.context_window
    if window is not None and (longest if request.is_tokens else longest // 2) > window:
        raise ContextLengthExceeded(f"An input exceeds this model's context length of {window} tokens.", param="input")
