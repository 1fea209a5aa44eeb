"""Costs that cannot be collected: the part on the ledger line, in the log and in the metrics; the whole for callers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.metrics import MetricsDelta, Totals
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from gateway.testing.chat_script import ChatScript
from tests.api.conftest import Client
from tests.ledger_lines import last_line
from tests.polling import until

TOKEN = NANO // 1000  # of output; the prompt costs nothing


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model; every answer shows its cost."""
    return parse(
        {
            "server": {"response_headers": ["cost"]},
            "store": {"data_dir": str(tmp_path)},
            "providers": {"up": {"plugin": "openai", "base_url": upstream.base_url}},
            "groups": {"default": {}},
            "models": {"m1": {"provider": "up", "price": {"input": 0, "output": 1000}, "retries": 0}},
        },
        demo=True,
    )


@pytest.mark.holds("operations/audit.md#late-and-uncollected-2", "prices.md#what-is-collected-2")
async def test_cost_above_the_budget_is_uncollected_on_the_line_and_in_the_metrics(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger, keys: Keys, caplog: Any
) -> None:
    text = (await keys.create("acme", budget=NANO)).text  # pays for 1000 tokens
    client.headers = {**client.headers, "Authorization": f"Bearer {text}"}
    told = {"prompt_tokens": 8, "completion_tokens": 1064, "total_tokens": 1072}  # within the bounds
    upstream.answer = ChatScript(usage=told).answer
    with caplog.at_level(logging.INFO, logger="gateway"):
        response, _ = await client.chat(max_tokens=1000)
        line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert (line.amount, line.uncollected) == (-1000 * TOKEN, 64 * TOKEN)
    assert response.headers["x-gateway-cost"] == "1.064"
    assert "64000000 of 1064000000 nano cannot be collected" in caplog.text
    totals = Totals()
    totals.merge(gateway.metrics.drain() or MetricsDelta(), source="w")
    text = totals.text()[0].decode()
    assert 'gateway_uncollected_total{model="m1"} 0.064\n' in text
    assert 'gateway_cost_total{model="m1"} 1.064\n' in text
