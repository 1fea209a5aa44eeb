"""Operators give accounts prices of their own, and end them; everybody sees what is in force."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape
from typing import Any

import pytest

from gateway.accounts.accounts import Account
from gateway.billing.price_terms import OwnPrice
from gateway.store.links import slot
from tests.console.client import PASSWORD, ROOT, Browser, Console
from tests.console.test_prices import MODELS, rows

PAGE = "/site/accounts/acme"
PRICE = f"{PAGE}/price"
#: Of which the account may use none; the price is one of a model with many units.
MANY = MODELS + "\n[groups.cheap]\nprice_factor = 0.5\n"


async def operator_of(c: Console) -> Browser:
    return await c.as_("root", role="operator", password=PASSWORD)


async def account(c: Console) -> Account:
    return await c.services.store.accounts.show("acme")


async def sent(browser: Browser, what: str, status: int = 303, **form: Any) -> Any:
    return await browser.post(f"{PRICE}/{what}", status, **{"current_password": PASSWORD, **form})


@pytest.mark.holds("console.md#what-operators-do-1")
async def test_operator_sets_amounts_and_sees_what_is_in_force_and_since_when(console) -> None:
    async with console() as c:
        operator, began = await operator_of(c), datetime.now(UTC)
        form = await operator.get(f"{PRICE}?model=short")  # an alias
        assert 'placeholder="list price: 2.5"' in form.html and "In force now List price. " in form.text
        await sent(operator, "amounts", model="fake-chat", input="0.000007", output="")
        assert (await account(c)).prices == {"fake-chat": {"input": "0.000007"}}
        page = await operator.get(PAGE)
        assert "The price of fake-chat, from the next call on: input 0.000007." in page.text
        assert "input 0.000007 per 1,000,000 tokens output 2.50 per 1,000,000 tokens" in page.text
        since = re.search(r'<time datetime="([^"]+)"[^>]*>[^<]*</time></td>\s*<td class="act">', page.html)
        assert since is not None and datetime.fromisoformat(since[1]) >= began.replace(microsecond=0)
        again = await operator.get(f"{PRICE}?model=fake-chat")
        assert 'name="input" inputmode="decimal" maxlength="30" value="0.000007"' in again.html
        assert "0.000007" in (await operator.get("/accounts/acme/prices")).text
        events = [event for _, event in await c.services.store.outbox.read() if event is not None]
        assert [(event.action, event.actor_kind, event.after) for event in events] == [
            ("accounts.price", "user", {"fake-chat": {"input": "0.000007"}})
        ]


@pytest.mark.holds("console.md#what-operators-do-1")
async def test_factor_takes_the_place_of_amounts_and_is_removed_again(console) -> None:
    async with console(models=MANY) as c:
        operator = await operator_of(c)
        await c.services.store.account_admin.move(ROOT, "acme", "cheap")
        assert "List price × 0.5, the factor of the group" in (await operator.get(f"{PRICE}?model=b-rich")).text
        await sent(operator, "amounts", model="b-rich", input="1", per_request="0.5")
        await sent(operator, "factor", model="b-rich", factor="0.8")
        assert (await account(c)).prices == {"b-rich": {"factor": "0.8"}}
        page = await operator.get(PAGE)
        assert "list price × 0.8" in page.text and "request 0.008 each" in page.text
        assert "from 2999-01-01 input 1.20" in page.text  # of the list price to come
        await sent(operator, "clear", model="b-rich")
        assert (await account(c)).prices == {} and "list price × 0.5" in (await operator.get(PAGE)).text


async def test_wrong_price_is_explained_and_changes_nothing(console) -> None:
    async with console(models=MANY) as c:
        operator = await operator_of(c)
        await sent(operator, "amounts", model="b-rich", input="3")
        for what, field, value, problem in (
            ("amounts", "per_request", "a lot", "Request: expected an amount such as 2.50"),
            ("amounts", "input", "-1", "input = -1 is not possible; a price is zero or more"),
            ("amounts", "per_character", "0.0000000001", "Text to speech: expected an amount"),
            ("factor", "factor", "1001", "Factor: expected a number from 0 to 1000"),
            ("factor", "factor", "", "Factor: expected a number from 0 to 1000"),
        ):
            page = await sent(operator, what, 400, model="b-rich", **{field: value})
            assert problem in page.text and f'value="{value}"' in page.html, problem
            assert what == "amounts" or 'maxlength="30" value="3"' in page.html  # the other form is as it was
        assert "at least one amount" in (await sent(operator, "amounts", 400, model="b-rich", input=" ")).text
        assert "Choose a model" in (await sent(operator, "factor", 400, factor="1")).text
        assert "no model" in (await sent(operator, "factor", 400, model="b-rihc", factor="1")).text
        assert (await account(c)).prices == {"b-rich": {"input": "3"}}


@pytest.mark.holds("console.md#what-operators-do-1")
async def test_price_needs_the_password_again(console) -> None:
    async with console() as c:
        operator = await operator_of(c)
        for what, form in (("amounts", {"input": "1"}), ("factor", {"factor": "0.8"}), ("clear", {})):
            refused = await sent(operator, what, 401, model="tiny", current_password="wrong", **form)
            assert "The password is wrong" in refused.text
        assert (await account(c)).prices == {}


async def test_price_of_a_model_whose_name_is_an_alias_of_another_now_is_removed_and_not_that_of_the_other(
    console,
) -> None:
    async with console() as c:
        operator = await operator_of(c)
        for model in ("short", "fake-chat"):  # `short` was a model once
            await c.services.store.account_prices.set(ROOT, "acme", model, OwnPrice(amounts=(("input", 5),)))
        page = await operator.get(f"{PRICE}?model=short")
        assert "Price of short" in page.text and "Set the factor" not in page.text
        await sent(operator, "clear", model="short")
        assert set((await account(c)).prices) == {"fake-chat"}


@pytest.mark.holds("console.md#what-operators-do-1")
async def test_price_of_a_model_that_is_gone_can_only_be_removed(console) -> None:
    async with console() as c:
        operator = await operator_of(c)
        await c.services.store.account_prices.set(ROOT, "acme", "gone", OwnPrice(amounts=(("input", 5),)))
        assert "gone not in the configuration" in (await operator.get(PAGE)).text
        page = await operator.get(f"{PRICE}?model=gone")
        assert "Remove the own price" in page.text and "Set the factor" not in page.text
        await sent(operator, "factor", 400, model="gone", factor="1")
        await sent(operator, "clear", model="gone")
        assert (await account(c)).prices == {}


@pytest.mark.holds("console.md#what-operators-do-1")
async def test_price_that_a_newer_version_stored_is_shown_as_unreadable(console) -> None:
    async with console() as c:
        operator = await operator_of(c)
        await c.services.store.account_prices.set(ROOT, "acme", "tiny", OwnPrice(amounts=(("input", 5),)))
        name = slot("acme")
        await c.services.store.store.link(name).call("HSET", name, "p:tiny", '{"per_smell": "1"}')
        for path in (PAGE, f"{PRICE}?model=tiny"):
            shown = (await operator.get(path)).text
            assert "Unreadable, so calls are refused: it has 1 unknown amounts" in shown.replace(
                "unreadable", "Unreadable"
            )
            assert "free" not in shown
        page = await operator.get("/accounts/acme/prices?sort=input")
        assert "The account's own price of tiny cannot be read" in unescape(page.text)
        assert "Calls of this model are refused, all others are served" in page.text
        found = rows(page.html)
        assert found["tiny"].startswith("not available – – –") and "2.50" in found["fake-chat"]
        assert (await operator.get("/accounts/acme/playground")).status == 200
        await sent(operator, "clear", model="tiny")
        assert "not available" not in (await operator.get("/accounts/acme/prices")).text


async def test_viewer_sees_own_prices_without_a_form(console) -> None:
    async with console() as c:
        viewer = await c.as_("eva", role="viewer")
        await c.services.store.account_prices.set(ROOT, "acme", "tiny", OwnPrice(800_000_000))
        page = await viewer.get(PAGE)
        assert "list price × 0.8" in page.text and PRICE not in page.html
