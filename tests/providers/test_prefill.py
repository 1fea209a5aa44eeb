"""How each vendor's models are asked to go on with a begun answer."""

from __future__ import annotations

from typing import Any

import pytest

from gateway import Target
from gateway.config.secret import Secret
from gateway_providers.anthropic import AnthropicProvider
from gateway_providers.bedrock import BedrockProvider
from gateway_providers.cohere import CohereProvider
from gateway_providers.gemini import GeminiProvider
from gateway_providers.openai import OpenAIProvider

KEY = Secret.parse("sk-canary-0123456789", literals=True)


@pytest.mark.parametrize(
    ("kind", "options", "model", "form"),
    [
        (AnthropicProvider, {}, "claude-sonnet-4-5", "assistant"),
        (AnthropicProvider, {}, "claude-3-7-sonnet", "assistant"),
        (AnthropicProvider, {}, "claude-opus-4-6", "none"),
        (AnthropicProvider, {}, "claude-opus-5-5", "none"),
        (BedrockProvider, {"region": "eu-west-1"}, "anthropic.claude-sonnet-4-5-v1:0", "assistant"),
        (BedrockProvider, {"region": "eu-west-1"}, "anthropic.claude-opus-4-6-v1:0", "none"),
        (BedrockProvider, {"region": "eu-west-1"}, "amazon.nova-pro-v1:0", "assistant"),
        (BedrockProvider, {"region": "eu-west-1"}, "meta.llama4-v1:0", "none"),
        (GeminiProvider, {}, "gemini-3-pro", "assistant"),
        (CohereProvider, {}, "command-a", "none"),
        (OpenAIProvider, {}, "gpt-5", "none"),
        (OpenAIProvider, {"base_url": "http://127.0.0.1:9/v1"}, "m", "unknown"),
        (OpenAIProvider, {"preset": "mistral"}, "mistral-large", "prefix"),
        (OpenAIProvider, {"preset": "deepseek"}, "deepseek-chat", "none"),
        (
            OpenAIProvider,
            {"preset": "deepseek", "base_url": "https://api.deepseek.com/beta"},
            "deepseek-chat",
            "prefix",
        ),
        (OpenAIProvider, {"preset": "vllm"}, "m", "continue_final_message"),
        (OpenAIProvider, {"preset": "groq"}, "m", "unknown"),
    ],
)
def test_models_that_go_on_are_known(kind: Any, options: dict[str, Any], model: str, form: str) -> None:
    provider = kind(kind.Options(api_key=KEY, **options), None)
    assert provider.prefill(Target("p", model)) == form
