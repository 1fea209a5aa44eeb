"""Servers that list their models as Ollama, vLLM and OpenRouter do, and gateways that ask them."""

from __future__ import annotations

import asyncio
import time
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from msgspec import structs

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.discovery.stored_lists import STATES, TURN, list_id, read_states, write_state
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from gateway.testing.fake_upstream import FakeUpstream, Reply, Seen, openai_chat
from tests.conftest import PEPPER
from tests.polling import until

#: As `GET /v1/models` of Ollama 0.12 answers.
OLLAMA = {
    "object": "list",
    "data": [
        {"id": "llama3.2:3b", "object": "model", "created": 1732000000, "owned_by": "library"},
        {"id": "nomic-embed-text:latest", "object": "model", "created": 1732000001, "owned_by": "library"},
    ],
}
#: As that of vLLM 0.11 answers.
VLLM = {
    "object": "list",
    "data": [
        {
            "id": "Qwen/Qwen3-8B",
            "object": "model",
            "created": 1732000000,
            "owned_by": "vllm",
            "root": "Qwen/Qwen3-8B",
            "parent": None,
            "max_model_len": 40960,
            "permission": [],
        }
    ],
}


def openrouter_model(name: str, prompt: Any = "0.000001", completion: Any = "0.000002", **more: Any) -> dict[str, Any]:
    """An entry of OpenRouter's list; its amounts are texts in USD per token."""
    pricing = {
        "prompt": prompt,
        "completion": completion,
        "request": "0",
        "image": "0",
        "web_search": "0",
        "internal_reasoning": "0",
        **more,
    }
    return {
        "id": name,
        "canonical_slug": name,
        "name": name,
        "created": 1732000000,
        "context_length": 128000,
        "architecture": {"modality": "text->text", "input_modalities": ["text"], "output_modalities": ["text"]},
        "pricing": pricing,
        "top_provider": {"context_length": 128000, "max_completion_tokens": 16384, "is_moderated": False},
        "per_request_limits": None,
        "supported_parameters": ["max_tokens", "temperature"],
    }


class _HeldUpstream(FakeUpstream):
    """Answers no chat before `released`."""

    def __init__(self, answer: Any) -> None:
        super().__init__(answer)
        self.released = asyncio.Event()
        self.released.set()

    async def _reply(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        if "/chat/" in seen.path:
            await self.released.wait()
        return await super()._reply(request, seen)


class ListServer:
    """A real server that answers chats, and `GET /v1/models` with a document that a test may replace."""

    def __init__(self, document: Any) -> None:
        self.reply = Reply.json(document)
        self.upstream = _HeldUpstream(self._answer)

    def list(self, *models: Any) -> None:
        """Answer with these entries from now on."""
        self.reply = Reply.json({"object": "list", "data": list(models)})

    def _answer(self, seen: Seen) -> Reply:
        return self.reply if seen.path == "/v1/models" else openai_chat(seen)

    @property
    def questions(self) -> int:
        """How often the list was asked for."""
        return sum(seen.path == "/v1/models" for seen in self.upstream.seen)


@asynccontextmanager
async def serving(document: Any) -> AsyncIterator[ListServer]:
    """A server on a port of its own."""
    server = ListServer(document)
    async with server.upstream:
        yield server


def settings_of(text: str, folder: Path, **servers: ListServer) -> Settings:
    """The settings of a configuration; `{NAME}` is the address of a server."""
    for name, server in servers.items():
        text = text.replace(f"{{{name}}}", server.upstream.base_url)
    text = f'[store]\ndata_dir = "{folder}"\n{text}'
    return parse(tomllib.loads(text, parse_float=Decimal), file=str(folder / "gateway.toml"))


@asynccontextmanager
async def built(settings: Settings, socket: Path, *, empty: bool = True) -> AsyncIterator[Gateway]:
    """A gateway that has asked for its lists, on a store that is empty at first."""
    store = await Store.open(socket, timeout=20.0)
    if empty:
        await store.links[0].call("FLUSHALL")
    gateway = await Gateway.build(settings, store, pepper=PEPPER)  # it closes the store
    gateway.overload.max_lag = 0.0
    try:
        yield gateway
    finally:
        await gateway.close()


async def ask_again(gateway: Gateway, *names: str, seconds: float = 3600.0) -> None:
    """Let the last questions have been so many seconds ago, and wait until the next ones have ended."""
    settings, store = gateway.lists.current.file, gateway.store
    ids = [list_id(name, settings.providers[name]) for name in names]
    before = await read_states(store)
    for own in ids:
        state = before[own]
        older = structs.replace(state, at=max(0.0, state.at - seconds), failed_at=max(0.0, state.failed_at - seconds))
        await write_state(store, own, older)
        await store.link(TURN + own).call("DEL", TURN + own)
    began = time.time() - 1.0
    gateway.lists.look()

    async def asked() -> bool:
        states = await read_states(store)
        return all(max(states[own].at, states[own].failed_at) > began for own in ids)

    await until(asked)
    gateway.lists.look()


def served(gateway: Gateway) -> set[str]:
    """The names of the models in use."""
    return set(gateway.catalog.models)


async def state_of(gateway: Gateway, name: str) -> Any:
    """The state of the list of a provider, as it is stored."""
    own = list_id(name, gateway.lists.current.file.providers[name])
    text = await gateway.store.link(STATES).call("HGET", STATES, own)
    return msgspec.json.decode(text)


def reasons(gateway: Gateway) -> dict[str, str]:
    """Why models are not served, by the upstream's names."""
    found = (one for provider in gateway.lists.current.providers for one in provider.models)
    return {one.upstream: one.state for one in found if one.state != "served"}
