"""Own prices and factors of groups that change while calls are made."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from msgspec import structs

from gateway.amounts import NANO
from gateway.billing.price_terms import OwnPrice, PriceTerms
from gateway.errors import StoreUnavailable
from gateway.ledger import Hold, Ledger
from gateway.ledger.admission import MAX_TRIES, Repriced
from gateway.ledger.api_key import ApiKey
from gateway.ledger.price_tables import read_prices
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from gateway.testing import FakeUpstream
from tests.api.conftest import Client
from tests.inference.test_account_prices import PRICE, ROOT, Operator, charged, clean, exact, operator, settings
from tests.inference.test_holds import Payer, payer
from tests.ledger.records import quote_of
from tests.ledger_lines import last_line
from tests.polling import until

__all__ = ["operator", "payer", "settings"]


async def test_table_of_each_own_price_is_stored_before_its_first_hold(
    client: Client, payer: Payer, ledger: Ledger, operator: Operator, store: Store
) -> None:
    await payer.open(NANO)
    await operator.set("m1", input="0.5")
    await operator.set("m2", input="0.6")
    for model, text in (("m1", "0.5"), ("m2", "0.6")):
        response, _ = await client.chat(model=model, max_tokens=5)
        line = await charged(ledger, response)
        assert -line.amount == exact("1", 8, 5, {**PRICE, "input": Decimal(text)})
        assert line.meta["price"] in await read_prices(store, [line.meta["price"]])
    await clean(ledger, 2)


async def test_call_that_is_quoted_again_keeps_its_tags(
    client: Client, gateway: Gateway, payer: Payer, ledger: Ledger, operator: Operator
) -> None:
    server = structs.replace(gateway.settings.server, tags=("team",))
    gateway.settings = structs.replace(gateway.settings, server=server)
    await payer.open(NANO)
    for text in ("0.5", "0.6"):
        await operator.set("m1", input=text)
        response, _ = await client.chat(model="m1", max_tokens=5, metadata={"team": "ads"})
        line = await charged(ledger, response)
        assert -line.amount == exact("1", 8, 5, {**PRICE, "input": Decimal(text)})
        assert line.meta["tags"] == {"team": "ads"}


@pytest.mark.holds("prices.md#prices-of-accounts-2")
async def test_own_price_applies_to_the_next_call_and_leaves_older_lines(
    client: Client, payer: Payer, ledger: Ledger, operator: Operator, store: Store
) -> None:
    await payer.open(NANO, group="dear")
    steps = [("0.91", "", ""), ("1", "input", "0.5"), ("3", "output", "0")]
    response, _ = await client.chat(model="m1", max_tokens=5)
    before = await charged(ledger, response)
    for factor, name, text in steps:
        values = ((name, int(Decimal(text) * NANO)),) if name else ()
        await operator.prices.set(ROOT, "payer", "m1", OwnPrice(int(Decimal(factor) * NANO), values))
        response, _ = await client.chat(model="m1", max_tokens=5)
        line = await charged(ledger, response)
        assert -line.amount == exact(factor, 8, 5, {**PRICE, **({name: Decimal(text)} if name else {})})
        assert line.meta["price"] in await read_prices(store, [line.meta["price"]])
    await operator.clear("m1")
    response, _ = await client.chat(model="m1", max_tokens=5)
    assert (await charged(ledger, response)).amount == before.amount == -exact("1.37", 8, 5)
    assert (await last_line(ledger, "payer", before.request_id)) == before
    await clean(ledger, 5)


@pytest.mark.holds("prices.md#prices-of-accounts-3")
async def test_no_worker_admits_a_call_at_a_price_from_before_a_change(
    payer: Payer, gateway: Gateway, operator: Operator, store: Store
) -> None:
    await payer.open(NANO)
    key = ApiKey("payer", (await payer.keys.list("payer"))[0].id)
    workers = [Ledger(store, gateway.catalog.groups) for _ in range(2)]

    def admit(worker: Ledger, terms: PriceTerms | None = None) -> asyncio.Future[Hold]:
        quote = quote_of(groups=frozenset({"default", "half"}))
        quote = structs.replace(quote, terms=terms or worker.terms.of("payer").terms)
        return worker.admit(gateway.ids.request_id(), key, quote)

    for change in (operator.set("m", factor="2"), operator.set("m", factor="3"), operator.clear("m")):
        for worker in workers:
            await admit(worker)
        await change
        for worker in workers:
            with pytest.raises(Repriced) as refused:
                await admit(worker)
            assert refused.value.unknown
            before = worker.terms.of("payer").terms
            await worker.terms.read("payer")
            # Two quotes of one batch, of which one was made before the change.
            old, new = admit(worker, before), admit(worker)
            with pytest.raises(Repriced) as refused:
                await old
            assert not refused.value.unknown
            await new
    moved = workers[0]
    await payer.accounts.move("payer", "half")
    with pytest.raises(Repriced) as refused:
        await admit(moved)
    assert not refused.value.unknown  # the factor of the group is known
    await admit(moved)
    assert len(await store.client.hgetall("{a:payer}:rv")) == 3 * 4 + 1


async def test_reload_changes_the_factor_of_a_group_for_the_next_call(
    client: Client, payer: Payer, ledger: Ledger, gateway: Gateway
) -> None:
    await payer.open(NANO, group="half")
    for factor in ("0.5", "0.25", "1", "2"):
        group = structs.replace(gateway.settings.groups["half"], price_factor=int(Fraction(factor) * NANO))
        groups = {**gateway.settings.groups, "half": group}
        await gateway.reload(structs.replace(gateway.settings, groups=groups))
        response, _ = await client.chat(model="m1", max_tokens=5)
        assert -(await charged(ledger, response)).amount == exact(factor, 8, 5)
    await clean(ledger, 4)


@pytest.mark.holds("prices.md#prices-of-accounts-3")
async def test_running_call_keeps_the_price_it_was_admitted_with(
    client: Client, upstream: FakeUpstream, payer: Payer, ledger: Ledger, operator: Operator
) -> None:
    await payer.open(NANO)
    upstream.tamper = lambda reply: structs.replace(reply, delay=0.3)
    task = asyncio.create_task(client.chat(model="m1", max_tokens=5))
    await until(lambda: upstream.seen)
    await operator.set("m1", factor="9")
    response, _ = await task
    assert -(await charged(ledger, response)).amount == exact("1", 8, 5)
    response, _ = await client.chat(model="m1", max_tokens=5)
    assert -(await charged(ledger, response)).amount == exact("9", 8, 5)
    await clean(ledger, 2)


async def test_calls_that_race_with_changes_of_the_price_pay_a_price_that_was_set(
    client: Client, payer: Payer, ledger: Ledger, operator: Operator
) -> None:
    await payer.open(100 * NANO)
    factors = [f"1.{number:02}" for number in range(1, 20)]
    responses: list[Any] = []

    async def call() -> None:
        for _ in range(12):
            response, _ = await client.chat(model="m1", max_tokens=5)
            assert response.status == 200
            responses.append(response)

    async def change() -> None:
        for factor in factors:
            await operator.set("m1", factor=factor)

    await asyncio.gather(*(call() for _ in range(4)), change())
    allowed = {exact(factor, 8, 5) for factor in ("1", *factors)}
    costs = [-(await charged(ledger, response)).amount for response in responses]
    assert set(costs) <= allowed
    assert len(set(costs)) > 1
    await clean(ledger, 48)


async def test_calls_of_one_tick_that_were_quoted_before_and_after_a_change_are_admitted_at_one_price(
    client: Client, payer: Payer, ledger: Ledger, gateway: Gateway, operator: Operator
) -> None:
    await payer.open(NANO)
    await client.chat(model="m1", max_tokens=5)
    await operator.set("m1", factor="2")
    # Both calls are quoted at the list price; the one that learns of the price first does not admit the other.
    responses = await asyncio.gather(*(client.chat(model="m1", max_tokens=5) for _ in range(8)))
    for response, _ in responses:
        assert -(await charged(ledger, response)).amount == exact("2", 8, 5)


async def test_call_whose_prices_change_at_every_try_is_refused_and_holds_nothing(
    client: Client, payer: Payer, gateway: Gateway, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    await payer.open(NANO)
    admit, tries = gateway.ledger.admit, []

    async def changed(*arguments: Any) -> Any:
        tries.append(1)
        await operator.set("m1", factor=f"1.{len(tries)}")
        return await admit(*arguments)

    monkeypatch.setattr(gateway.ledger, "admit", changed)
    response, _ = await client.chat(model="m1", max_tokens=5)
    assert (response.status, len(tries)) == (503, 1 + MAX_TRIES)
    assert (await payer.accounts.show("payer")).held == 0


@pytest.mark.holds("prices.md#prices-of-accounts-3")
async def test_own_price_that_cannot_be_stored_admits_nothing(
    client: Client, payer: Payer, gateway: Gateway, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    await payer.open(NANO)
    await operator.set("m1", input="2")

    async def away(*_: Any) -> None:
        raise StoreUnavailable

    monkeypatch.setattr("gateway.ledger.price_tables.store_prices", away)
    response, _ = await client.chat(model="m1", max_tokens=5)
    assert response.status == 503
    assert await payer.left() == NANO


@pytest.mark.holds("console.md#what-operators-do-1")
async def test_unreadable_own_price_refuses_the_calls_of_its_model_alone(
    client: Client, payer: Payer, operator: Operator, store: Store
) -> None:
    await payer.open(NANO)
    await operator.set("m1", factor="2")
    await store.client.hset("{a:payer}", "p:m1", '{"inptu":"1"}')
    response, _ = await client.chat(model="m1", max_tokens=5)
    assert response.status == 500
    assert await payer.left() == NANO
    response, _ = await client.chat(model="m2", max_tokens=5)
    assert response.status == 200
