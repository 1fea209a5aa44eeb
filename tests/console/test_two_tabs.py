"""Two tabs of one browser sign in at the same time: both get in, or say how to go on."""

from __future__ import annotations

import time
from typing import Any

import pyotp
import pytest
import sqlalchemy as sa

from gateway.database.people_tables import sign_in_links
from gateway.errors import InvalidLink
from gateway.people.sign_in import SecondStep
from gateway.people.sign_in_links import MOST_STEPS
from tests.console.client import HOME, PASSWORD, ROOT, Browser, Console, Shown
from tests.console.oidc_world import OpenWorld, away, back, oidc_world

__all__ = ["oidc_world"]
SIGN_IN, CODE = "/sign-in", "/sign-in/code"


async def with_code(c: Console, name: str) -> str:
    """A new user whom the sign-in asks for a code; returns a code that works."""
    user = await c.user(f"{name}@example.com", password=PASSWORD)
    factor, now = (await c.services.people()).second_factor, time.time()
    secret = factor.propose(user).secret
    await factor.enable(user.actor(""), secret, pyotp.TOTP(secret).at(now))
    return pyotp.TOTP(secret).at(now + 30)


async def code_page(browser: Browser, name: str, **form: Any) -> Shown:
    """A tab in which the password was right."""
    answer = await browser.post(SIGN_IN, page=SIGN_IN, email=f"{name}@example.com", password=PASSWORD, **form)
    return await browser.get(answer.location)


async def send(browser: Browser, page: Shown, path: str, **form: str) -> Shown:
    """Send the form of a page that was opened before."""
    return await browser.ask("POST", path, {**page.hidden(), **form})


async def who(browser: Browser) -> str:
    return (await browser.get("/profile")).found(r'class="who" title="([^"]+)"')


@pytest.mark.holds("console.md#security-6")
async def test_each_tab_asks_for_the_code_of_its_own_person(console: Any) -> None:
    async with console() as c:
        codes = {name: await with_code(c, name) for name in ("ann", "ben")}
        browser = await c.browser()
        tabs = {name: await code_page(browser, name) for name in codes}
        assert (await send(browser, tabs["ann"], CODE, code=codes["ann"])).location == "/"
        assert await who(browser) == "ann@example.com"
        again = await send(browser, tabs["ben"], CODE, code=codes["ben"])
        assert again.status == 403 and "another tab signed in or out. Send it again." in again.text
        assert (await send(browser, again, CODE, code=codes["ben"])).location == "/"
        assert await who(browser) == "ben@example.com"


async def test_tabs_of_one_person_both_get_in(console: Any) -> None:
    async with console() as c:
        code, browser = await with_code(c, "ann"), await c.browser()
        sign_in = await browser.get(SIGN_IN)
        first, second = [await code_page(browser, "ann", next="/profile") for _ in range(2)]
        done = await send(browser, first, CODE, code=code, next="/profile")
        assert done.location == "/profile"
        for page, path, form in ((second, CODE, {"code": code}), (sign_in, SIGN_IN, {"email": "", "password": ""})):
            led_on = await send(browser, page, path, next="/profile/second-factor", **form)
            assert led_on.status == 303
            assert (await browser.get(led_on.location)).url == "/profile/second-factor"
        assert await who(browser) == "ann@example.com"


async def test_code_of_another_tab_is_no_attempt_for_the_person_of_this_one(console: Any) -> None:
    async with console() as c:
        codes = {name: await with_code(c, name) for name in ("ann", "ben")}
        browser = await c.browser()
        tabs = {name: await code_page(browser, name) for name in codes}
        wrong = await send(browser, tabs["ben"], CODE, code=codes["ann"])
        assert wrong.status == 401 and "The code is wrong" in wrong.text
        assert (await send(browser, wrong, CODE, code=codes["ben"])).location == "/"
        assert await who(browser) == "ben@example.com"


async def test_person_has_a_few_sign_ins_that_wait_for_a_code(console: Any) -> None:
    async with console() as c:
        code, browser = await with_code(c, "ann"), await c.browser()
        tabs = [await code_page(browser, "ann") for _ in range(MOST_STEPS + 1)]
        ended = await send(browser, tabs[0], CODE, code=code)
        assert ended.location == SIGN_IN and "Sign in again" in (await browser.get(SIGN_IN)).text
        assert (await send(browser, tabs[1], CODE, code=code)).location == "/"


