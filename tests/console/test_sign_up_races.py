"""One new person comes many times at once, or something fails in between: one user, one account, one credit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.admin.accounts import AccountAdmin
from gateway.admin.audit_trail import AuditFilter
from gateway.admin.user_rows import User
from gateway.errors import AlreadyExists, DatabaseUnavailable, InvalidLink, SignInLimited, StoreUnavailable
from gateway.people.oidc.sign_in import Entered
from gateway.people.people import People
from gateway.people.sign_ups import insert_sign_up
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import HOME, PASSWORD, ROOT, Console
from tests.console.oidc_world import OpenWorld, away, back, come, oidc_world
from tests.console.test_sign_in_races import finished, two_machines

__all__ = ["database_address", "database_url", "oidc_world"]

AT_ONCE = 20
OPEN: dict[str, Any] = {"signup": "open", "signup_credit": "2.50", "signup_credits_per_day": 2}
CREDIT = 2_500_000_000


async def new_accounts(c: Console) -> dict[str, int]:
    """The balances of the accounts that sign-ups have opened."""
    found = await c.services.store.accounts.list()
    return {one.name: one.balance for one in found if one.name not in ("acme", "other")}


async def opened_events(c: Console, people: People) -> int:
    """How many accounts were opened, as the audit trail and its outbox say."""
    waiting = [event for _, event in await c.services.store.outbox.read() if event is not None]
    found = waiting + await people.audit_trail.list(ROOT, AuditFilter(), limit=1000)
    return sum(event.action == "accounts.create" for event in found)


@pytest.mark.holds("people.md#new-people-4", "security.md#accounts-and-sessions-6")
@pytest.mark.slow
async def test_many_first_sign_ins_of_one_person_give_one_user_one_account_and_one_credit(
    oidc_world: OpenWorld,
) -> None:
    async with oidc_world(**OPEN) as (c, corp), two_machines(c) as machines:
        browsers = [await c.browser() for _ in range(AT_ONCE)]
        paths = [await back(browser, await away(browser)) for browser in browsers]
        pairs = enumerate(zip(browsers, paths, strict=True))
        replies = await asyncio.gather(*(finished(machines[n % 2].oidc, *pair) for n, pair in pairs))
        assert [type(reply) for reply in replies] == [Entered] * AT_ONCE
        [user] = await machines[0].users.list(ROOT)
        assert await new_accounts(c) == {f"u-{user.id[4:]}": CREDIT} and len(user.accounts) == 1
        assert await opened_events(c, machines[0]) == 1
        for name, balance in (("bob", CREDIT), ("eve", 0)):  # the second of the day has a credit, the third has none
            corp.person = {"sub": name, "email": f"{name}@example.com", "email_verified": True}
            assert (await come(await c.browser())).status == 303
            [account] = (await machines[0].users.find(ROOT, f"{name}@example.com")).accounts
            assert (await new_accounts(c))[account] == balance


@pytest.mark.holds("people.md#new-people-4", "security.md#accounts-and-sessions-6")
@pytest.mark.slow
async def test_link_to_sign_up_that_is_opened_many_times_at_once_gives_one_user_and_one_account(console: Any) -> None:
    async with console(**OPEN, signup_limit=AT_ONCE) as c, two_machines(c) as machines:
        token = await machines[0].transactions.write(insert_sign_up, "ann@example.com", "net")
        opened = (
            machines[n % 2].sign_ups.confirm(token, name="", password=PASSWORD, address=HOME.address)
            for n in range(AT_ONCE)
        )
        ended = await asyncio.gather(*opened, return_exceptions=True)
        assert sum(isinstance(one, User) for one in ended) == 1
        assert all(isinstance(one, (User, AlreadyExists, InvalidLink, SignInLimited)) for one in ended), ended
        [user] = await machines[0].users.list(ROOT)
        assert await new_accounts(c) == {f"u-{user.id[4:]}": CREDIT}
        # The attempts that made no user are taken back: one more person may come from this address.
        token = await machines[0].transactions.write(insert_sign_up, "bob@example.com", "net")
        await machines[0].sign_ups.confirm(token, name="", password=PASSWORD, address=HOME.address)


@pytest.mark.holds("people.md#new-people-4", "security.md#accounts-and-sessions-6")
async def test_failure_of_the_database_leaves_no_account_of_nobody(
    oidc_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any, **rest: Any) -> None:
        raise DatabaseUnavailable

    async with oidc_world(**OPEN) as (c, _):
        monkeypatch.setattr("gateway.people.newcomers.insert_identity", fails)
        assert (await come(await c.browser())).status == 503
        assert await new_accounts(c) == {}
        monkeypatch.undo()
        monkeypatch.setenv("OIDC_TEST_SECRET", "s3cret/+%")
        assert (await come(await c.browser())).status == 303
        assert list((await new_accounts(c)).values()) == [CREDIT]


@pytest.mark.holds("people.md#new-people-4")
@pytest.mark.parametrize("is_by_mail", [False, True])
async def test_account_that_the_store_did_not_open_is_opened_once_by_the_next_sign_in(
    oidc_world: OpenWorld, monkeypatch: pytest.MonkeyPatch, is_by_mail: bool
) -> None:
    create = AccountAdmin.create
    failing = [StoreUnavailable(), StoreUnavailable()]

    async def fails_first(self: AccountAdmin, *args: Any, **rest: Any) -> Any:
        if len(failing) == 2:
            raise failing.pop()
        made = await create(self, *args, **rest)
        if failing:
            raise failing.pop()  # the account is open, and the process dies before it knows
        return made

    async with oidc_world(**OPEN) as (c, _):
        people = await c.services.people()
        monkeypatch.setattr(AccountAdmin, "create", fails_first)

        async def comes() -> int:
            browser = await c.browser()
            if is_by_mail:
                form = {"email": "ann@example.com", "password": PASSWORD}
                return (
                    await browser.ask("POST", "/sign-in", {**(await browser.get("/sign-in")).hidden(), **form})
                ).status
            return (await come(browser)).status

        if is_by_mail:
            token = await people.transactions.write(insert_sign_up, "ann@example.com", "net")
            with pytest.raises(StoreUnavailable):
                await people.sign_ups.confirm(token, name="", password=PASSWORD, address="")
        else:
            assert await comes() == 503
        assert await new_accounts(c) == {}
        assert [await comes() for _ in range(3)] == [503, 303, 303]
        [user] = await people.users.list(ROOT)
        assert await new_accounts(c) == {f"u-{user.id[4:]}": CREDIT}


@pytest.mark.holds("people.md#new-people-4")
async def test_erased_person_leaves_no_promise_of_an_account(
    oidc_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*args: Any, **rest: Any) -> None:
        raise StoreUnavailable

    async with oidc_world(**OPEN) as (c, _):
        people = await c.services.people()
        with monkeypatch.context() as patched:
            patched.setattr(AccountAdmin, "create", fails)
            assert (await come(await c.browser())).status == 503
        [user] = await people.users.list(ROOT)
        await people.personal_data.erase(ROOT, user.id)
        await people.newcomers.open_account(user.id, "")
        assert await new_accounts(c) == {}
