"""How chat requests are read and their answers written: one `ChatDialect` for each API that clients speak.

`ChatEndpoint` does everything else: quotes, limits, dispatch and counts are the same for all dialects.
"""

from __future__ import annotations

from typing import Protocol

from gateway.encoders.answer_encoder import AnswerEncoder, CountAnswer
from gateway.encoders.chat import ChatStreamEncoder
from gateway.encoders.chat_completion import encode_completion
from gateway.encoders.chat_form import AnswerForm
from gateway.errors import GatewayError
from gateway.inference.call import Call
from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.chat_response import ChatCompletion
from gateway.schemas.duplicate_keys import Examined
from gateway.sse import encode_data


class ChatDialect(Protocol):
    """One API for chat models. It has no state."""

    @property
    def name(self) -> str:
        """In metrics and in records of calls."""

    @property
    def prompt_param(self) -> str:
        """The field of the request that has the prompt; `param` of errors about it."""

    def decode(self, body: bytes | Examined) -> ChatRequest:
        """The validated request, translated; raises BadRequest or its subclasses only."""

    def encode(self, answer: ChatCompletion, form: AnswerForm, request: ChatRequest) -> bytes:
        """The JSON document of a whole answer, whose usage is the one that is charged."""

    def stream_encoder(self, form: AnswerForm, request: ChatRequest, count: CountAnswer) -> AnswerEncoder:
        """The encoder of a stream."""

    def error_frame(self, error: GatewayError, call: Call) -> bytes:
        """The frames of an error inside the stream of `call`, whose encoder may not exist yet."""


class ChatCompletions:
    """OpenAI's chat completions."""

    name = "chat"
    prompt_param = "messages"
    decode = staticmethod(decode_chat_request)
    stream_encoder = ChatStreamEncoder

    def encode(self, answer: ChatCompletion, form: AnswerForm, request: ChatRequest) -> bytes:
        return encode_completion(answer, form)

    def error_frame(self, error: GatewayError, call: Call) -> bytes:
        return encode_data(error.body())
