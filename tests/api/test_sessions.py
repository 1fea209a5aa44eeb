"""Sessions of calls: from headers, fields and the history, on ledger lines, receipts and records."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import json, structs

from gateway.inference.sessions import HEADERS, PLAIN, SessionIds
from gateway.ledger import Ledger
from gateway.ledger.api_key import ApiKey
from gateway.ledger.line_meta import reclaim_meta
from gateway.runtime.gateway import Gateway
from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.native_request import RESPONSES, NativeRequest
from tests.api.conftest import Client, record_holds
from tests.ledger.records import quote_of
from tests.ledger_lines import last_line

KEY = ApiKey("acme", "key_x")
IDS = SessionIds(b"p" * 32)
USER, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}
SYSTEM = {"role": "system", "content": "Be brief"}


def request_of(*messages: dict[str, Any], **fields: Any) -> ChatRequest:
    return decode_chat_request(json.encode({"model": "m1", "messages": messages, **fields}))


def session_of(*messages: dict[str, Any], account: str = "acme", model: str = "m1") -> str:
    return IDS.of("", request_of(*messages), account, model)


@pytest.mark.holds("api.md#sessions-1")
def test_header_comes_before_the_field_and_the_field_before_the_dialect_and_the_history() -> None:
    request = request_of(USER, ANSWER, USER, prompt_cache_key="of-field")
    request.native = NativeRequest(RESPONSES, {}, session="of-dialect")
    assert IDS.of("of-header", request, "acme", "m1") == "of-header"
    assert IDS.of("", request, "acme", "m1") == "of-field"
    request.prompt_cache_key = None
    assert IDS.of("", request, "acme", "m1") == "of-dialect"
    request.native = None
    assert IDS.of("", request, "acme", "m1").startswith("history-")


@pytest.mark.holds("api.md#sessions-2")
@pytest.mark.parametrize(
    "given", ["a" * 65, "two words", "ann@example.com", "ü", '"', "x\n", "sk-" + "a" * 40, "\ud800"]
)
def test_id_of_another_form_is_hashed(given: str) -> None:
    found = IDS.of(given, None, "acme", "m1")
    assert found.startswith("hash-") and PLAIN.fullmatch(found) and given not in found
    assert found == IDS.of(given, None, "other", "m2") != SessionIds(b"q" * 32).of(given, None, "acme", "m1")


@pytest.mark.holds("api.md#sessions-1")
def test_history_gives_a_session_as_soon_as_it_has_an_answer() -> None:
    assert session_of(SYSTEM, USER) == session_of(ANSWER, USER) == session_of(SYSTEM, ANSWER) == ""
    second = session_of(SYSTEM, USER, ANSWER, {"role": "user", "content": "More"})
    third = session_of(SYSTEM, USER, {**ANSWER, "content": "Other"}, USER, ANSWER, {**USER, "content": "Even more"})
    assert second == third and PLAIN.fullmatch(second)
    assert session_of(*[USER] * 65, ANSWER) == ""


@pytest.mark.holds("api.md#sessions-1")
def test_session_of_a_history_is_of_its_account_model_system_text_and_first_user_message() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    found = {
        session_of(SYSTEM, USER, ANSWER),
        session_of(SYSTEM, USER, ANSWER, account="other"),
        session_of(SYSTEM, USER, ANSWER, model="m2"),
        session_of({**SYSTEM, "content": "Be"}, USER, ANSWER),
        session_of(SYSTEM, {**USER, "content": "Ho"}, ANSWER),
        session_of(USER, ANSWER),
        session_of(SYSTEM, {**USER, "content": [{"type": "text", "text": "Hi"}, image]}, ANSWER),
        session_of(SYSTEM, SYSTEM, USER, ANSWER),
    }
    assert len(found) == 8


def test_marks_of_what_to_cache_do_not_change_the_session() -> None:
    plain = {"type": "text", "text": "Hi"}
    marked = {**plain, "cache_control": {"type": "ephemeral"}}
    assert session_of({**USER, "content": [plain]}, ANSWER) == session_of({**USER, "content": [marked]}, ANSWER)
    assert session_of({**USER, "content": [plain]}, ANSWER) == session_of(USER, ANSWER)


@pytest.mark.holds("api.md#sessions-3")
def test_name_for_upstreams_tells_nothing_and_is_the_same_everywhere() -> None:
    found = IDS.upstream_key("acme", "agent-7")
    assert found == SessionIds(b"p" * 32).upstream_key("acme", "agent-7")
    assert found != IDS.upstream_key("other", "agent-7") and "agent" not in found and len(found) <= 64


async def line_of(client: Client, ledger: Ledger, header: str = "", value: str = "", **fields: Any) -> Any:
    headers = {**client.headers, header: value} if header else client.headers
    document = {"model": "m1", "messages": [USER], **fields}
    async with client.request("POST", "/v1/chat/completions", json=document, headers=headers) as response:
        assert response.status == 200, await response.text()
        await ledger.drain()
        return await last_line(ledger, response.headers["openai-organization"], response.headers["x-request-id"])


@pytest.mark.holds("api.md#sessions-1")
@pytest.mark.parametrize("header", HEADERS)
async def test_session_of_a_header_is_on_line_receipt_and_record(client: Client, gateway: Gateway, header: str) -> None:
    line = await line_of(client, gateway.ledger, header, "agent-7")
    assert line.meta["session"] == line.json_form()["session"] == "agent-7"
    async with client.request("GET", f"/v1/usage/{line.request_id}") as response:
        assert (await response.json())["session"] == "agent-7"


async def test_first_header_counts(client: Client, gateway: Gateway) -> None:
    client.headers["X-Session-Id"] = "second"
    line = await line_of(client, gateway.ledger, "X-Gateway-Session", "first")
    assert line.meta["session"] == "first"


async def test_call_without_a_session_has_none_on_its_line_and_receipt(client: Client, gateway: Gateway) -> None:
    line = await line_of(client, gateway.ledger)
    assert "session" not in line.meta and "session" not in line.json_form()
    async with client.request("GET", f"/v1/usage/{line.request_id}") as response:
        assert (await response.json())["session"] is None


async def test_reclaimed_and_refunded_calls_keep_their_session(client: Client, gateway: Gateway) -> None:
    holds = record_holds(gateway)
    line = await line_of(client, gateway.ledger, prompt_cache_key="agent-7")
    account = holds[0].key.account
    await gateway.ledger.refund(account, line.request_id)
    lines = [one async for one in gateway.ledger.lines(account)]
    assert (lines[-1].kind, lines[-1].meta["session"]) == ("refund", "agent-7")


def test_meta_of_a_reclaim_has_the_session_as_the_last_field() -> None:
    plain = quote_of(7)
    meta = reclaim_meta(KEY, structs.replace(plain, session="agent-7"))
    tagged = reclaim_meta(KEY, structs.replace(plain, session="agent-7", tags={"team": "a"}))
    assert json.decode(meta) == {**json.decode(reclaim_meta(KEY, plain)), "session": "agent-7"}
    assert list(json.decode(tagged))[-1] == "session" and json.decode(tagged)["tags"] == {"team": "a"}


CODEX = {"model": "m1", "input": "Hi", "client_metadata": {"session_id": "codex-1", "thread_id": "t"}}
CLAUDE = {"model": "m1", "max_tokens": 5, "messages": [USER]}


@pytest.mark.holds("api.md#sessions-1")
@pytest.mark.parametrize(
    ("path", "document", "session"),
    [
        ("/v1/responses", CODEX, "codex-1"),
        ("/v1/responses", {**CODEX, "prompt_cache_key": "key-1"}, "key-1"),
        ("/v1/responses", {**CODEX, "client_metadata": {"session_id": 5}}, None),
        ("/v1/messages", {**CLAUDE, "metadata": {"user_id": '{"device_id":"d","session_id":"claude-1"}'}}, "claude-1"),
        ("/v1/messages", {**CLAUDE, "metadata": {"user_id": f"user_ab_account__session_{'0' * 36}"}}, "0" * 36),
        ("/v1/messages", {**CLAUDE, "metadata": {"user_id": '{"session_id":'}}, None),
        ("/v1/messages", {**CLAUDE, "metadata": {"user_id": "somebody"}}, None),
        ("/v1/messages", CLAUDE, None),
    ],
)
async def test_session_of_another_dialect_is_on_the_line(
    client: Client, gateway: Gateway, path: str, document: dict[str, Any], session: str | None
) -> None:
    holds = record_holds(gateway)
    async with client.request("POST", path, json=document) as response:
        assert response.status == 200, await response.text()
    await gateway.ledger.drain()
    line = await last_line(gateway.ledger, holds[0].key.account, holds[0].request_id)
    assert line is not None and line.meta.get("session") == session
