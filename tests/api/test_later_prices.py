"""Announced prices in `/v1/models`: whose they are, in which form, and that other models have none."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.admin.account_prices import AccountPrices
from gateway.admin.actor import command_line
from gateway.admin.models import model_form
from gateway.admin.outbox import AuditOutbox
from gateway.amounts import NANO
from gateway.billing.price_terms import OwnPrice
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from gateway.testing import FakeUpstream

from .conftest import Client

ROOT = command_line("root")
NOW = {"input": 1, "output": 2}
PAST = {"input": 3, "output": 4, "effective_from": "2020-01-01"}
SOON = {
    "input": 6,
    "output": 8,
    "effective_from": "2099-01-01",
    "per_image": {"*": {"*": Decimal("0.04")}},
    "tiers": [{"above_input_tokens": 9, "input": 10}],
}
LATER = {"input": 5, "output": 7, "effective_from": "2199-01-01"}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    model = {"provider": "up", "groups": ["default", "half"]}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"up": {"plugin": "openai", "base_url": upstream.base_url}},
            "groups": {"default": {}, "half": {"price_factor": Decimal("0.5")}},
            "models": {
                "soon": {**model, "price": [NOW, PAST, SOON, LATER], "aliases": ["alias"]},
                "past": {**model, "price": [NOW, PAST]},
                "plain": {**model, "price": NOW},
                "free": {**model, "free": True},
            },
        },
        demo=True,
    )


async def models(client: Client) -> dict[str, Any]:
    """The records of the list by id, each the same as alone."""
    async with client.request("GET", "/v1/models") as response:
        found = {record["id"]: record for record in (await response.json())["data"]}
    for name, record in found.items():
        async with client.request("GET", f"/v1/models/{name}") as response:
            assert await response.json() == record
    return found


async def test_announced_prices_are_in_the_form_of_the_admin_api_and_other_models_have_none(
    client: Client, settings: Settings
) -> None:
    found = await models(client)
    assert found["soon"]["later_prices"] == model_form("soon", settings.models["soon"])["later_prices"]
    first, second = found["soon"]["later_prices"]
    assert (first["input"], first["tiers"]) == ("6", [{"above_input_tokens": 9, "input": "10"}])
    assert (second["output"], second["version"][12:]) == ("7", "@2199-01-01")
    assert found["alias"]["later_prices"] == found["soon"]["later_prices"]
    assert not {"later_prices"} & (found["past"].keys() | found["plain"].keys() | found["free"].keys())


async def test_announced_prices_are_those_of_the_caller_s_account(
    client: Client, accounts: Accounts, keys: Keys, store: Store, settings: Settings
) -> None:
    await accounts.create("dealt", group="half")
    client.headers = {"Authorization": f"Bearer {(await keys.create('dealt', name='k')).text}"}

    async def prices() -> list[str]:
        """The inputs of the list; no call of the account is needed before."""
        return [price["input"] for price in (await models(client))["soon"]["later_prices"]]

    assert await prices() == ["3", "2.5"]
    own = AccountPrices(store, accounts, AuditOutbox(store))
    for price in (OwnPrice(NANO // 4), OwnPrice(NANO, (("input", 9 * NANO),))):
        await own.set(ROOT, "dealt", "soon", price)
        form = model_form("soon", settings.models["soon"], price)
        assert (await models(client))["soon"]["later_prices"] == form["later_prices"] != []
    assert await prices() == ["9", "9"]
    await own.set(ROOT, "dealt", "soon", None)
    await accounts.move("dealt", "default")
    assert await prices() == ["6", "5"]


async def test_model_with_an_unreadable_price_has_no_announced_price(
    client: Client, accounts: Accounts, keys: Keys, store: Store
) -> None:
    await accounts.create("broken")
    client.headers = {"Authorization": f"Bearer {(await keys.create('broken', name='k')).text}"}
    await store.client.hset("{a:broken}", mapping={"p:soon": '{"new":"1"}', "pe": "x"})  # type: ignore[misc]
    assert "later_prices" not in (await models(client))["soon"]


async def test_prices_of_the_account_are_read_only_if_a_price_is_announced(
    client: Client, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    kept = gateway.ledger.terms.read

    async def counted(account: str) -> None:
        read.append(account)
        await kept(account)

    monkeypatch.setattr(gateway.ledger.terms, "read", counted)
    for name, times in (("plain", 0), ("past", 0), ("free", 0), ("soon", 1)):
        async with client.request("GET", f"/v1/models/{name}") as response:
            assert response.status == 200
        assert len(read) == times, name
