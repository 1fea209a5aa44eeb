"""What callers may know of their money: the balance, the receipt of a call, and its cost in a header."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.admin.refunds import Refunds
from gateway.amounts import format_amount
from gateway.history.usage_question import ReceiptQuestion, SettledCall
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from tests.api.conftest import Client
from tests.ledger.records import quote_of, settle
from tests.ledger_lines import last_line


async def get(client: Client, path: str, *, text: str = "") -> tuple[int, Any]:
    """One GET; status and JSON."""
    headers = {"Authorization": f"Bearer {text}"} if text else None
    async with client.request("GET", path, headers=headers) as response:
        return response.status, await response.json()


async def test_balance_has_the_amount_and_the_holds_of_running_calls(
    client: Client, gateway: Gateway, upstream: FakeUpstream, accounts: Accounts
) -> None:
    assert await get(client, "/v1/balance") == (
        200,
        {
            "object": "balance",
            "account": "acme",
            "balance": "10",
            "held": "0",
            "available": "10",
            "currency": None,
        },
    )
    upstream.tamper = lambda reply: msgspec.structs.replace(reply, delay=0.3)
    running = asyncio.create_task(client.chat(max_tokens=1000))
    await upstream.wait_started()
    _, body = await get(client, "/v1/balance/")
    held = (await accounts.show("acme")).held
    assert held > 0
    assert (body["balance"], body["held"]) == ("10", format_amount(held))
    assert body["available"] == format_amount(10 * 10**9 - held)
    await running


@pytest.mark.parametrize("stream", [False, True])
async def test_receipt_is_found_by_the_id_in_the_answer(client: Client, gateway: Gateway, stream: bool) -> None:
    if stream:
        response, text, _ = await client.stream()
        seen = set(re.findall(r'"id": ?"(chatcmpl-[^"]*)"', text))
    else:
        response, answer = await client.chat()
        seen = {answer["id"]}
    await gateway.settlement.drain()
    [shown] = seen
    status, receipt = await get(client, f"/v1/usage/{shown}")
    assert (status, receipt["request_id"]) == (200, response.headers["x-request-id"])


async def test_receipt_has_the_usage_hold_and_cost_of_a_call(client: Client, gateway: Gateway, ledger: Ledger) -> None:
    response, answer = await client.chat(max_tokens=50)
    await gateway.settlement.drain()
    status, receipt = await get(client, f"/v1/usage/{response.headers['x-request-id']}")
    [*_, line] = [line async for line in ledger.lines("acme")]
    assert status == 200
    usage = answer["usage"]
    assert receipt == {
        "object": "receipt",
        "request_id": response.headers["x-request-id"],
        "at": line.json_form()["at"],
        "model": "m1",
        "served_model": "m1",
        "cost": format_amount(-line.amount),
        "refunded": "0",
        "currency": None,
        "hold": format_amount(line.meta["hold"]),
        "price": line.meta["price"],
        "price_factor": "1",
        "usage": {"in_text": usage["prompt_tokens"], "out_text": usage["completion_tokens"]},
        "estimated": False,
        "attempts": 1,
        "answers": [],
        "joined": None,
        "hooks": {},
        "outcome": "ok",
        "tags": {},
        "session": None,
    }
    assert line.meta["hold"] > -line.amount > 0
    assert receipt["price"] == gateway.catalog.models["m1"].price.version != ""
    assert line.json_form()["hold"] == receipt["hold"]


async def test_receipt_names_what_was_refunded(client, gateway, ledger):
    response, _ = await client.chat(max_tokens=50)
    await gateway.settlement.drain()
    request_id = response.headers["x-request-id"]
    refunded = await Refunds(ledger).refund("acme", request_id)
    _, receipt = await get(client, f"/v1/usage/{request_id}")
    assert receipt["refunded"] == receipt["cost"] == format_amount(refunded.amount)


async def test_receipt_of_a_stream_is_available_after_its_end(client: Client, gateway: Gateway) -> None:
    response, _, _ = await client.stream()
    await gateway.settlement.drain()
    status, receipt = await get(client, f"/v1/usage/{response.headers['x-request-id']}")
    assert (status, receipt["outcome"]) == (200, "ok")
    assert "x-gateway-cost" not in response.headers


async def test_receipts_of_other_keys_and_unknown_receipts_give_the_same_404(
    client: Client, gateway: Gateway, accounts: Accounts, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    response, _ = await client.chat()
    await gateway.settlement.drain()
    await accounts.create("other", balance=10**9)
    path = f"/v1/usage/{response.headers['x-request-id']}"
    sister, stranger = await keys.create("acme"), await keys.create("other")

    async def receipt(question: ReceiptQuestion) -> None:
        assert question.account in ("acme", "other")

    monkeypatch.setattr(gateway.usage_history, "receipt", receipt)
    answers = [
        await get(client, path, text=sister.text),
        await get(client, path, text=stranger.text),
        await get(client, "/v1/usage/req_" + "0" * 32),
        await get(client, "/v1/usage/%2e%2e%2f*"),
    ]
    assert [status for status, _ in answers] == [404] * 4
    assert all(body == answers[0][1] for _, body in answers)
    assert answers[0][1]["error"]["code"] == "not_found"
    assert (await get(client, path))[0] == 200


@pytest.mark.holds("api.md#get-v1-usage-1")
async def test_receipt_of_a_call_that_the_store_has_forgotten_comes_from_the_history(
    client: Client, gateway: Gateway, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    response, _ = await client.chat()
    await gateway.settlement.drain()
    request_id = response.headers["x-request-id"]
    path = f"/v1/usage/{request_id}"
    _, expected = await get(client, path)
    charge = await ledger.charge_of("acme", request_id)
    assert charge is not None
    await gateway.store.client.delete(f"{{a:acme}}:st:{request_id}")
    assert (await get(client, path))[0] == 503  # nobody answers
    asked: list[ReceiptQuestion] = []

    async def receipt(question: ReceiptQuestion) -> SettledCall | None:
        asked.append(question)
        return SettledCall(*charge) if question.request_id == request_id else None

    monkeypatch.setattr(gateway.usage_history, "receipt", receipt)
    assert await get(client, path) == (200, expected)
    assert (await get(client, "/v1/usage/req_" + "0" * 32))[0] == 404
    assert (await get(client, "/v1/usage/nonsense"))[0] == 404
    assert [question.request_id for question in asked] == [request_id, "req_" + "0" * 32]
    assert {question.account for question in asked} == {"acme"}


async def test_receipt_of_an_amended_call_has_the_whole_cost(client: Client, gateway: Gateway, ledger: Ledger) -> None:
    """Reclaimed from a frozen worker at its checkpoint, then settled for more: two lines, one receipt."""
    key = await gateway.auth.authenticate(client.headers["Authorization"].removeprefix("Bearer "))
    hold = await ledger.admit("req_" + "a" * 32, key, quote_of(1_000_000, 10, model="m1"))
    hold.used = 400_000
    await ledger.renew_leases([hold])
    await gateway.store.client.zadd("{a:acme}:rx", {hold.request_id: 1})
    await ledger.reclaim("acme")
    await settle(ledger, hold, 900_000, outcome="ok")
    assert (await get(client, f"/v1/usage/{hold.request_id}"))[1]["cost"] == "0.0009"


async def test_revoked_key_is_refused_on_every_account_route(client: Client, keys: Keys) -> None:
    response, _ = await client.chat()
    [record] = await keys.list("acme")
    await keys.revoke(record.id)
    for path in ("/v1/balance", f"/v1/usage/{response.headers['x-request-id']}"):
        assert (await get(client, path))[0] == 401


async def test_cost_is_shown_to_keys_with_the_option(
    client: Client, gateway: Gateway, keys: Keys, ledger: Ledger
) -> None:
    assert "x-gateway-cost" not in (await client.chat())[0].headers
    key = await keys.create("acme", show_cost=True)
    client.headers = {**client.headers, "Authorization": f"Bearer {key.text}"}
    for headers in (client.headers, {**client.headers, "Idempotency-Key": "once"}):
        client.headers = headers
        response, _ = await client.chat()
        await gateway.settlement.drain()
        await gateway.idempotency.drain()
        line = await last_line(ledger, "acme", response.headers["x-request-id"])
        assert line is not None
        assert response.headers["x-gateway-cost"] == format_amount(-line.amount)
    again, _ = await client.chat()
    assert again.headers["x-gateway-cost"] == response.headers["x-gateway-cost"]
    assert {record.id for record in await keys.list("acme") if record.show_cost} == {key.id}


@pytest.mark.parametrize("shown", [True, False])
async def test_cost_is_shown_to_every_key_if_configured(client: Client, gateway: Gateway, shown: bool) -> None:
    server = msgspec.structs.replace(gateway.settings.server, response_headers=("cost",) if shown else ())
    gateway.settings = msgspec.structs.replace(gateway.settings, server=server)
    assert ("x-gateway-cost" in (await client.chat())[0].headers) is shown
