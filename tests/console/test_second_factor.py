"""A second factor is set up and removed by the person, not by whoever has a session of theirs."""

from __future__ import annotations

import time
from typing import Any

import pyotp
import pytest
import sqlalchemy as sa

from gateway.console.visit import RECENT
from gateway.database.people_tables import sessions
from tests.console.client import PASSWORD, ROOT, Browser, Console

PAGE, OFF = "/profile/second-factor", "/profile/second-factor/off"
NEW = "another good password"


async def codes(browser: Browser) -> tuple[str, list[str]]:
    """A proposed secret, with codes of two steps. That of the step before would be too old if a step ends meanwhile."""
    secret = (await browser.get(PAGE)).found(r'name="secret" value="(\w+)"')
    now = time.time()
    return secret, [pyotp.TOTP(secret).at(now + shift) for shift in (0, 30)]


async def has_second_factor(c: Console, user: Any) -> bool:
    return (await (await c.services.people()).users.show(ROOT, user.id)).has_second_factor


async def make_older(c: Console) -> None:
    """Move the sign-ins of all sessions into the past."""
    database = await c.services.database()
    with database.writing() as connection:
        value = sessions.c.created_at - int(RECENT.total_seconds() + 60) * 1_000_000
        connection.execute(sa.update(sessions).values(created_at=value))


@pytest.mark.holds("people.md#signing-in-4", "security.md#the-console-5")
async def test_second_factor_is_set_up_and_removed_only_with_the_password(console: Any) -> None:
    async with console() as c:
        user = await c.user("ann@example.com", password=PASSWORD)
        ann = await c.signed_in(user)
        secret, (first, second) = await codes(ann)
        assert 'name="current_password"' in (await ann.get(PAGE)).html
        for given in ({}, {"current_password": ""}, {"current_password": "a wrong password"}):
            refused = await ann.post(PAGE, 401, page=PAGE, secret=secret, code=first, **given)
            assert "The password is wrong" in refused.text and f'value="{secret}"' in refused.html
        assert not await has_second_factor(c, user)
        await ann.post(PAGE, page=PAGE, secret=secret, code=first, current_password=PASSWORD)
        assert await has_second_factor(c, user)
        assert 'name="current_password"' in (await ann.get("/profile")).html.partition(OFF)[2].partition("</form>")[0]
        for given in ({}, {"current_password": "a wrong password"}):
            assert "The password is wrong" in (await ann.post(OFF, 401, code=second, **given)).text
        assert await has_second_factor(c, user)
        await ann.post(OFF, code=second, current_password=PASSWORD)
        assert not await has_second_factor(c, user)


@pytest.mark.holds("people.md#signing-in-4", "security.md#the-console-5")
async def test_person_without_a_password_sets_a_second_factor_up_after_a_recent_sign_in_only(console: Any) -> None:
    async with console() as c:
        user = await c.user("ann@example.com")
        ann = await c.signed_in(user)
        secret, (first, second) = await codes(ann)
        assert "current_password" not in (await ann.get(PAGE)).html
        await make_older(c)
        refused = await ann.post(PAGE, 400, page=PAGE, secret=secret, code=first)
        assert "a sign-in of the last 15 minutes" in refused.text
        assert not await has_second_factor(c, user)
        again = await c.signed_in(user)
        await again.post(PAGE, page=PAGE, secret=secret, code=first)
        await make_older(c)
        await again.post(OFF, 400, code=second)
        assert await has_second_factor(c, user)


@pytest.mark.holds("people.md#signing-in-4")
async def test_first_password_is_set_after_a_recent_sign_in_only(console: Any) -> None:
    """Else a session would set a password, and the second factor with it."""
    async with console() as c:
        user = await c.user("ann@example.com")
        ann = await c.signed_in(user)
        await make_older(c)
        refused = await ann.post("/profile/password", 400, password=NEW, repeated=NEW)
        assert "a sign-in of the last 15 minutes" in refused.text
        await (await c.signed_in(user)).post("/profile/password", password=NEW, repeated=NEW)
        assert (await (await c.services.people()).users.show(ROOT, user.id)).has_password
