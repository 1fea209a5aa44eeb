"""Own prices of accounts: what is stored and shown, who may change them, and what is refused."""

from __future__ import annotations

import pytest

from gateway.admin.account_prices import AccountPrices
from gateway.admin.actor import Actor, command_line
from gateway.admin.outbox import AuditOutbox
from gateway.admin.price_list import permitted_models, price_list, price_terms
from gateway.amounts import NANO, parse_amount
from gateway.billing.price_terms import OwnPrice, UnreadablePrice
from gateway.config.loader import demo_settings
from gateway.errors import Forbidden, InvalidValue, NotFound
from tests.world import OpenWorld, World

ROOT = command_line("root")


class Operator:
    """Sets own prices of the account acme."""

    def __init__(self, w: World) -> None:
        self.prices = AccountPrices(w.store, w.accounts, AuditOutbox(w.store))

    async def set(self, model: str, *, factor: str = "1", actor: Actor = ROOT, **amounts: str) -> None:
        values = tuple(sorted((name, parse_amount(text)) for name, text in amounts.items()))
        await self.prices.set(actor, "acme", model, OwnPrice(parse_amount(factor), values))

    async def clear(self, model: str) -> None:
        await self.prices.set(ROOT, "acme", model, None)


async def test_own_prices_are_shown_with_the_account_and_have_audit_events(world: OpenWorld) -> None:
    async with world() as w:
        await w.caller()
        operator = Operator(w)
        await operator.set("m1", input="0.2", output="1")
        await operator.set("m1", input="0.2", output="1")  # nothing changes
        await operator.set("m2", factor="0.9")
        shown = (await w.accounts.show("acme")).json_form()["prices"]
        assert shown == {"m1": {"input": "0.2", "output": "1"}, "m2": {"factor": "0.9"}}
        await operator.clear("m1")
        assert (await w.accounts.show("acme")).json_form()["prices"] == {"m2": {"factor": "0.9"}}
        events = [event for _, event in await AuditOutbox(w.store).read() if event is not None]
        assert [event.action for event in events] == ["accounts.price"] * 3
        assert (events[0].before, events[0].after) == ({"m1": None}, {"m1": {"input": "0.2", "output": "1"}})
        assert events[2].after == {"m1": None}


async def test_impossible_own_prices_are_refused_and_change_nothing(
    world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.admin.account_prices.MOST", 1)
    async with world() as w:
        await w.caller()
        operator = Operator(w)
        with pytest.raises(InvalidValue, match='nearest: "input"'):
            await operator.set("m1", inptu="1")
        with pytest.raises(InvalidValue, match="zero or more"):
            await operator.set("m1", input="-1")
        with pytest.raises(InvalidValue, match="between 0 and 1000"):
            await operator.set("m1", factor="1000.1")
        for scope in ("accounts", "credits"):
            with pytest.raises(Forbidden):
                await operator.set("m1", factor="2", actor=Actor(kind="token", id="t", scopes=frozenset({scope})))
        with pytest.raises(NotFound):
            await operator.prices.set(ROOT, "nobody", "m1", None)
        await operator.set("other", factor="2")
        with pytest.raises(InvalidValue, match="has 1 prices of its own"):
            await operator.set("m1", factor="2")
        await operator.set("other", factor="3")
        assert (await w.accounts.show("acme")).prices == {"other": {"factor": "3"}}


async def test_epoch_of_own_prices_never_returns(world: OpenWorld) -> None:
    async with world() as w:
        await w.caller()
        operator, epochs = Operator(w), []
        for _ in range(3):
            await operator.set("m1", factor="2")
            epochs.append(await w.store.client.hget("{a:acme}", "pe"))
            await operator.clear("m1")
            epochs.append(await w.store.client.hget("{a:acme}", "pe"))
        assert len(set(epochs)) == 6


async def test_price_that_a_newer_version_has_stored_is_no_free_model(world: OpenWorld) -> None:
    settings = demo_settings()
    name, other = sorted(settings.models)[:2]
    async with world() as w:
        await w.caller()
        operator = Operator(w)
        await operator.set(name, factor="2")
        await operator.set(other, factor="2")
        await w.store.client.hset("{a:acme}", f"p:{name}", '{"per_smell": "1"}')
        account = await w.accounts.show("acme")
        terms = price_terms(settings, account)
        assert isinstance(terms.of(name), UnreadablePrice) and terms.of(other) == OwnPrice(2 * NANO)
        listed = {model["id"]: model for model in price_list(settings, account, permitted_models(settings, account))}
        assert (listed[name]["unreadable"], listed[name]["price"]) == (True, {})
        assert (listed[other]["unreadable"], listed[other]["price_factor"]) == (False, "2")
