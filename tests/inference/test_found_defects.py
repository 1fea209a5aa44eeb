"""Defects that the money property has found (docs/prices.md)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from gateway.testing.chat_script import ChatScript
from tests.api.conftest import Client
from tests.ledger_lines import last_line
from tests.polling import turns, until
from tests.providers import messages_dialect

PRICE = {"input": 10, "output": 50}
OWN_LIMIT = 4096  # tokens, that the Anthropic dialect sends by itself
TOO_MANY = 999_000


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model of each dialect."""
    model = {"price": PRICE, "retries": 0, "reasoning": False}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "up": {"plugin": "openai", "base_url": upstream.base_url},
                "claude": {"plugin": "anthropic", "base_url": upstream.url, "api_key": "sk-ant-canary-01"},
            },
            "groups": {"default": {}},
            "models": {
                "m1": {**model, "provider": "up"},
                "claude": {**model, "provider": "claude", "model": messages_dialect.ADAPTIVE},
            },
        },
        demo=True,
    )


async def charged(ledger: Ledger, account: str, response: Any) -> Any:
    """The ledger line of a call."""
    return await until(lambda: last_line(ledger, account, response.headers["x-request-id"]))


async def test_limit_of_a_dialect_itself_bounds_the_count(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    event = messages_dialect.event
    start = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    upstream.enqueue(
        messages_dialect.streamed(
            event("message_start", message={**start, "usage": {"input_tokens": 8, "output_tokens": 1}}),
            event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
            event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Four."}),
            event("content_block_stop", index=0),
            event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": TOO_MANY}),
            event("message_stop"),
        )
    )
    response, _, _ = await client.stream(model="claude")
    assert upstream.seen[0].json["max_tokens"] == OWN_LIMIT
    usage = (await charged(ledger, "acme", response)).meta["usage"]
    assert usage["out_text"] <= OWN_LIMIT * 1.1 + 64  # 32,768 are charged


async def test_refused_call_whose_caller_leaves_before_the_body_of_the_refusal_costs_nothing(
    client: Client, gateway: Gateway, upstream: FakeUpstream, accounts: Accounts
) -> None:
    refusal = {"Content-Type": "application/json"}
    upstream.enqueue(Reply(status=429, headers=refusal, frames=[b'{"error":'], end="silence"))
    asking = asyncio.create_task(client.chat())
    await upstream.wait_started(frames=1)
    await turns()  # the gateway has read the head
    asking.cancel()
    await upstream.wait_ended()
    await until(lambda: not gateway.active_calls._calls)
    await gateway.settlement.drain()
    assert (await accounts.show("acme")).balance == 10 * NANO


@pytest.mark.holds("prices.md#what-is-held-8")
async def test_stream_within_its_limit_is_not_cut_because_our_count_of_it_is_too_high(
    client: Client, upstream: FakeUpstream, ledger: Ledger, accounts: Accounts, keys: Keys
) -> None:
    limit, prompt = 400, 8
    upstream.answer = ChatScript(text="word " * limit, prompt_tokens=prompt).answer  # five letters a token
    cost = (prompt * PRICE["input"] + limit * PRICE["output"]) * NANO // 1_000_000
    await accounts.create("small", balance=cost + NANO // 1000)  # more than the whole answer costs
    client.headers = {**client.headers, "Authorization": f"Bearer {(await keys.create('small')).text}"}
    response, text, failure = await client.stream(max_tokens=limit)
    assert response.status == 200
    assert failure is None and "[DONE]" in text  # it is cut: insufficient_quota
    assert -(await charged(ledger, "small", response)).amount == cost
