"""What claims gave becomes permanent, and counts in sessions of others, only as `permanent` says."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from gateway.errors import Forbidden
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT, Browser, Console
from tests.console.identity_provider import IdentityProvider
from tests.console.oidc_world import OpenWorld, come, oidc_world
from tests.console.test_claims_and_ways_in import OPERATOR, OWNER, PIA, sees, signed_up
from tests.console.test_granted_roles import has_role
from tests.console.test_permanent_roles import ROLES, by_claims, claims_end

__all__ = ["database_address", "database_url", "oidc_world"]

MEMBERS = "/accounts/acme/members"
MEMBER = {"groups": ["search"]}


async def colleague(c: Console, corp: IdentityProvider, claims: dict[str, Any]) -> Browser:
    """Another person of the provider with these claims."""
    browser, person = await c.browser(), corp.person
    corp.person = {"sub": "max", "email": "max@corp.test", "email_verified": True, **claims}
    assert (await come(browser)).status == 303 and await has_role(browser)
    corp.person = person
    return browser


async def tries(browser: Browser, token: str) -> None:
    """Accept an invitation, if it can be accepted."""
    shown = await browser.ask("GET", f"/invitation?token={token}")
    if shown.status == 200:
        await browser.ask("POST", "/invitation", {**shown.hidden(), "token": token})


@pytest.mark.parametrize("who", ["leaves", "is taken out"])
@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16", "security.md#e-mail-addresses-and-invitations-12")
async def test_owner_by_claims_does_not_come_back_for_good_by_another_owner_by_claims(
    oidc_world: OpenWorld, who: str
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, (user, pia, _) = await c.services.people(), await by_claims(c, corp, OWNER)
        max_ = await colleague(c, corp, OWNER)
        leaving = pia if who == "leaves" else max_
        await leaving.post(f"{MEMBERS}/{user}/remove", 303, page=MEMBERS)
        with pytest.raises(Forbidden, match="you cannot give this role to others"):
            await people.invitations.to_account(await c.actor_in(max_), PIA, "acme", "owner")
        new = await people.invitations.to_account(await c.actor_in(max_), PIA, "acme", "member")
        await pia.post("/invitation", 403, page=f"/invitation?token={new.token}", token=new.token)
        assert (await people.users.show(ROOT, user)).accounts == {}
        assert await claims_end(c, corp, user) == ("none", {})


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16", "security.md#e-mail-addresses-and-invitations-12")
async def test_owner_by_claims_is_not_made_permanent_by_whom_the_owner_has_raised(oidc_world: OpenWorld) -> None:
    """Max makes Ann an owner, and Ann makes Max one: nobody has a right that does not come from claims."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, (user, pia, _) = await c.services.people(), await by_claims(c, corp, OWNER)
        ann = await c.user("ann@example.com", acme="member")
        await pia.ask("POST", f"{MEMBERS}/{ann.id}/role", {"xsrf": await pia.token(MEMBERS), "role": "owner"})
        with suppress(Forbidden):
            actor = await c.actor_in(await c.signed_in(ann))
            await tries(pia, (await people.invitations.to_account(actor, PIA, "acme", "owner")).token)
        assert await claims_end(c, corp, user) == ("none", {})


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16", "security.md#e-mail-addresses-and-invitations-12")
async def test_operator_by_claims_does_not_make_a_role_permanent_by_ending_it_before(oidc_world: OpenWorld) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, (user, _, thief) = await c.services.people(), await by_claims(c, corp, OPERATOR)
        await c.user("root@example.com", role="operator")
        actor = await c.actor_in(await colleague(c, corp, OPERATOR))
        with suppress(Forbidden):
            await people.users.edit(actor, user, {"role": "none"})
            await people.users.edit(actor, user, {"role": "operator"})
        assert not await has_role(thief)
        assert await claims_end(c, corp, user) == ("none", {})


