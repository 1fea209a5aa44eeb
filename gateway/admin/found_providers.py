"""What a new gateway can be connected to: keys in the environment, and model servers on this machine.

Only names of variables are kept, never a key. Nothing is sent to a vendor; of the local servers the list of models is
read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from gateway.errors import GatewayError
from gateway.http_client.timeouts import Timeouts
from gateway.http_client.upstream import Upstream

TIMEOUTS = Timeouts(connect=1.0, first_byte=2.0, idle=2.0, total=3.0)
MOST_MODELS = 50  # of a local server
MOST_BYTES = 2**20  # of its list


class Vendor(Struct, frozen=True):
    """A vendor whose key may be in the environment. `models` pairs the vendor's name with that of the public price."""

    name: str
    title: str
    variables: Sequence[str]  # the first that is set counts
    options: Mapping[str, str]  # of the provider
    models: Mapping[str, str]
    embeddings: Sequence[str] = ()  # those of `models` that make embeddings


class Server(Struct, frozen=True):
    """A model server that may run on this machine."""

    name: str  # of the preset
    title: str
    port: int


class Found(Struct, frozen=True):
    """A provider that can be used now."""

    name: str
    why: str  # for people
    options: dict[str, str]  # of the provider, without secrets
    models: dict[str, str]  # names, with those of public prices; "" for none
    embeddings: Sequence[str] = ()
    port: int = 0  # of a local server


VENDORS = (
    Vendor(
        "openai",
        "OpenAI",
        ("OPENAI_API_KEY",),
        {"plugin": "openai"},
        {
            "gpt-5": "openai/gpt-5",
            "gpt-5-mini": "openai/gpt-5-mini",
            "gpt-5-nano": "openai/gpt-5-nano",
            "text-embedding-3-small": "openai/text-embedding-3-small",
        },
        ("text-embedding-3-small",),
    ),
    Vendor(
        "anthropic",
        "Anthropic",
        ("ANTHROPIC_API_KEY",),
        {"plugin": "anthropic"},
        {"claude-sonnet-4-5": "anthropic/claude-sonnet-4-5", "claude-haiku-4-5": "anthropic/claude-haiku-4-5"},
    ),
    Vendor(
        "gemini",
        "Google Gemini",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        {"plugin": "gemini"},
        {"gemini-2.5-pro": "google/gemini-2.5-pro", "gemini-2.5-flash": "google/gemini-2.5-flash"},
    ),
    Vendor(
        "mistral",
        "Mistral",
        ("MISTRAL_API_KEY",),
        {"plugin": "openai", "preset": "mistral"},
        {"mistral-large-latest": "mistral/mistral-large", "mistral-small-latest": "mistral/mistral-small-latest"},
    ),
    Vendor(
        "deepseek",
        "DeepSeek",
        ("DEEPSEEK_API_KEY",),
        {"plugin": "openai", "preset": "deepseek"},
        {"deepseek-v4-flash": "deepseek/deepseek-v4-flash", "deepseek-v4-pro": "deepseek/deepseek-v4-pro"},
    ),
    Vendor(
        "groq",
        "Groq",
        ("GROQ_API_KEY",),
        {"plugin": "openai", "preset": "groq"},
        {
            "llama-3.3-70b-versatile": "groq/llama-3.3-70b-versatile",
            "openai/gpt-oss-120b": "groq/openai/gpt-oss-120b",
        },
    ),
    Vendor(
        "xai",
        "xAI",
        ("XAI_API_KEY",),
        {"plugin": "openai", "preset": "xai"},
        {"grok-4.3": "x-ai/grok-4.3"},
    ),
    Vendor(
        "cohere",
        "Cohere",
        ("COHERE_API_KEY", "CO_API_KEY"),
        {"plugin": "cohere"},
        {"command-a-03-2025": "cohere/command-a"},
    ),
)
SERVERS = (
    Server("ollama", "Ollama", 11434),
    Server("vllm", "vLLM", 8000),
    Server("llamacpp", "llama.cpp", 8080),
)
_OWNERS = {"vllm": "vllm", "llamacpp": "llamacpp", "library": "ollama"}  # `owned_by` in a list of models


async def find_providers(
    environment: Mapping[str, str], *, servers: Sequence[Server] = SERVERS, host: str = "127.0.0.1"
) -> list[Found]:
    """Everything that is there; it takes at most `TIMEOUTS.total` seconds."""
    client = Upstream(keepalive=0.0)
    try:
        local = await asyncio.gather(*(_local(client, server, host) for server in servers))
    finally:
        await client.close()
    return [*_vendors(environment), *(found for found in local if found is not None)]


def _vendors(environment: Mapping[str, str]) -> list[Found]:
    found = []
    for vendor in VENDORS:
        variable = next((name for name in vendor.variables if environment.get(name, "").strip()), "")
        if variable:
            options = {**vendor.options, "api_key": f"env:{variable}"}
            why = f"{vendor.title}: the variable {variable} is set"
            found.append(Found(vendor.name, why, options, dict(vendor.models), vendor.embeddings))
    return found


async def _local(client: Upstream, server: Server, host: str) -> Found | None:
    url = f"http://{host}:{server.port}/v1"
    try:
        async with await client.send("GET", f"{url}/models", timeouts=TIMEOUTS) as answer:
            if answer.status != 200:
                return None
            models = msgspec.json.decode(await answer.read(limit=MOST_BYTES))["data"]
            names = [model["id"] for model in models][:MOST_MODELS]
            owner = str(models[0].get("owned_by", "")) if models else ""
    except (GatewayError, msgspec.MsgspecError, KeyError, TypeError, AttributeError):
        return None  # nothing is there, or something else
    if not all(isinstance(name, str) and name.isprintable() and 0 < len(name) <= 200 for name in names):
        return None
    kind = _OWNERS.get(owner, server.name)
    why = f"{server.title if kind == server.name else kind}: a server answers on port {server.port}"
    options = {"plugin": "openai", "preset": kind, "base_url": url}
    return Found(kind, why, options, dict.fromkeys(names, ""), port=server.port)
