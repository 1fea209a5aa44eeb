"""Who has the password of a user keeps the person out of nothing whom a provider knows."""

from __future__ import annotations

import time

import pyotp
import pytest

from gateway.errors import SignInLimited
from gateway.people.sessions import MOST, MOST_STARTS, insert_session
from gateway.people.sign_in_limits import PER_SUBJECT
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD
from tests.console.oidc_world import OpenWorld, come, oidc_world
from tests.console.test_claims_and_ways_in import OPERATOR, PIA, resets, sees, signed_up
from tests.console.test_granted_roles import has_role
from tests.console.test_roles_without_proof import enable_code
from tests.console.test_sign_in import with_mail

__all__ = ["database_address", "database_url", "oidc_world"]


@pytest.mark.holds("people.md#signing-in-6", "security.md#shares-6")
async def test_sessions_by_password_neither_end_nor_prevent_those_by_a_provider(oidc_world: OpenWorld) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, (user, pia) = await c.services.people(), await signed_up(c, corp)
        place = {"address": "", "user_agent": "", "by": "password"}
        for _ in range(MOST_STARTS):
            await people.transactions.write(insert_session, user, **place)
        with pytest.raises(SignInLimited):
            await people.transactions.write(insert_session, user, **place)
        assert len(await people.sessions.list(user.actor(""), user.id)) == MOST + 1
        assert await sees(pia, "/profile")
        again = await c.browser()
        assert (await come(again)).status == 303 and await sees(again, "/profile")


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-17")
async def test_codes_are_set_up_only_where_all_roles_of_the_user_count(oidc_world: OpenWorld) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        mail = await with_mail(c)
        (user, _), thief = await signed_up(c, corp), await c.browser()
        assert await resets(c, mail, thief, PIA)
        corp.person |= OPERATOR
        pia = await c.browser()
        await come(pia)
        shown = await thief.get("/profile/second-factor")
        secret = shown.found(r'name="secret" value="([A-Z2-7]{32})"')
        form = {"secret": secret, "code": pyotp.TOTP(secret).now(), "current_password": PASSWORD}
        refused = await thief.post("/profile/second-factor", 403, page="/profile/second-factor", **form)
        assert "sign in there to set up codes" in refused.text
        again = await c.browser()
        await come(again)
        assert await has_role(again)
        await enable_code(pia)
        assert (await (await c.services.people()).users.show(user.actor(""), user.id)).has_second_factor


@pytest.mark.holds("people.md#signing-in-6", "people.md#signing-in-by-an-identity-provider-6")
async def test_wrong_codes_after_the_password_do_not_prevent_the_code_after_a_provider(oidc_world: OpenWorld) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        mail = await with_mail(c)
        _, first = await signed_up(c, corp)
        secret = await enable_code(first)
        assert not await resets(c, mail, await c.browser(), PIA)  # asked for the code
        thief = await c.browser()
        page = (await thief.post("/sign-in", 303, page="/sign-in", email=PIA, password=PASSWORD)).location
        for _ in range(PER_SUBJECT):
            await thief.post("/sign-in/code", 401, page=page, code="000000")
        await thief.post("/sign-in/code", 429, page=page, code="000000")
        pia = await c.browser()
        asked = await come(pia)
        code = pyotp.TOTP(secret).at(time.time() + 30)
        await pia.post("/sign-in/code", 303, page=asked.location, code=code)
        assert await sees(pia, "/profile")
