"""Parallel calls whose prompts lie in other fields than the text take no more money than there is."""

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
from gateway.testing import FakeUpstream, Reply
from gateway.testing.fake_upstream import Seen
from tests.api.conftest import Client
from tests.polling import until

TOKEN = NANO // 1_000_000
TEXT = "word " * 2_400  # 12 KB
BALANCE = 10_000 * TOKEN  # three such prompts
USER = {"role": "user", "content": "Hi"}
PROMPTS: dict[str, dict[str, Any]] = {
    "function_call": {
        "messages": [USER, {"role": "assistant", "function_call": {"name": "f", "arguments": TEXT}}, USER]
    },
    "thinking": {
        "messages": [USER, {"role": "assistant", "content": "", "thinking_blocks": [{"thinking": TEXT}]}, USER]
    },
    "unknown field": {"messages": [USER], "documents": [TEXT]},
}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model whose prompts alone cost, on an upstream that counts all that it gets."""
    upstream.answer = counting
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"up": {"plugin": "openai", "base_url": upstream.base_url}},
            "models": {"m1": {"provider": "up", "price": {"input": 1, "output": 0}, "max_output_tokens": 10}},
        },
        demo=True,
    )


def counting(seen: Seen) -> Reply:
    """A token for each four bytes of the request."""
    usage = {"prompt_tokens": len(seen.body) // 4, "completion_tokens": 1, "total_tokens": len(seen.body) // 4 + 1}
    choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
    return Reply.json({"object": "chat.completion", "choices": [choice], "usage": usage})


@pytest.mark.holds("prices.md#estimates-1")
@pytest.mark.parametrize("prompt", PROMPTS)
async def test_parallel_calls_spend_no_more_than_the_balance(
    client: Client, accounts: Accounts, keys: Keys, prompt: str
) -> None:
    await accounts.create("payer", balance=BALANCE)
    key = await keys.create("payer")
    client.headers = {"Authorization": f"Bearer {key.text}", "Content-Type": "application/json"}
    answers = await asyncio.gather(*[client.chat(max_tokens=10, **PROMPTS[prompt]) for _ in range(30)])
    served = sum(response.status == 200 for response, _ in answers)

    async def settled() -> Any:
        account = await accounts.show("payer")
        return account if account.held == 0 else None

    left = (await until(settled)).balance
    print(f"{prompt}: {served} served, {left / NANO:.6f} left")
    assert served == 2  # each is held with its margin of a quarter
    assert left >= 0
