"""What is made at the moment at which the rights of its maker end does not outlive them. On PostgreSQL both wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.admin.actor import SCOPES, Actor
from gateway.admin.current_rights import require_current
from gateway.admin.user_rows import lock_user
from gateway.database.people_tables import admin_tokens
from gateway.database.people_tables import invitations as invitation_rows
from gateway.database.people_tables import sign_in_links as link_rows
from gateway.database.people_tables import users as user_rows
from gateway.errors import Forbidden, LastOperator
from gateway.people import invitations, sign_in_links, tokens, users
from gateway.people.random_ids import token_hash
from tests.admin.services import PASSWORD, ROOT

WAITS = 0.3  # seconds in which a change that does not wait for the other one is done


def child_of(maker: str, number: int) -> dict[str, Any]:
    """The row of a token that has ended."""
    row = {"id": f"tok_{number}", "name": "t", "token_hash": token_hash(str(number)), "last4": "0000"}
    return row | {"scopes": "read", "account": "", "created_by": maker, "created_at": number, "revoked_at": 1}


@pytest.mark.holds("security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("scopes", [SCOPES, ("users", "keys", "read")])
@pytest.mark.parametrize("how", ["demoted", "disabled", "parent revoked"])
async def test_what_a_token_makes_while_the_rights_of_its_maker_end_ends_with_it(
    services: Any, how: str, scopes: Any
) -> None:
    async with services() as s:
        people = s.people
        await s.user("root@example.com", role="operator", password=PASSWORD)
        rob = (await s.user("rob@example.com", role="operator")).actor("")
        max_ = await s.user("max@example.com")
        parent = await people.tokens.create(rob, "parent", SCOPES)
        made = await people.tokens.create(await people.tokens.authenticate(parent.text), "t", scopes)
        actor = await people.tokens.authenticate(made.text)
        ends = {
            "demoted": lambda: people.users.edit(ROOT, rob.id, {"role": "none"}),
            "disabled": lambda: people.users.disable(ROOT, rob.id),
            "parent revoked": lambda: people.tokens.revoke(ROOT, parent.record.id),
        }[how]
        with s.database.writing() as connection:
            require_current(connection, actor)
            values = {"email": "eve@evil.test", "account": "acme", "role": "member", "site_role": ""}
            invitations._insert(connection, actor, "text", values)
            sign_in_links._create(connection, actor, max_.id)
            if actor.is_operator:
                row = {"name": "c", "scopes": "read", "account": "", "expires_at": None}
                tokens._insert(connection, actor, row | {"token_hash": b"c", "last4": "cccc"})
            ending = asyncio.create_task(ends())
            await asyncio.wait([ending], timeout=WAITS)
            assert not ending.done()
        await ending
        with s.database.reading() as connection:
            assert connection.execute(invitation_rows.select()).all() == []
            assert [row.purpose for row in connection.execute(link_rows.select()) if row.used_at is None] == []
            kept = admin_tokens.select().where(admin_tokens.c.revoked_at.is_(None))
            assert {row.name for row in connection.execute(kept)} <= {"parent"}


@pytest.mark.slow
async def test_operator_who_made_very_many_tokens_loses_the_role(services: Any, database: Any) -> None:
    """A statement takes up to 65,535 values on PostgreSQL."""
    async with services() as s:
        await s.user("root@example.com", role="operator", password=PASSWORD)
        rob = await s.user("rob@example.com", role="operator")
        with database.writing() as connection:
            rows = [child_of(f"user:{rob.id}", number) for number in range(66_000)]
            connection.execute(admin_tokens.insert(), rows)
        assert (await s.people.users.edit(ROOT, rob.id, {"role": "none"})).role == "none"


@pytest.mark.parametrize("what", ["enable", "disable", "erase"])
async def test_token_without_the_rights_of_an_operator_does_nothing_with_a_user_who_becomes_one(
    services: Any, what: str
) -> None:
    async with services() as s:
        people = s.people
        await s.user("root@example.com", role="operator", password=PASSWORD)
        user = await s.user("max@example.com")
        if what == "enable":
            await people.users.disable(ROOT, user.id)
        made = await people.tokens.create(ROOT, "t", ["users"])
        actor: Actor = await people.tokens.authenticate(made.text)
        attempt = {
            "enable": lambda: people.users.enable(actor, user.id),
            "disable": lambda: people.users.disable(actor, user.id),
            "erase": lambda: people.personal_data.erase(actor, user.id),
        }[what]
        with s.database.writing() as connection:
            users.edit_user(connection, ROOT, user.id, {"role": "operator"})
            attempting = asyncio.create_task(attempt())
            await asyncio.wait([attempting], timeout=WAITS)
            assert not attempting.done()
        with pytest.raises(Forbidden):
            await attempting
        with s.database.reading() as connection:
            row = connection.execute(user_rows.select().where(user_rows.c.id == user.id)).one()
        assert row.role == "operator" and (row.disabled_at is not None) == (what == "enable")


@pytest.mark.parametrize("how", ["demoted", "disabled", "erased"])
async def test_user_who_becomes_the_last_operator_at_this_moment_stays_one(services: Any, how: str) -> None:
    async with services() as s:
        root = await s.user("root@example.com", role="operator", password=PASSWORD)
        user = await s.user("max@example.com")
        with s.database.writing() as connection:
            users.edit_user(connection, ROOT, user.id, {"role": "operator"})
            users.edit_user(connection, ROOT, root.id, {"role": "none"})
            ends = {
                "demoted": lambda: s.people.users.edit(ROOT, user.id, {"role": "none"}),
                "disabled": lambda: s.people.users.disable(ROOT, user.id),
                "erased": lambda: s.people.personal_data.erase(ROOT, user.id),
            }[how]
            attempting = asyncio.create_task(ends())
            await asyncio.wait([attempting], timeout=WAITS)
            assert not attempting.done()
        with pytest.raises(LastOperator):
            await attempting
        found = await s.people.users.show(ROOT, user.id)
        assert (found.role, found.state) == ("operator", "active")


async def test_token_waits_for_a_change_of_the_rights_of_its_maker_before_it_locks_itself(services: Any) -> None:
    """Else each of the two waits for the other, and PostgreSQL undoes one."""
    async with services() as s:
        people = s.people
        rob = (await s.user("rob@example.com", role="operator")).actor("")
        parent = await people.tokens.create(rob, "parent", SCOPES)
        made = await people.tokens.create(await people.tokens.authenticate(parent.text), "t", ["users", "read"])
        actor = await people.tokens.authenticate(made.text)
        with s.database.writing() as connection:
            lock_user(connection, rob.id)
            attempting = asyncio.create_task(people.users.create(actor, "eve@example.com"))
            await asyncio.wait([attempting], timeout=WAITS)
            assert not attempting.done()
            rows = admin_tokens.select().where(admin_tokens.c.id == actor.id)
            assert connection.execute(rows.with_for_update(nowait=True)).one().revoked_at is None
        assert (await attempting).email == "eve@example.com"
