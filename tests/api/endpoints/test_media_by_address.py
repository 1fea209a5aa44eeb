"""Images and documents by address, for providers that take bytes: fetched, bounded, counted before the hold."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.http_client import public_fetch
from gateway.http_client.public_fetch import FetchFailed, PublicClient
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from gateway.testing.openai_dialect import PIXEL
from tests.api.conftest import Client, record_holds

IMAGE = base64.b64decode(PIXEL)
PDF = b"%PDF-1.7\n" + b"x" * 3000
ADDRESS = "https://example.com/cat.png"
ANSWER = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "A cat."}]}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 300, "candidatesTokenCount": 3, "totalTokenCount": 303},
}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """`seen` fetches, `blind` does not; `closed` fetches and is of another group."""
    address = upstream.base_url.removesuffix("/v1") + "/v1beta"
    provider = {"plugin": "gemini", "base_url": address, "api_key": "upstream-key"}
    model = {"provider": "fetching", "model": "gemini-2.5-pro", "price": {"input": 1, "output": 2}, "retries": 0}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"fetching": {**provider, "fetch_media": True}, "plain": provider},
            "groups": {"default": {}, "inner": {}},
            "models": {
                "seen": model,
                "blind": {**model, "provider": "plain"},
                "closed": {**model, "groups": ["inner"]},
            },
        },
        demo=True,
    )


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes | Exception]:
    """The internet: what each address has; `asked` among its values is the list of addresses that were fetched."""
    pages: dict[str, bytes | Exception] = {ADDRESS: IMAGE}

    async def get(self: PublicClient, url: str, *, most: int) -> bytes:
        page = pages.get(url, FetchFailed("its server answered 404"))
        if isinstance(page, Exception):
            raise page
        return page

    monkeypatch.setattr(PublicClient, "get", get)
    return pages


def image(url: str = ADDRESS) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def asking(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, *parts]}]


async def test_image_by_address_reaches_the_upstream_as_bytes(
    client: Client, upstream: FakeUpstream, web: dict[str, bytes | Exception]
) -> None:
    upstream.enqueue(Reply.json(ANSWER))
    response, document = await client.chat(model="seen", messages=asking(image()))
    assert response.status == 200, document
    parts = upstream.seen[0].json["contents"][0]["parts"]
    assert parts[1] == {"inlineData": {"mimeType": "image/png", "data": PIXEL}}


async def test_document_by_address_reaches_the_upstream_as_bytes(
    client: Client, upstream: FakeUpstream, web: dict[str, bytes | Exception]
) -> None:
    web["https://example.com/a.pdf"] = PDF
    upstream.enqueue(Reply.json(ANSWER))
    file = {"type": "file", "file": {"file_data": "https://example.com/a.pdf", "filename": "a.pdf"}}
    response, document = await client.chat(model="seen", messages=asking(file))
    assert response.status == 200, document
    part = upstream.seen[0].json["contents"][0]["parts"][1]["inlineData"]
    assert (part["mimeType"], base64.b64decode(part["data"])) == ("application/pdf", PDF)


async def test_content_counts_in_the_hold_as_if_it_had_been_sent(
    client: Client, gateway: Gateway, upstream: FakeUpstream, web: dict[str, bytes | Exception]
) -> None:
    holds = record_holds(gateway)
    for url in (ADDRESS, f"data:image/png;base64,{PIXEL}"):
        upstream.enqueue(Reply.json(ANSWER))
        body = msgspec.json.encode({"model": "seen", "messages": asking(image(url)), "max_tokens": 50})
        headers = {**client.headers, "Content-Type": "application/json"}
        async with client.request("POST", "/v1/chat/completions", headers=headers, data=body) as response:
            assert response.status == 200
    by_address, inline = holds
    assert by_address.amount == inline.amount > 0


async def test_address_named_twice_is_fetched_once(
    client: Client, upstream: FakeUpstream, web: dict[str, bytes | Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    get = PublicClient.get

    async def counted(self: PublicClient, url: str, *, most: int) -> bytes:
        asked.append(url)
        return await get(self, url, most=most)

    monkeypatch.setattr(PublicClient, "get", counted)
    upstream.enqueue(Reply.json(ANSWER))
    await client.chat(model="seen", messages=asking(image(), image()))
    assert asked == [ADDRESS]
    assert len(upstream.seen[0].json["contents"][0]["parts"]) == 3


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (FetchFailed("its server answered 404"), "Cannot fetch 'messages[0].content[1].image_url.url': its server"),
        (b"<html>", "'messages[0].content[1].image_url.url' is no image and no PDF."),
    ],
)
async def test_content_that_cannot_be_had_is_a_400_that_names_the_part(
    client: Client,
    gateway: Gateway,
    upstream: FakeUpstream,
    web: dict[str, bytes | Exception],
    page: bytes | Exception,
    message: str,
) -> None:
    web[ADDRESS] = page
    holds = record_holds(gateway)
    response, document = await client.chat(model="seen", messages=asking(image()))
    assert (response.status, document["error"]["code"]) == (400, "invalid_value")
    assert document["error"]["param"] == "messages[0].content[1].image_url.url"
    assert message in document["error"]["message"] and "example.com" not in document["error"]["message"]
    assert not holds and not upstream.seen
    assert gateway.bodies.memory.used == gateway.media_fetching.budget.used == 0


@pytest.mark.parametrize("model", ["blind", "closed", "unknown"])
async def test_nothing_is_fetched_without_the_setting_or_the_permission(
    client: Client, web: dict[str, bytes | Exception], monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setattr(PublicClient, "get", lambda *rest, **options: pytest.fail("fetched"))
    response, _ = await client.chat(model=model, messages=asking(image()))
    assert response.status == (400 if model == "blind" else 403)


async def test_more_addresses_than_a_request_may_name_are_refused(
    client: Client, web: dict[str, bytes | Exception]
) -> None:
    response, document = await client.chat(model="seen", messages=asking(*[image()] * 33))
    assert (response.status, document["error"]["param"]) == (400, "messages[0].content[33].image_url.url")


async def test_account_fetches_a_few_addresses_at_a_time(
    client: Client, gateway: Gateway, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most, release = 0, 0, asyncio.Event()

    async def get(self: PublicClient, url: str, **_: Any) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 16:
            release.set()
        await release.wait()
        running -= 1
        return IMAGE

    monkeypatch.setattr(PublicClient, "get", get)
    for _ in range(5):
        upstream.enqueue(Reply.json(ANSWER))
    parts = [image(f"{ADDRESS}?{n}") for n in range(8)]
    answers = await asyncio.gather(*(client.chat(model="seen", messages=asking(*parts)) for _ in range(5)))
    assert most == 16
    statuses = sorted(response.status for response, _ in answers)
    assert statuses == [200, 200, 200, 200, 429]
    assert gateway.bodies.memory.used == gateway.media_fetching.budget.used == 0


async def test_content_beyond_the_memory_of_an_account_is_refused(
    client: Client, gateway: Gateway, web: dict[str, bytes | Exception]
) -> None:
    gateway.bodies.memory.most_of_account = 1000
    web[ADDRESS] = IMAGE + b"x" * 2000
    response, document = await client.chat(model="seen", messages=asking(image()))
    assert (response.status, document["error"]["code"]) == (429, "concurrency_limit_exceeded")
    assert gateway.bodies.memory.used == 0


async def test_private_address_is_refused_without_a_connection(client: Client) -> None:
    for url in ("https://127.0.0.1/x.png", "https://169.254.169.254/x.png", "https://localhost/x.png"):
        response, document = await client.chat(model="seen", messages=asking(image(url)))
        assert response.status == 400
        assert public_fetch.NOT_PUBLIC in document["error"]["message"], json.dumps(document)
