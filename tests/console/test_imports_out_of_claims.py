"""An import by a person whose right comes from claims changes nothing if it would be refused in the middle."""

from __future__ import annotations

import pytest

from gateway.errors import GatewayError
from gateway.imports.users import UserImport
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import ROOT
from tests.console.oidc_world import OpenWorld, oidc_world
from tests.console.test_claims_and_ways_in import OPERATOR, PIA, RAISED
from tests.console.test_durable_roles import colleague
from tests.console.test_permanent_roles import by_claims

__all__ = ["database_address", "database_url", "oidc_world"]


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16")
async def test_import_names_the_roles_that_an_operator_by_claims_may_not_give_before_it_changes_anything(
    oidc_world: OpenWorld,
) -> None:
    """Pia's claims give her acme; somebody has taken her out by mistake, and the file has all members."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, (user, _, _) = await c.services.people(), await by_claims(c, corp, RAISED)
        actor = await c.actor_in(await colleague(c, corp, OPERATOR))
        await people.users.edit(ROOT, user, {"role": "none"})
        await people.memberships.remove(ROOT, user, "acme")
        content = f"email,account,account_role\nzoe@corp.test,other,member\n{PIA},acme,member\n".encode()
        run = UserImport.of(people, c.services.store).run
        planned = ""
        try:
            await run(actor, "people.csv", content, dry_run=True)
            await run(actor, "people.csv", content, dry_run=False)
        except GatewayError as error:
            planned = error.message
        found = [one.email for one in await people.users.list(ROOT)]
        assert "zoe@corp.test" not in found or not planned, planned
