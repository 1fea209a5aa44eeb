"""One deployment of LiteLLM's model_list: its provider, its upstream name, its prices and limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from msgspec import Struct

from gateway.config.public_prices import public_price
from gateway.errors import InvalidValue
from gateway.setup.toml_text import Section

PLUGINS = {
    "openai": "openai", "azure": "azure", "anthropic": "anthropic", "gemini": "gemini", "vertex_ai": "gemini",
    "bedrock": "bedrock", "cohere": "cohere", "cohere_chat": "cohere", "elevenlabs": "elevenlabs",
    "deepgram": "deepgram",
}  # fmt: skip
#: LiteLLM's names of compatible vendors, with the presets of the plugin openai.
PRESETS = {
    "mistral": "mistral", "deepseek": "deepseek", "groq": "groq", "xai": "xai", "together_ai": "together",
    "openrouter": "openrouter", "hosted_vllm": "vllm", "vllm": "vllm", "ollama": "ollama", "ollama_chat": "ollama",
    "llamafile": "llamacpp", "jina_ai": "jina", "voyage": "voyage",
}  # fmt: skip
ADDRESSES = {
    "fireworks_ai": "https://api.fireworks.ai/inference/v1",
    "perplexity": "https://api.perplexity.ai",
    "cerebras": "https://api.cerebras.ai/v1",
}
VENDORS = {"vertex_ai": "google", "gemini": "google", "bedrock": "aws", "together_ai": "together", "xai": "x-ai"}
MODES = {
    "chat": "chat", "completion": "chat", "responses": "chat", "embedding": "embeddings", "image_generation": "images",
    "audio_speech": "speech", "audio_transcription": "transcription", "rerank": "rerank", "moderation": "moderation",
    "realtime": "realtime",
}  # fmt: skip
PRICES = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cached_input",
    "cache_creation_input_token_cost": "cache_write",
    "output_cost_per_reasoning_token": "reasoning",
    "input_cost_per_audio_token": "audio_input",
    "output_cost_per_audio_token": "audio_output",
    "input_cost_per_character": "per_character",
}
PRICES_PER_UNIT = {
    "input_cost_per_second": "per_second_in",
    "output_cost_per_second": "per_second_out",
    "input_cost_per_request": "per_request",
    "input_cost_per_query": "per_search_unit",
}
SECRETS = {
    "api_key": "api_key",
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
OPTIONS = {
    "api_base": "base_url",
    "base_url": "base_url",
    "api_version": "api_version",
    "organization": "organization",
    "aws_region_name": "region",
    "vertex_project": "project",
    "vertex_location": "location",
}
OWN = {
    "model",
    "weight",
    "timeout",
    "stream_timeout",
    "custom_llm_provider",
    *SECRETS,
    *OPTIONS,
    *PRICES,
    *PRICES_PER_UNIT,
}
INFO = {"mode", "max_tokens", "max_input_tokens", "max_output_tokens", "id", "db_model", *PRICES, *PRICES_PER_UNIT}
_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]*([eE][+-]?[0-9]{1,3})?", re.ASCII)
_ENVIRONMENT = re.compile(r"os\.environ/([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_GUESSES = (
    (r"(gpt|o[1-9]|chatgpt|text-embedding|dall-e|whisper|tts)[-.0-9]?", "openai"),
    (r"claude", "anthropic"),
    (r"gemini", "gemini"),
    (r"(command|embed-|rerank)", "cohere"),
)


class Target(Struct):
    """A deployment as a target; without a provider it has no counterpart."""

    name: str  # of the model
    provider: str = ""
    model: str = ""  # the upstream's name
    weight: int = 1
    settings: dict[str, Any] = {}  # of the model
    comments: list[str] = []


class Deployment(Struct):
    """An entry of model_list."""

    name: str
    params: dict[str, Any]
    info: dict[str, Any]


def deployments(entries: list[Any]) -> Iterator[Deployment]:
    """The entries; InvalidValue for one that is none."""
    for number, entry in enumerate(entries, 1):
        params = entry.get("litellm_params") if isinstance(entry, Mapping) else None
        if not isinstance(params, Mapping) or not isinstance(params.get("model"), str):
            raise InvalidValue(f"entry {number} of model_list has no litellm_params with a model")
        info = entry.get("model_info")
        name = str(entry.get("model_name") or params["model"])
        yield Deployment(name, dict(params), dict(info) if isinstance(info, Mapping) else {})


def read_target(deployment: Deployment, number: int, providers: dict[str, Section]) -> Target:
    """The target of a deployment; its provider is added to `providers`, unless one has the same settings."""
    target = Target(deployment.name)
    vendor, model = _vendor(deployment.params)
    if "*" in deployment.name or "*" in model:
        target.comments.append("a name with * has no counterpart: write each model")
        return target
    options = _provider_options(vendor, deployment, number, target)
    if options is None:
        target.comments.append(f"there is no plugin for {vendor}/{model}; if it speaks OpenAI's dialect, use openai")
        return target
    target.provider, target.model = _provider_name(vendor, options, providers), _upstream(vendor, model)
    weight = deployment.params.get("weight")
    if isinstance(weight, int) and weight > 0:
        target.weight = weight
    _read_limits(deployment, target)
    _read_price(vendor, deployment, target)
    unknown = [f"litellm_params.{name}" for name in deployment.params if name not in OWN]
    unknown += [f"model_info.{name}" for name in deployment.info if name not in INFO]
    target.comments += [f"{name} has no counterpart" for name in unknown]
    return target


def _vendor(params: Mapping[str, Any]) -> tuple[str, str]:
    """LiteLLM's name of the vendor, and the name of the model."""
    model = str(params["model"])
    if named := params.get("custom_llm_provider"):
        return str(named), model.removeprefix(f"{named}/")
    vendor, slash, rest = model.partition("/")
    if slash and (vendor in PLUGINS or vendor in PRESETS or vendor in ADDRESSES):
        return vendor, rest
    for pattern, guess in _GUESSES:
        if re.match(pattern, model):
            return guess, model
    return (vendor, rest) if slash else ("openai", model)


