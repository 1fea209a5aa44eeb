"""The holder of an address comes in, whatever a stranger, an owner or a token has done with the user of the address."""

from __future__ import annotations

import pytest

from gateway.people.identities import insert_identity
from gateway.people.sessions import MOST_STARTS, insert_session
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT, Browser, Console
from tests.console.oidc_world import OpenWorld, come, oidc_world
from tests.console.test_claims_and_ways_in import OPERATOR, PIA, resets, sees, signed_up
from tests.console.test_granted_roles import by_password
from tests.console.test_links_of_others import SET, opened
from tests.console.test_roles_without_proof import accepts, enable_code
from tests.console.test_sign_in import with_mail
from tests.console.test_squatted_addresses import squatted

__all__ = ["database_address", "database_url", "oidc_world"]

MEMBERS = "/accounts/other/members"


async def invitation(c: Console, owner: Browser) -> str:
    """The token of an invitation by the owner, whose link is handed over because no mail server takes it."""
    people = await c.services.people()
    actor = await c.actor_in(owner)
    return (await people.invitations.to_account(actor, PIA, "other", "member")).token


async def invited_again(c: Console, mallory: Browser, by: str) -> Browser:
    """The browser of a squatter whom an owner adds, whom this takes out, and whom the owner adds again."""
    people = await c.services.people()
    await accepts(c, await invitation(c, mallory))
    user = await people.users.find(ROOT, PIA)
    if by == "operator":
        await people.memberships.remove(ROOT, user.id, "other")
    else:
        status, _ = await c.ask_api(("users",), "DELETE", f"{MEMBERS}/{user.id}")
        assert status == 200
    token = await invitation(c, mallory)
    squatter = await by_password(c)
    form = {"token": token, "password": PASSWORD, "repeated": PASSWORD, "current_password": PASSWORD}
    await squatter.post("/invitation", 303, page=f"/invitation?token={token}", **form)
    assert (await people.users.find(ROOT, PIA)).accounts == {"other": "member"}
    return squatter


@pytest.mark.parametrize("by", ["operator", "program"])
@pytest.mark.holds("security.md#e-mail-addresses-and-invitations-10")
async def test_operator_who_took_the_squatter_out_does_not_keep_the_holder_out(oidc_world: OpenWorld, by: str) -> None:
    """Who ends a membership has not given it: the one of today is of the owner."""
    async with oidc_world() as (c, corp):
        squatter = await invited_again(c, await c.as_("mallory", other="owner"), by)
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True}
        pia = await c.browser()
        asked = await come(pia)
        hidden = (await pia.get(asked.location)).hidden()
        await pia.ask("POST", "/sign-in/oidc/password", {**hidden, "action": "take_over"})
        assert await sees(pia, "/profile") and not await sees(squatter, "/profile")


@pytest.mark.parametrize("by", ["operator", "program"])
@pytest.mark.holds("people.md#proved-addresses-13")
async def test_operator_who_took_the_squatter_out_does_not_keep_the_code_of_the_squatter(
    oidc_world: OpenWorld, by: str
) -> None:
    """Nor is the mailbox enough then: the code of the squatter is asked for."""
    async with oidc_world() as (c, _):
        mail = await with_mail(c)
        squatter = await invited_again(c, await c.as_("mallory", other="owner"), by)
        await enable_code(squatter)
        pia = await c.browser()
        assert await resets(c, mail, pia, PIA)


@pytest.mark.holds("security.md#e-mail-addresses-and-invitations-10")
async def test_sign_ins_of_the_squatter_do_not_keep_out_the_holder_who_takes_over(oidc_world: OpenWorld) -> None:
    """The squatter has connected an identity of the same provider, and signs in all the time."""
    async with oidc_world() as (c, corp):
        people, thief = await c.services.people(), await squatted(c, corp, "password", "corp")
        user = await people.users.find(ROOT, PIA)
        key = await people.member_keys.create(ROOT, "other", user.id)
        place = {"address": "", "user_agent": "", "by": "oidc.corp", "issuer": corp.issuer}
        for _ in range(MOST_STARTS):
            await people.transactions.write(insert_session, user, **place)
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True}
        pia = await c.browser()
        asked = await come(pia)
        hidden = (await pia.get(asked.location)).hidden()
        shown = await pia.ask("POST", "/sign-in/oidc/password", {**hidden, "action": "take_over"})
        record = await people.keys.find(key.id)
        assert record is not None
        assert (shown.status, record.state) == (303, "revoked"), shown.text
        assert await sees(pia, "/profile") and not await sees(thief, "/profile")


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-15", "security.md#e-mail-addresses-and-invitations-11")
async def test_user_whom_claims_raised_above_a_role_by_hand_is_not_taken_over(oidc_world: OpenWorld) -> None:
    """An operator made Pia a viewer; Corp makes her an operator. Another provider does not take the user away."""
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        await c.user("root@example.com", role="operator")
        user = await c.user(PIA, role="viewer", password=PASSWORD, is_proved=False)
        await people.transactions.write(insert_identity, ROOT, user.id, corp.issuer, "pia")
        corp.person = {"sub": "pia", **OPERATOR}
        pia = await c.browser()
        assert (await come(pia)).status == 303 and await sees(pia, "/site/users")
        corp.others[0].person = {"sub": "somebody", "email": PIA, "email_verified": True}
        thief = await c.browser()
        asked = await come(thief, "rival")
        hidden = (await thief.get(asked.location)).hidden()
        await thief.ask("POST", "/sign-in/oidc/password", {**hidden, "action": "take_over"})
        assert await sees(pia, "/site/users") and not await sees(thief, "/profile")
        assert (await people.users.show(ROOT, user.id)).role != "none"


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-6")
async def test_person_of_a_provider_without_the_code_ends_nothing(oidc_world: OpenWorld) -> None:
    """The first step alone: a password and sessions end only when the code was right."""
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        user = await c.user(PIA, role="operator", password=PASSWORD, is_proved=False)
        pia = await by_password(c)
        await enable_code(pia)
        await people.transactions.write(insert_identity, ROOT, user.id, corp.issuer, "somebody")
        corp.person = {"sub": "somebody", "email": PIA, "email_verified": True}
        shown = await come(await c.browser())
        assert shown.location.startswith("/sign-in/code")
        assert await sees(pia, "/profile")
        found = await people.users.show(ROOT, user.id)
        assert (found.has_password, found.proved) == (True, "no")


@pytest.mark.holds("security.md#e-mail-addresses-and-invitations-10")
async def test_code_that_somebody_set_up_by_a_link_of_a_program_does_not_keep_out_the_person_of_the_provider(
    oidc_world: OpenWorld,
) -> None:
    """Pia has come by Corp before; the program's link makes her address one that is not proved."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        (user, _), thief = await signed_up(c, corp), await c.browser()
        status, made = await c.ask_api(("read", "users"), "POST", f"/users/{user.id}/link")
        assert status == 201
        assert await opened(thief, made["link"], **SET)
        await enable_code(thief)
        again = await c.browser()
        shown = await come(again)
        path = shown.location.partition("?")[0]
        await again.post(path, 303, page=shown.location, action="take_over")
        assert await sees(again, "/profile")
