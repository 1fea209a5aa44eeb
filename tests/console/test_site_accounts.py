"""Operators open accounts, move money, and set what accounts may do; viewers read."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gateway.admin.actor import command_line
from gateway.admin.audit_trail import AuditFilter, newest_events
from gateway.ledger.api_key import ApiKey
from tests.console.client import PASSWORD, Browser, Console
from tests.ledger.records import quote_of, settle

PAGE = "/site/accounts/acme"


async def operator_of(c: Console) -> Browser:
    return await c.as_("root", role="operator", password=PASSWORD)


async def balance(c: Console, name: str = "acme") -> int:
    return (await c.services.store.accounts.show(name)).balance


async def operation(browser: Browser, field: str = "operation") -> str:
    found = re.search(f'name="{field}" value="([^"]+)"', (await browser.get(PAGE)).html)
    assert found is not None
    return found[1]


@pytest.mark.holds("security.md#money-1")
async def test_operator_opens_an_account_and_a_form_that_is_sent_twice_credits_once(console) -> None:
    async with console() as c:
        operator = await operator_of(c)
        shown = await operator.post("/site/new-account", name="new-one", group="vip")
        assert shown.location.endswith("/site/accounts/new-one")
        form: dict[str, Any] = {"amount": "25", "note": "first payment", "operation": await operation(operator)}
        for _ in range(2):
            await operator.post("/site/accounts/new-one/credit", **form)
        assert await balance(c, "new-one") == 25_000_000_000
        assert "nothing was moved again" in (await operator.get("/site/accounts/new-one")).text
        refused = await operator.post("/site/accounts/new-one/credit", 400, **{**form, "amount": "-3"})
        assert "above zero" in refused.text and 'value="first payment"' in refused.html
        again = await operator.post("/site/new-account", 409, name="new-one", group="vip")
        assert "exists already" in again.text
        wanted = AuditFilter(account="new-one")
        people = await c.services.people()
        events = await newest_events(
            command_line("root"), people.audit_trail, c.services.store.outbox, wanted, limit=10
        )
        assert [event.action for event in events] == ["accounts.credit", "accounts.create"]
        assert events[0].after["note"] == "first payment" and events[0].actor_kind == "user"


async def test_money_is_taken_away_only_with_the_password(console) -> None:
    async with console() as c:
        operator = await operator_of(c)
        form: dict[str, Any] = {"taken": "5", "debit_operation": await operation(operator, "debit_operation")}
        refused = await operator.post(f"{PAGE}/debit", 401, current_password="wrong", **form)
        assert "The password is wrong" in refused.text and await balance(c) == 25_000_000_000
        for _ in range(2):
            await operator.post(f"{PAGE}/debit", current_password=PASSWORD, **form)
        assert await balance(c) == 20_000_000_000


@pytest.mark.holds("security.md#money-1")
async def test_request_is_refunded_once_and_never_for_more_than_its_charge(console) -> None:
    async with console() as c:
        operator = await operator_of(c)
        request_id = await charge(c, 3_000_000)
        before = await balance(c)
        form: dict[str, Any] = {"request_id": request_id, "refund_note": "slow", "refund_operation": "form-1"}
        too_much = await operator.post(f"{PAGE}/refund", 400, **form, refund_amount="1")
        assert "only 0.003 is left" in too_much.text and 'value="slow"' in too_much.html
        for _ in range(2):
            await operator.post(f"{PAGE}/refund", **form)
        assert await balance(c) == before + 3_000_000
        unknown = await operator.post(
            f"{PAGE}/refund", 404, **{**form, "request_id": "req_none", "refund_operation": "form-2"}
        )
        assert "no settled request" in unknown.text and 'value="req_none"' in unknown.html


async def charge(c: Console, cost: int) -> str:
    """A settled call of acme; returns its request id."""
    ledger, key = c.services.store.ledger, await c.services.store.keys.create("acme")
    hold = await ledger.admit("req_1", ApiKey("acme", key.id), quote_of(cost))
    await settle(ledger, hold, cost)
    return hold.request_id


async def test_group_limits_and_rules_are_set_and_bad_ones_change_nothing(console) -> None:
    async with console() as c:
        operator, accounts = await operator_of(c), c.services.store.accounts
        await operator.post(f"{PAGE}/group", group="vip")
        assert "no group" in (await operator.post(f"{PAGE}/group", 400, group="gold")).text
        await operator.post(f"{PAGE}/limits", floor="-10", monthly="100.5", rpm="60", tpm="", concurrency="2")
        bad = await operator.post(f"{PAGE}/limits", 400, floor="-10", monthly="much", rpm="70", tpm="", concurrency="")
        assert "Cap of a month" in bad.text and 'value="70"' in bad.html
        await operator.post(f"{PAGE}/models", models=["fake-chat", "short"], rule="deny")
        found = await accounts.show("acme")
        assert (found.group, found.floor, found.monthly, found.rpm, found.concurrency) == (
            "vip",
            -10_000_000_000,
            100_500_000_000,
            60,
            2,
        )
        assert found.denied == ["fake-chat"]
        await operator.post(f"{PAGE}/limits", floor="0", monthly="", rpm="", tpm="", concurrency="2")
        found = await accounts.show("acme")
        assert (found.floor, found.monthly, found.rpm, found.concurrency) == (0, None, None, 2)


async def test_account_is_disabled_only_with_the_password(console) -> None:
    async with console() as c:
        operator = await operator_of(c)
        await operator.post(f"{PAGE}/disable", 401, current_password="")
        assert (await c.services.store.accounts.show("acme")).state == "active"
        await operator.post(f"{PAGE}/disable", current_password=PASSWORD)
        assert (await c.services.store.accounts.show("acme")).state == "disabled"
        await operator.post(f"{PAGE}/enable")
        assert (await c.services.store.accounts.show("acme")).state == "active"


async def test_operator_without_a_password_is_told_to_set_one(console) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator")
        refused = await operator.post(f"{PAGE}/disable", 400)
        assert "set one on your profile first" in refused.text


async def test_viewer_reads_accounts_and_finds_them_by_a_part_of_the_name(console) -> None:
    async with console() as c:
        for number in range(60):
            await c.services.store.accounts.create(f"team-{number:02}")
        viewer = await c.as_("eva", role="viewer")
        first = await viewer.get("/site/accounts")
        assert "acme" in first.text and "team-59" not in first.text and "Create an account" not in first.text
        second = await viewer.get("/site/accounts?after=team-47")
        assert "team-59" in second.text and "acme" not in second.text
        found = await viewer.get("/site/accounts?q=M-3")
        assert "team-31" in found.text and "team-41" not in found.text
        assert "No account fits" in (await viewer.get("/site/accounts?q=nothing")).text
        shown = await viewer.get(PAGE)
        assert "25.00" in shown.text and "current_password" not in shown.html
