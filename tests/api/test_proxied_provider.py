"""Providers behind a proxy, through the whole gateway: what callers are told, what is logged, and who is tried next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tornado.ioloop import IOLoop

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from tests.api.conftest import Client
from tests.captured_log import logged
from tests.http_client.forward_proxy import ForwardProxy

PRICE = {"price": {"input": 1, "output": 2}}
CREDENTIALS = "gate:canary-word"


@pytest.fixture
def proxy(io_loop: IOLoop) -> Iterator[ForwardProxy]:
    """A proxy that wants credentials."""
    proxy = ForwardProxy(credentials=CREDENTIALS)
    io_loop.run_sync(proxy.__aenter__)
    yield proxy
    io_loop.run_sync(proxy.__aexit__)


@pytest.fixture
def url_file(tmp_path: Path, proxy: ForwardProxy) -> Path:
    """Where the proxy's URL is."""
    path = tmp_path / "proxy-url"
    path.write_text(proxy.url.replace("://", f"://{CREDENTIALS}@"))
    return path


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream, url_file: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The same server behind the proxy, behind one that is not there, behind one that is not set, and without any."""
    monkeypatch.delenv("NO_SUCH_PROXY", raising=False)
    plain: dict[str, Any] = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123"}
    providers = {
        "proxied": {**plain, "proxy": f"file:{url_file}"},
        "lost": {**plain, "proxy": "http://127.0.0.1:1"},
        "unset": {**plain, "proxy": "env:NO_SUCH_PROXY"},
        "plain": plain,
    }
    every = {"endpoints": ["chat", "embeddings"], "retries": 0, **PRICE}
    models: dict[str, Any] = {name: {"provider": name, **every} for name in providers}
    for name in ("proxied", "lost"):
        targets = [{"provider": name}, {"provider": "plain"}]
        models[f"{name}, then plain"] = {"targets": targets, "strategy": "in_order", **PRICE}
    document = {"store": {"data_dir": str(tmp_path)}, "providers": providers, "models": models}
    return parse({"server": {"response_headers": ["model", "provider", "attempts"]}, **document}, demo=True)


@pytest.mark.holds("operations/network.md#http-proxies-1")
async def test_only_requests_of_the_configured_provider_use_its_proxy(
    client: Client, proxy: ForwardProxy, upstream: FakeUpstream
) -> None:
    response, document = await client.chat(model="proxied")
    assert (response.status, document["choices"][0]["finish_reason"]) == (200, "stop")
    _, text, failure = await client.stream(model="proxied")
    assert (failure, text.endswith("data: [DONE]\n\n")) == (None, True)
    body = {"model": "proxied", "input": "text"}
    async with client.request("POST", "/v1/embeddings", json=body) as embedded:
        assert embedded.status == 200
    lines = [head.partition(b"\r\n")[0].decode() for head in proxy.heads]
    paths = ["chat/completions", "chat/completions", "embeddings"]
    assert lines == [f"POST {upstream.base_url}/{path} HTTP/1.1" for path in paths]
    response, _ = await client.chat(model="plain")
    assert response.status == 200
    assert (len(proxy.heads), len(upstream.seen)) == (3, 4)


async def test_stream_through_the_proxy_reaches_the_caller_chunk_by_chunk(
    client: Client, upstream: FakeUpstream
) -> None:
    upstream.tamper = lambda reply: structs.replace(reply, interval=0.05)
    fields = {"model": "proxied", "stream": True, "messages": [{"role": "user", "content": "one two three"}]}
    async with client.request("POST", "/v1/chat/completions", json=fields) as response:
        assert (await response.content.readline()).startswith(b"data: ")
        assert upstream.seen[0].outcome == "open"
        assert (await response.content.read()).endswith(b"data: [DONE]\n\n")


@pytest.mark.holds("operations/network.md#http-proxies-7")
async def test_refused_proxy_credentials_are_a_502_without_details_of_the_proxy(
    client: Client,
    gateway: Gateway,
    proxy: ForwardProxy,
    url_file: Path,
    upstream: FakeUpstream,
    ledger: Ledger,
    capfd: pytest.CaptureFixture[str],
) -> None:
    url_file.write_text(proxy.url.replace("://", "://gate:canary-wrong@"))
    await gateway.renew({"proxied"})
    response, document = await client.chat(model="proxied")
    assert (response.status, document["error"]["code"]) == (502, "upstream_auth_error")
    assert document["error"]["message"] == "The gateway's credential was refused on the way to the model provider"
    assert response.headers["x-should-retry"] == "false"
    response, document = await client.chat(model="proxied")  # its circuit is open
    assert (response.status, document["error"]["code"]) == (502, "upstream_auth_error")
    log = await logged(capfd, "the proxy refused the gateway's credentials (407)")
    for text in (str(document), str(response.headers), log):
        assert not any(word in text for word in (proxy.address, "canary"))
    assert (len(proxy.heads), upstream.seen) == (1, [])
    assert not any([line.amount async for line in ledger.lines("acme") if line.kind == "use"])


@pytest.mark.holds("operations/network.md#http-proxies-4", "operations/network.md#http-proxies-7")
async def test_rotated_credentials_of_a_proxy_are_used_at_once(
    client: Client, gateway: Gateway, proxy: ForwardProxy, url_file: Path
) -> None:
    good = url_file.read_text()
    url_file.write_text(proxy.url.replace("://", "://gate:canary-wrong@"))
    assert gateway.secrets.look() == {"proxied"}
    await gateway.renew({"proxied"})
    response, _ = await client.chat(model="proxied")
    assert response.status == 502
    url_file.write_text(good)
    assert gateway.secrets.look() == {"proxied"}
    await gateway.renew({"proxied"})
    response, _ = await client.chat(model="proxied")
    assert response.status == 200


async def test_old_proxy_stays_in_use_while_its_file_has_no_valid_url(
    client: Client, gateway: Gateway, proxy: ForwardProxy, url_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url_file.write_text("socks5://gate:canary-word@127.0.0.1:1")
    await gateway.renew({"proxied"})
    response, _ = await client.chat(model="proxied")
    assert (response.status, len(proxy.heads)) == (200, 1)
    assert "canary" not in await logged(capfd, '"status":200')


@pytest.mark.holds("operations/network.md#http-proxies-7")
@pytest.mark.parametrize("name", ["proxied", "lost"])
@pytest.mark.parametrize("stream", [False, True])
async def test_next_target_answers_when_the_proxy_refuses_or_is_down(
    name: str, stream: bool, client: Client, proxy: ForwardProxy, upstream: FakeUpstream
) -> None:
    proxy.refuse = 407
    model = f"{name}, then plain"
    response = (await client.stream(model=model))[0] if stream else (await client.chat(model=model))[0]
    assert (response.status, response.headers["x-gateway-provider"]) == (200, "plain")
    assert response.headers["x-gateway-attempts"] == "2"
    assert len(upstream.seen) == 1


@pytest.mark.holds("operations/network.md#http-proxies-7")
async def test_proxy_that_is_down_is_a_502_without_details_of_the_proxy(
    client: Client, upstream: FakeUpstream, ledger: Ledger, capfd: pytest.CaptureFixture[str]
) -> None:
    response, document = await client.chat(model="lost")
    assert (response.status, document["error"]["code"]) == (502, "upstream_error")
    assert document["error"]["message"] == "The model provider could not be reached"
    log = await logged(capfd, "no connection to the proxy: Connection refused")
    assert "127.0.0.1:1" not in log.replace(upstream.url, "")
    assert upstream.seen == []
    assert not any([line.amount async for line in ledger.lines("acme") if line.kind == "use"])


async def test_provider_whose_proxy_is_not_set_is_out_of_service_and_the_others_serve(
    client: Client, gateway: Gateway, upstream: FakeUpstream
) -> None:
    assert "unset" not in gateway.providers
    response, document = await client.chat(model="unset")
    assert (response.status, document["error"]["code"]) == (503, "service_unavailable")
    assert upstream.seen == []
    response, _ = await client.chat(model="plain")
    assert response.status == 200
