"""A session that has ended accepts no invitation, although the request was under way."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import SignInFailed
from gateway.people.password_hashes import PasswordHashes
from gateway.people.sessions import NewSession
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import HOME, PASSWORD, ROOT
from tests.console.oidc_world import OpenWorld, oidc_world
from tests.console.test_claims_and_ways_in import sees
from tests.console.test_ended_sessions import BOSS, NEW, Held, entered_by_others, takes_over

__all__ = ["database_address", "database_url", "oidc_world"]

THIRD = "a third password of mallory"


@pytest.mark.parametrize("how", ["invitation", "link"])
@pytest.mark.holds("people.md#proved-addresses-3")
async def test_invitation_is_not_accepted_by_a_session_that_has_ended(oidc_world: OpenWorld, how: str) -> None:
    """The invitation of an owner leads into the user only while signed in as the user, who is an operator meanwhile."""
    async with oidc_world() as (c, _):
        people = await c.services.people()
        user, mallory = await entered_by_others(c)
        owner = await people.users.find(ROOT, "mallory@example.com")
        new = await people.invitations.to_account(owner.actor(""), BOSS, "other", "owner")
        opened = await mallory.get(f"/invitation?token={new.token}")
        form = {**opened.hidden(), "token": new.token, "name": "", "password": THIRD, "repeated": THIRD}
        form |= {"current_password": PASSWORD}
        with pytest.MonkeyPatch.context() as patch:
            held = Held(patch, PasswordHashes, "hash")
            accepting = asyncio.create_task(mallory.ask("POST", "/invitation", form))
            await held.reached.wait()
        await takes_over(c, user, how)
        boss = await people.sign_in.with_password(BOSS, NEW, HOME)
        assert isinstance(boss, NewSession)
        browser = await c.browser()
        browser.use_session(boss)
        held.go_on()
        await accepting
        role = (await people.users.show(ROOT, user.id)).role
        assert role == ("operator" if how == "invitation" else "none")
        assert not await sees(mallory, "/site/users") and await sees(browser, "/profile")
        with pytest.raises(SignInFailed):
            await people.sign_in.with_password(BOSS, THIRD, HOME)
