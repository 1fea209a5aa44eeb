"""The access line and the call record are made by position: every field has the value of its own name."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.accounts.key_record import CreatedKey
from gateway.amounts import format_amount
from gateway.billing.call_record import CallRecord
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.errors.attempt_answer import AttemptAnswer
from gateway.ledger import Ledger
from gateway.log import AccessLine, stderr
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.api.endpoints.test_chat_stream import chunk
from tests.ledger_lines import last_line
from tests.polling import until

USAGE = {"prompt_tokens": 17, "completion_tokens": 2, "total_tokens": 19}
HEADERS = {
    "X-Client-Request-Id": "client-1",
    "OpenAI-Organization": "org-1",
    "OpenAI-Project": "proj-2",
    "X-Stainless-Lang": "python",
    "X-Stainless-Package-Version": "3.52.0",
    "X-Gateway-Tags": "team=search",
    "X-Gateway-Session": "agent-7",
}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    provider = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
    price = {"input": 1, "output": 2}
    return parse(
        {
            "server": {"tags": ["team"]},
            "store": {"data_dir": str(tmp_path)},
            "providers": {"one": provider, "two": provider},
            "models": {
                "asked": {"provider": "one", "model": "a", "retries": 1, "price": price, "fallbacks": ["served"]},
                "served": {"provider": "two", "model": "b", "retries": 0, "price": price},
            },
        },
        demo=True,
    )


def answer(stream: bool) -> Reply:
    if stream:
        last = {**chunk(), "choices": [], "usage": USAGE}
        return Reply.stream([chunk({"content": "Hi"}), chunk(finish="stop"), last])
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    return Reply.json({"id": "x", "object": "chat.completion", "model": "b", "choices": [choice], "usage": USAGE})


@pytest.mark.holds("prices.md#what-is-collected-7")
@pytest.mark.parametrize("stream", [False, True])
async def test_every_column_of_a_call_has_its_own_value(
    client: Client,
    upstream: FakeUpstream,
    gateway: Gateway,
    ledger: Ledger,
    api_key: CreatedKey,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stream: bool,
) -> None:
    records: list[CallRecord] = []
    settled = gateway.metrics.settled

    def recorded(record: CallRecord, **rest: Any) -> None:
        records.append(record)
        settled(record, **rest)

    monkeypatch.setattr(gateway.metrics, "settled", recorded)
    upstream.enqueue(Reply.error(500, "broken"), answer(stream))
    document = {"model": "asked", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    path = "/v1/chat/completions"
    async with client.request("POST", path, headers={**client.headers, **HEADERS}, json=document) as response:
        assert response.status == 200
        await response.read()
    request_id = response.headers["x-request-id"]
    line = await until(lambda: last_line(ledger, "acme", request_id))
    (record,) = records
    fields = structs.asdict(record)
    cost = 17 * 1000 + 2 * 2000
    assert fields.pop("duration") > 0
    assert (fields.pop("first_token") is not None) == stream
    usage = fields.pop("usage")
    assert (usage.tokens_in, usage.tokens_out) == (17, 2)
    failed, served = record.answers or ()
    assert fields.pop("answers") == (
        AttemptAnswer("one", "asked", "upstream_error", 500, failed.ms),
        AttemptAnswer("two", "served", "ok", 200, served.ms),
    )
    assert fields == {
        "error": "",
        "price_version": gateway.catalog.models["asked"].price.version,
        "credential": 1,
        "request_id": request_id,
        "endpoint": "chat",
        "account": "acme",
        "key": api_key.id,
        "model": "asked",
        "provider": "two",
        "outcome": "ok",
        "status": 200,
        "tokens_in": 17,
        "tokens_out": 2,
        "cost": cost,
        "attempts": 2,
        "stream": stream,
        "served_model": "served",
        "upstream_model": "b",
        "service_tier": None,
        "upstream_cost": None,
        "user": "",
        "tags": {"team": "search"},
        "session": "agent-7",
        "joined": None,
        "hooks": None,
    }
    assert line.meta["endpoint"] == "chat"
    assert 0 <= line.meta["duration_ms"] <= record.duration * 1000 + 1
    assert ("first_token_ms" in line.meta) == ((record.first_token or 0.0) > 0.0005)
    meta = {name: line.meta[name] for name in ("key", "model", "provider", "upstream", "attempts", "outcome")}
    assert meta == {
        "key": api_key.id, "model": "asked", "provider": "two", "upstream": "b", "attempts": 2, "outcome": "ok"
    }  # fmt: skip
    assert (line.amount, line.meta["served_model"]) == (-cost, "served")
    gateway.access_log.flush()
    assert stderr.flush(within=60.0)
    (text,) = [text for text in capfd.readouterr().err.splitlines() if '"path"' in text]
    logged = json.loads(text)
    assert logged.pop("at").endswith("Z")
    assert logged.pop("ms") > 0
    assert logged == {
        "request_id": request_id,
        "method": "POST",
        "path": path,
        "status": 200,
        "account": "acme",
        "key": api_key.id,
        "model": "asked",
        "provider": "two",
        "tokens_in": 17,
        "tokens_out": 2,
        "cost": format_amount(cost),
        "attempts": 2,
        **({"stream": True} if stream else {}),
        "client_request_id": "client-1",
        "organization": "org-1",
        "project": "proj-2",
        "sdk": "python 3.52.0",
    }
    # With a default, a column that is missing here would not be in the line: outcome "ok" and the empty detail.
    assert set(structs.asdict(AccessLine("", "", "", 0, 0.0))) - set(logged) == {"at", "ms", "outcome", "detail"} | (
        set() if stream else {"stream"}
    )


async def test_failed_call_has_its_outcome_and_detail_in_their_columns(
    client: Client, upstream: FakeUpstream, gateway: Gateway, capfd: pytest.CaptureFixture[str]
) -> None:
    upstream.enqueue(*[Reply.error(500, "broken")] * 2)
    response, document = await client.chat(model="asked")
    gateway.access_log.flush()
    assert stderr.flush(within=60.0)
    (text,) = [text for text in capfd.readouterr().err.splitlines() if '"path"' in text]
    logged = json.loads(text)
    assert logged["status"] == response.status
    assert logged["outcome"] == document["error"]["code"]
    assert logged["attempts"] == 2
    assert logged["detail"] == "upstream status 500: error"
