"""What stays with a person who accepts an invitation, and acceptances at the same moment."""

from __future__ import annotations

import asyncio
import time

import pyotp
import pytest

from gateway.admin.granted import Granted
from gateway.people.identities import insert_identity, note_use
from gateway.people.memberships import put_membership
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT
from tests.console.oidc_world import OpenWorld, come, oidc_world
from tests.console.test_claims_and_ways_in import PIA, sees
from tests.console.test_granted_roles import by_password, set_up_second_factor
from tests.console.test_roles_without_proof import FORM

__all__ = ["database_address", "database_url", "oidc_world"]


@pytest.mark.holds("people.md#proved-addresses-3")
async def test_person_by_a_provider_with_a_code_accepts_an_invitation_and_keeps_the_connection(
    oidc_world: OpenWorld,
) -> None:
    """The provider verifies no addresses; she gave the password and the code a moment ago."""
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        user = await c.user(PIA, password=PASSWORD, is_proved=False)
        secret = await set_up_second_factor(await by_password(c))
        await people.transactions.write(insert_identity, ROOT, user.id, corp.issuer, "pia")
        await people.transactions.write(put_membership, ROOT, user, "acme", "member", given_by="claims")
        await people.transactions.write(note_use, corp.issuer, "pia", Granted({"acme": "member"}))
        corp.person = {"sub": "pia", "email": PIA, "groups": ["search"]}
        mallory = await c.user("owner@example.com", other="owner")
        new = await people.invitations.to_account(mallory.actor(""), PIA, "other", "member")
        page, pia = f"/invitation?token={new.token}", await c.browser()
        if (await come(pia, page=page, invitation=new.token)).status == 403:  # "Sign in, then open it again"
            asked = await come(pia)
            await pia.post("/sign-in/code", 303, page=asked.location, code=pyotp.TOTP(secret).at(time.time() + 30))
            assert await sees(pia, "/profile")
            await pia.post("/invitation", 303, page=page, token=new.token, current_password=PASSWORD, **FORM)
        accounts = (await people.users.show(ROOT, user.id)).accounts
        assert [one.issuer for one in await people.identities.list(ROOT, user.id)] == [corp.issuer]
        assert accounts == {"acme": "member", "other": "member"}


@pytest.mark.parametrize("round_", range(3))
async def test_two_people_who_accept_each_other_s_invitations_at_once_get_answers(
    oidc_world: OpenWorld, round_: int
) -> None:
    async with oidc_world() as (c, _):
        people = await c.services.people()
        names, statuses = ["a@corp.test", "b@corp.test", "d@corp.test", "e@corp.test"], []
        for name in names:
            await c.user(name, password=PASSWORD, is_proved=False, role="operator" if name < "c" else "none")
        browsers = [await by_password(c, name) for name in names]
        made = [await people.invitations.to_account(ROOT, name, "other", "member") for name in reversed(names)]

        async def accept(at: int) -> None:
            token = made[at].token
            hidden = (await browsers[at].get(f"/invitation?token={token}")).hidden()
            shown = await browsers[at].ask("POST", "/invitation", {**hidden, "token": token, **FORM})
            statuses.append(shown.status)

        await asyncio.gather(*map(accept, range(4)))
        assert all(status < 500 for status in statuses), statuses
