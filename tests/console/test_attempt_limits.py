"""Refused attempts count for nobody else and leave nothing in the store; strangers keep no known person out."""

from __future__ import annotations

import ast
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyotp
import pytest

from gateway import people as people_package
from gateway.people.password_hashes import PasswordHashes
from gateway.people.sign_in_limits import PER_ADDRESS, PER_SUBJECT
from gateway.people.sign_ups import insert_sign_up
from tests.console.client import PASSWORD, ROOT, Browser, Console, Shown
from tests.console.oidc_world import OpenWorld, away, back, oidc_world
from tests.console.test_sign_in import with_mail

__all__ = ["oidc_world"]

OFFICE = {"X-Forwarded-For": "198.51.100.1"}
ADDRESS = OFFICE["X-Forwarded-For"]
WRONG = "wrong password of mine"
SET = {"password": PASSWORD, "repeated": PASSWORD, "name": ""}


async def send(browser: Browser, page: str, form: dict[str, str], *, headers: Any = OFFICE, to: str = "") -> Shown:
    opened = await browser.get(page, headers=headers)
    return await browser.ask("POST", to or page.partition("?")[0], {**opened.hidden(), **form}, headers=headers)


async def counters(c: Console) -> set[bytes]:
    return {key async for key in c.services.store.store.client.scan_iter("signin:*", count=1000)}


async def strangers_try(c: Console, times: int = PER_ADDRESS + 5) -> None:
    """Wrong passwords of nobody from the office."""
    stranger = await c.browser()
    hidden = (await stranger.get("/sign-in")).hidden()
    for number in range(times):
        form = {**hidden, "email": f"x{number}@nobody.example", "password": WRONG}
        await stranger.ask("POST", "/sign-in", form, headers=OFFICE)


@pytest.mark.holds("people.md#signing-in-5", "security.md#the-console-7")
@pytest.mark.parametrize("path", ["/sign-in", "/password/forgotten", "/sign-up"])
async def test_refused_attempts_of_an_address_leave_nothing_in_the_store(console: Any, path: str) -> None:
    async with console(signup="open") as c:
        await with_mail(c)
        browser = await c.browser()
        hidden = (await browser.get(path)).hidden()
        statuses = []
        for number in range(3 * PER_ADDRESS):
            form = {**hidden, "email": f"x{number}@nobody.example", "password": WRONG}
            statuses.append((await browser.ask("POST", path, form)).status)
        assert statuses.count(429) >= 2 * PER_ADDRESS
        people: Any = await c.services.people()
        await people.messages.finish()
        await people.sign_ups.finish()
        most = 3 * PER_ADDRESS if path == "/sign-up" else PER_ADDRESS  # sign-ups send messages, which are counted
        assert len(await counters(c)) <= most + 1


@pytest.mark.holds("people.md#signing-in-5", "security.md#the-console-7")
async def test_refused_attempts_for_an_email_leave_nothing_of_their_addresses_in_the_store(console: Any) -> None:
    async with console() as c:
        browser = await c.browser()
        hidden = (await browser.get("/sign-in")).hidden()
        form = {**hidden, "email": "ann@example.com", "password": WRONG}
        for _ in range(PER_SUBJECT):
            await browser.ask("POST", "/sign-in", form, headers=OFFICE)
        before = await counters(c)
        for number in range(20):
            elsewhere = {"X-Forwarded-For": f"192.0.2.{number}"}
            assert (await browser.ask("POST", "/sign-in", form, headers=elsewhere)).status == 429
        assert await counters(c) == before


