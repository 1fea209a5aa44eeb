"""An own price of an account that cannot be read concerns the calls of its model, and nothing else.

The situation: a newer version of the gateway, or a hand in the store, wrote a price that this version does not
understand. Each stored text is tried at each place that reads it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

import pytest

from gateway.accounts.accounts import Accounts
from gateway.admin.call_check import check_call
from gateway.admin.models import model_form
from gateway.admin.price_list import permitted_models, price_list, price_terms
from gateway.amounts import NANO
from gateway.api.routes import endpoint_named
from gateway.inference.endpoint import RequestSize
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from tests.api.conftest import Client
from tests.inference.test_account_prices import Operator, charged, exact, operator, settings
from tests.inference.test_holds import Payer, payer
from tests.polling import until

__all__ = ["operator", "payer", "settings"]

METRIC = "gateway_unreadable_price_refusals"
TEXTS: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"{secret",
    "null": b"null",
    "a list": b"[]",
    "a number": b"5",
    "nested too deeply": b"[" * 100_000,
    "not UTF-8": b'{"input": "\xff"}',
    "an amount that is no text": b'{"input": 5}',
    "an unknown amount": b'{"input": "1", "per_secret": "1"}',
    "an amount that is no number": b'{"input": "secret"}',
    "a negative amount": b'{"input": "-1"}',
    "too many places": b'{"input": "0.0000000001"}',
    "too large an amount": b'{"input": "9000001"}',
    "a factor that is no number": b'{"factor": "secret"}',
    "a negative factor": b'{"factor": "-0.5"}',
    "too large a factor": b'{"factor": "1001"}',
    "neither amounts nor a factor": b"{}",
}


async def store_text(store: Store, operator: Operator, text: bytes, *, model: str = "m1") -> None:
    """Store a text as the own price of the model; workers that have read the prices notice the change."""
    await operator.set(model, factor="2")
    await store.client.hset("{a:payer}", f"p:{model}", text)


@pytest.mark.holds("operations/log.md#log-lines-2")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("known", ["unknown to the worker", "read before", "refused before"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_calls_of_the_model_are_refused_and_all_others_are_served(
    client: Client,
    payer: Payer,
    operator: Operator,
    store: Store,
    ledger: Ledger,
    gateway: Gateway,
    caplog: pytest.LogCaptureFixture,
    text: bytes,
    known: str,
    stream: bool,
) -> None:
    caplog.set_level(logging.ERROR, "gateway")
    await payer.open(NANO)
    await operator.set("m2", factor="3")
    if known != "unknown to the worker":
        await client.chat(model="m1", max_tokens=5)
        await ledger.drain()
    await store_text(store, operator, text)
    if known == "refused before":
        await client.chat(model="m1", max_tokens=5)
    before = await payer.left()
    for _ in range(2):
        response, document = await client.chat(model="m1", max_tokens=5, stream=stream)
        assert (response.status, document["error"]["code"]) == (500, "price_unreadable")
        assert (document["error"]["type"], document["error"]["param"]) == ("server_error", "model")
        assert response.headers["x-should-retry"] == "false"
        assert "secret" not in json.dumps(document) and "secret" not in str(response.headers)
    assert await payer.left() == before
    response, _ = await client.chat(model="m2", max_tokens=5)
    assert -(await charged(ledger, response)).amount == exact("3", 8, 5)
    response, _ = await client.chat(model="least", max_tokens=5)
    assert response.status == 200
    await ledger.drain()
    assert (await ledger.audit()).recomputed == (3 if known != "unknown to the worker" else 2)
    refused = 3 if known == "refused before" else 2
    delta = gateway.metrics.drain()
    assert delta is not None
    assert [counter for counter in delta.counters if counter[0] == METRIC] == [(METRIC, ("m1",), refused)]
    lines = [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
    assert len(lines) == 1 and "account payer: its own price of m1" in lines[0] and "secret" not in lines[0]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("mended", ["set again", "removed"])
async def test_worker_that_has_refused_the_model_serves_it_as_soon_as_its_price_is_set_again_or_removed(
    client: Client, payer: Payer, operator: Operator, store: Store, ledger: Ledger, text: bytes, mended: str
) -> None:
    await payer.open(NANO)
    await store_text(store, operator, text)
    response, _ = await client.chat(model="m1", max_tokens=5)
    assert response.status == 500
    await (operator.set("m1", factor="3") if mended == "set again" else operator.clear("m1"))
    response, _ = await client.chat(model="m1", max_tokens=5)
    assert -(await charged(ledger, response)).amount == exact("3" if mended == "set again" else "1", 8, 5)


async def test_price_is_replaced_even_if_the_epoch_of_the_prices_is_no_number(
    client: Client, payer: Payer, operator: Operator, store: Store, ledger: Ledger
) -> None:
    await payer.open(NANO)
    await store_text(store, operator, b"{}")
    await store.client.hset("{a:payer}", "pe", b"newer than newest")
    response, _ = await client.chat(model="m1", max_tokens=5)
    assert response.status == 500
    await operator.set("m1", factor="3")
    response, _ = await client.chat(model="m1", max_tokens=5)
    assert -(await charged(ledger, response)).amount == exact("3", 8, 5)


async def test_calls_in_the_same_batch_are_served_while_the_model_is_called_all_the_time(
    client: Client, payer: Payer, operator: Operator, store: Store, ledger: Ledger
) -> None:
    await payer.open(NANO)
    await store_text(store, operator, b"{}")
    models = ["m1", "m2", "m1", "least"] * 16
    answers = await asyncio.gather(*(client.chat(model=model, max_tokens=5) for model in models))
    assert [response.status for response, _ in answers] == [500, 200, 500, 200] * 16
    await ledger.drain()
    report = await ledger.audit()
    assert (report.recomputed, [one.rule for one in report.mismatches]) == (32, ["price m1"])


async def test_caller_who_may_not_use_the_model_learns_nothing_about_its_price(
    client: Client, payer: Payer, operator: Operator, accounts: Accounts, store: Store
) -> None:
    await payer.open(NANO)
    await accounts.deny("payer", ["m1"])
    await store_text(store, operator, b"{}")
    for _ in range(2):
        response, document = await client.chat(model="m1", max_tokens=5)
        assert (response.status, document["error"]["code"]) == (403, "model_not_permitted")


async def test_answer_that_was_charged_before_is_replayed(
    client: Client, payer: Payer, operator: Operator, store: Store, ledger: Ledger
) -> None:
    await payer.open(NANO)
    client.headers = {**client.headers, "Idempotency-Key": "once"}
    first, answer = await client.chat(model="m1", max_tokens=5)
    await charged(ledger, first)
    await store_text(store, operator, b"{}")
    client.headers = {name: value for name, value in client.headers.items() if name != "Idempotency-Key"}
    await client.chat(model="m1", max_tokens=5)  # the worker knows of the unreadable price now
    client.headers = {**client.headers, "Idempotency-Key": "once"}

    async def replayed() -> bool:
        response, found = await client.chat(model="m1", max_tokens=5)
        return response.headers.get("Idempotent-Replayed") == "true" and found == answer

    await until(replayed)


async def shown(store: Store, gateway: Gateway, accounts: Accounts) -> None:
    account = await accounts.show("payer")
    assert set(account.json_form()["prices"]) == {"m1", "m2"}


async def listed(store: Store, gateway: Gateway, accounts: Accounts) -> None:
    assert {"payer", "other"} <= {account.name for account in await accounts.list()}


async def models_of_the_account(store: Store, gateway: Gateway, accounts: Accounts) -> None:
    terms = price_terms(gateway.settings, await accounts.show("payer"))
    forms = {name: model_form(name, model, terms.of(name)) for name, model in gateway.settings.models.items()}
    assert (forms["m1"]["unreadable"], forms["m1"]["price"], forms["m1"]["price_version"]) == (True, {}, "")
    assert (forms["m2"]["unreadable"], forms["m2"]["price_factor"]) == (False, "3")


async def price_list_of_the_account(store: Store, gateway: Gateway, accounts: Accounts) -> None:
    payer, settings = await accounts.show("payer"), gateway.settings
    forms = {form["id"]: form for form in price_list(settings, payer, permitted_models(settings, payer))}
    assert (forms["m1"]["unreadable"], forms["m1"]["price"]) == (True, {})
    assert not forms["m2"]["unreadable"] and forms["m2"]["price"]


async def explained(store: Store, gateway: Gateway, accounts: Accounts) -> None:
    for model, refused_by in (("m1", "price"), ("m2", "")):
        (key_id,) = [key.decode() for key in await store.client.smembers("{a:payer}:ks")]
        found = await check_call(
            store, gateway.settings, key_id, model, RequestSize(tokens=10), endpoint_named=endpoint_named
        )
        assert found.refused_by == refused_by
        if refused_by:
            (rule,) = [rule for rule in found.rules if rule.rule == "price"]
            assert rule.state.startswith("its own price is unreadable: it")
            assert rule.change == "gateway accounts price payer m1 --clear"


PLACES: dict[str, Callable[[Store, Gateway, Accounts], Awaitable[None]]] = {
    "the account": shown,
    "the list of accounts": listed,
    "the models of the account": models_of_the_account,
    "the price list": price_list_of_the_account,
    "explain": explained,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
async def test_operators_see_it_as_unreadable_beside_all_others(
    client: Client,
    payer: Payer,
    operator: Operator,
    store: Store,
    gateway: Gateway,
    accounts: Accounts,
    text: bytes,
    place: Callable[[Store, Gateway, Accounts], Awaitable[None]],
) -> None:
    await payer.open(NANO)
    await accounts.create("other")
    await operator.set("m2", factor="3")
    await store_text(store, operator, text)
    await place(store, gateway, accounts)


@pytest.mark.holds("operations/audit.md#audit-19")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
async def test_audit_names_the_unreadable_prices_and_no_others(
    client: Client, payer: Payer, operator: Operator, store: Store, ledger: Ledger, text: bytes
) -> None:
    await payer.open(NANO)
    await operator.set("m2", factor="3")
    await store_text(store, operator, text)
    report = await ledger.audit()
    assert [(one.account, one.rule, one.expected) for one in report.mismatches] == [("payer", "price m1", "a price")]
    assert report.mismatches[0].found.startswith("unreadable: it") and "secret" not in report.mismatches[0].found
    await operator.clear("m1")
    assert (await ledger.audit()).mismatches == []
