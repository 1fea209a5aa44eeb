"""What a model of another vendor has put into an answer does not go to a server that refuses it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway import Secret, Target, Upstream
from gateway.schemas.chat_request import decode_chat_request
from gateway_providers.azure import AzureProvider
from gateway_providers.openai import OpenAIProvider
from gateway_providers.openai.presets import PRESETS
from gateway_providers.openai.request import chat_body
from gateway_providers.openai.server import OpenAIServer

KEY = Secret("literal", "sk-canary")
TARGET = Target("p", "some-model", "m")
SIGNED = {"google": {"thought_signature": "c2ln"}}
CALL = {"id": "call_0001", "type": "function", "function": {"name": "tide", "arguments": "{}"}}
ANSWER: dict[str, Any] = {
    "role": "assistant",
    "content": "Hm.",
    "reasoning_content": "Think.",
    "thinking_blocks": [{"type": "thinking", "thinking": "Think.", "signature": "c2ln"}],
    "tool_calls": [{**CALL, "extra_content": SIGNED}],
}
MESSAGES = [
    {"role": "user", "content": "Hi"},
    ANSWER,
    {"role": "tool", "tool_call_id": "call_0001", "content": "6:40"},
]


def sent(server: OpenAIServer) -> dict[str, Any]:
    """The earlier answer as the server gets it."""
    request = decode_chat_request(msgspec.json.encode({"model": "m", "messages": MESSAGES}))
    body = chat_body(request, TARGET, server.quirks, stream=False)
    answer: dict[str, Any] = msgspec.json.decode(body)["messages"][1]
    return answer


@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_signature_of_another_vendor_is_left_out(preset: Any) -> None:
    server = OpenAIProvider(OpenAIProvider.Options(preset=preset, api_key=KEY), Upstream())
    [call] = sent(server)["tool_calls"]
    assert "extra_content" not in call


def test_azure_gets_neither_signatures_nor_reasoning() -> None:
    options = AzureProvider.Options(endpoint="https://r.openai.azure.com", api_key=KEY)
    assert sent(AzureProvider(options, Upstream())) == {"role": "assistant", "content": "Hm.", "tool_calls": [CALL]}


def test_openai_gets_neither_signatures_nor_reasoning() -> None:
    server = OpenAIProvider(OpenAIProvider.Options(api_key=KEY), Upstream())
    assert sent(server) == {"role": "assistant", "content": "Hm.", "tool_calls": [CALL]}


def test_unknown_server_gets_the_answer_as_it_was_sent() -> None:
    """It may be the one that wrote the signature, such as Google's endpoint of this dialect."""
    options = OpenAIProvider.Options(base_url="https://generativelanguage.googleapis.com/v1beta/openai", api_key=KEY)
    assert sent(OpenAIProvider(options, Upstream())) == ANSWER
