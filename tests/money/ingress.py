"""The APIs in which a caller sends a case: its request, what it counts as content, and what a whole stream ends with.

The cases of each upstream dialect are sent in each API alike; those of an upstream of the Responses API or of
completions only in that. A case without an output limit is not sent as messages, which need one, nor as a completion,
which gets one. One with a session is sent neither as Gemini's contents nor as a completion, which name none.
"""

from __future__ import annotations

import json
import random
from typing import Any, ClassVar

from gateway.api.endpoints.chat import ChatEndpoint
from gateway.api.endpoints.completions import CompletionsEndpoint
from gateway.api.endpoints.gemini import GeminiEndpoint
from gateway.api.endpoints.messages import MessagesEndpoint
from gateway.api.endpoints.responses import ResponsesEndpoint
from gateway.sse import DONE
from tests.money.cases import Case


class Ingress:
    """OpenAI's chat completions."""

    path = "/v1/chat/completions"
    endpoint: ClassVar[ChatEndpoint] = ChatEndpoint()
    finish = b'"finish_reason":"'  # follows the content of a stream

    def path_of(self, case: Case) -> str:
        """The path with its query."""
        return self.path

    def endpoint_of(self, case: Case) -> ChatEndpoint:
        """The endpoint of that path."""
        return self.endpoint

    def document(self, case: Case) -> dict[str, Any]:
        """The request."""
        return case.document()

    def words(self, received: bytes) -> int:
        """The words of content in what a caller has received."""
        return received.count(b"word ")

    def ends(self, received: bytes) -> bool:
        """Whether a stream is whole."""
        return received.endswith(DONE)


class ResponsesIngress(Ingress):
    """OpenAI's Responses API."""

    path = "/v1/responses"
    endpoint = ResponsesEndpoint()
    finish = b'"type":"response.completed"'

    def document(self, case: Case) -> dict[str, Any]:
        chat: dict[str, Any] = case.document()
        limit = chat.pop("max_tokens", None) or chat.pop("max_completion_tokens", None)
        items = chat.pop("messages")
        return {**chat, "input": items, **({} if limit is None else {"max_output_tokens": limit})}

    def words(self, received: bytes) -> int:
        if b"data: " not in received:
            return received.count(b"word ")
        # The last events repeat the text.
        frames = received.split(b"event: ")
        return sum(one.count(b"word ") for one in frames if one.startswith(b"response.output_text.delta"))

    def ends(self, received: bytes) -> bool:
        return received.endswith(b"\n\n") and self.finish in received


class CompletionsIngress(Ingress):
    """OpenAI's completions."""

    path = "/v1/completions"
    endpoint = CompletionsEndpoint()

    def document(self, case: Case) -> dict[str, Any]:
        chat: dict[str, Any] = case.document()
        limit = chat.pop("max_completion_tokens", None) or chat.pop("max_tokens", None)
        [turn] = chat.pop("messages")
        return {**chat, "prompt": turn["content"], **({} if limit is None else {"max_tokens": limit})}


class MessagesIngress(Ingress):
    """Anthropic's messages."""

    path = "/v1/messages"
    endpoint = MessagesEndpoint()
    finish = b"event: message_delta"

    def document(self, case: Case) -> dict[str, Any]:
        chat: dict[str, Any] = case.document()
        limit = chat.pop("max_completion_tokens", None) or chat["max_tokens"]
        session = chat.pop("prompt_cache_key", None)
        named = {} if session is None else {"metadata": {"user_id": json.dumps({"session_id": session})}}
        return {**chat, **named, "max_tokens": limit}

    def ends(self, received: bytes) -> bool:
        return received.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')


class GeminiIngress(Ingress):
    """Google's contents."""

    finish = b'"finishReason":"'

    def path_of(self, case: Case) -> str:
        return f"/v1beta/models/{case.model}:{'streamGenerateContent?alt=sse' if case.stream else 'generateContent'}"

    def endpoint_of(self, case: Case) -> ChatEndpoint:
        endpoint = GeminiEndpoint(stream=case.stream).for_path(case.model, "alt=sse")
        assert isinstance(endpoint, ChatEndpoint)
        return endpoint

    def document(self, case: Case) -> dict[str, Any]:
        chat: dict[str, Any] = case.document()
        contents = [{"role": "user", "parts": [{"text": turn["content"]}]} for turn in chat["messages"]]
        return {"contents": contents, "generationConfig": {} if case.limit is None else {"maxOutputTokens": case.limit}}

    def ends(self, received: bytes) -> bool:
        return self.finish in received and received.endswith(b"\n\n") and b'"error"' not in received


CHAT, RESPONSES, MESSAGES, GEMINI = Ingress(), ResponsesIngress(), MessagesIngress(), GeminiIngress()
COMPLETIONS = CompletionsIngress()


def ingress_of(case: Case) -> Ingress:
    """The API of a case."""
    if case.cell.dialect == "responses":
        return RESPONSES
    if case.cell.dialect == "completions":
        return COMPLETIONS
    able: tuple[Ingress, ...] = (CHAT, RESPONSES)
    able += () if case.limit is None else (MESSAGES,)
    able += () if case.session else (GEMINI,)
    able += () if case.session or case.limit is None else (COMPLETIONS,)
    return random.Random(f"{case.name} ingress").choice(able)
