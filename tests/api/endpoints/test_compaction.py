"""Compaction of a Responses conversation, in both forms, on models that have it and on all others."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.accounts import sealed_text
from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ids import to_request_id
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.schemas.responses.compaction import BEFORE, INSTRUCTION
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, settled
from tests.api.endpoints.test_chat_stream import HELLO, USAGE, chunk
from tests.api.endpoints.test_responses_stream import events_of
from tests.ledger_lines import last_line
from tests.polling import until

PATH = "/v1/responses"
COMPACT = "/v1/responses/compact"
TRIGGER = {"type": "compaction_trigger"}
TURNS = [
    {"role": "user", "content": "Fix the test"},
    {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "text"},
]
TOOLS = [{"type": "function", "name": "read", "parameters": {"type": "object"}}]
FOREIGN = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA-opaque"}
NATIVE_USAGE = {"input_tokens": 17, "output_tokens": 2, "total_tokens": 19}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """m1 with chat completions, `native` with compaction, `plain` with Responses alone."""
    up = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
    model = {"model": "upstream-m1", "price": {"input": 1, "output": 2}, "retries": 0}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "server": {"websocket": {"responses": True}},
            "providers": {
                "up": up,
                "native": {**up, "responses": True, "responses_tools": ["compaction"]},
                "plain": {**up, "responses": True, "responses_tools": ["namespace"]},
            },
            "groups": {"default": {}},
            "models": {
                "m1": {**model, "provider": "up"},
                "native": {**model, "provider": "native"},
                "plain": {**model, "provider": "plain"},
            },
        },
        demo=True,
    )


async def ask(client: Client, path: str = PATH, **fields: Any) -> tuple[int, Any]:
    """The status, and the JSON of the answer."""
    document = {"model": "m1", "input": [*TURNS, TRIGGER], **fields}
    async with client.request("POST", path, json=document) as response:
        return response.status, await response.json()


async def stream(client: Client, **fields: Any) -> list[dict[str, Any]]:
    """The events of a streamed answer."""
    document = {"model": "m1", "input": [*TURNS, TRIGGER], "stream": True, **fields}
    async with client.request("POST", PATH, json=document) as response:
        assert response.status == 200, await response.text()
        text = b""
        with suppress(aiohttp.ClientPayloadError):  # of an answer that is cut
            async for part in response.content.iter_any():
                text += part
        return events_of(text.decode())


def whole(text: str | None = "Hello", finish: str = "stop") -> Reply:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return Reply.json({"id": "up", "object": "chat.completion", "created": 1, "choices": [choice], "usage": USAGE})


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


async def compacted(client: Client, upstream: FakeUpstream) -> dict[str, Any]:
    """The item of a compaction whose summary is "Hello"."""
    upstream.enqueue(whole())
    status, body = await ask(client)
    assert status == 200
    item: dict[str, Any] = body["output"][0]
    return item


async def test_any_model_is_asked_for_a_summary_which_comes_back_as_one_item(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    upstream.enqueue(Reply.stream(HELLO))
    text = {"format": {"type": "json_object"}}
    events = await stream(client, tools=TOOLS, tool_choice="auto", text=text, instructions="Be brief")

    assert types(events) == ["created", "in_progress", "output_item.added", "output_item.done", "completed"]
    response = events[-1]["response"]
    [item] = response["output"]
    assert item == events[2]["item"] == events[3]["item"]
    assert set(item) == {"type", "id", "encrypted_content"} and item["type"] == "compaction"
    assert "Hello" not in json.dumps(events)
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (17, 2)
    sent = upstream.seen[0].json
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "tool", "user"]
    assert sent["messages"][-1]["content"] == INSTRUCTION
    assert len(sent["tools"]) == 1 and sent["tool_choice"] == "none"
    assert "response_format" not in sent
    assert (await settled(accounts)).balance == 10 * NANO - 21_000


async def test_summary_takes_the_place_of_its_item(client: Client, upstream: FakeUpstream) -> None:
    item = await compacted(client, upstream)
    for kind in ("compaction", "compaction_summary"):
        upstream.enqueue(whole())
        status, _ = await ask(client, input=[{**item, "type": kind}, {"role": "user", "content": "Go on"}])
        assert status == 200
        sent = upstream.seen[-1].json["messages"]
        assert [message["content"] for message in sent] == [BEFORE + "Hello", "Go on"]


@pytest.mark.parametrize("model", ["native", "plain"])
async def test_upstream_of_the_dialect_gets_the_summary_in_place_of_its_item(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    item = await compacted(client, upstream)
    upstream.enqueue(Reply.json({"status": "completed", "output": [], "usage": NATIVE_USAGE}))
    status, _ = await ask(client, model=model, input=[item, {"role": "user", "content": "Go on"}])
    assert status == 200
    message, last = upstream.seen[-1].json["input"]
    assert message["content"][0]["text"] == BEFORE + "Hello"
    assert last == {"role": "user", "content": "Go on"}


async def test_changed_item_is_refused_by_name(client: Client, upstream: FakeUpstream) -> None:
    item = await compacted(client, upstream)
    sealed = item["encrypted_content"]
    for changed in (sealed[:-8] + "AAAAAAA=", sealed[:40], "gwc1.", "gwc1.%%%", sealed.replace("gwc1.", "gwc1.AAAA")):
        status, body = await ask(client, input=[{**item, "encrypted_content": changed}, TURNS[0]])
        assert (status, body["error"]["param"]) == (400, "input[0].encrypted_content"), changed
        assert body["error"]["code"] == "invalid_value"
    assert len(upstream.seen) == 1


async def test_item_of_another_account_is_refused(
    client: Client, upstream: FakeUpstream, accounts: Accounts, keys: Keys
) -> None:
    item = await compacted(client, upstream)
    await accounts.create("other", balance=NANO)
    key = await keys.create("other", name="k")
    client.headers = {"Authorization": f"Bearer {key.text}"}
    status, body = await ask(client, input=[item, TURNS[0]])
    assert (status, body["error"]["param"]) == (400, "input[0].encrypted_content")


@pytest.mark.parametrize("model", ["m1", "plain"])
async def test_item_of_another_service_is_refused_where_it_cannot_be_read(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    status, body = await ask(client, model=model, input=[FOREIGN, TURNS[0]])
    assert (status, body["error"]["code"]) == (400, "unsupported_parameter")
    assert body["error"]["param"] == "input[0].encrypted_content"
    assert not upstream.seen


async def test_item_of_another_service_goes_to_an_upstream_with_compaction(
    client: Client, upstream: FakeUpstream
) -> None:
    upstream.enqueue(Reply.json({"status": "completed", "output": [], "usage": NATIVE_USAGE}))
    status, _ = await ask(client, model="native", input=[FOREIGN, TURNS[0]])
    assert status == 200
    assert upstream.seen[0].json["input"][0] == FOREIGN


async def test_path_of_compactions_answers_with_its_own_object(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(whole())
    status, body = await ask(client, COMPACT, input=TURNS, tools=TOOLS)
    assert status == 200
    assert set(body) == {"id", "object", "created_at", "output", "usage"}
    assert body["object"] == "response.compaction"
    assert [item["type"] for item in body["output"]] == ["compaction"]
    assert body["usage"]["total_tokens"] == 19
    assert upstream.seen[0].json["messages"][-1]["content"] == INSTRUCTION
    line = await until(lambda: last_line(ledger, "acme", to_request_id(body["id"])))
    assert line.amount == -21_000


async def test_upstream_with_compaction_gets_the_trigger_as_it_is(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    last = {"status": "completed", "output": [FOREIGN], "usage": NATIVE_USAGE}
    upstream.enqueue(
        Reply.stream(
            [
                {"type": "response.created", "sequence_number": 0, "response": {"status": "in_progress", "output": []}},
                {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": FOREIGN},
                {"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": FOREIGN},
                {"type": "response.completed", "sequence_number": 3, "response": last},
            ],
            done=False,
        )
    )
    events = await stream(client, model="native")
    assert types(events) == ["created", "output_item.added", "output_item.done", "completed"]
    assert events[-1]["response"]["output"] == [FOREIGN]
    assert upstream.seen[0].json["input"] == [*TURNS, TRIGGER]
    assert (await settled(accounts)).balance == 10 * NANO - 21_000


async def test_upstream_with_compaction_gets_the_path_of_compactions(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    answer = {"id": "resp_up", "object": "response.compaction", "created_at": 1, "usage": NATIVE_USAGE}
    content = [{"type": "input_text", "text": "Fix the test"}]
    turn = {"type": "message", "id": "msg_1", "status": "completed", "role": "user", "content": content}
    upstream.enqueue(Reply.json({**answer, "output": [turn, FOREIGN]}))
    status, body = await ask(client, COMPACT, model="native", input=TURNS, store=False)
    assert status == 200
    assert body["output"] == [turn, FOREIGN]
    assert body["id"].startswith("resp_") and body["id"] != "resp_up"
    [seen] = upstream.seen
    assert seen.path.endswith("/responses/compact")
    assert seen.json == {"model": "upstream-m1", "input": TURNS}
    assert (await settled(accounts)).balance == 10 * NANO - 21_000


@pytest.mark.parametrize("given", [TURNS, "Hi"], ids=["items", "text"])
async def test_upstream_with_responses_alone_is_asked_for_a_summary(
    client: Client, upstream: FakeUpstream, given: Any
) -> None:
    content = [{"type": "output_text", "text": "Hello", "annotations": []}]
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    answer = {"status": "completed", "output": [message], "usage": NATIVE_USAGE}
    upstream.enqueue(Reply.json(answer))
    status, body = await ask(client, COMPACT, model="plain", input=given)
    assert status == 200
    assert [item["type"] for item in body["output"]] == ["compaction"]
    [seen] = upstream.seen
    assert seen.path.endswith("/responses")
    assert seen.json["input"][-1]["content"][0]["text"] == INSTRUCTION
    assert len(seen.json["input"]) == (len(TURNS) if given is TURNS else 1) + 1

    upstream.enqueue(
        Reply.stream(
            [
                {"type": "response.created", "sequence_number": 0, "response": {"status": "in_progress", "output": []}},
                {"type": "response.output_text.delta", "sequence_number": 1, "item_id": "msg_1", "delta": "Hello"},
                {"type": "response.completed", "sequence_number": 2, "response": answer},
            ],
            done=False,
        )
    )
    events = await stream(client, model="plain")
    assert types(events) == ["created", "in_progress", "output_item.added", "output_item.done", "completed"]
    assert TRIGGER not in upstream.seen[1].json["input"]


async def test_tokens_of_the_summary_are_estimated(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(whole("word " * 1000))
    _, body = await ask(client)
    status, counted = await ask(client, f"{PATH}/input_tokens", input=[body["output"][0]])
    assert status == 200 and counted["input_tokens"] > 500


async def test_trigger_must_be_the_last_item(client: Client, upstream: FakeUpstream) -> None:
    status, body = await ask(client, input=[TRIGGER, *TURNS])
    assert (status, body["error"]["param"]) == (400, "input[0].type")
    assert not upstream.seen


async def test_model_that_writes_nothing_is_no_compaction(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    upstream.enqueue(whole(" "))
    status, body = await ask(client)
    assert (status, body["error"]["code"]) == (502, "upstream_invalid_response")
    upstream.enqueue(Reply.stream([chunk({"content": " "}), chunk(finish="stop"), HELLO[-1]]))
    events = await stream(client)
    assert types(events)[-1] == "failed"
    assert "compaction" not in json.dumps(events)
    await settled(accounts)


async def test_cipher_is_imported_beside_the_loop_at_the_first_request(
    client: Client, upstream: FakeUpstream, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import takes 20 ms. Workers without requests of this API need none."""
    threads: list[int] = []
    cipher = sealed_text._cipher

    def noted() -> Any:
        threads.append(threading.get_ident())
        return cipher()

    monkeypatch.setattr(sealed_text, "_cipher", noted)
    async with client.request(
        "POST", "/v1/chat/completions", json={"model": "m1", "messages": [{"role": "user", "content": "Hi"}]}
    ) as response:
        assert (response.status, threads) == (200, [])
    for _ in range(2):
        status, _ = await ask(client, input="Hi")
        assert status == 200
        assert len(threads) == 1 and threads[0] != threading.get_ident()
    status, answer = await ask(client)
    assert (status, answer["output"][0]["type"], len(threads)) == (200, "compaction", 2)