@pytest.mark.holds("people.md#signing-in-5", "security.md#the-console-7")
async def test_address_that_is_refused_keeps_no_further_people_from_signing_in(console: Any) -> None:
    async with console() as c:
        people = [await c.user(f"p{number}@example.com", password=PASSWORD) for number in range(20)]
        stranger = await c.browser()
        hidden = (await stranger.get("/sign-in")).hidden()
        for person in people:
            for _ in range(PER_SUBJECT + 1):
                await stranger.ask(
                    "POST", "/sign-in", {**hidden, "email": person.email, "password": WRONG}, headers=OFFICE
                )
        statuses = []
        for number, person in enumerate(people):
            form = {"email": person.email, "password": PASSWORD}
            elsewhere = {"X-Forwarded-For": f"192.0.2.{number}"}
            statuses.append((await send(await c.browser(), "/sign-in", form, headers=elsewhere)).status)
        assert statuses.count(429) == PER_ADDRESS // PER_SUBJECT and statuses.count(303) == 15


# Every caller of the limits whose attempts count for an address, and a request that reaches it --------------------

Reach = Callable[[Console], Awaitable[Shown]]


async def _sign_in(c: Console) -> Shown:
    return await send(await c.browser(), "/sign-in", {"email": "new@example.com", "password": WRONG})


async def _forgotten(c: Console) -> Shown:
    return await send(await c.browser(), "/password/forgotten", {"email": "ann@example.com"})


async def _sign_up(c: Console) -> Shown:
    return await send(await c.browser(), "/sign-up", {"email": "new@example.com"})


async def _confirm(c: Console) -> Shown:
    token = await (await c.services.people()).transactions.write(insert_sign_up, "new@example.com")
    return await send(await c.browser(), f"/sign-up/confirm?token={token}", {"token": token, **SET})


async def _invitation(c: Console) -> Shown:
    new = await (await c.services.people()).invitations.to_account(ROOT, "new@example.com", "acme", "member")
    return await send(await c.browser(), f"/invitation?token={new.token}", {"token": new.token, **SET})


async def _reset(c: Console) -> Shown:
    people = await c.services.people()
    link = await people.sign_in_links.create(ROOT, (await people.users.find(ROOT, "ann@example.com")).id)
    form = {"token": link.token, "action": "password", **SET}
    return await send(await c.browser(), f"/sign-in/link?token={link.token}", form)


async def _provider(c: Console) -> Shown:
    return await send(await c.browser(), "/sign-in", {"provider": "corp"}, to="/sign-in/oidc")


async def _password_of_provider(c: Console) -> Shown:
    browser = await c.browser()
    address = await away(browser)
    shown = await browser.ask("GET", await back(browser, address))
    return await send(browser, shown.location, {"password": WRONG}, to="/sign-in/oidc/password")


CALLERS: dict[str, tuple[str, Reach]] = {
    "sign_in.py with_password": ("address", _sign_in),
    "sign_in.py reset_password": ("link", _reset),
    "messages.py request_reset": ("mail", _forgotten),
    "sign_ups.py request": ("sign-up", _sign_up),
    "sign_ups.py confirm": ("link", _confirm),
    "invitations.py accept": ("link", _invitation),
    "newcomers.py create": ("newcomer", _confirm),
    "sign_in.py begin": ("provider", _provider),
    "sign_in.py with_password of a provider": ("address", _password_of_provider),
}
#: Counters that admitted steps before the refused one have made: those of a link, and of a way to a provider.
STEPS_BEFORE = {"newcomers.py create": 2, "sign_in.py with_password of a provider": 1}
#: What people do who are signed in, or have given the right password: it counts for them alone.
OF_PERSON = {"sign_in.py with_code", "sign_in.py _check_password", "second_factor.py disable"}
COUNTING = {"attempt", "attempt_password", "attempt_request", "attempt_link"}


@pytest.mark.holds("people.md#signing-in-5", "security.md#the-console-7")
def test_each_caller_of_the_limits_is_known() -> None:
    found = set()
    for file in Path(people_package.__path__[0]).rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text())):
            if not isinstance(function, ast.AsyncFunctionDef) or file.name == "sign_in_limits.py":
                continue
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
            names = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)}
            if names & COUNTING:
                suffix = " of a provider" if file.parent.name == "oidc" and function.name == "with_password" else ""
                found.add(f"{file.name} {function.name}{suffix}")
    assert found == CALLERS.keys() | OF_PERSON


