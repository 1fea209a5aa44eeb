"""`gateway serve --demo`: two accounts with invented history, and a link that signs in its operator."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.console.client import Browser
from tests.polling import until
from tests.processes.demo import Demo, link_in


def refused_by(demo: Demo) -> Any:
    """The sums of refused requests in the database."""
    return demo.command("history", "refusals", "--since", "8d")


@pytest.mark.slow
async def test_demo_has_two_accounts_with_marked_history_that_the_audit_proves_and_is_written_once(
    tmp_path: Path,
) -> None:
    demo = Demo(tmp_path)
    codes = {"credit_balance_exhausted", "rate_limit_exceeded", "model_not_permitted"}

    async def is_imported() -> bool:
        return demo.lines() > 500 and demo.command("history", "state")["behind"] == []

    async def is_refused() -> bool:
        return {one["code"] for one in refused_by(demo)} == codes

    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
        demo.started() as text,
    ):
        browser, link = Browser(session, demo.console, ""), link_in(text)
        await browser.post("/sign-in/link", page=link, token=link.partition("=")[2], action="sign_in")
        accounts = (await browser.get("/site/accounts")).text
        assert "demo default" in accounts and "demo-partner partner" in accounts and "Demo data" in accounts
        await until(is_imported)
        before = demo.command("audit")
        assert (before["accounts"], before["mismatches"], before["not_recomputed"]) == (2, [], 0)
        assert before["recomputed"] > 50  # lines that are younger than two days stay in the store
        call = (await browser.get("/accounts/demo-partner/usage")).found(
            r'href="(/accounts/demo-partner/usage/req_[^"]+)"'
        )
        assert "demo=true" in (await browser.get(call)).text
        assert "Kim (demo)" in (await browser.get("/accounts/demo-partner/members")).text
        listed, partner = [(await browser.get(f"/accounts/{name}/prices")).text for name in ("demo", "demo-partner")]
        assert "fake-chat" in listed and "1.5" in listed and "1.2" in partner  # the factor of the group is 0.8
        assert "fake-writer own price 1.50 list 2.00 0.20 5.00 list 8.00" in partner and "own price" not in listed
        written = await browser.get("/accounts/demo-partner/usage?model=fake-writer&outcome=ok")
        paid = await browser.get(written.found(r'href="(/accounts/demo-partner/usage/req_[^"]+)"'))
        assert "1.50 per 1,000,000" in paid.text and "5.00 per 1,000,000" in paid.text
        await until(is_refused)
        refused = refused_by(demo)
        assert re.search("refused before (it|they) ran", (await browser.get("/accounts/demo/usage?range=7d")).text)
        balances = {account["name"]: account["balance"] for account in demo.command("accounts", "list")}
        assert balances == {"demo": "10", "demo-partner": "50"}
        await browser.get(link, status=404)  # a link works once

    async with demo.started() as text:
        assert link_in(text) != link and 'account "demo" (balance 10)' in text
        after = demo.command("audit")
        assert (after["accounts"], after["history_lines"], after["mismatches"]) == (2, before["history_lines"], [])
        assert refused_by(demo) == refused
