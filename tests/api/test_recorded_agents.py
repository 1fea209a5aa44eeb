"""Requests of Claude Code 2.1.197 and opencode 1.18.33, recorded on 2026-11-30 before this gateway, with shorter texts.

Both worked: each changed a file in two turns, Claude Code with the discovery of models switched on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.accounts.accounts import Accounts
from gateway.admin.account_limits import AccountLimits
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.ledger_lines import last_line
from tests.polling import until
from tests.providers.messages_dialect import frames, streamed

#: Of the request for the list of models.
DISCOVERY = {"User-Agent": "claude-code/2.1.197", "anthropic-version": "2023-06-01", "Accept": "*/*"}
SESSION = "6a5f2508-7417-4747-a73e-88023b8f40f5"
FLAGS = (
    "claude-code-20250219,interleaved-thinking-2025-05-14,thinking-token-count-2026-05-13,"
    "context-management-2025-06-27,prompt-caching-scope-2026-01-05,mid-conversation-system-2026-04-07,"
    "effort-2025-11-24,structured-outputs-2025-12-15"
)
CLAUDE_CODE = {
    "User-Agent": "claude-cli/2.1.197 (external, sdk-cli)",
    "X-Claude-Code-Session-Id": SESSION,
    "anthropic-beta": FLAGS,
    "anthropic-version": "2023-06-01",
    "x-app": "cli",
}
#: Its first request of a session asks for a title.
TITLE: dict[str, Any] = {
    "model": "claude-agent",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "<session>\nChange the file.\n</session>"}]}],
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.68e; cc_entrypoint=sdk-cli;"},
        {"type": "text", "text": "You are a Claude agent, built on Anthropic's Claude Agent SDK."},
        {"type": "text", "text": 'Generate a title. Return JSON with a single "title" field.'},
    ],
    "tools": [],
    "metadata": {"user_id": json.dumps({"device_id": "754e", "account_uuid": "", "session_id": SESSION})},
    "max_tokens": 32000,
    "output_config": {
        "effort": "high",
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "properties": {"title": {"type": "string"}},
                "required": ["title"],
                "additionalProperties": False,
            },
        },
    },
    "stream": True,
}
OPENCODE = {
    "User-Agent": "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14",
    "x-session-affinity": "ses_dd5c26c48ffe6LTnYmDGPcviNq",
    "x-session-id": "ses_dd5c26c48ffe6LTnYmDGPcviNq",
    "Accept": "*/*",
}
ASKED: dict[str, Any] = {
    "model": "plain",
    "max_tokens": 1000,
    "messages": [
        {"role": "system", "content": "You are opencode."},
        {"role": "user", "content": "Change the file."},
    ],
    "stream": True,
    "stream_options": {"include_usage": True},
}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model with an alias that Claude Code accepts, and one of chat completions."""
    model = {"price": {"input": 1, "output": 2}, "retries": 0}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "claude": {"plugin": "anthropic", "base_url": upstream.url, "api_key": "sk-ant-canary-01"},
                "plain": {"plugin": "openai", "base_url": upstream.base_url, "session_header": "x-session-affinity"},
            },
            "models": {
                "agent": {**model, "provider": "claude", "model": "claude-sonnet-5", "aliases": ["claude-agent"]},
                "plain": {**model, "provider": "plain"},
            },
        },
        demo=True,
    )


async def test_claude_code_discovers_the_alias(client: Client) -> None:
    headers = {"Authorization": client.headers["Authorization"], **DISCOVERY}
    async with client.request("GET", "/v1/models?limit=1000", headers=headers) as response:
        found = await response.json()
    assert (response.status, found["has_more"]) == (200, False)
    [shown] = [model for model in found["data"] if model["id"].startswith(("claude", "anthropic"))]
    assert shown.keys() == {"type", "id", "display_name", "created_at", "lifecycle"}
    assert shown["id"] == "claude-agent"


async def test_claude_codes_flags_version_and_body_go_unchanged_to_anthropic(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(streamed(*frames("text")))
    headers = {**client.headers, **CLAUDE_CODE}
    async with client.request("POST", "/v1/messages?beta=true", json=TITLE, headers=headers) as response:
        text = await response.text()
    assert response.status == 200 and "message_stop" in text, text
    assert "x-gateway-dropped-params" not in response.headers
    assert response.headers["request-id"] == response.headers["x-request-id"]
    [seen] = upstream.seen
    assert (seen.headers["anthropic-beta"], seen.headers["anthropic-version"]) == (FLAGS, "2023-06-01")
    assert seen.json == {**TITLE, "model": "claude-sonnet-5"}
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.meta["session"] == SESSION


async def test_opencodes_session_is_kept_and_its_budget_counted(
    client: Client, upstream: FakeUpstream, gateway: Gateway, accounts: Accounts, ledger: Ledger
) -> None:
    await AccountLimits(gateway.store, accounts).change("acme", max_session_cost=2_500_000)
    chunks = [
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up", **more}
        for more in (
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi"}, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 900, "total_tokens": 920}},
        )
    ]
    upstream.enqueue(Reply.stream(chunks), Reply.stream(chunks))
    headers = {**client.headers, **OPENCODE}
    statuses = []
    for session in ("", "", "ses_another"):
        given = {**headers, **({"x-session-id": session, "x-session-affinity": session} if session else {})}
        async with client.request("POST", "/v1/chat/completions", json=ASKED, headers=given) as response:
            text = await response.text()
            statuses.append((response.status, response.headers.get("x-should-retry")))
        if response.status == 200:
            line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
            assert line.meta["session"] == (session or OPENCODE["x-session-id"])
        else:
            assert json.loads(text)["error"]["code"] == "session_budget_exceeded"
    assert statuses == [(200, None), (429, "false"), (200, None)]
    names = {seen.headers["x-session-affinity"] for seen in upstream.seen}
    assert len(names) == 2 and OPENCODE["x-session-id"] not in names, "the upstream gets a derived name of each session"
