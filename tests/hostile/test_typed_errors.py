"""A provider's author puts a key, an address or a whole prompt into a typed error: callers and logs do not get it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from tornado.ioloop import IOLoop

from gateway import Chat, ChatChunk, ChatRequest, Provider, Secret, Target
from gateway.config.loader import parse
from gateway.config.settings import PluginSettings, Settings
from gateway.errors import InvalidValue, UpstreamError, UpstreamRejected
from gateway.plugins.loader import Plugins, load_plugins
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from tests.conftest import PEPPER
from tests.polling import until

from .conftest import Client
from .poison import load, plugin

KEY = "typed-canary-5d2e"  # in no shape that a pattern knows
ADDRESS = "https://inside.example/v1"


class Talkative(Provider, Chat):
    """Raises typed errors that quote everything it has; the request's text says where."""

    name = "talkative"

    class Options(Struct, frozen=True, forbid_unknown_fields=True):
        api_key: Secret

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[Any]:
        key = self.options.api_key.reveal()
        words = f"the key {key} was refused at {ADDRESS}\nBearer abcdefghijklmnop"
        match request.messages[-1].content:
            case "first":
                raise UpstreamError(words, code=f"refused_{key}", param=f"p_{key}", detail=words)
            case "rejected":
                raise UpstreamRejected(words)
            case "value":
                raise InvalidValue(words, param="messages[0].content")
            case "later":
                yield ChatChunk.text("half ")
                raise UpstreamError(words)
        yield ChatChunk.finish("stop")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """One model on the talkative provider."""
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"talkative": {"plugin": "talkative", "api_key": KEY}},
            "models": {"talkative": {"provider": "talkative", "price": {"input": 1, "output": 2}}},
        },
        demo=True,
    )


@pytest.fixture
def plugins() -> Plugins:
    plugins = load_plugins(PluginSettings())
    report = load(plugins, "talkative", lambda: plugin("talkative", lambda register: register(Talkative)))
    assert report.state == "active", report.reason
    return plugins


@pytest.fixture
def gateway(io_loop: IOLoop, store: Store, settings: Settings, plugins: Plugins) -> Iterator[Gateway]:
    gateway = io_loop.run_sync(lambda: Gateway.build(settings, store, pepper=PEPPER, plugins=plugins))
    yield gateway
    io_loop.run_sync(gateway.close)


def assert_clean(text: str) -> None:
    assert KEY not in text
    assert "inside.example" not in text
    assert "abcdefghijklmnop" not in text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("where", "status"), [("first", 502), ("rejected", 400), ("value", 400)])
async def test_typed_error_of_a_provider_reaches_the_caller_without_keys_and_addresses(
    client: Client, where: str, status: int, stream: bool
) -> None:
    messages = [{"role": "user", "content": where}]
    if stream:
        response, text, _ = await client.stream(model="talkative", messages=messages)
    else:
        response, body = await client.chat(model="talkative", messages=messages)
        text = msgspec.json.encode(body).decode()
    assert response.status == status, text
    assert_clean(text)
    error = msgspec.json.decode(text)["error"]
    assert error["message"].startswith("the key [removed] was refused at [removed]")
    assert error["param"] == ("messages[0].content" if where == "value" else None)


async def test_typed_error_in_the_middle_of_a_stream_is_cleaned(client: Client) -> None:
    _, text, _ = await client.stream(model="talkative", messages=[{"role": "user", "content": "later"}])
    assert "half " in text and '"error"' in text
    assert_clean(text)


async def test_detail_of_a_typed_error_is_logged_without_the_key(
    client: Client, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[bytes] = []
    monkeypatch.setattr(gateway.access_log, "write", lambda line: lines.append(msgspec.json.encode(line)))
    await client.chat(model="talkative", messages=[{"role": "user", "content": "first"}])

    async def written() -> bool:
        return bool(lines)

    await until(written)
    assert KEY.encode() not in b"".join(lines)
    assert b"[removed]" in b"".join(lines)
