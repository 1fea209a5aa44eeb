"""The model that an answer, its receipt and its ledger line name when a fallback served."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.authenticator import KeyView
from gateway.accounts.keys import Keys
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.errors import StoreUnavailable
from gateway.ledger import Ledger, LedgerLine
from gateway.ledger.api_key import ApiKey
from gateway.ledger.inflight_checkpoint import InflightCheckpoint, read_inflight_checkpoint
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from gateway.testing.fake_upstream import Reply
from tests.api.conftest import Client
from tests.inference.test_continuation import chunk, cut, rest, said
from tests.polling import until

BROKEN = Reply.error(500, "broken")


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream, other: FakeUpstream) -> Settings:
    """`best` falls back to `small`, `discreet` to `hidden`, which the default group may not use."""

    def model(provider: str, **fields: Any) -> dict[str, Any]:
        price = {"input": 1, "output": 2}
        endpoints = ["chat", "embeddings"]
        return {"provider": provider, "endpoints": endpoints, "price": price, "retries": 1, **fields}

    key = "sk-upstream-canary-0123456789"
    return parse(
        {
            "server": {"response_headers": ["model", "provider", "attempts"]},
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "one": {"plugin": "openai", "base_url": upstream.base_url, "api_key": key},
                "two": {"plugin": "openai", "base_url": other.base_url, "api_key": key},
            },
            "groups": {"default": {}, "inner": {}},
            "models": {
                "best": model("one", fallbacks=["nickname"]),
                "discreet": model("one", fallbacks=["hidden"]),
                "going": model("one", fallbacks=["small"], continue_cut=True),
                "small": model("two", aliases=["nickname"], price={"input": 100, "output": 200}),
                "hidden": model("two", groups=["inner"]),
            },
        },
        demo=True,
    )


def frames(text: str) -> list[Any]:
    """The JSON of every data event."""
    return [msgspec.json.decode(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


async def embed(client: Client, model: str) -> Any:
    async with client.request("POST", "/v1/embeddings", json={"model": model, "input": "one two"}) as response:
        return await response.json()


async def receipt(client: Client, response: aiohttp.ClientResponse) -> Any:
    """The receipt of an answered call, once it is written."""

    async def found() -> Any:
        async with client.request("GET", f"/v1/usage/{response.headers['x-request-id']}") as answer:
            return await answer.json() if answer.status == 200 else None

    return await until(found)


async def used(ledger: Ledger) -> list[LedgerLine]:
    """The charges, once there is one."""

    async def found() -> list[LedgerLine]:
        return [line async for line in ledger.lines("acme") if line.kind == "use"]

    return await until(found)


async def test_a_whole_answer_names_the_fallback_that_served(
    client: Client, upstream: FakeUpstream, other: FakeUpstream
) -> None:
    upstream.enqueue(BROKEN)
    response, document = await client.chat(model="best")
    assert (response.status, document["model"]) == (200, "small")
    assert response.headers["x-gateway-model"] == "small"
    assert len(other.seen) == 1


async def test_every_chunk_of_a_stream_names_the_fallback_that_served(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(BROKEN)
    response, text, failure = await client.stream(model="best", stream_options={"include_usage": True})
    assert failure is None
    assert text.endswith("data: [DONE]\n\n")
    assert {frame["model"] for frame in frames(text)} == {"small"}
    assert response.headers["x-gateway-model"] == "small"


async def test_embeddings_name_the_fallback_that_served(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(BROKEN)
    assert (await embed(client, "best"))["model"] == "small"


async def test_a_fallback_that_the_caller_s_group_may_not_use_is_not_named(
    client: Client, upstream: FakeUpstream
) -> None:
    upstream.enqueue(BROKEN, BROKEN, BROKEN)
    response, document = await client.chat(model="discreet")
    assert (response.status, document["model"]) == (200, "discreet")
    assert response.headers["x-gateway-model"] == "hidden"
    _, text, _ = await client.stream(model="discreet")
    assert {frame["model"] for frame in frames(text)} == {"discreet"}
    assert (await embed(client, "discreet"))["model"] == "discreet"


async def test_the_account_s_own_rules_decide_whether_the_fallback_is_named(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    await accounts.allow("acme", ["hidden"])
    await accounts.deny("acme", ["small"])
    upstream.enqueue(BROKEN, BROKEN)
    assert (await client.chat(model="discreet"))[1]["model"] == "hidden"
    assert (await client.chat(model="best"))[1]["model"] == "best"


@pytest.mark.parametrize(("models", "named"), [(["best"], "best"), (["best", "small"], "small")])
async def test_the_key_s_own_models_decide_whether_the_fallback_is_named(
    client: Client, upstream: FakeUpstream, keys: Keys, models: list[str], named: str
) -> None:
    client.headers = {**client.headers, "Authorization": f"Bearer {(await keys.create('acme', models=models)).text}"}
    upstream.enqueue(BROKEN)
    response, document = await client.chat(model="best")
    assert (response.status, document["model"]) == (200, named)


async def test_permission_is_only_read_when_a_fallback_served(
    client: Client, gateway: Gateway, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ApiKey] = []
    confirm = gateway.auth.confirm

    async def recorded(key: ApiKey, models: Iterable[str] = ()) -> KeyView:
        asked.append(key)
        return await confirm(key, models)

    monkeypatch.setattr(gateway.auth, "confirm", recorded)
    assert (await client.chat(model="best"))[1]["model"] == "best"
    await client.stream(model="best")
    await embed(client, "best")
    assert asked == []
    upstream.enqueue(BROKEN)
    await client.chat(model="best")
    assert len(asked) == 1


async def test_an_answer_whose_permission_cannot_be_read_keeps_the_requested_name(
    client: Client, gateway: Gateway, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: ApiKey, __: Iterable[str]) -> KeyView:
        raise StoreUnavailable(detail="away")

    monkeypatch.setattr(gateway.auth, "confirm", away)
    upstream.enqueue(BROKEN, BROKEN)
    response, document = await client.chat(model="best")
    assert (response.status, document["model"]) == (200, "best")
    response, text, failure = await client.stream(model="best")
    assert (response.status, failure) == (200, None)
    assert {frame["model"] for frame in frames(text)} == {"best"}


async def test_a_client_that_disconnects_while_permission_is_read_leaves_no_open_upstream(
    client: Client, gateway: Gateway, upstream: FakeUpstream, other: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = asyncio.Event()

    async def never(_: ApiKey, __: Iterable[str]) -> KeyView:
        reading.set()
        return await asyncio.Future()

    monkeypatch.setattr(gateway.auth, "confirm", never)
    upstream.enqueue(BROKEN)
    endless = Reply.stream([chunk({"role": "assistant", "content": "Once "})], done=False)
    endless.end = "silence"
    other.enqueue(endless)
    asking = asyncio.create_task(client.stream(model="best"))
    await reading.wait()
    asking.cancel()
    await until(lambda: other.seen[0].outcome == "left")
    await until(lambda: not gateway.active_calls._calls)
    assert {circuit.in_flight for circuit in gateway.health.all()} == {0}


async def test_receipt_and_ledger_line_name_the_requested_and_the_serving_model_at_the_requested_price(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(BROKEN)
    response, document = await client.chat(model="best")
    told = await receipt(client, response)
    assert (told["model"], told["served_model"]) == ("best", "small")
    [line] = await used(ledger)
    form = line.json_form()
    assert (form["model"], form["served_model"], form["provider"]) == ("best", "small", "two")
    usage = document["usage"]
    assert -line.amount == usage["prompt_tokens"] * 1000 + usage["completion_tokens"] * 2000


async def test_receipt_and_ledger_line_of_a_call_without_fallback_name_one_model(
    client: Client, ledger: Ledger
) -> None:
    response, _ = await client.chat(model="best")
    told = await receipt(client, response)
    assert (told["model"], told["served_model"]) == ("best", "best")
    [line] = await used(ledger)
    assert line.json_form()["served_model"] == "best"
    assert "served_model" not in line.meta


async def test_a_receipt_hides_the_fallback_as_the_answer_does_and_the_ledger_line_does_not(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(BROKEN)
    response, _ = await client.chat(model="discreet")
    told = await receipt(client, response)
    assert (told["model"], told["served_model"]) == ("discreet", "discreet")
    [line] = await used(ledger)
    assert (line.meta["model"], line.meta["served_model"]) == ("discreet", "hidden")


async def test_a_replayed_answer_keeps_the_stored_model_name_even_if_the_fallback_is_denied_later(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    upstream.enqueue(BROKEN)
    document = {"model": "best", "messages": [{"role": "user", "content": "Hi"}]}
    answers = []
    for _ in range(2):
        headers = {**client.headers, "Idempotency-Key": "order-1"}
        async with client.request("POST", "/v1/chat/completions", json=document, headers=headers) as response:
            answers.append((await response.read(), response.headers.get("Idempotent-Replayed")))
        await accounts.deny("acme", ["small"])
    assert answers[1] == (answers[0][0], "true")
    assert msgspec.json.decode(answers[1][0])["model"] == "small"


async def test_a_stream_continued_by_a_fallback_keeps_its_first_model_name(
    client: Client, upstream: FakeUpstream, other: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(cut({"content": "Once upon "}))
    other.enqueue(rest("a time."))
    _, text, failure = await client.stream(model="going")
    assert failure is None
    assert said(text) == "Once upon a time."
    assert {frame["model"] for frame in frames(text)} == {"going"}
    [line] = await used(ledger)
    assert (line.meta["model"], line.meta["served_model"], line.meta["provider"]) == ("going", "small", "two")


async def test_the_charge_of_a_killed_worker_s_stream_names_the_fallback_that_served(
    client: Client, upstream: FakeUpstream, other: FakeUpstream, ledger: Ledger, tmp_path: Path
) -> None:
    ledger.checkpoint = InflightCheckpoint(tmp_path / "a.board")
    upstream.enqueue(BROKEN)
    endless = Reply.stream([chunk({"role": "assistant", "content": "Once "})], done=False)
    endless.end = "silence"
    other.enqueue(endless)
    asking = asyncio.create_task(client.stream(model="best"))
    [entry] = await until(lambda: read_inflight_checkpoint(tmp_path / "a.board").entries)
    meta = msgspec.json.decode(entry.meta)
    assert (meta["model"], meta["served_model"]) == ("best", "small")
    asking.cancel()
