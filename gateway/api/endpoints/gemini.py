"""Google's dialect: the methods of `/v1beta/models/{model}`. The model is in the path, and so is whether it streams."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from msgspec import structs

from gateway.api.endpoints.chat import ChatEndpoint
from gateway.api.endpoints.chat_output_limit import with_limit
from gateway.api.endpoints.embeddings import EmbeddingsEndpoint
from gateway.api.endpoints.input_tokens import InputTokensEndpoint
from gateway.catalog import Model
from gateway.encoders.answer_encoder import AnswerEncoder, CountAnswer
from gateway.encoders.chat_form import AnswerForm
from gateway.encoders.embeddings import write_values
from gateway.encoders.gemini.form import KEEP_ALIVE, Framing
from gateway.encoders.gemini.stream import GeminiStreamEncoder
from gateway.encoders.gemini.whole import encode_candidates
from gateway.errors import GatewayError
from gateway.errors.gemini_form import GEMINI_ERRORS
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint
from gateway.inference.services import Services
from gateway.inference.sinks import SSE_HEADERS, EventSink
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatCompletion
from gateway.schemas.duplicate_keys import Examined
from gateway.schemas.embeddings import EmbeddingAnswer, EmbeddingRequest
from gateway.schemas.gemini_embeddings import decode_embed_content
from gateway.schemas.gemini_request import decode_gemini, wants_thoughts

ARRAY_HEADERS = {**SSE_HEADERS, "Content-Type": "application/json; charset=utf-8"}
LIMIT = "generationConfig.maxOutputTokens"


class Gemini:
    """Google's contents, for one model."""

    name = "gemini"
    prompt_param = "contents"

    def __init__(self, model: str = "", *, stream: bool = False, is_array: bool = False, wrapped: bool = False) -> None:
        self._model = model
        self._stream = stream
        self.is_array = is_array  # a stream is a JSON array, and not events
        self._wrapped = wrapped

    def decode(self, body: bytes | Examined) -> ChatRequest:
        return decode_gemini(body, self._model, stream=self._stream, wrapped=self._wrapped)

    def encode(self, answer: ChatCompletion, form: AnswerForm, request: ChatRequest) -> bytes:
        return encode_candidates(answer, form, thoughts=wants_thoughts(request))

    def stream_encoder(self, form: AnswerForm, request: ChatRequest, count: CountAnswer) -> AnswerEncoder:
        framing = Framing(is_array=self.is_array)
        return GeminiStreamEncoder(form, framing=framing, thoughts=wants_thoughts(request), count=count)

    def error_frame(self, error: GatewayError, call: Call) -> bytes:
        encoder = call.encoder
        framing = encoder.framing if isinstance(encoder, GeminiStreamEncoder) else Framing(is_array=self.is_array)
        return framing.frame(GEMINI_ERRORS.document(error)) + framing.end()


class GeminiEndpoint(ChatEndpoint):
    """`:generateContent` and `:streamGenerateContent`."""

    def __init__(self, dialect: Gemini | None = None, *, stream: bool = False) -> None:
        super().__init__(dialect or Gemini())
        self._stream = stream
        self._is_array = dialect is not None and dialect.is_array

    def for_path(self, argument: str, query: str = "") -> Endpoint[ChatRequest]:
        is_array = self._stream and parse_qs(query).get("alt", [""])[-1] != "sse"
        return GeminiEndpoint(Gemini(argument, stream=self._stream, is_array=is_array), stream=self._stream)

    def for_model(self, request: ChatRequest, model: Model) -> ChatRequest:
        """Also lower a limit that is above the model's: clients send one that they chose by the name of a model."""
        limit = model.max_output_tokens
        if limit is not None and request.max_output is not None and request.max_output > limit:
            request = with_limit(request, limit)
            request.dropped = (*request.dropped, LIMIT)
            if request.native is not None:
                native = request.native
                request.native = structs.replace(native, dropped=(*native.dropped, LIMIT))
        return super().for_model(request, model)

    def sink(self, call: Call, services: Services) -> EventSink:
        headers = ARRAY_HEADERS if self._is_array else SSE_HEADERS
        return EventSink(call.reply, services.keep_alive, claim=call.claim, headers=headers, comment=KEEP_ALIVE)


class GeminiTokensEndpoint(InputTokensEndpoint):
    """`:countTokens`."""

    def __init__(self, dialect: Gemini | None = None) -> None:
        super().__init__(dialect or Gemini())

    def for_path(self, argument: str, query: str = "") -> Endpoint[ChatRequest]:
        return GeminiTokensEndpoint(Gemini(argument, wrapped=True))

    def document(self, tokens: int) -> dict[str, Any]:
        return {"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]}


class GeminiEmbeddingsEndpoint(EmbeddingsEndpoint):
    """`:embedContent` and `:batchEmbedContents`."""

    name = "gemini_embeddings"
    prompt_param = "content"

    permission = "embeddings"

    def __init__(self, model: str = "", *, batch: bool = False) -> None:
        self._model = model
        self._batch = batch

    def for_path(self, argument: str, query: str = "") -> Endpoint[EmbeddingRequest]:
        return GeminiEmbeddingsEndpoint(argument, batch=self._batch)

    def decode(self, body: bytes | Examined, account: str, services: Services) -> EmbeddingRequest:
        return decode_embed_content(body, self._model, batch=self._batch)

    async def write(self, answer: EmbeddingAnswer, call: Call, *, tokens: int) -> bytes:
        values = await write_values(answer.vectors)
        return b'{"embeddings":[%b]}' % b",".join(values) if self._batch else b'{"embedding":%b}' % values[0]
