"""One connection carries many requests: what one says, or is allowed, holds for no other."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from gateway import log
from gateway.accounts.accounts import Accounts
from gateway.accounts.key_record import CreatedKey
from gateway.accounts.keys import Keys
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from tests.api.conftest import Client


class Line:
    """A client that never opens a second connection."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def ask(self, key: str, text: str = "Hi", **headers: str) -> tuple[int, Any, dict[str, str]]:
        """Status, document and headers of one chat call."""
        document = {"model": "m1", "messages": [{"role": "user", "content": text}]}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.post(
            self._url, json=document, headers={"Authorization": f"Bearer {key}", **named}
        ) as response:
            return response.status, await response.json(), dict(response.headers)


@asynccontextmanager
async def one_line(client: Client) -> AsyncIterator[Line]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
        yield Line(session, client.base_url + "/v1/chat/completions")


async def test_each_request_on_a_connection_uses_its_own_key(
    client: Client, accounts: Accounts, keys: Keys, api_key: CreatedKey
) -> None:
    await accounts.create("other", balance=10**9)
    first, second = api_key.text, (await keys.create("other")).text
    async with one_line(client) as line:
        for key, account in [(first, "acme"), (first, "acme"), (second, "other"), (first, "acme"), (second, "other")]:
            status, _, headers = await line.ask(key)
            assert (status, headers["openai-organization"]) == (200, account)


async def test_key_revoked_between_two_equal_requests_is_refused(
    client: Client, keys: Keys, api_key: CreatedKey, upstream: FakeUpstream
) -> None:
    async with one_line(client) as line:
        for _ in range(3):
            assert (await line.ask(api_key.text))[0] == 200
        await keys.revoke(api_key.id)
        status, document, _ = await line.ask(api_key.text)
        assert (status, document["error"]["message"]) == (401, "Missing or invalid API key")
    assert len(upstream.seen) == 3


async def test_bodies_of_any_length_arrive_complete(
    client: Client, api_key: CreatedKey, upstream: FakeUpstream
) -> None:
    key = api_key.text
    texts = ["a", "b", "cc" * 50, "dd" * 50, "e" * 200_000, "f", "é" * 100, "g" * 70_000]
    async with one_line(client) as line:
        for text in texts:
            assert (await line.ask(key, text))[0] == 200
    assert [json.loads(seen.body)["messages"][0]["content"] for seen in upstream.seen] == texts


async def test_headers_of_a_caller_are_read_for_each_request(
    client: Client, gateway: Gateway, api_key: CreatedKey, capfd: pytest.CaptureFixture[str]
) -> None:
    key = api_key.text
    said = [{}, {"X_Client_Request_Id": "one"}, {"X_Client_Request_Id": "two"}, {}, {"OpenAI_Project": "p"}, {}]
    async with one_line(client) as line:
        answers = [await line.ask(key, **headers) for headers in said]
    assert [headers.get("X-Client-Request-Id") for _, _, headers in answers] == [None, "one", "two", None, None, None]
    gateway.access_log.flush()
    assert log.stderr.flush(within=60.0)
    lines = [json.loads(text) for text in capfd.readouterr().err.splitlines() if '"path"' in text]
    assert [line.get("client_request_id") for line in lines] == [None, "one", "two", None, None, None]
    assert [line.get("project") for line in lines] == [None, None, None, None, "p", None]


async def test_key_in_the_text_of_a_caller_is_not_logged(
    client: Client, gateway: Gateway, api_key: CreatedKey, capfd: pytest.CaptureFixture[str]
) -> None:
    key = api_key.text
    async with one_line(client) as line:
        for _ in range(2):
            await line.ask(key, X_Client_Request_Id=key, OpenAI_Project=key, X_Stainless_Lang=key)
    gateway.access_log.flush()
    assert log.stderr.flush(within=60.0)
    assert key not in capfd.readouterr().err


async def test_each_request_on_a_connection_has_its_own_idempotency_key(
    client: Client, api_key: CreatedKey, upstream: FakeUpstream
) -> None:
    key = api_key.text
    async with one_line(client) as line:
        ids = [(await line.ask(key, Idempotency_Key=name))[1]["id"] for name in ("a", "a", "b", "a")]
    assert ids[0] == ids[1] == ids[3] != ids[2]
    assert len(upstream.seen) == 2
