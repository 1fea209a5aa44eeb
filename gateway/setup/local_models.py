"""The models of a model server on this machine: the kind of server, what each model serves, and its context window.

Ollama says what a model can do. Of other servers the name of a model decides whether it makes embeddings.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gateway.errors import GatewayError
from gateway.http_client.timeouts import Timeouts
from gateway.http_client.upstream import Upstream
from gateway.setup.known_providers import Model, ModelEndpoint, Server

TIMEOUTS = Timeouts(connect=1.0, first_byte=2.0, idle=2.0, total=3.0)
MOST_MODELS = 50
MOST_BYTES = 2**20  # of an answer
MOST_AT_ONCE = 8  # questions about models
SHOWN_WITHIN = 3.0  # seconds for all of them
_OWNERS = {"vllm": "vllm", "llamacpp": "llamacpp", "library": "ollama"}  # `owned_by` in a list of models
_FAILURES = (GatewayError, msgspec.MsgspecError, KeyError, TypeError, AttributeError)
# Families of embedding models; each stands at the beginning of a part of the name.
_EMBEDDINGS = re.compile(
    r"embed|(?:^|[/_-])(?:bge|gte|gtr|e5|minilm|all-minilm|all-mpnet|paraphrase)(?![a-z])", re.IGNORECASE
)
_RERANKER = re.compile(r"rerank", re.IGNORECASE)


class LocalModels(Struct, frozen=True):
    """What a server has; `kind` is the name of its preset."""

    kind: str
    models: dict[str, Model]


async def local_models(client: Upstream, server: Server, host: str) -> LocalModels | None:
    """The models of the server at this port; None if nothing is there, or something else.

    It takes at most `TIMEOUTS.total` and `SHOWN_WITHIN` seconds.
    """
    base = f"http://{host}:{server.port}"
    try:
        listed = (await _json(client, "GET", f"{base}/v1/models"))["data"][:MOST_MODELS]
        names = [entry["id"] for entry in listed]
        owner = str(listed[0].get("owned_by", "")) if listed else ""
        windows = [_window_in_list(entry) for entry in listed]
    except _FAILURES:
        return None
    if not all(isinstance(name, str) and name.isprintable() and 0 < len(name) <= 200 for name in names):
        return None
    kind = _OWNERS.get(owner, server.name)
    if kind == "ollama":
        return LocalModels(kind, await _ollama_models(client, base, names))
    return LocalModels(
        kind,
        {
            name: Model(endpoint=endpoint_by_name(name), context_window=window)
            for name, window in zip(names, windows, strict=True)
        },
    )


def endpoint_by_name(name: str) -> ModelEndpoint:
    """What a model serves, as far as its name says it."""
    return "embeddings" if _EMBEDDINGS.search(name) and not _RERANKER.search(name) else "chat"


async def _json(client: Upstream, method: str, url: str, body: bytes | None = None) -> Any:
    """The JSON of an answer; UpstreamInvalidResponse, MsgspecError, or KeyError for another status than 200."""
    headers = {"Content-Type": "application/json"} if body is not None else {}
    async with await client.send(method, url, headers=headers, body=body, timeouts=TIMEOUTS) as answer:
        if answer.status != 200:
            raise KeyError(url)
        return msgspec.json.decode(await answer.read(limit=MOST_BYTES))


async def _ollama_models(client: Upstream, base: str, names: list[str]) -> dict[str, Model]:
    """The models as Ollama describes them; one that it does not describe in time is judged by its name."""
    deadline = asyncio.get_running_loop().time() + SHOWN_WITHIN
    turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def described(name: str) -> Model:
        try:
            async with asyncio.timeout_at(deadline), turns:
                shown = await _json(client, "POST", f"{base}/api/show", msgspec.json.encode({"model": name}))
            return _shown_model(name, shown)
        except (*_FAILURES, TimeoutError):
            return Model(endpoint=endpoint_by_name(name))

    return dict(zip(names, await asyncio.gather(*map(described, names)), strict=True))


def _shown_model(name: str, shown: Mapping[str, Any]) -> Model:
    """The model of an answer of /api/show; an old Ollama has no `capabilities` there."""
    able = shown.get("capabilities")
    endpoint = endpoint_by_name(name) if not isinstance(able, list) or not able else _endpoint_of(able)
    info = shown.get("model_info") or {}
    windows = [value for key, value in info.items() if key.endswith(".context_length")]
    return Model(endpoint=endpoint, context_window=_tokens(windows[0]) if windows else None)


def _endpoint_of(able: Sequence[Any]) -> ModelEndpoint:
    return "embeddings" if "embedding" in able and "completion" not in able else "chat"


def _window_in_list(entry: Mapping[str, Any]) -> int | None:
    """The context window in a list of models: vLLM's, or the one that llama.cpp's model was trained with."""
    meta = entry.get("meta")
    return _tokens(entry.get("max_model_len")) or _tokens(meta.get("n_ctx_train") if isinstance(meta, dict) else None)


def _tokens(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else None
