"""What the access line and the metrics of a refused request tell an operator afterwards."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientPayloadError

from gateway.accounts.accounts import Accounts
from gateway.accounts.key_record import CreatedKey
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.log import AccessLine, stderr
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.polling import until

from .conftest import Client

MARKS = {
    "User-Agent": "acme-app/1.2",
    "X-Request-ID": "trace-me-42",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """One model for each group; the groups have one small limit each."""
    groups = ["default", "slow", "narrow", "one"]
    model = {"provider": "up", "price": {"input": 1, "output": 2}, "retries": 0, "groups": groups}
    return parse(
        {
            "server": {"trusted_proxies": ["127.0.0.0/8", "10.0.0.0/8"]},
            "store": {"data_dir": str(tmp_path)},
            "providers": {"up": {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary"}},
            "groups": {
                "default": {},
                "slow": {"rpm": 1},
                "narrow": {"tpm": 2000},
                "one": {"concurrency": 1},
                "inner": {},
            },
            "models": {"m1": {**model, "aliases": ["nick"]}, "secret": {**model, "groups": ["inner"]}},
        },
        demo=True,
    )


@pytest.fixture
def lines(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> list[AccessLine]:
    """The access lines that are written."""
    written: list[AccessLine] = []
    monkeypatch.setattr(gateway.access_log, "write", written.append)
    return written


async def line_of(lines: list[AccessLine]) -> Any:
    """The one line that is written."""
    await until(lambda: lines)
    (line,) = lines
    lines.clear()
    return line


def counted(gateway: Gateway, name: str) -> dict[tuple[str, ...], float]:
    delta = gateway.metrics.drain()
    return {} if delta is None else {tuple(labels): value for found, labels, value in delta.counters if found == name}


def marked(client: Client, **more: str) -> dict[str, str]:
    return {**client.headers, **MARKS, **more}


def assert_marks(line: Any) -> None:
    assert line.user_agent == "acme-app/1.2"
    assert line.caller_request_id == "trace-me-42"
    assert line.traceparent == MARKS["traceparent"]
    assert line.client == "127.0.0.1"


async def post(client: Client, headers: dict[str, str], **fields: Any) -> int:
    document = {"model": "m1", "messages": [{"role": "user", "content": "Hi"}], **fields}
    async with client.request("POST", "/v1/chat/completions", headers=headers, json=document) as response:
        await response.read()
        return response.status


async def test_line_of_a_401_has_the_end_of_the_unknown_key_and_the_caller(
    client: Client, lines: list[AccessLine]
) -> None:
    key = "sk-" + "a" * 40 + "wxyz"
    assert await post(client, marked(client, Authorization=f"Bearer {key}")) == 401
    line = await line_of(lines)
    assert line.key_last4 == "wxyz"
    assert_marks(line)
    assert await post(client, marked(client, Authorization="Bearer sk-short")) == 401
    assert (await line_of(lines)).key_last4 == ""


@pytest.mark.parametrize("model", ["secret", "no-such-model"])
async def test_line_of_a_403_has_the_requested_model(
    client: Client, lines: list[AccessLine], gateway: Gateway, model: str
) -> None:
    assert await post(client, marked(client), model=model) == 403
    line = await line_of(lines)
    assert (line.model, line.account) == (model, "acme")
    assert_marks(line)
    labels = ("chat", "secret" if model == "secret" else "unknown", "", "model_not_permitted")
    assert counted(gateway, "gateway_requests") == {labels: 1.0}


@pytest.mark.holds("operations/log.md#refused-requests-3")
@pytest.mark.parametrize(
    ("group", "key", "limit", "scope"),
    [
        ("slow", {}, "rpm", "account"),
        ("default", {"rpm": 1}, "rpm", "key"),
        ("slow", {"rpm": 2}, "rpm", "account"),
        ("narrow", {}, "tpm", "account"),
        ("default", {"tpm": 2000}, "tpm", "key"),
        ("default", {"budget": 1}, "budget", "key"),
        ("one", {}, "concurrency", "account"),
        ("one", {"concurrency": 1}, "concurrency", "key"),
    ],
)
async def test_line_and_metric_of_a_429_name_the_limit_and_whose_it_is(
    client: Client,
    upstream: FakeUpstream,
    accounts: Accounts,
    keys: Keys,
    lines: list[AccessLine],
    gateway: Gateway,
    group: str,
    key: dict[str, Any],
    limit: str,
    scope: str,
) -> None:
    await accounts.create("limited", balance=10 * NANO, group=group)
    text = (await keys.create("limited", **key)).text
    headers = marked(client, Authorization=f"Bearer {text}")
    upstream.enqueue(Reply.silence())
    calls = [asyncio.create_task(post(client, headers, model="nick", max_tokens=1500)) for _ in range(3)]
    await until(lambda: [line for line in lines if line.status == 429])
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    line: Any = next(line for line in lines if line.status == 429)
    assert (line.limit, line.scope, line.model) == (limit, scope, "m1")
    assert_marks(line)
    assert set(counted(gateway, "gateway_limit_refusals")) == {("m1", limit, scope)}


async def test_line_of_an_empty_account_names_the_balance(
    client: Client, accounts: Accounts, keys: Keys, lines: list[AccessLine]
) -> None:
    await accounts.create("poor")
    headers = marked(client, Authorization=f"Bearer {(await keys.create('poor')).text}")
    assert await post(client, headers) == 429
    line = await line_of(lines)
    assert (line.limit, line.scope, line.model) == ("balance", "account", "m1")


@pytest.mark.holds("operations/log.md#refused-requests-3")
async def test_line_and_metrics_while_a_circuit_is_open_have_the_model(
    client: Client, lines: list[AccessLine], gateway: Gateway
) -> None:
    gateway.health.circuit("up", 0, "m1", "chat").open("failures", time.monotonic(), 30.0)
    assert await post(client, marked(client)) == 503
    line = await line_of(lines)
    assert (line.model, line.limit, line.scope) == ("m1", "circuit", "upstream")
    assert_marks(line)
    assert counted(gateway, "gateway_requests") == {("chat", "m1", "", "service_unavailable"): 1.0}


@pytest.mark.parametrize("name", ["x-request-id", "request-id", "x-amzn-RequestId", "apim-request-id"])
async def test_line_of_a_failed_call_has_the_upstreams_request_id(
    client: Client, upstream: FakeUpstream, lines: list[AccessLine], gateway: Gateway, name: str
) -> None:
    upstream.enqueue(Reply.json({"error": {"message": "slow down"}}, status=429, headers={name: "req-up-7"}))
    assert await post(client, marked(client)) == 429
    line = await line_of(lines)
    assert (line.upstream_request_id, line.limit, line.scope) == ("req-up-7", "rate", "upstream")
    assert (line.attempts, line.provider) == (1, "up")
    assert_marks(line)
    assert counted(gateway, "gateway_limit_refusals") == {("m1", "rate", "upstream"): 1.0}


async def test_line_names_the_client_behind_trusted_proxies(client: Client, lines: list[AccessLine]) -> None:
    headers = marked(client, **{"Authorization": "Bearer x", "X-Forwarded-For": "1.1.1.1, 203.0.113.9, 10.0.0.2"})
    assert await post(client, headers) == 401
    assert (await line_of(lines)).client == "203.0.113.9"


async def test_callers_texts_are_cut_and_redacted(client: Client, lines: list[AccessLine]) -> None:
    headers = {"Authorization": "Bearer x", "User-Agent": "a" * 5000, "X-Request-ID": "sk-in-the-wrong-header"}
    assert await post(client, headers) == 401
    line = await line_of(lines)
    assert len(line.user_agent) == 200
    assert "wrong-header" not in line.caller_request_id


@pytest.mark.holds("operations/log.md#refused-requests-3")
async def test_line_of_a_served_request_has_none_of_this(
    client: Client, upstream: FakeUpstream, lines: list[AccessLine], gateway: Gateway
) -> None:
    upstream.enqueue(
        Reply.json(
            {
                "id": "x",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        )
    )
    assert await post(client, marked(client)) == 200
    assert type(await line_of(lines)) is AccessLine
    async with client.request("GET", "/v1/models") as response:
        assert response.status == 200
    assert type(await line_of(lines)) is AccessLine


def test_facts_are_written_as_json(gateway: Gateway, capfd: pytest.CaptureFixture[str], io_loop: Any) -> None:
    from gateway.api.refusal_line import RefusalLine

    async def write() -> Iterator[str]:
        gateway.access_log.write(RefusalLine("req_1", "POST", "/v1/x", 429, 1.0, limit="rpm", scope="key"))
        gateway.access_log.flush()
        assert stderr.flush(within=60.0)
        return iter(capfd.readouterr().err.splitlines())

    (text,) = io_loop.run_sync(write)
    document = json.loads(text)
    assert (document["limit"], document["scope"]) == ("rpm", "key")
    assert "client" not in document


@pytest.mark.holds("operations/history.md#refused-requests-2")
async def test_refusals_are_counted_by_key_model_and_code(
    client: Client, gateway: Gateway, api_key: CreatedKey
) -> None:
    account, key_id = api_key.account, api_key.id
    await client.chat(model="secret")
    await client.chat(model="not-configured")
    await client.chat()
    other = Client(client.base_url, {"Authorization": "Bearer sk-" + "x" * 43})
    for _ in range(2):
        await other.chat(model="m1")
    found = {label[1:]: count for label, count in gateway.refusals._counts.items()}
    assert found == {
        (account, key_id, "secret", "model_not_permitted"): 1,
        (account, key_id, "", "model_not_permitted"): 1,
        ("", "", "", "invalid_api_key"): 2,
    }


@pytest.mark.parametrize("delivered", [0, 1])
async def test_line_of_a_stream_that_fails_has_the_id_of_the_upstreams_answer(
    client: Client, upstream: FakeUpstream, lines: list[AccessLine], delivered: int
) -> None:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m1", "choices": [
        {"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}
    ]}  # fmt: skip
    failure = {"error": {"message": "it broke", "type": "server_error", "code": None}}
    reply = Reply.stream([chunk] * delivered + [failure])
    reply.headers["x-request-id"] = "req-up-8"
    upstream.enqueue(reply)
    with suppress(ClientPayloadError):  # a stream that fails ends without the end of its body
        await post(client, marked(client), stream=True)
    line = await line_of(lines)
    assert line.upstream_request_id == "req-up-8"
    assert_marks(line)
