"""Price tables are in the store before a hold uses them, under their versions, and are never changed."""

from __future__ import annotations

from decimal import Decimal

import pytest
from msgspec import structs

from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.catalog import Catalog
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger.price_tables import PRICES, PriceTables, read_prices, store_prices
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from gateway.store.greeting import ServerIdentity
from tests.polling import until


def settings_of(amount: str = "2.5") -> Settings:
    """One model whose price has tiers, images and service tiers."""
    price = {
        "input": Decimal(amount),
        "output": Decimal(10),
        "tiers": [{"above_input_tokens": 1000, "input": Decimal(5), "output": Decimal(20)}],
        "service_tier_multiplier": {"flex": Decimal("0.5")},
        "per_image": {"1024x1024": {"high": Decimal("0.25")}},
    }
    return parse({"providers": {"fake": {"plugin": "fake"}}, "models": {"m": {"provider": "fake", "price": price}}})


def price_of(amount: str = "2.5") -> Price:
    """The price of that model."""
    (price,) = Catalog.build(settings_of(amount)).prices()
    return price


async def calls_of(store: Store, command: str) -> int:
    """How often the server has executed a command."""
    stats = await store.client.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


async def test_stored_table_is_the_price_itself_with_tiers_images_and_service_tiers(world):
    price = price_of()
    async with world() as w:
        await store_prices(w.store, [price, Price()])
        found = await read_prices(w.store, [price.version, "unknown", ""])
        assert found == {price.version: price}
        usage = Usage(in_text=2000, out_text=7)
        assert found[price.version].cost(usage, service_tier="flex") == price.cost(usage, service_tier="flex") > 0


@pytest.mark.holds("prices.md#prices-that-change-3")
async def test_stored_table_is_never_changed(world):
    price = price_of()
    async with world() as w:
        await store_prices(w.store, [price])
        await store_prices(w.store, [structs.replace(price, input=0)])
        assert await read_prices(w.store, [price.version]) == {price.version: price}


async def test_more_tables_than_one_page_are_stored_and_read(world, monkeypatch):
    monkeypatch.setattr("gateway.ledger.price_tables.AT_ONCE", 3)
    prices = [Price(version=f"v{n}", input=n) for n in range(10)]
    async with world() as w:
        await store_prices(w.store, prices)
        assert await read_prices(w.store, [price.version for price in prices]) == {p.version: p for p in prices}


async def test_unreadable_table_is_left_out(world):
    async with world() as w:
        await w.store.client.hset(PRICES, mapping={"v1": "no JSON", "v2": '{"version":"v3"}'})
        assert await read_prices(w.store, ["v1", "v2"]) == {}


async def test_tables_are_stored_once_the_store_answers_again(world):
    price = price_of()
    async with world() as w:
        tables = PriceTables(w.store)
        await w.store.client.set(PRICES, "not a hash")
        await tables.publish([price])
        assert await w.store.client.get(PRICES) == b"not a hash"
        await w.store.client.delete(PRICES)
        await until(lambda: tables._task is not None and tables._task.done())
        assert await read_prices(w.store, [price.version]) == {price.version: price}
        await tables.close()


async def test_tables_that_are_stored_are_not_sent_again(world):
    prices = [Price(version=f"v{n}", input=n) for n in range(10)]
    async with world() as w:
        tables = PriceTables(w.store)
        await tables.publish(prices)
        before = await calls_of(w.store, "hsetnx")
        await tables.publish([*prices[1:], Price(version="v10", input=10)])
        assert await calls_of(w.store, "hsetnx") - before == 1
        await tables.publish(prices)  # the first one was left out meanwhile
        assert await calls_of(w.store, "hsetnx") - before == 2
        await tables.close()


@pytest.mark.holds("prices.md#prices-that-change-3")
async def test_gateway_stores_its_tables_before_it_serves_and_at_a_reload(gateway: Gateway, store: Store) -> None:
    before = [price for price in gateway.catalog.prices() if price.version]
    assert before
    assert set(await read_prices(store, [price.version for price in before])) == {price.version for price in before}
    new = price_of("3")
    await gateway.reload(structs.replace(gateway.settings, models=settings_of("3").models))
    assert new.version in [price.version for price in gateway.catalog.prices()]
    assert await read_prices(store, [new.version]) == {new.version: new}


async def test_tables_that_a_server_lacks_are_stored_again_at_a_reconnect(gateway: Gateway, store: Store) -> None:
    versions = [price.version for price in gateway.catalog.prices() if price.version]
    await store.client.delete(PRICES)
    link = store.links[0]
    link.identity = structs.replace(link.identity, run_id="of the server before")
    link.disconnect("a test")

    async def stored_again() -> bool:
        return set(await read_prices(store, versions)) == set(versions)

    assert await until(stored_again)


async def test_tables_are_not_stored_again_over_another_connection_to_the_same_server(
    gateway: Gateway, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    again: list[str] = []
    monkeypatch.setattr(gateway.price_tables, "publish_again", lambda: again.append("stored"))
    connected, reconnected = store.on_reconnect, list[bool]()
    assert connected is not None

    def seen(before: ServerIdentity, now: ServerIdentity) -> None:
        connected(before, now)
        reconnected.append(True)

    store.on_reconnect = seen
    store.links[0].disconnect("a test")
    await until(lambda: reconnected)
    assert not again
