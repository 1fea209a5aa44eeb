"""The export of a person has nothing of what was done with roles by claims that do not count in the session."""

from __future__ import annotations

import msgspec
import pytest

from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import ROOT
from tests.console.oidc_world import OpenWorld, come, oidc_world
from tests.console.test_claims_and_ways_in import OPERATOR, PIA, RAISED, resets, signed_up
from tests.console.test_granted_roles import has_role
from tests.console.test_sign_in import with_mail

__all__ = ["database_address", "database_url", "oidc_world"]

MARKS = ("own-token", "key-of-acme", '"acme"', '"hired', "system:oidc", '"operator"')


@pytest.mark.holds("people.md#export-and-erasure-3", "security.md#the-console-10")
@pytest.mark.parametrize("also_of", [None, "other"])
async def test_export_in_a_session_without_the_roles_of_claims_has_nothing_of_them(
    oidc_world: OpenWorld, also_of: str | None
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        mail, people = await with_mail(c), await c.services.people()
        (user, _), thief = await signed_up(c, corp), await c.browser()
        assert await resets(c, mail, thief, PIA)
        if also_of:
            await people.memberships.set(ROOT, user.id, also_of, "member")
            await people.member_keys.create(ROOT, also_of, user.id, name="key-of-other")
        corp.person |= RAISED
        pia = await c.browser()
        await come(pia)
        actor = await c.actor_in(pia)
        await people.tokens.create(actor, "own-token", ["read"])
        hired = await people.users.create(actor, "hired@corp.test")
        await people.memberships.set(actor, hired.id, "other", "owner")
        await people.member_keys.create(actor, "acme", user.id, name="key-of-acme")
        assert not await has_role(thief)
        shown = (await thief.post("/profile/data", 200, page="/profile")).html
        assert [mark for mark in (*MARKS, hired.id) if mark in shown.replace("left_out", "")] == []
        document = msgspec.json.decode(shown)
        assert document["user"]["email"] == PIA and document["left_out"]
        assert {row["account"]: row["role"] for row in document["memberships"]} == document["user"]["accounts"]
        assert document["user"]["accounts"] == ({"other": "member"} if also_of else {})
        assert [key["name"] for key in document["keys"]] == (["key-of-other"] if also_of else [])
        assert {"users.password", "sessions.start"} <= {event["action"] for event in document["audit_events"]}
        full = (await pia.post("/profile/data", 200, page="/profile")).html
        assert [mark for mark in (*MARKS, hired.id) if mark not in full and mark != '"hired'] == []
        assert "left_out" not in full


@pytest.mark.holds("people.md#export-and-erasure-3")
async def test_export_of_an_operator_has_what_claims_gave_to_the_person(oidc_world: OpenWorld) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, (user, _) = await c.services.people(), await signed_up(c, corp)
        corp.person |= OPERATOR
        pia = await c.browser()
        await come(pia)
        await people.tokens.create(await c.actor_in(pia), "own-token", ["read"])
        document = await people.personal_data.export(ROOT, user.id)
        assert document["user"]["role"] == "operator" and [one["name"] for one in document["tokens"]] == ["own-token"]
