"""The vendors and the model servers that a new gateway is connected to, with a few models of each vendor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

ModelEndpoint = Literal["chat", "embeddings"]


class Model(Struct, frozen=True):
    """What a first configuration says of a model."""

    price: str = ""  # the name of the public price; empty: the model is free
    endpoint: ModelEndpoint = "chat"
    context_window: int | None = None  # tokens; None where it is not known
    upstream: str = ""  # what the provider calls it, where that is another name


class Vendor(Struct, frozen=True):
    """A vendor whose key may be in the environment."""

    name: str
    title: str
    variables: Sequence[str]  # the first that is set counts
    options: Mapping[str, str]  # of the provider
    models: Mapping[str, Model]  # by the vendor's names


class Server(Struct, frozen=True):
    """A model server that may run on this machine."""

    name: str  # of the preset
    title: str
    port: int  # that of the preset's `base_url`


#: The context windows are those of the source of the public prices, genai-prices 0.2.3; it lacks some.
VENDORS = (
    Vendor(
        "openai",
        "OpenAI",
        ("OPENAI_API_KEY",),
        {"plugin": "openai"},
        {
            "gpt-5": Model("openai/gpt-5", context_window=400_000),
            "gpt-5-mini": Model("openai/gpt-5-mini", context_window=400_000),
            "gpt-5-nano": Model("openai/gpt-5-nano", context_window=400_000),
            "text-embedding-3-small": Model(
                "openai/text-embedding-3-small", endpoint="embeddings", context_window=8_192
            ),
        },
    ),
    Vendor(
        "anthropic",
        "Anthropic",
        ("ANTHROPIC_API_KEY",),
        {"plugin": "anthropic"},
        {
            "claude-sonnet-4-5": Model("anthropic/claude-sonnet-4-5", context_window=200_000),
            "claude-haiku-4-5": Model("anthropic/claude-haiku-4-5", context_window=200_000),
        },
    ),
    Vendor(
        "gemini",
        "Google Gemini",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        {"plugin": "gemini"},
        {
            "gemini-2.5-pro": Model("google/gemini-2.5-pro"),
            "gemini-2.5-flash": Model("google/gemini-2.5-flash", context_window=1_048_576),
        },
    ),
    Vendor(
        "mistral",
        "Mistral",
        ("MISTRAL_API_KEY",),
        {"plugin": "openai", "preset": "mistral"},
        {
            "mistral-large-latest": Model("mistral/mistral-large"),
            "mistral-small-latest": Model("mistral/mistral-small-latest"),
        },
    ),
    Vendor(
        "deepseek",
        "DeepSeek",
        ("DEEPSEEK_API_KEY",),
        {"plugin": "openai", "preset": "deepseek"},
        {
            "deepseek-v4-flash": Model("deepseek/deepseek-v4-flash", context_window=1_000_000),
            "deepseek-v4-pro": Model("deepseek/deepseek-v4-pro", context_window=1_000_000),
        },
    ),
    Vendor(
        "groq",
        "Groq",
        ("GROQ_API_KEY",),
        {"plugin": "openai", "preset": "groq"},
        {
            "llama-3.3-70b-versatile": Model("groq/llama-3.3-70b-versatile"),
            "openai/gpt-oss-120b": Model("groq/openai/gpt-oss-120b", context_window=131_072),
        },
    ),
    Vendor(
        "xai",
        "xAI",
        ("XAI_API_KEY",),
        {"plugin": "openai", "preset": "xai"},
        {"grok-4.3": Model("x-ai/grok-4.3", context_window=1_000_000)},
    ),
    Vendor(
        "cohere",
        "Cohere",
        ("COHERE_API_KEY", "CO_API_KEY"),
        {"plugin": "cohere"},
        {"command-a-03-2025": Model("cohere/command-a")},
    ),
)
SERVERS = (
    Server("ollama", "Ollama", 11434),
    Server("vllm", "vLLM", 8000),
    Server("llamacpp", "llama.cpp", 8080),
)
