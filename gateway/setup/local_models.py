"""The models of a model server on this machine: the kind of server, what each model serves, and its context window.

Ollama and Infinity say what a model can do. Of other servers the name of a model decides whether it makes embeddings.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gateway.config.endpoints import makes_embeddings
from gateway.errors import GatewayError
from gateway.http_client.timeouts import Timeouts
from gateway.http_client.upstream import Upstream
from gateway.setup.known_providers import Model, ModelEndpoint, Server
from gateway.setup.served_windows import served_windows

TIMEOUTS = Timeouts(connect=1.0, first_byte=2.0, idle=2.0, total=3.0)
MOST_MODELS = 50
MOST_BYTES = 2**20  # of an answer
MOST_AT_ONCE = 8  # questions about models
SHOWN_WITHIN = 3.0  # seconds for all of them
_OWNERS = {"vllm": "vllm", "llamacpp": "llamacpp", "library": "ollama"}  # `owned_by` in a list of models
_FAILURES = (GatewayError, msgspec.MsgspecError, KeyError, TypeError, AttributeError)
# The path of a file, perhaps of the first of several parts, as llama.cpp names a model; or that of a folder.
_PATH = re.compile(r"(?:.*[/\\])?([^/\\]+?)(?:-\d{5}-of-\d{5})?\.gguf|/(?:.*/)?([^/]+)/?", re.IGNORECASE)


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
        entries = (await _json(client, "GET", f"{base}/v1/models"))["data"][:MOST_MODELS]
        names = [entry["id"] for entry in entries]
        owner = str(entries[0].get("owned_by", "")) if entries else ""
    except _FAILURES:
        return None
    if not all(isinstance(name, str) and name.isprintable() and 0 < len(name) <= 200 for name in names):
        return None
    kind, asking = _OWNERS.get(owner, server.name), _Asking(client, base)
    endpoints, windows = await asyncio.gather(_endpoints(kind, entries, asking), served_windows(kind, entries, asking))
    models = {}
    for name, endpoint, window in zip(names, endpoints, windows, strict=True):
        public = _public_name(name, names)
        models[public] = Model(endpoint=endpoint, context_window=window, upstream=name if public != name else "")
    return LocalModels(kind, models)


def _public_name(name: str, names: Sequence[str]) -> str:
    """The name for callers: that of a file has neither its folder nor its ending, unless another model has it then."""
    short = _without_path(name)
    return short if sum(_without_path(one) == short for one in names) == 1 else name


def _without_path(name: str) -> str:
    found = _PATH.fullmatch(name)
    return name if found is None else found[1] or found[2]


def endpoint_by_name(name: str) -> ModelEndpoint:
    """What a model serves, as far as its name says it."""
    return "embeddings" if makes_embeddings(name) else "chat"


async def _json(client: Upstream, method: str, url: str, body: bytes | None = None) -> Any:
    """The JSON of an answer; UpstreamInvalidResponse, MsgspecError, or KeyError for another status than 200."""
    headers = {"Content-Type": "application/json"} if body is not None else {}
    async with await client.send(method, url, headers=headers, body=body, timeouts=TIMEOUTS) as answer:
        if answer.status != 200:
            raise KeyError(url)
        return msgspec.json.decode(await answer.read(limit=MOST_BYTES))


class _Asking:
    """Asks a server what it says of its models: a few questions at once, within `SHOWN_WITHIN` seconds."""

    def __init__(self, client: Upstream, base: str) -> None:
        self._client, self._base = client, base
        self._deadline = asyncio.get_running_loop().time() + SHOWN_WITHIN
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._answers: dict[tuple[str, bytes], asyncio.Task[Any]] = {}  # each question is asked once

    async def __call__(self, path: str, document: Mapping[str, Any] | None = None) -> Any:
        """The JSON of an answer; None if there is none in time."""
        body = b"" if document is None else msgspec.json.encode(document)
        if (path, body) not in self._answers:
            self._answers[path, body] = asyncio.ensure_future(self._ask(path, body))
        return await self._answers[path, body]

    async def _ask(self, path: str, body: bytes) -> Any:
        try:
            async with asyncio.timeout_at(self._deadline), self._turns:
                return await _json(self._client, "POST" if body else "GET", self._base + path, body or None)
        except (*_FAILURES, TimeoutError):
            return None


async def _endpoints(kind: str, entries: Sequence[Any], ask: _Asking) -> list[ModelEndpoint]:
    """As the server describes its models; a model that is not described is judged by its name.

    Infinity describes them in its list.
    """
    names = [entry["id"] for entry in entries]
    described: Sequence[Any] = entries
    if kind == "ollama":
        described = await asyncio.gather(*(ask("/api/show", {"model": name}) for name in names))
    return [_described_endpoint(name, about) for name, about in zip(names, described, strict=True)]


def _described_endpoint(name: str, about: Any) -> ModelEndpoint:
    """The endpoint in a description; that of an old Ollama and of most other servers has no `capabilities`."""
    able = about.get("capabilities") if isinstance(about, dict) else None
    if not isinstance(able, list) or not able:
        return endpoint_by_name(name)
    embeds = "embedding" in able or "embed" in able  # as Ollama and as Infinity write it
    return "embeddings" if embeds and "completion" not in able else "chat"