@ROLES
@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16", "security.md#e-mail-addresses-and-invitations-12")
async def test_invitation_that_makes_a_role_permanent_ends_the_sessions_in_which_it_did_not_count(
    oidc_world: OpenWorld, claims: dict[str, Any]
) -> None:
    """The browser of somebody with the password has the role from the moment at which Pia accepts."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, (_, pia, thief) = await c.services.people(), await by_claims(c, corp, claims)
        if claims == OPERATOR:
            new = await people.invitations.to_site(ROOT, PIA, "operator")
        else:
            new = await people.invitations.to_account(ROOT, PIA, "acme", "owner")
        await pia.post("/invitation", 303, page=f"/invitation?token={new.token}", token=new.token)
        assert await has_role(pia)
        assert not await has_role(thief)


@pytest.mark.parametrize("by", ["form", "invitation", "profile"])
@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16", "security.md#e-mail-addresses-and-invitations-12")
async def test_higher_role_by_hand_ends_the_sessions_in_which_the_role_by_claims_did_not_count(
    oidc_world: OpenWorld, by: str
) -> None:
    """Pia is a member by claims and becomes an owner; who has the password had nothing, and becomes an owner, too."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, (user, pia, thief) = await c.services.people(), await by_claims(c, corp, OWNER)
        corp.person |= MEMBER
        await come(await c.browser())
        assert (await people.users.show(ROOT, user)).accounts == {"acme": "member"} and not await sees(thief, MEMBERS)
        if by == "form":
            root = await c.signed_in(await c.user("root@example.com", role="operator", password=PASSWORD))
            form = {"account": "acme", "account_role": "owner"}
            await root.post(f"/site/users/{user}/memberships", 303, page=f"/site/users/{user}", **form)
        else:
            new = await people.invitations.to_account(ROOT, PIA, "acme", "owner")
            if by == "invitation":
                await pia.post("/invitation", 303, page=f"/invitation?token={new.token}", token=new.token)
            else:
                await pia.post(f"/profile/invitations/{new.invitation.id}", 303, page="/profile")
        assert await sees(pia, MEMBERS)
        assert not await sees(thief, MEMBERS)


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16", "security.md#e-mail-addresses-and-invitations-12")
async def test_lower_role_by_hand_ends_the_sessions_in_which_the_role_by_claims_did_not_count(
    oidc_world: OpenWorld,
) -> None:
    """An operator by claims is made a viewer: who has the password had nothing, and reads everything from then on."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, (user, _, thief) = await c.services.people(), await by_claims(c, corp, OPERATOR)
        await c.user("root@example.com", role="operator")
        await people.users.edit(ROOT, user, {"role": "viewer"})
        assert not await sees(thief, "/site/users")


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-14")
@pytest.mark.parametrize("how", ["claims fall", "connection ends"])
async def test_role_that_a_person_gave_comes_back_when_the_claims_end_that_raised_it(
    oidc_world: OpenWorld, how: str
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people = await c.services.people()
        await c.user("root@example.com", role="operator")
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True}
        assert (await come(await c.browser())).status == 303
        user = (await people.users.find(ROOT, PIA)).id
        await people.users.edit(ROOT, user, {"role": "viewer"})
        corp.person |= OPERATOR
        for _ in range(2):
            assert (await come(await c.browser())).status == 303
            assert (await people.users.show(ROOT, user)).role == "operator"
        if how == "claims fall":
            assert await claims_end(c, corp, user) == ("viewer", {})
        else:
            await people.identities.end(ROOT, user, corp.issuer)
        assert (await people.users.show(ROOT, user)).role == "viewer"


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16", "security.md#e-mail-addresses-and-invitations-12")
async def test_operator_by_claims_gives_nobody_a_role_on_the_site(oidc_world: OpenWorld) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people = await c.services.people()
        await c.user("root@example.com", role="operator")
        ann = await c.user("ann@example.com")
        max_ = await c.actor_in(await colleague(c, corp, OPERATOR))
        token = await people.tokens.create(max_, "own", ["read", "accounts", "keys", "credits", "users", "config"])
        for actor in (max_, await people.tokens.authenticate(token.text)):
            for role in ("viewer", "operator"):
                with pytest.raises(Forbidden, match="you cannot give this role to others"):
                    await people.users.create(actor, "new@example.com", role=role)
                with pytest.raises(Forbidden, match="you cannot give this role to others"):
                    await people.users.edit(actor, ann.id, {"role": role})
                with pytest.raises(Forbidden, match="you cannot give this role to others"):
                    await people.invitations.to_site(actor, "new@example.com", role)
            assert (await people.memberships.set(actor, ann.id, "acme", "owner")).accounts == {"acme": "owner"}


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-7", "people.md#signing-in-by-an-identity-provider-14")
async def test_member_by_hand_whom_claims_raised_stays_a_member_when_the_claims_end(oidc_world: OpenWorld) -> None:
    """A grant never lowers a role that an operator or an owner gave; the key that she made as a member stays, too."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, (user, _) = await c.services.people(), await signed_up(c, corp)
        await people.memberships.set(ROOT, user.id, "acme", "member")
        key = await people.member_keys.create(ROOT, "acme", user.id)
        for groups in (["leads"], []):
            corp.person["groups"] = groups
            assert (await come(await c.browser())).status == 303
        record = await people.keys.find(key.id)
        assert record is not None
        assert ((await people.users.show(ROOT, user.id)).accounts, record.state) == ({"acme": "member"}, "active")


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-8")
async def test_membership_that_a_person_gave_stays_when_the_connection_ends_that_raised_it(
    oidc_world: OpenWorld,
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, (user, _) = await c.services.people(), await signed_up(c, corp)
        await people.memberships.set(ROOT, user.id, "acme", "member")
        key = await people.member_keys.create(ROOT, "acme", user.id)
        corp.person["groups"] = ["leads"]
        for _ in range(2):
            assert (await come(await c.browser())).status == 303
        assert (await people.users.show(ROOT, user.id)).accounts == {"acme": "owner"}
        await people.identities.end(ROOT, user.id, corp.issuer)
        record = await people.keys.find(key.id)
        assert record is not None
        assert ((await people.users.show(ROOT, user.id)).accounts, record.state) == ({"acme": "member"}, "active")
