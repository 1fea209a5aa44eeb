"""How holders of addresses come in beside squatters, codes and older rows, and what refusals say."""

from __future__ import annotations

import time
from typing import Any

import pyotp
import pytest
import sqlalchemy as sa

from gateway.people.identities import insert_identity
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT
from tests.console.oidc_world import OpenWorld, come, oidc_world
from tests.console.test_claims_and_ways_in import EVIL, OPERATOR, OWNER, PIA, sees
from tests.console.test_durable_roles import MEMBERS, colleague
from tests.console.test_granted_roles import by_password, set_up_second_factor
from tests.console.test_permanent_roles import by_claims
from tests.console.test_roles_without_proof import FORM, enable_code, with_role
from tests.console.test_sign_in import with_mail
from tests.console.test_squatted_addresses import squatted

__all__ = ["database_address", "database_url", "oidc_world"]


@pytest.mark.holds("security.md#e-mail-addresses-and-invitations-10")
async def test_squatter_with_a_role_by_claims_does_not_keep_the_holder_out(oidc_world: OpenWorld) -> None:
    """Mallory, an operator by claims of Corp, connects Corp with the user of Pia's address, who is not proved."""
    async with oidc_world() as (c, corp):
        await c.user("root@example.com", role="operator")
        await squatted(c, corp, "password", "corp")
        corp.person = {"sub": "mallory", "email": EVIL, "email_verified": True, **OPERATOR}
        assert (await come(await c.browser())).status == 303
        people = await c.services.people()
        assert (await people.users.find(ROOT, PIA)).role == "operator"
        corp.others[0].person = {"sub": "pia", "email": PIA, "email_verified": True}
        pia = await c.browser()
        asked = await come(pia, "rival")
        hidden = (await pia.get(asked.location)).hidden()
        await pia.ask("POST", "/sign-in/oidc/password", {**hidden, "action": "take_over"})
        assert await sees(pia, "/profile")


@pytest.mark.holds("people.md#proved-addresses-13")
async def test_invitation_of_an_operator_by_mail_leaves_the_code_of_a_user_with_a_role(oidc_world: OpenWorld) -> None:
    """As that of an owner: whoever reads the mailbox does not become an operator without the code."""
    async with oidc_world() as (c, _):
        mail, holder = await with_mail(c), await with_role(c, "operator")
        await enable_code(holder)
        root = await c.signed_in(await c.user("root@example.com", role="operator", password=PASSWORD))
        page = "/accounts/other/members"
        await root.post(page, 303, page=page, email=PIA, role="member")
        token = mail.sent[-1][1].partition("token=")[2].split()[0]
        mailbox = await c.browser()
        hidden = (await mailbox.get(f"/invitation?token={token}")).hidden()
        await mailbox.ask("POST", "/invitation", {**hidden, "token": token, **FORM})
        assert not await sees(mailbox, "/site/users") and await sees(holder, "/site/users")


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-6")
async def test_second_step_that_an_earlier_version_began_goes_on_or_is_refused_with_the_reason(
    oidc_world: OpenWorld,
) -> None:
    """A person whom the provider knows came there before the upgrade, and gives the code after it."""
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        user = await c.user(PIA, password=PASSWORD)
        secret = await set_up_second_factor(await by_password(c))
        await people.transactions.write(insert_identity, ROOT, user.id, corp.issuer, "pia")
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True}
        pia = await c.browser()
        asked = await come(pia)

        def as_before(connection: Any) -> None:
            arrival = f'{{"provider":"corp","issuer":"{corp.issuer}"}}'
            connection.execute(sa.text("UPDATE sign_in_links SET arrival = :arrival"), {"arrival": arrival})

        await people.transactions.write(as_before)
        hidden = (await pia.get(asked.location)).hidden()
        code = pyotp.TOTP(secret).at(time.time() + 30)
        shown = await pia.ask("POST", "/sign-in/code", {**hidden, "code": code})
        assert shown.status == 303 or "Another user" not in shown.text, shown.text


@pytest.mark.holds("people.md#proved-addresses-2")
async def test_refusal_of_a_role_says_that_a_program_has_changed_the_address(console: Any) -> None:
    """Nobody has a way in: to mark the user as proved, as the text says, is what the program waits for."""
    async with console() as c:
        people = await c.services.people()
        user = await c.user("boss@example.com", is_proved=False)
        status, _ = await c.ask_api(("users",), "PATCH", f"/users/{user.id}", {"email": EVIL})
        assert status == 200
        root = await c.signed_in(await c.user("root@example.com", role="operator", password=PASSWORD))
        page = f"/site/users/{user.id}"
        shown = await root.post(f"{page}/role", 409, page=page, role="operator", current_password=PASSWORD)
        assert "program" in shown.text
        assert (await people.users.show(ROOT, user.id)).role == "none"


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-16")
async def test_refusal_of_an_invitation_is_not_about_the_person_who_accepts(oidc_world: OpenWorld) -> None:
    """Max, an owner by claims, invites Pia again, who has left; Pia reads why she cannot accept, and what to do."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, (user, pia, _) = await c.services.people(), await by_claims(c, corp, OWNER)
        max_ = await c.actor_in(await colleague(c, corp, OWNER))
        await pia.post(f"{MEMBERS}/{user}/remove", 303, page=MEMBERS)
        new = await people.invitations.to_account(max_, PIA, "acme", "member")
        shown = await pia.post("/invitation", 403, page=f"/invitation?token={new.token}", token=new.token)
        assert "gives you your own right here" not in shown.text, shown.text
