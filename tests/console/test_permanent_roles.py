"""A role by claims becomes one that a person gave only by an explicit change, with its event."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.audit_trail import AuditFilter
from gateway.errors import Forbidden, InvalidValue
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT, Browser, Console
from tests.console.identity_provider import IdentityProvider
from tests.console.oidc_world import OpenWorld, actions, come, oidc_world
from tests.console.test_claims_and_ways_in import OPERATOR, OWNER, PIA, resets, signed_up
from tests.console.test_granted_roles import has_role
from tests.console.test_sign_in import with_mail

__all__ = ["database_address", "database_url", "oidc_world"]

ROLES = pytest.mark.parametrize("claims", [OPERATOR, OWNER], ids=["operator", "owner"])


async def by_claims(c: Console, corp: IdentityProvider, claims: dict[str, Any]) -> tuple[str, Browser, Browser]:
    """The id of a user with these claims, who signed in by Corp, and the browser of somebody with the password."""
    mail = await with_mail(c)
    (user, _), thief = await signed_up(c, corp), await c.browser()
    assert await resets(c, mail, thief, PIA)
    corp.person |= claims
    pia = await c.browser()
    await come(pia)
    assert await has_role(pia) and not await has_role(thief)
    return user.id, pia, thief


async def set_role(browser: Browser, user: str, claims: dict[str, Any], **form: str) -> int:
    """Set the role again that the claims gave, on the page of the user; the status of the answer."""
    page = f"/site/users/{user}"
    opened = await browser.get(page)
    if claims == OPERATOR:
        hidden = opened.hidden(f"{page}/role") | form
        shown = await browser.ask("POST", f"{page}/role", {**hidden, "role": "operator", "current_password": PASSWORD})
    else:
        hidden = opened.hidden(f"{page}/memberships") | form
        role = {"account": "acme", "account_role": "owner"}
        shown = await browser.ask("POST", f"{page}/memberships", {**hidden, **role})
    return shown.status


async def claims_end(c: Console, corp: IdentityProvider, user: str) -> tuple[str, dict[str, str]]:
    """The roles that are left."""
    corp.person |= {"groups": [], "realm_access": {}}
    await come(await c.browser())
    found = await (await c.services.people()).users.show(ROOT, user)
    return found.role, found.accounts


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16", "security.md#e-mail-addresses-and-invitations-12")
@ROLES
async def test_same_role_by_an_operator_stays_one_of_claims(oidc_world: OpenWorld, claims: dict[str, Any]) -> None:
    """As the form is preselected; and as a script puts the wanted role of each member."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        user, _, thief = await by_claims(c, corp, claims)
        root = await c.signed_in(await c.user("root@example.com", role="operator", password=PASSWORD))
        assert await set_role(root, user, claims) == 303
        if claims == OWNER:
            scopes = ("read", "accounts", "keys", "users")
            for account in (None, "acme"):
                path = f"/accounts/acme/members/{user}"
                status, shown = await c.ask_api(scopes, "PUT", path, {"role": "owner"}, account=account)
                assert status == 200, shown
        assert not await has_role(thief)
        assert await claims_end(c, corp, user) == ("none", {})


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16", "security.md#e-mail-addresses-and-invitations-12")
@ROLES
async def test_permanent_role_has_an_event_and_ends_the_sessions_in_which_it_did_not_count(
    oidc_world: OpenWorld, claims: dict[str, Any]
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        user, pia, thief = await by_claims(c, corp, claims)
        root = await c.signed_in(await c.user("root@example.com", role="operator", password=PASSWORD))
        assert "Permanent" in (await root.get(f"/site/users/{user}")).text
        assert await set_role(root, user, claims, permanent="yes") == 303
        assert (await thief.ask("GET", "/profile")).status == 303 and await has_role(pia)
        trail = (await c.services.people()).audit_trail
        action, role = ("users.edit", "operator") if claims == OPERATOR else ("members.set", "owner")
        events = await trail.list(ROOT, AuditFilter(object=f"user:{user}"), limit=5)
        [event] = [one for one in events if one.action == action and "given_by" in one.before]
        assert event.before == {"role": role, "given_by": [corp.issuer]}
        assert event.after == {"role": role, "permanent": True, "ended_sessions": 1}
        left = await claims_end(c, corp, user)
        assert left == (("operator", {}) if claims == OPERATOR else ("none", {"acme": "owner"}))


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16", "security.md#e-mail-addresses-and-invitations-12")
@ROLES
async def test_own_right_by_claims_makes_no_role_permanent(oidc_world: OpenWorld, claims: dict[str, Any]) -> None:
    """Neither the same role nor a lower one, nor by an own token, nor by an own invitation."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        await c.user("root@example.com", role="operator")
        people = await c.services.people()
        user, pia, _ = await by_claims(c, corp, claims)
        actor = await c.actor_in(pia)
        actors = [actor]
        if claims == OPERATOR:
            token = await people.tokens.create(actor, "own", ["read", "accounts", "keys", "credits", "users", "config"])
            further = await people.tokens.create(
                await people.tokens.authenticate(token.text),
                "further",
                ["read", "accounts", "keys", "credits", "users", "config"],
            )
            actors += [await people.tokens.authenticate(one.text) for one in (token, further)]
        for one in actors:
            if claims == OPERATOR:
                with pytest.raises(Forbidden, match="whose right a person gave"):
                    await people.users.edit(one, user, {"role": "operator"}, permanent=True)
                with pytest.raises(Forbidden, match="whose right a person gave"):
                    await people.users.edit(one, user, {"role": "viewer"})
            else:
                with pytest.raises(Forbidden, match="whose right a person gave"):
                    await people.memberships.set(one, user, "acme", "owner", permanent=True)
                with pytest.raises(Forbidden, match="whose right a person gave"):
                    await people.memberships.set(one, user, "acme", "member")
        with pytest.raises(Forbidden, match="you cannot give this role to others"):
            if claims == OPERATOR:
                await people.invitations.to_site(actor, PIA, "operator")
            else:
                await people.invitations.to_account(actor, PIA, "acme", "owner")
        assert await claims_end(c, corp, user) == ("none", {})


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16", "security.md#e-mail-addresses-and-invitations-12")
async def test_owner_by_claims_does_not_make_the_own_role_permanent_with_the_form_of_the_members(
    oidc_world: OpenWorld,
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        user, pia, _ = await by_claims(c, corp, OWNER)
        members = "/accounts/acme/members"
        path = f"{members}/{user}/role"
        hidden = (await pia.get(members)).hidden(path)
        assert "shown_email" in hidden
        await pia.ask("POST", path, {**hidden, "role": "owner"})
        assert await claims_end(c, corp, user) == ("none", {})


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16", "security.md#e-mail-addresses-and-invitations-12")
@ROLES
async def test_invitation_of_somebody_with_a_right_by_hand_makes_the_role_permanent_with_an_event(
    oidc_world: OpenWorld, claims: dict[str, Any]
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, (user, pia, _) = await c.services.people(), await by_claims(c, corp, claims)
        if claims == OPERATOR:
            new = await people.invitations.to_site(ROOT, PIA, "operator")
        else:
            new = await people.invitations.to_account(ROOT, PIA, "acme", "owner")
        await people.invitations.accept(new.token, signed_in=await c.actor_in(pia))
        assert (await actions(c, user))[0] == ("users.edit" if claims == OPERATOR else "members.set")
        left = await claims_end(c, corp, user)
        assert left == (("operator", {}) if claims == OPERATOR else ("none", {"acme": "owner"}))


async def test_permanent_without_a_role_is_refused(console: Any) -> None:
    async with console() as c:
        user = await c.user(PIA)
        with pytest.raises(InvalidValue):
            await (await c.services.people()).users.edit(ROOT, user.id, {}, permanent=True)