@pytest.mark.holds("people.md#signing-in-5", "security.md#the-console-7")
@pytest.mark.parametrize("caller", CALLERS)
async def test_refused_attempt_of_each_caller_counts_for_nobody_else(oidc_world: OpenWorld, caller: str) -> None:
    counter, reach = CALLERS[caller]
    async with oidc_world(signup="open") as (c, corp):
        people: Any = await c.services.people()
        await with_mail(c)
        await c.user("ann@example.com", password=PASSWORD)
        corp.person = {"sub": "ann", "email": "ann@example.com", "email_verified": True}
        most = 300 if counter == "provider" else PER_ADDRESS
        for _ in range(most):
            await people._limits.attempt("", ADDRESS, counter, most=most)
        before = await counters(c)
        assert (await reach(c)).status == 429
        assert len(await counters(c) - before) <= STEPS_BEFORE.get(caller, 0)


# People who are known, at an address of strangers -----------------------------------------------------------------


@pytest.mark.holds("people.md#signing-in-1", "security.md#the-console-4")
async def test_wrong_passwords_at_the_same_address_keep_nobody_out_of_a_known_browser(console: Any) -> None:
    async with console() as c:
        await c.user("ann@example.com", password=PASSWORD)
        browser, form = await c.browser(), {"email": "ann@example.com", "password": PASSWORD}
        assert (await send(browser, "/sign-in", form)).status == 303
        await browser.post("/sign-out", 303)
        await strangers_try(c)
        assert (await send(await c.browser(), "/sign-in", form)).status == 429
        for _ in range(PER_SUBJECT):
            assert (await send(browser, "/sign-in", {**form, "password": WRONG})).status == 401
        assert (await send(browser, "/sign-in", form)).status == 429  # it has attempts of its own, and no more


@pytest.mark.holds("people.md#signing-in-1", "security.md#the-console-4")
@pytest.mark.parametrize("what", ["disable", "password", "second factor off", "connect"])
async def test_wrong_passwords_at_the_same_address_keep_no_operator_from_acting(
    oidc_world: OpenWorld, what: str
) -> None:
    async with oidc_world() as (c, _):
        people: Any = await c.services.people()
        operator = await c.user("root@example.com", role="operator", password=PASSWORD)
        mallory = await c.user("mallory@example.com", acme="owner")
        browser = await c.signed_in(operator)
        secret = people.second_factor.propose(operator).secret
        if what == "second factor off":
            await people.second_factor.enable(operator.actor(""), secret, pyotp.TOTP(secret).now())
        await strangers_try(c)
        for _ in range(300):
            await people._limits.attempt("", ADDRESS, "provider")
        new = "another battery staple"
        to, page, form = {
            "disable": (f"/site/users/{mallory.id}/disable", "", {}),
            "password": ("/profile/password", "", {"password": new, "repeated": new}),
            "second factor off": (
                "/profile/second-factor/off",
                "/profile/second-factor",
                {"code": pyotp.TOTP(secret).at(time.time() + 30)},  # not used yet
            ),
            "connect": ("/profile/identities", "", {"provider": "corp"}),
        }[what]
        shown = await send(browser, page or "/profile", {"current_password": PASSWORD, **form}, to=to)
        assert shown.status == (200 if what == "connect" else 303), shown.text


@pytest.mark.holds("people.md#signing-in-1", "security.md#the-console-4")
async def test_wrong_passwords_at_the_same_address_keep_nobody_from_the_code(console: Any) -> None:
    async with console() as c:
        people = await c.services.people()
        ann = await c.user("ann@example.com", password=PASSWORD)
        secret = people.second_factor.propose(ann).secret
        await people.second_factor.enable(ann.actor(""), secret, pyotp.TOTP(secret).now())
        browser = await c.browser()
        step = (await send(browser, "/sign-in", {"email": ann.email, "password": PASSWORD})).location
        await strangers_try(c)
        unused = pyotp.TOTP(secret).at(time.time() + 30)
        shown = await send(browser, step, {"code": unused}, to="/sign-in/code")
        assert shown.status == 303, shown.text


