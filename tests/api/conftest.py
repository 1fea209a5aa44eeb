"""A gateway whose models live on a scriptable OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tornado.ioloop import IOLoop
from yarl import URL

from gateway.accounts.accounts import Account, Accounts
from gateway.billing.quote import Quote
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.http_server.server import HTTPServer
from gateway.inference.text_fast_path import TextRelay
from gateway.ledger import Hold
from gateway.ledger.api_key import ApiKey
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from tests.polling import until


@pytest.fixture
def upstream(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    """The model provider's server."""
    yield from _served(io_loop)


@pytest.fixture
def other(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    """The server of a second provider."""
    yield from _served(io_loop)


def _served(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    server = FakeUpstream()
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Models on that server: m1 for everyone, secret for another group, capped with a small output limit."""
    provider: dict[str, Any] = {
        "plugin": "openai",
        "base_url": upstream.base_url,
        "api_key": "sk-upstream-canary-0123456789",
    }
    provider["forward_params"] = ["custom_field", "guided_json"]
    # Without retries, so that each scripted failure is seen by the test that scripted it.
    model = {"provider": "up", "model": "upstream-m1", "price": {"input": 1, "output": 2}, "retries": 0}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"up": provider},
            "groups": {"default": {}, "inner": {}},
            "models": {
                "m1": model,
                "org/m:1": model,
                "secret": {**model, "groups": ["inner"]},
                "capped": {**model, "max_output_tokens": 100, "context_window": 1000},
                "two": {
                    "targets": [{"provider": "up", "model": "first"}, {"provider": "up", "model": "second"}],
                    "price": {"input": 1, "output": 2},
                },
            },
        },
        demo=True,
    )


class Client:
    """A plain HTTP client of the gateway."""

    def __init__(self, base_url: str, headers: dict[str, str]) -> None:
        self.base_url = base_url
        self.headers = headers

    @asynccontextmanager
    async def request(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request on a connection of its own."""
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, URL(self.base_url + path, encoded=True), headers=headers or self.headers, **options
            ) as response,
        ):
            yield response

    async def chat(self, **fields: Any) -> tuple[aiohttp.ClientResponse, Any]:
        """A chat call; the response and its JSON."""
        document = {"model": "m1", "messages": [{"role": "user", "content": "Hi"}], **fields}
        async with self.request("POST", "/v1/chat/completions", json=document) as response:
            return response, await response.json()

    async def stream(self, **fields: Any) -> tuple[aiohttp.ClientResponse, str, BaseException | None]:
        """A streamed chat call: the response, all text received, and how reading ended if not well."""
        document = {"model": "m1", "messages": [{"role": "user", "content": "Hi"}], "stream": True, **fields}
        text, failure = b"", None
        async with self.request("POST", "/v1/chat/completions", json=document) as response:
            try:
                async for part in response.content.iter_any():
                    text += part
            except aiohttp.ClientError as error:
                failure = error
        return response, text.decode(), failure


async def settled(accounts: Accounts, name: str = "acme") -> Account:
    """The account once nothing is held: an answer may arrive before its settlement is stored."""

    async def released() -> Account | None:
        account = await accounts.show(name)
        return account if account.held == 0 else None

    return await until(released)


def record_holds(gateway: Gateway) -> list[Hold]:
    """Every hold that the gateway takes from now on."""
    holds: list[Hold] = []
    admit = gateway.ledger.admit

    async def recorded(request_id: str, key: ApiKey, quote: Quote) -> Hold:
        holds.append(await admit(request_id, key, quote))
        return holds[-1]

    gateway.ledger.admit = recorded  # type: ignore[method-assign, assignment]
    return holds


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of streams that the text fast path took."""
    texts: list[str] = []
    take = TextRelay._take

    def noted(relay: TextRelay, before: Any, more: list[str]) -> bool:
        took = take(relay, before, more)
        texts.extend(more if took else [])
        return took

    monkeypatch.setattr(TextRelay, "_take", noted)
    return texts


@pytest.fixture
def plain_labels(gateway: Gateway) -> Iterator[None]:
    """After the test, whether the labels of all metrics are names of the gateway and its configuration."""
    yield
    delta = gateway.metrics.drain()
    assert delta is not None
    labels = {
        label for one in (delta.counters, delta.gauges, delta.histograms) for _, found, _ in one for label in found
    }
    assert labels and not [label for label in labels if not (label.isascii() and label.isprintable())]


@pytest.fixture
def client(http_server: HTTPServer, base_url: str, bearer: dict[str, str]) -> Client:
    """A client with a good key."""
    return Client(base_url.replace("localhost", "127.0.0.1"), bearer)
