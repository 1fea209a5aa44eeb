"""What claims gave before does not come back: neither by an operator of claims nor by an older second step."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pyotp
import pytest
import sqlalchemy as sa

from gateway.database.people_tables import identities, users
from gateway.errors import Forbidden
from gateway.people.identities import insert_identity
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT
from tests.console.oidc_world import OpenWorld, come, oidc_world
from tests.console.test_claims_and_ways_in import OPERATOR, PIA
from tests.console.test_durable_roles import colleague
from tests.console.test_granted_roles import by_password, set_up_second_factor
from tests.console.test_permanent_roles import by_claims, claims_end

__all__ = ["database_address", "database_url", "oidc_world"]


@pytest.mark.parametrize("how", ["operator ends it", "person ends it"])
@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16", "security.md#e-mail-addresses-and-invitations-12")
async def test_operator_by_claims_does_not_make_a_role_permanent_by_ending_the_connection_before(
    oidc_world: OpenWorld, how: str
) -> None:
    """What the claims said the last time goes with the connection."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, (user, _pia, _) = await c.services.people(), await by_claims(c, corp, OPERATOR)
        await c.user("root@example.com", role="operator")
        actor = await c.actor_in(await colleague(c, corp, OPERATOR))
        if how == "operator ends it":
            await people.identities.end_all(actor, user)
        else:
            await people.users.edit(actor, user, {"role": "none"})
            own = (await people.users.show(ROOT, user)).actor("")
            await people.identities.end(own, user, corp.issuer)
        with suppress(Forbidden):
            await people.users.edit(actor, user, {"role": "operator"})
        await come(await c.browser())
        assert await claims_end(c, corp, user) == ("none", {})


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16", "security.md#e-mail-addresses-and-invitations-12")
async def test_operator_by_claims_does_not_make_a_role_permanent_whose_claims_an_earlier_version_stored(
    oidc_world: OpenWorld,
) -> None:
    """The user has not signed in since the upgrade: the row has no `claimed`."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, (user, _, _) = await c.services.people(), await by_claims(c, corp, OPERATOR)
        await c.user("root@example.com", role="operator")
        actor = await c.actor_in(await colleague(c, corp, OPERATOR))

        def as_before(connection: Any) -> None:
            values = {"granted": '{"accounts":{},"site_role":"operator","ending":[]}'}
            connection.execute(sa.update(identities).where(identities.c.user_id == user).values(values))

        await people.transactions.write(as_before)
        with suppress(Forbidden):
            await people.users.edit(actor, user, {"role": "none"})
            await people.users.edit(actor, user, {"role": "operator"})
        assert await claims_end(c, corp, user) == ("none", {})


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-7")
async def test_older_second_step_does_not_give_back_a_role_that_a_later_sign_in_took(oidc_world: OpenWorld) -> None:
    """Two tabs: the claims of the first are older than those of the second, whose code comes first."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people = await c.services.people()
        await c.user("root@example.com", role="operator")
        user = await c.user(PIA, password=PASSWORD)
        secret = await set_up_second_factor(await by_password(c))
        await people.transactions.write(insert_identity, ROOT, user.id, corp.issuer, "pia")
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True, **OPERATOR}
        older, newer = await c.browser(), await c.browser()
        first = await come(older)
        corp.person |= {"realm_access": {}}
        second = await come(newer)
        code = {"code": pyotp.TOTP(secret).at(time.time() + 30)}
        await newer.post("/sign-in/code", 303, page=second.location, **code)
        assert (await people.users.show(ROOT, user.id)).role == "none"
        await people.transactions.write(_wait_for_the_next_code, user.id)
        hidden = (await older.get(first.location)).hidden()
        await older.ask("POST", "/sign-in/code", {**hidden, **code})
        assert (await people.users.show(ROOT, user.id)).role == "none"


def _wait_for_the_next_code(connection: Any, user_id: str) -> None:
    connection.execute(sa.update(users).where(users.c.id == user_id).values(totp_step=None))