@pytest.mark.holds("people.md#signing-in-1", "security.md#the-console-4")
async def test_known_browsers_of_a_person_have_a_number_of_attempts_together(console: Any) -> None:
    """Each sign-in makes a browser known. So who is signed in could have any number of them."""
    async with console() as c:
        await c.user("ann@example.com", password=PASSWORD)
        statuses = []
        for _ in range(10):
            browser = await c.browser()
            assert (await send(browser, "/sign-in", {"email": "ann@example.com", "password": PASSWORD})).status == 303
            await browser.post("/sign-out", 303)
            for _ in range(PER_SUBJECT):
                form = {"email": "ann@example.com", "password": WRONG}
                statuses.append((await send(browser, "/sign-in", form)).status)
                if statuses[-1] == 429:
                    break
        assert statuses.count(401) <= 5 * PER_SUBJECT


# Hashes of people who have a link ---------------------------------------------------------------------------------


@pytest.mark.holds("people.md#signing-in-2", "security.md#shares-6")
@pytest.mark.parametrize("what", ["invitation", "sign-up", "new password"])
async def test_holder_of_a_link_makes_few_hashes(console: Any, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    count, original = 0, PasswordHashes.hash

    async def counted(this: Any, *args: Any) -> str:
        nonlocal count
        count += 1
        return await original(this, *args)

    async with console(signup="open", signup_limit=1) as c:
        people = await c.services.people()
        mail, browser = await with_mail(c), await c.browser()
        if what == "invitation":  # of a user who has to sign in to accept
            await c.user("victim@example.com", password=PASSWORD)
            mallory = await c.user("mallory@example.com", other="owner")
            made = await people.invitations.to_account(mallory.actor(""), "victim@example.com", "other", "member")
            path, token = "/invitation", made.token
        elif what == "sign-up":  # of a network with too many people today
            for email in ("one@example.com", "two@example.com"):
                await people.sign_ups.request(email, address="127.0.0.1")
                await people.sign_ups.finish()
            first, token = [text.partition("token=")[2].split()[0] for _, text in mail.sent]
            path = "/sign-up/confirm"
            form = {"token": first, **SET}
            assert (await send(browser, f"{path}?token={first}", form, headers={})).status == 303
            browser = await c.browser()
        else:  # that cannot be used because the store is away
            ann = await c.user("ann@example.com")
            path, token = "/sign-in/link", (await people.sign_in_links.create(ROOT, ann.id)).token

            async def fails(*args: Any) -> Any:
                raise OSError("away")

            monkeypatch.setattr(people.member_keys, "_revoke_all", fails)
        monkeypatch.setattr(PasswordHashes, "hash", counted)
        page = await browser.get(f"{path}?token={token}")
        form = {**page.hidden(), "token": token, "action": "password", **SET}
        statuses = [(await browser.ask("POST", path, form)).status for _ in range(100)]
        assert 429 in statuses and count <= PER_SUBJECT


@pytest.mark.holds("people.md#signing-in-2", "security.md#shares-6")
async def test_links_that_cannot_be_used_keep_nobody_at_the_address_from_setting_a_password(console: Any) -> None:
    async with console() as c:
        people = await c.services.people()
        mallory = await c.user("mallory@example.com", other="owner")
        for number in range(PER_ADDRESS // PER_SUBJECT):
            email = f"p{number}@example.com"
            await c.user(email, password=PASSWORD)  # they have to sign in to accept
            made = await people.invitations.to_account(mallory.actor(""), email, "other", "member")
            browser = await c.browser()
            hidden = (await browser.get(f"/invitation?token={made.token}")).hidden()
            form = {**hidden, "token": made.token, **SET}
            for _ in range(PER_SUBJECT):
                assert (await browser.ask("POST", "/invitation", form, headers=OFFICE)).status == 403
            assert (await browser.ask("POST", "/invitation", form, headers=OFFICE)).status == 429
        await c.user("ann@example.com")
        assert (await _reset(c)).status == 303
