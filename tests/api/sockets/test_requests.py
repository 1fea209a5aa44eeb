"""Requests on one socket of `/v1/responses`: answered, held and settled as by HTTP, one after the other."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.key_record import CreatedKey
from gateway.accounts.keys import Keys
from gateway.ids import to_request_id
from gateway.ledger import Ledger
from gateway.schemas.responses.compaction import BEFORE
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, settled
from tests.api.endpoints.test_chat_stream import HELLO, chunk
from tests.api.endpoints.test_responses_stream import events_of
from tests.api.sockets.conftest import PATH, answers, opened
from tests.ledger_lines import last_line
from tests.polling import until

TEN = 10 * 10**9


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


async def cost_of(ledger: Ledger, event: dict[str, Any]) -> int:
    """What was charged for the response of a last event."""
    id = to_request_id(event["response"]["id"])
    line = await until(lambda: last_line(ledger, "acme", id))
    return -line.amount


async def test_socket_answers_with_the_events_of_http(client: Client, upstream: FakeUpstream) -> None:
    answers(upstream, 2)
    async with client.request("POST", PATH, json={"model": "m1", "input": "Hi", "stream": True}) as response:
        by_http = events_of(await response.text())
    async with opened(client) as socket:
        by_socket = await socket.ask()

    assert types(by_socket) == types(by_http)
    assert [event["sequence_number"] for event in by_socket] == list(range(len(by_socket)))
    assert by_socket[-1]["response"]["usage"] == by_http[-1]["response"]["usage"]
    assert by_socket[-1]["response"]["output"][0]["content"][0]["text"] == "Hello"
    first, second = (seen.json for seen in upstream.seen)
    assert first == second


async def test_each_request_is_charged_by_itself(
    client: Client, upstream: FakeUpstream, ledger: Ledger, accounts: Accounts
) -> None:
    answers(upstream, 3)
    async with opened(client) as socket:
        last = [(await socket.ask())[-1] for _ in range(3)]
        costs = [await cost_of(ledger, event) for event in last]
    account = await settled(accounts)
    assert costs[0] > 0 and costs == [costs[0]] * 3
    assert account.balance == TEN - sum(costs)


async def test_upstream_failure_is_an_error_event_and_the_socket_stays(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.error(400, "no such thing"))
    answers(upstream)
    async with opened(client) as socket:
        (failed,) = await socket.ask()
        assert failed["type"] == "error" and failed["status"] == 400
        assert failed["error"]["type"] == "invalid_request_error"
        assert failed["headers"]["x-request-id"].startswith("req_")
        assert types(await socket.ask())[-1] == "completed"


async def test_cut_upstream_fails_the_response_and_the_socket_stays(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream(HELLO[:2], done=False))
    answers(upstream)
    async with opened(client) as socket:
        assert types(await socket.ask())[-1] == "failed"
        assert types(await socket.ask())[-1] == "completed"


async def test_fields_of_http_are_ignored_or_refused_by_name(client: Client, upstream: FakeUpstream) -> None:
    answers(upstream)
    async with opened(client) as socket:
        assert types(await socket.ask(stream=False))[-1] == "completed"
        (refused,) = await socket.ask(background=True)
        assert refused["error"]["param"] == "background"
        (refused,) = await socket.ask(type="response.steer")
        assert (refused["status"], refused["error"]["param"]) == (400, "type")
        (refused,) = await socket.ask(model="nothing")
        assert (refused["status"], refused["error"]["code"]) == (403, "model_not_permitted")
        await socket.wire.send_str("[]")
        assert (await socket.event())["error"]["code"] == "invalid_json"


async def test_second_request_meanwhile_is_refused(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream(HELLO, interval=0.05))
    async with opened(client) as socket:
        await socket.send()
        await upstream.wait_started(0)
        await socket.send()
        events = await socket.answer()
        refused = next(event for event in [*events, *await socket.answer()] if event["type"] == "error")
    assert refused["error"]["code"] == "response_in_progress"
    assert len(upstream.seen) == 1


async def test_preparation_is_free_and_the_next_request_goes_on_from_it(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    answers(upstream)
    async with opened(client) as socket:
        prepared = await socket.ask(generate=False, input=[{"role": "user", "content": "One"}])
        assert types(prepared) == ["created", "completed"]
        response = prepared[-1]["response"]
        assert response["output"] == [] and response["usage"]["total_tokens"] == 0
        assert not upstream.seen
        assert (await accounts.show("acme")).balance == TEN
        new = [{"role": "user", "content": "Two"}]
        assert types(await socket.ask(previous_response_id=response["id"], input=new))[-1] == "completed"
    assert [message["content"] for message in upstream.seen[0].json["messages"]] == ["One", "Two"]


async def test_preparation_checks_what_a_call_checks(
    client: Client, upstream: FakeUpstream, keys: Keys, api_key: CreatedKey
) -> None:
    async with opened(client) as socket:
        (refused,) = await socket.ask(generate=False, model="secret")
        assert refused["error"]["code"] == "model_not_permitted"
        (refused,) = await socket.ask(generate=False, temperature=9)
        assert refused["error"]["param"] == "temperature"
        (refused,) = await socket.ask(generate=1)
        assert refused["error"]["param"] == "generate"
        await keys.revoke(api_key.id)
        (refused,) = await socket.ask(generate=False)
        assert refused["status"] == 401
    assert not upstream.seen


async def test_previous_response_is_that_of_the_socket_only(client: Client, upstream: FakeUpstream) -> None:
    answers(upstream, 3)
    async with opened(client) as socket:
        first = (await socket.ask(input="One"))[-1]["response"]["id"]
        second = (await socket.ask(input="Two", previous_response_id=first))[-1]["response"]["id"]
        sent = upstream.seen[-1].json["messages"]
        assert [(one["role"], one["content"]) for one in sent] == [
            ("user", "One"), ("assistant", "Hello"), ("user", "Two"),
        ]  # fmt: skip
        (gone,) = await socket.ask(input="Three", previous_response_id=first)
        assert (gone["status"], gone["error"]["code"]) == (404, "previous_response_not_found")
        async with opened(client) as other:
            (gone,) = await other.ask(input="Three", previous_response_id=second)
            assert gone["error"]["code"] == "previous_response_not_found"
        assert types(await socket.ask(input="Three", previous_response_id=second))[-1] == "completed"
    assert len(upstream.seen[-1].json["messages"]) == 5


async def test_failed_request_leaves_the_previous_response(client: Client, upstream: FakeUpstream) -> None:
    answers(upstream)
    upstream.enqueue(Reply.error(500, "broken"))
    answers(upstream)
    async with opened(client) as socket:
        first = (await socket.ask(input="One"))[-1]["response"]["id"]
        assert types(await socket.ask(input="Two", previous_response_id=first)) == ["error"]
        assert types(await socket.ask(input="Two", previous_response_id=first))[-1] == "completed"


async def test_call_of_a_tool_is_answered_with_its_result_alone(client: Client, upstream: FakeUpstream) -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "tide", "arguments": "{}"}}
    upstream.enqueue(Reply.stream([chunk({"tool_calls": [call]}), chunk(finish="tool_calls"), HELLO[-1]]))
    answers(upstream)
    tools = [{"type": "function", "name": "tide", "parameters": {"type": "object"}}]
    async with opened(client) as socket:
        called = (await socket.ask(tools=tools))[-1]["response"]
        assert called["output"][0]["type"] == "function_call"
        result = [{"type": "function_call_output", "call_id": "call_1", "output": "high"}]
        await socket.ask(tools=tools, input=result, previous_response_id=called["id"])
    roles = [message["role"] for message in upstream.seen[-1].json["messages"]]
    assert roles == ["user", "assistant", "tool"]


async def test_client_that_leaves_during_an_answer_closes_its_upstream(
    client: Client, upstream: FakeUpstream, accounts: Accounts, ledger: Ledger
) -> None:
    upstream.enqueue(Reply.stream([*HELLO[:2], *[chunk({"content": "x"})] * 1000], interval=0.01))
    async with opened(client) as socket:
        await socket.send()
        id = to_request_id((await socket.event())["response"]["id"])
        while (await socket.event())["type"] != "response.output_text.delta":
            pass
    seen = await upstream.wait_ended(0)
    assert seen.outcome == "left"
    line = await until(lambda: last_line(ledger, "acme", id))
    assert line.meta["outcome"] == "client_closed"
    assert 0 < -line.amount == TEN - (await settled(accounts)).balance


async def test_large_request_is_answered(client: Client, upstream: FakeUpstream) -> None:
    answers(upstream, 2)
    text = "word " * 100_000
    async with opened(client) as socket:
        last = (await socket.ask(input=text))[-1]
        assert last["type"] == "response.completed"
        await socket.ask(input="Two", previous_response_id=last["response"]["id"])
    first, _, second = upstream.seen[-1].json["messages"]
    assert (first["content"], second["content"]) == (text, "Two")


async def test_message_beyond_the_limit_of_bodies_closes_the_socket(client: Client, gateway: Any) -> None:
    async with opened(client) as socket:
        await socket.wire.send_str('"' + "x" * gateway.settings.server.limits.max_json_body + '"')
        assert await socket.closed() == aiohttp.WSCloseCode.MESSAGE_TOO_BIG


@pytest.mark.parametrize("path", ["/responses", "/v1/responses", "/openai/v1/responses", "/v1/responses/"])
async def test_each_path_of_the_endpoint_has_the_socket(client: Client, upstream: FakeUpstream, path: str) -> None:
    answers(upstream)
    async with opened(client, path) as socket:
        assert types(await socket.ask())[-1] == "completed"


async def test_revoked_key_ends_the_socket_at_its_next_request(
    client: Client, upstream: FakeUpstream, keys: Keys, api_key: CreatedKey, accounts: Accounts
) -> None:
    """200 requests in a row, of which the second half comes after the key was revoked."""
    answers(upstream, 100)
    async with opened(client) as socket:
        for _ in range(100):
            assert types(await socket.ask())[-1] == "completed"
        await keys.revoke(api_key.id)
        (refused,) = await socket.ask()
        assert (refused["status"], refused["error"]["code"]) == (401, "invalid_api_key")
        assert await socket.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
    for _ in range(99):
        with pytest.raises(aiohttp.WSServerHandshakeError) as failed:
            async with opened(client):
                pass
        assert failed.value.status == 401
    assert len(upstream.seen) == 100
    account = await settled(accounts)
    assert account.balance < TEN


async def test_limits_hold_at_each_request(client: Client, upstream: FakeUpstream, keys: Keys) -> None:
    answers(upstream, 2)
    slow = await keys.create("acme", name="slow", rpm=2)
    async with opened(client, Authorization=f"Bearer {slow.text}") as socket:
        for _ in range(2):
            assert types(await socket.ask())[-1] == "completed"
        (limited,) = await socket.ask()
    assert (limited["status"], limited["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(limited["headers"]["retry-after"]) > 0


async def test_conversation_beyond_its_bound_is_forgotten(client: Client, upstream: FakeUpstream, gateway: Any) -> None:
    answers(upstream, 1)
    most = gateway.settings.server.websocket.max_conversation
    async with opened(client) as socket:
        last = (await socket.ask(input="x" * most))[-1]
        (gone,) = await socket.ask(previous_response_id=last["response"]["id"])
    assert gone["error"]["code"] == "previous_response_not_found"


async def test_text_in_frames_of_any_form_is_one_request(client: Client, upstream: FakeUpstream) -> None:
    answers(upstream)
    text = json.dumps({"type": "response.create", "model": "m1", "input": "Grüße"}, ensure_ascii=False).encode()
    async with opened(client) as socket:
        writer = socket.wire._writer  # the client's own interface sends whole messages
        for at, byte in enumerate(text):
            opcode = 1 if not at else 0
            frame = bytes([opcode | (0x80 if at == len(text) - 1 else 0), 0x81, 0, 0, 0, 0, byte])
            writer.transport.write(frame)
            await asyncio.sleep(0)
        assert types(await socket.answer())[-1] == "completed"
    assert upstream.seen[0].json["messages"][0]["content"] == "Grüße"


async def test_compaction_stands_for_what_was_before_it(client: Client, upstream: FakeUpstream) -> None:
    answers(upstream, 3)
    async with opened(client) as socket:
        first = (await socket.ask(input="One"))[-1]["response"]["id"]
        compacted = (await socket.ask(previous_response_id=first, input=[{"type": "compaction_trigger"}]))[-1]
        assert [item["type"] for item in compacted["response"]["output"]] == ["compaction"]
        await socket.ask(previous_response_id=compacted["response"]["id"], input="Two")
    sent = [message["content"] for message in upstream.seen[-1].json["messages"]]
    assert sent == [BEFORE + "Hello", "Two"]
