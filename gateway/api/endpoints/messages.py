"""Anthropic's dialect: `POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from gateway.api.endpoints.chat import ChatEndpoint
from gateway.api.endpoints.chat_output_limit import with_limit
from gateway.api.endpoints.input_tokens import InputTokensEndpoint
from gateway.catalog import Model
from gateway.encoders.answer_encoder import AnswerEncoder, CountAnswer
from gateway.encoders.chat_form import AnswerForm
from gateway.encoders.messages.form import frame
from gateway.encoders.messages.stream import MessagesStreamEncoder
from gateway.encoders.messages.whole import encode_message
from gateway.errors import GatewayError
from gateway.errors.messages_form import MESSAGES_ERRORS
from gateway.http_client.forwarded_headers import anthropic_headers
from gateway.inference.call import Call
from gateway.plugins.provider import Chat
from gateway.routing.router import Candidate
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatCompletion
from gateway.schemas.duplicate_keys import Examined
from gateway.schemas.messages_native import MessagesNative
from gateway.schemas.messages_request import decode_messages


class Messages:
    """Anthropic's messages."""

    name = "messages"
    prompt_param = "messages"
    counts = False  # a request asks for the number of its tokens alone

    def decode(self, body: bytes | Examined) -> ChatRequest:
        version, betas = anthropic_headers()
        return decode_messages(body, version=version, betas=betas, counts=self.counts)

    def encode(self, answer: ChatCompletion, form: AnswerForm, request: ChatRequest) -> bytes:
        return encode_message(answer, form, model=request.model)

    def stream_encoder(self, form: AnswerForm, request: ChatRequest, count: CountAnswer) -> AnswerEncoder:
        return MessagesStreamEncoder(form, model=request.model, count=count)

    def error_frame(self, error: GatewayError, call: Call) -> bytes:
        return frame("error", MESSAGES_ERRORS.document(error, call.request_id))


class MessagesEndpoint(ChatEndpoint):
    """Chat models in this dialect."""

    def __init__(self) -> None:
        super().__init__(Messages())

    def for_model(self, request: ChatRequest, model: Model) -> ChatRequest:
        """Also lower a limit that is above the model's: agents send one that they chose by the name of a model."""
        limit = model.max_output_tokens
        if limit is not None and request.max_output is not None and request.max_output > limit:
            request = with_limit(request, limit)
            request.dropped = (*request.dropped, "max_tokens")
            if request.native is not None:
                native = request.native
                request.native = structs.replace(native, dropped=(*native.dropped, "max_tokens"))
        return super().for_model(request, model)

    def check_candidate(self, request: ChatRequest, candidate: Candidate) -> None:
        native, provider = request.native, candidate.provider
        if isinstance(native, MessagesNative) and isinstance(provider, Chat):
            native.check_served(provider.accepted_fields(native.dialect, candidate.target))


class CountedMessages(Messages):
    """The same for requests without an output limit."""

    counts = True


class CountTokensEndpoint(InputTokensEndpoint):
    """The tokens of a prompt."""

    def __init__(self) -> None:
        super().__init__(CountedMessages())

    def document(self, tokens: int) -> dict[str, Any]:
        return {"input_tokens": tokens}
