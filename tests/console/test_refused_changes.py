"""A request that is refused revokes no API keys: neither of the user whom it was for, nor of anybody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.accounts.key_record import CreatedKey
from gateway.accounts.keys import Keys
from gateway.people.identities import insert_identity
from gateway.people.memberships import put_membership
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import ROOT, Browser, Console
from tests.console.oidc_world import OpenWorld, come, oidc_world
from tests.console.test_claims_and_ways_in import EVIL, PIA
from tests.console.test_ended_sessions import Held
from tests.console.test_squatted_addresses import squatted

__all__ = ["database_address", "database_url", "oidc_world"]


async def state(c: Console, key: CreatedKey) -> str:
    record = await (await c.services.people()).keys.find(key.id)
    assert record is not None
    return record.state


async def key_of_pia(c: Console) -> CreatedKey:
    """A key of the unproved user Pia, a member of `other`."""
    people = await c.services.people()
    return await people.member_keys.create(ROOT, "other", (await people.users.find(ROOT, PIA)).id)


async def pressed(browser: Browser, location: str) -> int:
    """Press the button of the take-over, also if the page does not have it."""
    hidden = (await browser.get(location)).hidden()
    return (await browser.ask("POST", location.partition("?")[0], {**hidden, "action": "take_over"})).status


@pytest.mark.holds("people.md#proved-addresses-14")
async def test_invitation_of_another_user_revokes_no_keys_when_it_is_refused(oidc_world: OpenWorld) -> None:
    """Mallory is known at the provider as another user, and has the link."""
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        await squatted(c, corp, "password")
        key, mallory = await key_of_pia(c), await people.users.find(ROOT, "mallory@example.com")
        await people.transactions.write(insert_identity, ROOT, mallory.id, corp.issuer, "mallory")
        corp.person = {"sub": "mallory", "email": EVIL, "email_verified": True}
        new = await people.invitations.to_account(ROOT, PIA, "acme", "member")
        refused = await come(await c.browser(), page=f"/invitation?token={new.token}", invitation=new.token)
        assert refused.status == 403
        assert await state(c, key) == "active"


@pytest.mark.holds("people.md#proved-addresses-14")
async def test_take_over_by_an_address_that_the_user_has_no_more_revokes_no_keys(oidc_world: OpenWorld) -> None:
    """An operator has corrected the address since the person of the provider was asked."""
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        await squatted(c, corp, "password")
        key, user = await key_of_pia(c), await people.users.find(ROOT, PIA)
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True}
        pia = await c.browser()
        asked = await come(pia)
        await people.users.edit(ROOT, user.id, {"email": "right@corp.test"})
        assert await pressed(pia, asked.location) == 403
        assert await state(c, key) == "active"


@pytest.mark.parametrize("steps", [("password",), ("second factor",)], ids=" and ".join)
@pytest.mark.holds("people.md#proved-addresses-14")
async def test_take_over_by_a_person_who_is_another_user_meanwhile_revokes_no_keys(
    oidc_world: OpenWorld, steps: tuple[str, ...]
) -> None:
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        await squatted(c, corp, *steps)
        user = await people.users.find(ROOT, PIA)
        if not user.accounts:
            mallory = await c.user("owner@example.com", other="owner")
            await people.transactions.write(joined, mallory, user)
        key = await key_of_pia(c)
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True}
        pia = await c.browser()
        asked = await come(pia)
        another = await c.user("another@example.com")
        await people.transactions.write(insert_identity, ROOT, another.id, corp.issuer, "pia")
        assert await pressed(pia, asked.location) == 403
        assert await state(c, key) == "active"


def joined(connection: Any, owner: Any, user: Any) -> None:
    """The owner has given the membership."""
    put_membership(connection, owner.actor(""), user, "other", "member", given_by="owner")


@pytest.mark.parametrize(
    ("changes", "status"),
    [({"email": "root@example.com"}, 409), ({"email": EVIL, "role": "viewer"}, 403)],
    ids=["address of another user", "role"],
)
@pytest.mark.holds("people.md#proved-addresses-14")
async def test_address_that_is_refused_revokes_no_keys(
    oidc_world: OpenWorld, changes: dict[str, str], status: int
) -> None:
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        await c.user("root@example.com", role="operator")
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True, "groups": ["search"]}
        await come(await c.browser())
        user = await people.users.find(ROOT, PIA)
        key = await people.member_keys.create(ROOT, "acme", user.id)
        answered, _ = await c.ask_api(("read", "keys", "users"), "PATCH", f"/users/{user.id}", changes)
        assert answered == status
        assert (await people.users.show(ROOT, user.id)).accounts == {"acme": "member"}
        assert await state(c, key) == "active"


@pytest.mark.holds("people.md#keys-of-users-5")
async def test_keys_of_an_account_that_the_user_joins_during_the_erasure_are_revoked(oidc_world: OpenWorld) -> None:
    """The accounts are read before the keys are revoked; the user joins another one meanwhile, and gets a key."""
    async with oidc_world() as (c, _):
        people = await c.services.people()
        user = await c.user(PIA, acme="member")
        await people.member_keys.create(ROOT, "acme", user.id)
        with pytest.MonkeyPatch.context() as patch:
            held = Held(patch, Keys, "revoke")
            erasing = asyncio.create_task(people.personal_data.erase(ROOT, user.id))
            await held.reached.wait()
        await people.memberships.set(ROOT, user.id, "other", "member")
        key = await people.member_keys.create(ROOT, "other", user.id)
        held.go_on()
        await erasing
        assert await state(c, key) == "revoked"
