"""`POST /v1/responses/input_tokens`: an estimate that asks no upstream and costs nothing."""

from __future__ import annotations

from typing import Any

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.ledger import Ledger
from gateway.testing import FakeUpstream
from tests.api.conftest import Client
from tests.api.endpoints.test_responses_stream import TOOLS
from tests.ledger_lines import last_line
from tests.polling import until

PATH = "/v1/responses/input_tokens"


async def count(client: Client, **fields: Any) -> tuple[Any, Any]:
    """A count; the HTTP response and its JSON."""
    async with client.request("POST", PATH, json={"model": "m1", "input": "Hello", **fields}) as response:
        return response, await response.json()


async def test_count_is_an_estimate_that_asks_no_upstream_and_costs_nothing(
    client: Client, upstream: FakeUpstream, ledger: Ledger, accounts: Accounts
) -> None:
    response, body = await count(client, input="word " * 400, tools=TOOLS)
    assert response.status == 200
    assert body["object"] == "response.input_tokens"
    assert 400 < body["input_tokens"] < 800
    assert response.headers["x-gateway-estimated"] == "true"
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.amount == 0
    account = await accounts.show("acme")
    assert (account.balance, account.held) == (10 * NANO, 0)
    assert not upstream.seen


async def test_count_of_a_streamed_request_is_one_document(client: Client) -> None:
    response, body = await count(client, stream=True)
    assert response.status == 200
    assert body["input_tokens"] > 0


async def test_count_is_refused_like_a_call(client: Client) -> None:
    response, body = await count(client, model="secret")
    assert (response.status, body["error"]["code"]) == (403, "model_not_permitted")
    response, body = await count(client, previous_response_id="resp_1")
    assert (response.status, body["error"]["param"]) == (400, "previous_response_id")


async def test_count_is_one_request_of_the_limits(client: Client, keys: Keys) -> None:
    key = await keys.create("acme", name="slow", rpm=1, tpm=1)
    slow = Client(client.base_url, {"Authorization": f"Bearer {key.text}"})
    response, _ = await count(slow)
    assert response.status == 200
    response, body = await count(slow)
    assert (response.status, body["error"]["code"]) == (429, "rate_limit_exceeded")