def _upstream(vendor: str, model: str) -> str:
    if vendor == "bedrock":
        return re.sub(r"^(converse|invoke)/", "", model)
    return model


def _plugin(vendor: str, deployment: Deployment) -> str:
    """Vertex AI has Claude, too, in Anthropic's dialect."""
    is_claude = vendor == "vertex_ai" and "claude" in str(deployment.params["model"])
    return "anthropic" if is_claude else PLUGINS[vendor]


def _provider_options(vendor: str, deployment: Deployment, number: int, target: Target) -> dict[str, Any] | None:
    """The settings of the provider; None if there is no plugin for the vendor."""
    params = deployment.params
    options: dict[str, Any]
    if vendor in PLUGINS:
        options = {"plugin": _plugin(vendor, deployment)}
    elif vendor in PRESETS:
        options = {"plugin": "openai", "preset": PRESETS[vendor]}
    elif vendor in ADDRESSES:
        options = {"plugin": "openai", "base_url": ADDRESSES[vendor]}
    else:
        return None
    for name, option in (*OPTIONS.items(), *SECRETS.items()):
        if name not in params or params[name] is None:
            continue
        value, reference = str(params[name]), _ENVIRONMENT.fullmatch(str(params[name]))
        if reference:
            options[option] = f"env:{reference[1]}"
            if name not in SECRETS:
                target.comments.append(f"{name}: write the value of ${reference[1]} instead of the reference")
        elif name in SECRETS:
            variable = f"{vendor}_{number}_{name}".upper()
            options[option] = f"env:{variable}"
            target.comments.append(f"{name} stands in the file of LiteLLM itself: put it into ${variable}")
        else:
            options[option] = value
    if options["plugin"] == "azure" and "base_url" in options:
        options["endpoint"] = options.pop("base_url")
    return options


def _provider_name(vendor: str, options: dict[str, Any], providers: dict[str, Section]) -> str:
    for name, section in providers.items():
        if section.values == options:
            return name
    name, number = vendor, 1
    while name in providers:
        number += 1
        name = f"{vendor}-{number}"
    providers[name] = Section(["providers", name], options)
    return name


def _read_limits(deployment: Deployment, target: Target) -> None:
    info, params, settings = deployment.info, deployment.params, target.settings
    for name, setting in (("max_input_tokens", "context_window"), ("max_output_tokens", "max_output_tokens")):
        if isinstance(info.get(name), int) and info[name] > 0:
            settings[setting] = info[name]
    if "max_output_tokens" not in settings and isinstance(info.get("max_tokens"), int):
        settings["max_output_tokens"] = info["max_tokens"]
    mode = info.get("mode")
    if mode in MODES and MODES[mode] != "chat":
        settings["endpoints"] = [MODES[mode]]
    elif mode is not None and mode not in MODES:
        target.comments.append(f"mode {mode} has no counterpart")
    if isinstance(params.get("timeout"), int | float):
        settings["total_timeout"] = float(params["timeout"])
    if isinstance(params.get("stream_timeout"), int | float):
        settings["first_byte_timeout"] = float(params["stream_timeout"])


def _decimal(value: Any) -> Decimal:
    """A number of the file, or its text; InvalidOperation for anything else."""
    text = str(value)
    if not _NUMBER.fullmatch(text):
        raise InvalidOperation
    return Decimal(text)


def _read_price(vendor: str, deployment: Deployment, target: Target) -> None:
    price: dict[str, Any] = {}
    given = {**deployment.info, **deployment.params}
    for names, factor in ((PRICES, 1_000_000), (PRICES_PER_UNIT, 1)):
        for name, key in names.items():
            if given.get(name) is not None:
                try:
                    price[key] = _decimal(given[name]) * factor
                except InvalidOperation:
                    target.comments.append(f"{name} = {given[name]} is no price")
    if price:
        target.settings["price"] = price
        return
    public = f"{VENDORS.get(vendor, vendor)}/{target.model}"
    try:
        public_price(public)
    except ValueError:
        return
    target.settings["price"] = public
