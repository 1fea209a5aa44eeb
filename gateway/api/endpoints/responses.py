"""`POST /v1/responses`: chat models in OpenAI's newer dialect, which today's agents speak."""

from __future__ import annotations

import time
from functools import partial
from typing import cast

from msgspec import structs

from gateway.api.endpoints.chat import ChatEndpoint
from gateway.api.endpoints.input_tokens import InputTokensEndpoint
from gateway.api.handler import KeyedHandler
from gateway.catalog import Model
from gateway.encoders.answer_encoder import AnswerEncoder, CountAnswer
from gateway.encoders.chat_form import AnswerForm
from gateway.encoders.responses.compaction import CompactionStreamEncoder, Seal, encode_compaction
from gateway.encoders.responses.stream import ResponsesStreamEncoder
from gateway.encoders.responses.whole import encode_response
from gateway.errors import GatewayError, NotFound
from gateway.errors.error_form import ErrorForm
from gateway.ids import Ids
from gateway.inference.call import Call
from gateway.inference.services import Services
from gateway.plugins.provider import Chat
from gateway.routing.continuation import Continuation
from gateway.routing.dispatcher import Opened
from gateway.routing.router import Candidate
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatChunk, ChatCompletion
from gateway.schemas.duplicate_keys import Examined
from gateway.schemas.native_request import RESPONSES
from gateway.schemas.responses.compaction import COMPACTION
from gateway.schemas.responses.decoding import decode_responses_request
from gateway.schemas.responses.native import ResponsesNative
from gateway.schemas.responses.terms import in_responses_terms


class Responses:
    """OpenAI's Responses API."""

    name = RESPONSES
    prompt_param = "input"

    def decode(self, body: bytes | Examined) -> ChatRequest:
        return decode_responses_request(body)

    def encode(self, answer: ChatCompletion, form: AnswerForm, request: ChatRequest) -> bytes:
        return encode_response(answer, form, request)

    def stream_encoder(self, form: AnswerForm, request: ChatRequest, count: CountAnswer) -> ResponsesStreamEncoder:
        return ResponsesStreamEncoder(form, request, count=count)

    def error_frame(self, error: GatewayError, call: Call) -> bytes:
        encoder: ResponsesStreamEncoder | None = call.encoder
        if encoder is None:  # no upstream has answered yet
            form = AnswerForm(Ids().completion_id(call.request_id), int(time.time()), call.model.name)
            encoder = ResponsesStreamEncoder(form, call.request)
        return encoder.fail(in_responses_terms(error))


class ResponsesEndpoint(ChatEndpoint):
    """Chat and reasoning models in this dialect; `compacts`: the path of compactions."""

    opens_sealed = True

    def __init__(self, *, compacts: bool = False) -> None:
        super().__init__(Responses())
        self._compacts = compacts
        if compacts:
            self.name = f"{RESPONSES}_compact"

    def decode(self, body: bytes | Examined, account: str, services: Services) -> ChatRequest:
        request = decode_responses_request(
            body, partial(services.sealed_text.open, account=account), compacts=self._compacts
        )
        if self._compacts:
            request.stream = None
        return request

    def for_model(self, request: ChatRequest, model: Model) -> ChatRequest:
        priced = super().for_model(request, model)
        if priced is not request and priced.native is not None:  # its tier is left out, in either dialect
            dropped = (*priced.native.dropped, "service_tier")
            priced = structs.replace(priced, native=structs.replace(priced.native, dropped=dropped))
        return priced

    def check_candidate(self, request: ChatRequest, candidate: Candidate) -> None:
        native, provider = request.native, cast("Chat", candidate.provider)
        assert isinstance(native, ResponsesNative)
        if native.is_demanding:
            native.check_served(provider.accepted_fields(RESPONSES, candidate.target))

    async def encode(self, call: Call, answer: ChatCompletion, services: Services) -> tuple[bytes, str]:
        if not call.attempts or not _is_summary(call.request, call.attempts[-1]):  # without one a hook has answered
            return await super().encode(call, answer, services)
        dialect = Summaries(partial(services.sealed_text.seal, account=call.key.account), own=self._compacts)
        return await ChatEndpoint(dialect).encode(call, answer, services)

    def stream_encoder(self, call: Call, opened: Opened[ChatChunk], services: Services) -> AnswerEncoder:
        if not _is_summary(call.request, opened.candidate):
            return super().stream_encoder(call, opened, services)
        dialect = Summaries(partial(services.sealed_text.seal, account=call.key.account))
        return ChatEndpoint(dialect).stream_encoder(call, opened, services)

    def continuation(self, call: Call, opened: Opened[ChatChunk], services: Services) -> Continuation | None:
        return None if call.request.native.compacts else super().continuation(call, opened, services)


class ResponsesTokensEndpoint(InputTokensEndpoint):
    """`POST /v1/responses/input_tokens`; summaries count as the texts that they are."""

    opens_sealed = True

    def __init__(self) -> None:
        super().__init__(Responses())

    def decode(self, body: bytes | Examined, account: str, services: Services) -> ChatRequest:
        request = decode_responses_request(body, partial(services.sealed_text.open, account=account))
        request.stream = None
        return request


class Summaries(Responses):
    """The same API for a model whose summary is the compaction; `own`: in the form of the path of compactions."""

    def __init__(self, seal: Seal, *, own: bool = False) -> None:
        self._seal = seal
        self._own = own

    def encode(self, answer: ChatCompletion, form: AnswerForm, request: ChatRequest) -> bytes:
        return encode_compaction(answer, form, request, self._seal, own=self._own)

    def stream_encoder(self, form: AnswerForm, request: ChatRequest, count: CountAnswer) -> CompactionStreamEncoder:
        return CompactionStreamEncoder(form, request, self._seal, count=count)


def _is_summary(request: ChatRequest, candidate: Candidate) -> bool:
    """Whether a compaction is asked for, and the candidate has none."""
    if request.native is None or not request.native.compacts:
        return False
    accepted = cast("Chat", candidate.provider).accepted_fields(RESPONSES, candidate.target)
    return accepted is None or COMPACTION not in accepted.tools


class ResponsesErrors(ErrorForm):
    """OpenAI's shape, with the fields of this dialect."""

    def body(self, error: GatewayError, request_id: str) -> bytes:
        return in_responses_terms(error).body()


class StoredResponseHandler(KeyedHandler):
    """Paths of stored responses: nothing is stored, so none is found."""

    async def on_authenticated(self) -> None:
        await self.confirm()
        raise NotFound("No response with this id exists: responses are not stored here.", code="response_not_found")
