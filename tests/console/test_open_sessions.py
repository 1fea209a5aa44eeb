"""What ends with a connection, who gets a credit, and what an open session is enough for."""

from __future__ import annotations

import time
from typing import Any

import pyotp
import pytest

from gateway.admin.granted import Granted
from gateway.people.identities import insert_identity, note_use
from gateway.people.memberships import put_membership
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT
from tests.console.oidc_world import OpenWorld, come, oidc_world
from tests.console.test_claims_and_ways_in import PIA, sees
from tests.console.test_granted_roles import by_password
from tests.console.test_roles_without_proof import enable_code

__all__ = ["database_address", "database_url", "oidc_world"]


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-8")
async def test_connection_that_ends_after_the_code_takes_back_what_it_gave(oidc_world: OpenWorld) -> None:
    """Somebody else was connected at Rival, whose claims gave a membership; Pia comes by Corp."""
    async with oidc_world() as (c, corp):
        people, rival = await c.services.people(), corp.others[0]
        user = await c.user(PIA, password=PASSWORD, is_proved=False)
        secret = await enable_code(await by_password(c))
        await people.transactions.write(insert_identity, ROOT, user.id, rival.issuer, "mallory")
        await people.transactions.write(put_membership, ROOT, user, "acme", "owner", given_by="claims")
        await people.transactions.write(note_use, rival.issuer, "mallory", Granted({"acme": "owner"}))
        key = await people.member_keys.create(ROOT, "acme", user.id)
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True}
        pia = await c.browser()
        asked = await come(pia)
        asked = await pia.post("/sign-in/oidc/password", 303, page=asked.location, password=PASSWORD)
        code = pyotp.TOTP(secret).at(time.time() + 30)
        await pia.post("/sign-in/code", 303, page=asked.location, code=code)
        assert await sees(pia, "/profile")
        assert [one.issuer for one in await people.identities.list(ROOT, user.id)] == [corp.issuer]
        record = await people.keys.find(key.id)
        assert record is not None
        assert ((await people.users.show(ROOT, user.id)).accounts, record.state) == ({}, "revoked")


@pytest.mark.parametrize("role", ["operator", "none"])
@pytest.mark.holds("people.md#proved-addresses-4", "security.md#the-console-5")
async def test_open_session_is_not_enough_to_end_the_code_and_the_password(oidc_world: OpenWorld, role: Any) -> None:
    """Mallory is at a browser that Pia has left open, and has the link of an own invitation."""
    async with oidc_world() as (c, _):
        people = await c.services.people()
        user = await c.user(PIA, role=role, password=PASSWORD, is_proved=False)
        left_open = await by_password(c)
        await enable_code(left_open)
        mallory = await c.user("mallory@example.com", other="owner")
        new = await people.invitations.to_account(mallory.actor(""), PIA, "other", "member")
        page, form = f"/invitation?token={new.token}", {"password": "of mallory now", "repeated": "of mallory now"}
        hidden = (await left_open.get(page)).hidden()
        await left_open.ask("POST", "/invitation", {**hidden, "token": new.token, **form})
        assert (await people.users.show(ROOT, user.id)).has_second_factor
        thief = await by_password(c, password="of mallory now")
        assert not await sees(thief, "/profile")


@pytest.mark.holds("people.md#proved-addresses-8")
async def test_proved_user_accepts_with_a_provider_only_when_the_code_was_right(oidc_world: OpenWorld) -> None:
    """Somebody comes as Pia by Corp and has not the code: Pia is not signed in."""
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        user = await c.user(PIA, password=PASSWORD)
        await enable_code(await by_password(c))
        await people.transactions.write(insert_identity, ROOT, user.id, corp.issuer, "pia")
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True}
        new = await people.invitations.to_account(ROOT, PIA, "other", "owner")
        page = f"/invitation?token={new.token}"
        shown = await come(await c.browser(), page=page, invitation=new.token)
        assert shown.status == 403 and "Sign in" in shown.text
        assert "other" not in (await people.users.show(ROOT, user.id)).accounts


@pytest.mark.holds("people.md#proved-addresses-8")
async def test_person_with_roles_of_claims_accepts_with_the_provider(oidc_world: OpenWorld) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people = await c.services.people()
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True, "groups": ["leads"]}
        assert (await come(await c.browser())).status == 303
        new = await people.invitations.to_account(ROOT, PIA, "other", "member")
        pia = await c.browser()
        shown = await come(pia, page=f"/invitation?token={new.token}", invitation=new.token)
        assert shown.status == 303 and await sees(pia, "/accounts/other")
        user = await people.users.find(ROOT, PIA)
        assert user.accounts == {"acme": "owner", "other": "member"}
