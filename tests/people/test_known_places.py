"""Wrong passwords from elsewhere keep nobody out of the own browsers and of the address of the last sign-in."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec import structs

from gateway.errors import SignInFailed, SignInLimited
from gateway.people import known_places
from gateway.people.sign_in import Client
from gateway.people.sign_in_limits import PER_SUBJECT
from gateway.people.take_over import take_over
from tests.admin.services import HOME, PASSWORD, ROOT, Services

ELSEWHERE = Client("203.0.113.7", "another browser")


async def enter(s: Services, client: Client, *, email: str = "ann@example.com") -> Client:
    """Sign in, and be the same browser from then on."""
    new = await s.people.sign_in.with_password(email, PASSWORD, client)
    return structs.replace(client, known_browser=await s.people.sign_in.remember(new.user, client))  # type: ignore[union-attr]


async def guess(s: Services, client: Client, *, times: int = 1, email: str = "ann@example.com") -> None:
    """Try wrong passwords."""
    for _ in range(times):
        with pytest.raises(SignInFailed):
            await s.people.sign_in.with_password(email, "a wrong password", client)


async def locked(s: Services) -> Client:
    """Ann has signed in at home, and strangers have tried ten wrong passwords; her browser."""
    await s.user(password=PASSWORD)
    browser = await enter(s, HOME)
    for number in range(PER_SUBJECT):
        await guess(s, Client(f"198.51.100.{number}"))
    await is_limited(s, ELSEWHERE)
    return browser


async def is_limited(s: Services, client: Client) -> None:
    with pytest.raises(SignInLimited):
        await s.people.sign_in.with_password("ann@example.com", PASSWORD, client)


@pytest.mark.holds("people.md#signing-in-1")
async def test_known_browser_signs_in_from_anywhere_after_wrong_passwords_of_strangers(services: Any) -> None:
    async with services() as s:
        browser = await locked(s)
        away = structs.replace(browser, address="203.0.113.9")
        await enter(s, away)
        await is_limited(s, ELSEWHERE)  # the strangers' attempts are not forgotten
        await guess(s, away, times=PER_SUBJECT)
        await is_limited(s, away)
        await is_limited(s, structs.replace(away, address="203.0.113.10"))  # the browser, wherever it is


@pytest.mark.holds("people.md#signing-in-1", "security.md#the-console-4")
async def test_last_address_signs_in_without_a_cookie_after_wrong_passwords_of_strangers(services: Any) -> None:
    async with services() as s:
        await locked(s)
        await enter(s, HOME)
        await guess(s, HOME, times=PER_SUBJECT)
        await is_limited(s, HOME)


async def test_only_the_last_address_is_known(services: Any) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        await enter(s, HOME)
        await enter(s, ELSEWHERE)
        for number in range(PER_SUBJECT):
            await guess(s, Client(f"198.51.100.{number}"))
        await is_limited(s, HOME)
        await enter(s, ELSEWHERE)


@pytest.mark.holds("people.md#signing-in-1", "security.md#the-console-3")
async def test_wrong_passwords_at_the_last_address_do_not_tell_who_is_a_user(services: Any) -> None:
    """They count elsewhere, too, as for an e-mail that nobody has; a right one there does not."""
    async with services() as s:
        await s.user(password=PASSWORD)
        for _ in range(PER_SUBJECT + 1):
            await enter(s, HOME)
        await enter(s, ELSEWHERE)
        await enter(s, HOME)
        for email in ("ann@example.com", "nobody@example.com"):
            await guess(s, HOME, times=PER_SUBJECT, email=email)
            with pytest.raises(SignInLimited):
                await guess(s, HOME, email=email)
            with pytest.raises(SignInLimited):
                await guess(s, ELSEWHERE, email=email)


@pytest.mark.holds("people.md#signing-in-1")
async def test_wrong_passwords_at_a_known_place_keep_nobody_out_elsewhere(services: Any) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        browser = await enter(s, HOME)
        await guess(s, browser, times=PER_SUBJECT)
        await is_limited(s, browser)
        await enter(s, ELSEWHERE)


@pytest.mark.holds("people.md#signing-in-1", "security.md#the-console-4")
async def test_cookie_of_another_person_and_one_that_is_forged_or_old_make_no_browser_known(
    services: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with services() as s:
        await s.user("eve@example.com", password=PASSWORD)
        eve = await enter(s, ELSEWHERE, email="eve@example.com")
        browser = await locked(s)
        expires, id_, signature = browser.known_browser.split(".")
        later = str(int(expires) + 1)
        for cookie in (
            eve.known_browser, "", ".", "..", "x", "\u0665.a.b", "\ud800", f"{later}.{id_}.{signature}",
            f"{expires}.{id_}.{signature[:-1]}", f"{expires}.{id_}x.{signature}", f"{expires}.{id_}.",
        ):  # fmt: skip
            await is_limited(s, structs.replace(ELSEWHERE, known_browser=cookie))
        later_on = time.time() + known_places.KEPT + 1
        monkeypatch.setattr(time, "time", lambda: later_on)
        await is_limited(s, structs.replace(browser, address=ELSEWHERE.address))


@pytest.mark.holds("people.md#signing-in-1")
async def test_store_has_neither_the_person_nor_the_address(services: Any) -> None:
    async with services() as s:
        await s.user(password=PASSWORD)
        await enter(s, HOME)
        found = await s.world.dump()
        [name] = [name for name in found if name.startswith(b"signin:last:")]
        text = repr(found)
        assert "ann@" not in text and HOME.address not in text
        assert 0 < await s.world.store.client.ttl(name) <= known_places.KEPT


@pytest.mark.holds("people.md#signing-in-1")
@pytest.mark.parametrize("by", ["proof", "take-over"])
async def test_browser_of_somebody_before_a_proof_or_a_take_over_is_not_known(
    services: Any, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Of a user without a password."""
    async with services() as s:
        user = await s.user(is_proved=False)
        earlier = time.time() - 60
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda: earlier)
            cookie = await s.people.sign_in.remember(user, Client())
        browser = Client(known_browser=cookie)
        assert (await s.people.sign_in.place(user.email, browser)).is_browser
        if by == "proof":
            await s.people.users.prove(ROOT, user.id)
        else:
            await s.people.transactions.write(take_over, ROOT, user)
        assert not (await s.people.sign_in.place(user.email, browser)).is_browser
        later = Client(known_browser=await s.people.sign_in.remember(user, Client()))
        assert (await s.people.sign_in.place(user.email, later)).is_browser