@pytest.mark.parametrize("way", ["reset", "change"])
async def test_new_password_ends_the_sign_ins_that_wait_for_a_code(console: Any, way: str) -> None:
    async with console() as c:
        code = await with_code(c, "ann")
        people, new = await c.services.people(), "another horse battery 9"
        step = await people.sign_in.with_password("ann@example.com", PASSWORD, HOME)
        assert isinstance(step, SecondStep)
        user = await people.sign_in.owner_of_step(step.token)
        if way == "reset":
            link = await people.sign_in_links.create(ROOT, user.id)
            await people.sign_in.reset_password(link.token, new, HOME)
        else:
            await people.sign_in.change_password(user.actor(""), PASSWORD, new, session_id="")
        with pytest.raises(InvalidLink):
            await people.sign_in.with_code(step.token, code, HOME)


async def test_used_codes_end_no_sign_in_that_waits(console: Any) -> None:
    async with console() as c:
        code, browser = await with_code(c, "ann"), await c.browser()
        waiting = await code_page(browser, "ann")
        database = await c.services.database()
        for _ in range(MOST_STEPS):
            await code_page(await c.browser(), "ann")
            with database.writing() as connection:
                newest = sa.select(sa.func.max(sign_in_links.c.created_at)).scalar_subquery()
                used = sign_in_links.update().where(sign_in_links.c.created_at == newest)
                connection.execute(used.values(used_at=sign_in_links.c.created_at))
        assert (await send(browser, waiting, CODE, code=code)).location == "/"


async def test_form_that_another_site_sends_is_not_shown_again(console: Any) -> None:
    async with console() as c:
        browser = await c.browser()
        foreign = {"Sec-Fetch-Site": "cross-site"}
        answer = await browser.ask("POST", SIGN_IN, {"email": "ann@example.com"}, headers=foreign)
        assert answer.status == 403 and "Set-Cookie" not in answer.headers


async def test_form_from_before_a_sign_out_is_shown_again(console: Any) -> None:
    async with console() as c:
        await c.user("ann@example.com", password=PASSWORD)
        browser = await c.browser()
        old = await browser.get(SIGN_IN)
        await browser.post(SIGN_IN, page=SIGN_IN, email="ann@example.com", password=PASSWORD)
        await browser.post("/sign-out")
        form = {"email": "ann@example.com", "password": PASSWORD}
        again = await send(browser, old, SIGN_IN, **form, next="/profile")
        assert again.status == 403 and 'value="ann@example.com"' in again.html and PASSWORD not in again.html
        done = await send(browser, again, SIGN_IN, **form, next=again.found(r'name="next" value="([^"]+)"'))
        assert done.location == "/profile"


@pytest.mark.holds("console.md#security-6")
async def test_two_tabs_come_back_from_a_provider_in_any_order(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, _):
        await c.user("ann@example.com")
        for is_turned in (False, True):
            browser = await c.browser()
            targets = ["/profile", "/profile/second-factor"]
            paths = [await back(browser, await away(browser, next=target)) for target in targets]
            tabs = list(zip(targets, paths, strict=True))
            for target, path in reversed(tabs) if is_turned else tabs:
                assert (await browser.ask("GET", path)).location == target
            assert await who(browser) == "ann@example.com"
            replayed = await browser.ask("GET", paths[0])
            assert replayed.status == 403 and "first page" in replayed.text
        stranger = await (await c.browser()).ask("GET", paths[0])
        assert stranger.status == 403 and stranger.found(r'href="([^"]+)">Sign in again') == SIGN_IN


async def test_each_tab_asks_for_the_password_of_its_own_person(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        browser, tabs = await c.browser(), dict[str, Shown]()
        for name in ("ann", "ben"):
            email = f"{name}@example.com"
            await c.user(email, password=PASSWORD)
            corp.person = {"sub": name, "email": email, "email_verified": True}
            came = await browser.ask("GET", await back(browser, await away(browser)))
            tabs[name] = await browser.get(came.location)
            assert email in tabs[name].text
        path = "/sign-in/oidc/password"
        assert (await send(browser, tabs["ann"], path, password=PASSWORD)).location == "/"
        assert await who(browser) == "ann@example.com"
        again = await send(browser, tabs["ben"], path, password=PASSWORD)
        assert again.status == 403 and "ben@example.com" in again.text
        assert (await send(browser, again, path, password=PASSWORD)).location == "/"
        assert await who(browser) == "ben@example.com"
