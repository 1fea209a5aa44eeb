"""`POST /v1/completions`: texts that continue a prompt, in OpenAI's older dialect.

An upstream with this dialect gets the request as it was sent. A chat model gets the prompt as one user message, and
what a chat cannot meet is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from gateway.api.endpoints.chat import ChatEndpoint
from gateway.api.endpoints.vendor_input import takes_native
from gateway.billing.delivered import Delivered
from gateway.billing.image_tokens import MediaRules
from gateway.billing.quote import Quote
from gateway.billing.token_estimate import ANY_MODEL, PromptEstimate, chat_prompt
from gateway.catalog import Model
from gateway.encoders.answer_encoder import AnswerEncoder, CountAnswer
from gateway.encoders.chat_form import AnswerForm
from gateway.encoders.completions import CompletionsStreamEncoder, delivered_texts, encode_text_completion
from gateway.errors import ContextLengthExceeded, GatewayError
from gateway.inference.call import Call
from gateway.inference.services import Services
from gateway.plugins.provider import Chat
from gateway.routing.continuation import Continuation
from gateway.routing.dispatcher import Opened
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatChunk, ChatCompletion
from gateway.schemas.completions.native import CompletionsNative
from gateway.schemas.completions.request import decode_completions
from gateway.schemas.duplicate_keys import Examined
from gateway.schemas.native_request import COMPLETIONS
from gateway.sse import encode_data


class Completions:
    """OpenAI's completions."""

    name = COMPLETIONS
    prompt_param = "prompt"

    def decode(self, body: bytes | Examined) -> ChatRequest:
        return decode_completions(body)

    def encode(self, answer: ChatCompletion, form: AnswerForm, request: ChatRequest) -> bytes:
        return encode_text_completion(answer, form, native_of(request))

    def stream_encoder(self, form: AnswerForm, request: ChatRequest, count: CountAnswer) -> AnswerEncoder:
        return CompletionsStreamEncoder(form, native_of(request), count)

    def error_frame(self, error: GatewayError, call: Call) -> bytes:
        return encode_data(error.body())


def _estimate(request: ChatRequest, *, factor: float = 1.0, rules: MediaRules = ANY_MODEL) -> PromptEstimate:
    """The tokens of the prompt; exact for token numbers."""
    native = native_of(request)
    return (
        PromptEstimate(native.prompt_tokens) if native.is_tokens else chat_prompt(request, factor=factor, rules=rules)
    )


class CompletionsEndpoint(ChatEndpoint):
    """Text and chat models in this dialect."""

    estimate = staticmethod(_estimate)

    def __init__(self) -> None:
        super().__init__(Completions())

    def quote(
        self, request: ChatRequest, model: Model, body_size: int, adapted: Sequence[Adapted[ChatRequest]] = ()
    ) -> Quote:
        try:
            return super().quote(request, model, body_size, adapted)
        except ContextLengthExceeded as error:
            error.param = self.prompt_param
            raise

    def check_candidate(self, request: ChatRequest, candidate: Candidate) -> None:
        provider = cast("Chat", candidate.provider)
        native_of(request).check_served(provider.accepted_fields(COMPLETIONS, candidate.target))

    def delivered(self, call: Call, answer: ChatCompletion) -> Delivered:
        return delivered_texts(answer, super().delivered(call, answer), native_of(call.request))

    def continuation(self, call: Call, opened: Opened[ChatChunk], services: Services) -> Continuation | None:
        """None where an upstream has this dialect: a chat does not go on with its texts."""
        return None if any(map(takes_native, call.adapted)) else super().continuation(call, opened, services)


def native_of(request: ChatRequest) -> CompletionsNative:
    """What was sent."""
    assert isinstance(request.native, CompletionsNative)
    return request.native
