"""Amounts, times, limits and values of the audit trail are texts for people, on whichever page they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gateway.admin.audit_event import new_event
from gateway.console import rendering
from tests.console.client import ROOT
from tests.console.history import ago, calls
from tests.console.opening import MODELS

NO_CURRENCY = MODELS.replace(', currency = "USD"', "")
GROUPS = MODELS + "rpm = 600\ntpm = 90000\n"  # of the group vip, the last table


@pytest.mark.holds("console.md#money-and-times-1")
async def test_amount_without_a_currency_has_nothing_between_it_and_what_follows(console) -> None:
    async with console(models=NO_CURRENCY) as c:
        [id_] = await calls(c, ago(minutes=3), cost=8_500_000, model="fake-chat", price="v1")
        operator = await c.as_("root", role="operator", acme="owner")
        own = ("/accounts/acme", "/accounts/acme/usage", f"/accounts/acme/usage/{id_}", "/accounts/acme/members")
        pages = {path: await operator.get(path) for path in (*own, "/site/accounts/acme", "/site/reports")}
        assert "<strong>0.0085</strong>, " in pages["/accounts/acme/usage"].html
        for path, shown in pages.items():
            assert not re.search(r"\d\.\d+ +(?:</|[,.;])", shown.html), path
        assert "Per 1,000,000 tokens" in (await operator.get("/accounts/acme/prices")).text


@pytest.mark.holds("console.md#money-and-times-1")
async def test_audit_trail_shows_no_value_of_the_language_and_keeps_addresses_whole(console) -> None:
    async with console() as c:
        was: dict[str, Any] = {
            "models": None,
            "show_cost": False,
            "price": {"input": "0.1", "tiers": []},
            "addresses": [],
        }
        after = {"models": ["a", "b"], "show_cost": True, "price": {}, "addresses": ["10.1.0.0/16", "192.168.7.0/24"]}
        event = new_event(ROOT, "keys.edit", "key:key_1", account="acme", before=was, after=after)
        await c.services.store.outbox.add(event)
        shown = await (await c.as_("eva", role="viewer")).get("/site/audit-trail")
        text = shown.text.replace(" ,", ",")
        assert not re.search(r"\b(?:None|True|False)\b|\{'|\['|\[\]|\{\}", text), text
        assert "models – show_cost no price input 0.1, tiers – addresses –" in text
        assert "show_cost yes" in text and "models a, b" in text
        assert '<span class="whole">192.168.7.0/24</span>' in shown.html


@pytest.mark.holds("console.md#money-and-times-1")
async def test_every_time_has_seconds_and_a_zone(console) -> None:
    async with console() as c:
        await calls(c, ago(minutes=3))
        operator = await c.as_("root", role="operator", acme="owner")
        for path in ("/accounts/acme/usage", "/site/calls", "/site/audit-trail", "/site/accounts", "/site/users"):
            times = re.findall(r"<time [^>]*>([^<]*)</time>", (await operator.get(path)).html)
            assert times and all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", text) for text in times), path


@pytest.mark.holds("console.md#money-and-times-1")
async def test_limits_of_the_group_are_shown_as_their_numbers(console) -> None:
    async with console(models=GROUPS + "[notify]\nbalance_low = 1.5\n") as c:
        await c.services.store.accounts.move("acme", "vip")
        owner, viewer = await c.as_("ann", acme="owner"), await c.as_("eva", role="viewer")
        operator = await c.as_("root", role="operator")
        for shown in (await owner.get("/accounts/acme/members"), await viewer.get("/site/accounts/acme")):
            assert "Requests per minute 600, of the group vip" in shown.text
            assert "Tokens per minute 90,000, of the group vip" in shown.text
            assert "Calls at the same time no limit" in shown.text
        assert 'placeholder="600, of the group vip"' in (await operator.get("/site/accounts/acme")).html
        form = {"floor": "0", "monthly": "", "rpm": "1000", "tpm": "100", "concurrency": "3"}
        await operator.post("/site/accounts/acme/limits", **form)
        assert "secret as the group says: allowed tiny as the group says: not allowed" in shown.text
        assert "At 1.50 USD, that of the gateway" in (await viewer.get("/accounts/acme/members")).text
        shown = await owner.get("/accounts/acme/members")
        assert "Requests per minute 600, of the group vip (its own: 1,000)" in shown.text
        assert "Tokens per minute 100 Calls at the same time 3" in shown.text
        assert "those of the group" not in shown.text


@pytest.mark.holds("console.md#money-and-times-1")
def test_every_table_scrolls_in_the_same_frame_which_hints_at_columns_out_of_sight() -> None:
    templates = Path(rendering.__file__).parent / "templates"
    for file in templates.glob("*.html"):
        before: list[str] = [text.rstrip() for text in file.read_text(encoding="utf-8").split("<table")[:-1]]
        assert all(re.search(r'<div class="scroll"[^>]*>$', text) for text in before), file.name
    css = (Path(rendering.__file__).parent / "static" / "console.css").read_text(encoding="utf-8")
    [frame] = re.findall(r"^\.scroll \{(.*?)\}", css, re.MULTILINE | re.DOTALL)
    assert frame.count("var(--shade)") == 2 and frame.count(" local,") == 2 == frame.count(" scroll,")
