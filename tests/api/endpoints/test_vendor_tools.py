"""Tools that a vendor runs by itself: what their calls hold, and that all that the vendor counts is charged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger, LedgerLine
from gateway.runtime.gateway import Gateway
from gateway.schemas.messages_native import MessagesNative, VendorTool
from gateway.schemas.native_request import MESSAGES, AcceptedFields
from gateway.schemas.vendor_tools import MOST_USES, VendorUses, tool_uses, with_max_uses
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, record_holds
from tests.ledger_lines import last_line
from tests.polling import until

NANO, MILLION = 10**9, 10**6
WINDOW = 200_000
PRICE = {"input": 3, "cached_input": "0.3", "cache_write": "3.75", "output": 15, "per_web_search": "0.01"}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
FETCH = {"type": "web_fetch_20250910", "name": "web_fetch"}
CODE = {"type": "code_execution_20250825", "name": "code_execution"}
#: A request of 200 bytes for which a vendor has read 184,460 tokens, in several rounds.
WRITTEN, OUT, SEARCHED = 184_457, 812, 5


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """`claude` and `gpt` on servers that have their dialects, `chat` on one that has chat completions alone."""
    key = "canary-0123456789"
    openai = {"plugin": "openai", "base_url": upstream.base_url, "api_key": f"sk-{key}"}
    one: dict[str, Any] = {"price": PRICE, "retries": 0, "context_window": WINDOW, "max_output_tokens": 1_000}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "anthropic": {"plugin": "anthropic", "base_url": upstream.url, "api_key": f"sk-ant-{key}"},
                "openai": {**openai, "responses": True},
                "chat": openai,
            },
            "groups": {"default": {}},
            "models": {
                "claude": {**one, "provider": "anthropic", "model": "claude-sonnet-4-5"},
                "few": {**one, "provider": "anthropic", "model": "claude-sonnet-4-5", "vendor_tool_uses": 2},
                "gpt": {**one, "provider": "openai", "model": "gpt-5"},
                "chat": {**one, "provider": "chat", "model": "gpt-4o-search-preview"},
            },
        },
        demo=True,
    )


def event(name: str, **members: Any) -> str:
    return f"event: {name}\ndata: {json.dumps({'type': name, **members})}\n\n"


def searched(uses: int = SEARCHED, written: int = WRITTEN) -> Reply:
    """A stream whose last usage has all rounds, and whose first one has the first of them."""
    first = {"input_tokens": 3, "cache_creation_input_tokens": 31_490, "cache_read_input_tokens": 0, "output_tokens": 1}
    last = {**first, "cache_creation_input_tokens": written, "output_tokens": OUT}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": [], "usage": first}
    events = [
        event("message_start", message=message),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Herons. " * 300}),
        event("content_block_stop", index=0),
        event(
            "message_delta",
            delta={"stop_reason": "end_turn", "stop_sequence": None},
            usage={**last, "server_tool_use": {"web_search_requests": uses, "web_fetch_requests": 0}},
        ),
        event("message_stop"),
    ]
    return Reply(headers={"Content-Type": "text/event-stream"}, body="".join(events).encode())


async def ask(client: Client, *tools: dict[str, Any], model: str = "claude", **more: Any) -> tuple[int, str, str]:
    """Status, request id and text of a streamed Messages call with these tools."""
    body = {
        "model": model,
        "max_tokens": 1_000,
        "stream": True,
        "messages": [{"role": "user", "content": "Which herons are grey?"}],
        "tools": list(tools),
        **more,
    }
    async with client.request("POST", "/v1/messages", json=body) as answer:
        return answer.status, answer.headers["x-request-id"], await answer.text()


def sent_tools(upstream: FakeUpstream) -> Any:
    """The tools of the last request."""
    return json.loads(upstream.seen[-1].body)["tools"]


async def line_of(ledger: Ledger, request_id: str) -> LedgerLine:
    return await until(lambda: last_line(ledger, "acme", request_id))


@pytest.mark.holds("prices.md#tools-that-a-vendor-runs-1")
async def test_all_rounds_of_a_search_are_held_and_charged(
    client: Client, upstream: FakeUpstream, gateway: Gateway, ledger: Ledger
) -> None:
    holds = record_holds(gateway)
    upstream.enqueue(searched())
    status, request_id, text = await ask(client, {**SEARCH, "max_uses": 5})
    assert (status, "message_stop" in text) == (200, True)
    most = 5 * WINDOW * 3.75 / MILLION + 5 * 0.01
    assert most <= holds[0].amount / NANO < most + 0.02
    line = await line_of(ledger, request_id)
    assert -line.amount == (3 * 3_000 + WRITTEN * 3_750 + OUT * 15_000) + SEARCHED * NANO // 100
    assert "estimated" not in line.meta


async def test_call_whose_searches_cannot_be_paid_is_refused_before_them(
    client: Client, upstream: FakeUpstream, accounts: Accounts, keys: Keys
) -> None:
    await accounts.create("poor", balance=3 * NANO)  # 3.8 are needed
    key = await keys.create("poor")
    client.headers = {**client.headers, "Authorization": f"Bearer {key.text}"}
    status, _, text = await ask(client, {**SEARCH, "max_uses": 5})
    assert (status, "billing_error" in text) == (402, True)
    assert not upstream.seen
    upstream.enqueue(searched(1, 20_000))
    assert (await ask(client, {**SEARCH, "max_uses": 1}))[0] == 200


async def test_max_cost_of_a_key_refuses_what_a_search_may_cost(
    client: Client, upstream: FakeUpstream, keys: Keys
) -> None:
    key = await keys.create("acme", name="careful", max_cost=NANO)
    client.headers = {**client.headers, "Authorization": f"Bearer {key.text}"}
    status, _, text = await ask(client, {**SEARCH, "max_uses": 2})
    assert (status, "cost_limit_exceeded" in text) == (400, True)
    upstream.enqueue(searched(1, 20_000))
    assert (await ask(client, {**SEARCH, "max_uses": 1}))[0] == 200


@pytest.mark.holds("prices.md#tools-that-a-vendor-runs-2")
@pytest.mark.parametrize(("model", "uses"), [("claude", 10), ("few", 2)])
async def test_tool_without_a_limit_has_that_of_the_model(
    client: Client, upstream: FakeUpstream, gateway: Gateway, model: str, uses: int
) -> None:
    holds = record_holds(gateway)
    upstream.enqueue(searched(2))
    assert (await ask(client, SEARCH, model=model))[0] == 200
    assert holds[0].amount // NANO == int(uses * (WINDOW * 3.75 / MILLION + 0.01))
    assert sent_tools(upstream) == [{**SEARCH, "max_uses": uses}]


@pytest.mark.holds("prices.md#tools-that-a-vendor-runs-2")
async def test_each_of_more_tools_than_the_model_has_uses_is_held_once(
    client: Client, upstream: FakeUpstream, gateway: Gateway
) -> None:
    holds = record_holds(gateway)
    upstream.enqueue(searched(2))
    searches = [{**SEARCH, "name": f"web_search_{number}"} for number in range(5)]
    assert (await ask(client, *searches, model="few"))[0] == 200
    assert sent_tools(upstream) == [{**search, "max_uses": 1} for search in searches]
    assert holds[0].amount // NANO == int(5 * (WINDOW * 3.75 / MILLION + 0.01))


@pytest.mark.holds("prices.md#tools-that-a-vendor-runs-2")
@pytest.mark.parametrize(
    ("tools", "limits"),
    [
        ([SEARCH], [10]),
        ([{**SEARCH, "max_uses": None}, CODE, FETCH], [5, None, 5]),
        ([{**SEARCH, "max_uses": 50}, FETCH], [50, 10]),
        ([{**SEARCH, "max_uses": 50}, CODE], [50, None]),
        ([FETCH] * 12, [1] * 12),
        ([CODE, {"name": "tide", "input_schema": {}}, {"type": "bash_20250124", "name": "bash"}], [None] * 3),
    ],
)
def test_searches_without_a_limit_share_that_of_the_model(
    tools: list[dict[str, Any]], limits: list[int | None]
) -> None:
    sent = json.loads(bytes(with_max_uses(msgspec.Raw(json.dumps(tools).encode()), 10)))
    assert [tool.pop("max_uses", None) for tool in sent] == limits
    assert sent == [{name: value for name, value in tool.items() if name != "max_uses"} for tool in tools]


def test_tools_that_all_have_a_limit_are_not_written_again() -> None:
    tools = msgspec.Raw(json.dumps([{**SEARCH, "max_uses": 3}, CODE]).encode())
    native = MessagesNative(dialect=MESSAGES, fields={"tools": tools}, vendor_tools=(VendorTool(SEARCH["type"], "s"),))
    assert native.with_tool_limit(AcceptedFields(frozenset({"tools"})), 10) is native


@pytest.mark.holds("prices.md#tools-that-a-vendor-runs-4")
async def test_tool_that_the_caller_runs_holds_nothing_more(
    client: Client, upstream: FakeUpstream, gateway: Gateway
) -> None:
    holds = record_holds(gateway)
    for tools in ([{"type": "bash_20250124", "name": "bash"}], [{"name": "tide", "input_schema": {"type": "object"}}]):
        upstream.enqueue(searched(0, 0))
        await ask(client, *tools)
    assert all(hold.amount < NANO // 10 for hold in holds)


@pytest.mark.holds("prices.md#tools-that-a-vendor-runs-3")
async def test_count_above_all_rounds_is_brought_down_and_counted(
    client: Client, upstream: FakeUpstream, gateway: Gateway, ledger: Ledger
) -> None:
    upstream.enqueue(searched(1, 5 * WINDOW))
    _, request_id, _ = await ask(client, {**SEARCH, "max_uses": 1})
    line = await line_of(ledger, request_id)
    used = line.meta["usage"]
    assert line.meta["estimated"]
    assert WINDOW < used["in_cache_write_short"] + used.get("in_text", 0) < WINDOW + 5_000
    delta = gateway.metrics.drain()
    assert delta is not None
    counts = [count for name, labels, count in delta.counters if name == "gateway_clamped_calls"]
    assert counts == [1]


@pytest.mark.holds("prices.md#tools-that-a-vendor-runs-2")
@pytest.mark.parametrize(("limit", "uses"), [({"max_tool_calls": 3}, 3), ({}, 10)])
async def test_responses_hold_the_limit_of_all_tools(
    client: Client, upstream: FakeUpstream, gateway: Gateway, limit: dict[str, int], uses: int
) -> None:
    holds = record_holds(gateway)
    body = {"model": "gpt", "input": "Hi", "tools": [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}]}
    async with client.request("POST", "/v1/responses", json={**body, **limit}):
        pass  # the upstream has no answer; what was held is enough
    assert holds[0].amount // NANO == int(uses * (WINDOW * 3.75 / MILLION + 0.01))
    assert json.loads(upstream.seen[-1].body)["max_tool_calls"] == uses


@pytest.mark.parametrize("tools", [[], [{"type": "function", "name": "tide"}], [{"type": "local_shell"}]])
async def test_responses_without_tools_of_the_upstream_have_no_limit(
    client: Client, upstream: FakeUpstream, tools: list[dict[str, Any]]
) -> None:
    async with client.request("POST", "/v1/responses", json={"model": "gpt", "input": "Hi", "tools": tools}):
        pass
    assert "max_tool_calls" not in json.loads(upstream.seen[-1].body)


@pytest.mark.holds("prices.md#tools-that-a-vendor-runs-2")
async def test_search_of_a_chat_model_is_held_once(client: Client, upstream: FakeUpstream, gateway: Gateway) -> None:
    holds = record_holds(gateway)
    upstream.enqueue(Reply.json({"choices": []}), Reply.json({"choices": []}))
    await client.chat(model="chat", max_tokens=10)
    await client.chat(model="chat", max_tokens=10, web_search_options={})
    one = int(WINDOW * 3.75 * NANO / MILLION) + NANO // 100
    assert one <= holds[1].amount - holds[0].amount < one + NANO // 1_000


@pytest.mark.holds("prices.md#tools-that-a-vendor-runs-4")
async def test_tools_that_an_upstream_does_not_get_hold_nothing(
    client: Client, upstream: FakeUpstream, gateway: Gateway
) -> None:
    holds = record_holds(gateway)
    async with client.request(
        "POST", "/v1/messages", json={"model": "chat", "max_tokens": 10, "messages": [], "tools": [SEARCH]}
    ):
        pass
    await ask(client, SEARCH, model="chat")
    assert all(hold.amount < NANO // 10 for hold in holds)


@pytest.mark.holds("prices.md#tools-that-a-vendor-runs-2")
@pytest.mark.parametrize(
    ("tools", "most", "uses"),
    [
        ([], None, (0, 0)),
        ([{"type": "web_search_20250305", "max_uses": 3}, {"type": "web_fetch_20250910", "max_uses": 4}], None, (7, 3)),
        ([{"type": "web_search_20250305", "max_uses": 3}, {"type": "code_execution_20250825"}], None, (13, 3)),
        ([{"type": "web_search"}, {"type": "mcp"}], None, (10, 10)),
        ([{"type": "mcp"}], 4, (4, 0)),
        ([{"type": "function"}, {"type": "custom"}, {"type": "computer_use_preview"}, {}], 4, (0, 0)),
        ([{"type": "web_search", "max_uses": 0}], None, (10, 10)),
        ([{"type": "web_search", "max_uses": -1}], None, (10, 10)),
        ([{"type": "web_search", "max_uses": "5"}], None, (10, 10)),
        ([{"type": "web_search", "max_uses": True}], None, (10, 10)),
        ([{"type": "web_search", "max_uses": 10**9}], 10**12, (MOST_USES, MOST_USES)),
        ([{"type": "a_tool_of_next_year"}], None, (10, 0)),
        ([{"type": ["web_search"]}], None, (10, 0)),
    ],
)
def test_uses_are_bounded_by_what_the_request_says(
    tools: list[dict[str, Any]], most: int | None, uses: tuple[int, int]
) -> None:
    assert tool_uses(msgspec.Raw(json.dumps(tools).encode()), 10, most) == VendorUses(*uses)
