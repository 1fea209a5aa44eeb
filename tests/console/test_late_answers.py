"""Pages and reads that waited are answered with the rights that the reader has afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from gateway.admin_api.api import AdminApi
from gateway.people import personal_data
from gateway.reports import reports as report_service
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT, Console
from tests.delays import time_passes
from tests.held import Held, held
from tests.polling import until

__all__ = ["database_address", "database_url", "held"]

LONG = 0.3  # seconds: more than an answer may take without another look at the rights
ENDS = ["removed", "member only", "disabled", "signed out"]


async def end(c: Console, how: str, user_id: str) -> None:
    people = await c.services.people()
    if how == "removed":
        await people.memberships.remove(ROOT, user_id, "acme")
    elif how == "member only":
        await people.memberships.set(ROOT, user_id, "acme", "member")
    elif how == "disabled":
        await people.users.disable(ROOT, user_id)
    else:
        await people.sessions.end_all(ROOT, user_id)


@asynccontextmanager
async def all_turns(turns: Any, count: int) -> AsyncIterator[None]:
    async with AsyncExitStack() as taken:
        for number in range(count):
            await taken.enter_async_context(turns.turn_of(f"user:other{number}"))
        yield


@pytest.mark.holds("people.md#who-is-who-10", "security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("how", ENDS)
async def test_page_that_waits_for_a_turn_is_not_shown_after_the_rights_have_ended(console: Any, how: str) -> None:
    async with console() as c:
        ann = await c.user("ann@example.com", acme="owner")
        browser = await c.signed_in(ann)
        async with all_turns(c.site.turns, 8):
            waiting = asyncio.create_task(browser.ask("GET", "/accounts/acme/keys"))
            await until(lambda: c.site.turns._count)
            await time_passes(LONG)
            await end(c, how, ann.id)
            await c.services.store.keys.create("acme", name="made-afterwards")
        shown = await waiting
        assert "made-afterwards" not in shown.html
        assert (
            shown.location.startswith("/sign-in") if how in ("disabled", "signed out") else shown.status in (403, 404)
        )


async def test_page_that_waits_for_a_turn_is_shown_while_the_rights_stay(console: Any) -> None:
    async with console() as c:
        browser = await c.as_("ann", acme="owner")
        async with all_turns(c.site.turns, 8):
            waiting = asyncio.create_task(browser.ask("GET", "/accounts/acme/keys"))
            await until(lambda: c.site.turns._count)
            await time_passes(LONG)
            await c.services.store.keys.create("acme", name="made-afterwards")
        assert "made-afterwards" in (await waiting).html


@pytest.mark.holds("security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("path", ["/accounts/acme/reports", "/accounts/acme/reports.csv"])
async def test_report_is_not_shown_after_the_session_has_ended(
    console: Any, held: Held, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async with console() as c:
        ann = await c.user("ann@example.com", acme="owner")
        browser = await c.signed_in(ann)
        held.put(monkeypatch, report_service, "_read")
        waiting = asyncio.create_task(browser.ask("GET", path))
        await until(lambda: held.calls)
        await time_passes(LONG)
        await end(c, "signed out", ann.id)
        held.go.set()
        assert (await waiting).location.startswith("/sign-in")


@pytest.mark.holds("security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("how", ["disabled", "signed out"])
async def test_form_that_is_refused_late_is_not_shown_again_after_the_rights_have_ended(
    console: Any, held: Held, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    from gateway.people.password_hashes import PasswordHashes

    async with console() as c:
        await c.user("root@example.com", role="operator")
        rob = await c.user("rob@example.com", role="operator", password=PASSWORD)
        browser, verify = await c.signed_in(rob), PasswordHashes.verify
        form = {"xsrf": await browser.token(), "current_password": "a wrong password", "taken": "1"}

        async def late(this: Any, *args: Any) -> Any:
            await end(c, how, rob.id)
            return await verify(this, *args)

        monkeypatch.setattr(PasswordHashes, "verify", late)
        shown = await browser.ask("POST", "/site/accounts/acme/debit", form)
        assert shown.location.startswith("/sign-in") and "acme" not in shown.text


async def asked(session: aiohttp.ClientSession, url: str, text: str) -> tuple[int, str]:
    async with session.get(url, headers={"Authorization": f"Bearer {text}"}) as answer:
        return answer.status, await answer.text()


@pytest.mark.holds(
    "admin-api.md#requests-and-answers-7", "people.md#who-is-who-10", "security.md#scopes-of-admin-tokens-8"
)
@pytest.mark.parametrize("is_revoked", [True, False])
async def test_read_of_a_token_that_waits_for_a_turn_is_not_answered_after_the_revocation(
    console: Any, is_revoked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, init = list[AdminApi](), AdminApi.__init__

    def noted(this: AdminApi, *args: Any, **rest: Any) -> None:
        init(this, *args, **rest)
        made.append(this)

    monkeypatch.setattr(AdminApi, "__init__", noted)
    async with console() as c:
        people = await c.services.people()
        token = await people.tokens.create(ROOT, "t", ["read"])
        async with aiohttp.ClientSession() as session:
            async with all_turns(made[0].turns, 16):
                asking = asyncio.create_task(asked(session, f"{c.url}/admin/v1/keys", token.text))
                await until(lambda: made[0].turns._count)
                await time_passes(LONG)
                if is_revoked:
                    await people.tokens.revoke(ROOT, token.record.id)
                await c.services.store.keys.create("acme", name="made-afterwards")
            status, text = await asking
        assert (status, "made-afterwards" in text) == ((401, False) if is_revoked else (200, True))


async def test_export_is_not_answered_after_the_token_was_revoked(
    console: Any, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console() as c:
        people = await c.services.people()
        ann = await c.user("ann@example.com")
        token = await people.tokens.create(ROOT, "t", ["read", "users"])
        held.put(monkeypatch, personal_data, "_export")
        async with aiohttp.ClientSession() as session:
            asking = asyncio.create_task(asked(session, f"{c.url}/admin/v1/users/{ann.id}/export", token.text))
            await until(lambda: held.calls)
            await time_passes(LONG)
            await people.tokens.revoke(ROOT, token.record.id)
            held.go.set()
            assert (await asking)[0] == 401
