"""Who loses rights while a request runs makes no change with those of before: they are read again with the change."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import gateway.admin
import gateway.imports
import gateway.people
from gateway.admin.actor import SCOPES, Actor
from gateway.errors import Forbidden, NotSignedIn
from gateway.history.sql_thread import SqlThread
from gateway.people.people import People
from tests.admin.services import PASSWORD, ROOT, Services


def changes(s: Services, actor: Actor, user_id: str, invitation_id: str) -> dict[str, Coroutine[Any, Any, Any]]:
    """Every change of people that an operator asks for."""
    p = s.people
    return {
        "token": p.tokens.create(actor, "t", SCOPES),
        "link": p.sign_in_links.create(actor, user_id),
        "user": p.users.create(actor, "eve@evil.test"),
        "operator": p.users.create(actor, "eva@evil.test", role="operator"),
        "role": p.users.edit(actor, user_id, {"role": "operator"}),
        "address": p.users.edit(actor, user_id, {"email": "evil@evil.test"}),
        "membership": p.memberships.set(actor, user_id, "acme", "owner"),
        "end of a membership": p.memberships.remove(actor, user_id, "other"),
        "proof": p.users.prove(actor, user_id),
        "disabling": p.users.disable(actor, user_id),
        "enabling": p.users.enable(actor, user_id),
        "erasure": p.personal_data.erase(actor, user_id),
        "export": p.personal_data.export(actor, user_id),
        "sessions": p.sessions.end_all(actor, user_id),
        "identities": p.identities.end_all(actor, user_id),
        "invitation": p.invitations.to_account(actor, "eve@evil.test", "acme", "owner"),
        "invitation to the site": p.invitations.to_site(actor, "eve@evil.test", "operator"),
        "withdrawal": p.invitations.withdraw(actor, invitation_id),
    }


@pytest.mark.holds("people.md#who-is-who-9", "security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("how", ["demoted", "viewer", "disabled", "erased", "token revoked"])
async def test_operator_whose_rights_end_while_a_request_runs_changes_nothing(services: Any, how: str) -> None:
    async with services() as s:
        people = s.people
        await s.user("root@example.com", role="operator")
        actor = (await s.user("rob@example.com", role="operator")).actor("")
        max_ = await s.user("max@example.com", is_proved=False)
        await people.memberships.set(ROOT, max_.id, "other", "member")
        open_ = await people.invitations.to_account(ROOT, "kim@example.com", "acme", "member")
        if how == "token revoked":
            made = await people.tokens.create(ROOT, "t", SCOPES)
            actor = await people.tokens.authenticate(made.text)
            await people.tokens.revoke(ROOT, made.record.id)
        elif how == "disabled":
            await people.users.disable(ROOT, actor.id)
        elif how == "erased":
            await people.personal_data.erase(ROOT, actor.id)
        else:
            await people.users.edit(ROOT, actor.id, {"role": "none" if how == "demoted" else "viewer"})
        before, made_it = s.text(), list[str]()
        for name, attempt in changes(s, actor, max_.id, open_.invitation.id).items():
            try:
                await attempt
                made_it.append(name)
            except (Forbidden, NotSignedIn):
                continue
        assert made_it == []
        assert s.text() == before


@pytest.mark.holds("people.md#who-is-who-9", "security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("how", ["member", "out", "disabled"])
async def test_owner_whose_role_ends_while_a_request_runs_changes_no_member(services: Any, how: str) -> None:
    async with services() as s:
        owner, max_ = await s.owner(), await s.user("max@example.com")
        await s.people.memberships.set(ROOT, max_.id, "acme", "member")
        if how == "disabled":
            await s.people.users.disable(ROOT, owner.id)
        elif how == "out":
            await s.people.memberships.remove(ROOT, owner.id, "acme")
        else:
            await s.people.memberships.set(ROOT, owner.id, "acme", "member")
        for attempt in (
            s.people.memberships.set(owner, max_.id, "acme", "owner"),
            s.people.memberships.remove(owner, max_.id, "acme"),
            s.people.invitations.to_account(owner, "eve@evil.test", "acme", "owner"),
        ):
            with pytest.raises(Forbidden):
                await attempt
        assert (await s.people.users.show(ROOT, max_.id)).accounts == {"acme": "member"}


async def test_person_gives_up_own_rights_and_may_gain_some_meanwhile(services: Any) -> None:
    """Only what was lost since the request began is refused, not what the change itself takes."""
    async with services() as s:
        await s.user("root@example.com", role="operator")
        owner, rob = await s.owner(), (await s.user("rob@example.com", role="operator")).actor("")
        await s.people.memberships.set(ROOT, owner.id, "other", "owner")
        assert (await s.people.memberships.remove(owner, owner.id, "acme")).accounts == {"other": "owner"}
        assert (await s.people.users.edit(rob, rob.id, {"role": "none"})).role == "none"


async def test_operators_who_demote_each_other_at_the_same_time_leave_one_and_no_failure(
    services: Any, database: Any
) -> None:
    """On PostgreSQL, from several machines: those who lose their role first do not take that of others."""
    async with services() as s:
        users = [await s.user(f"{name}@example.com", role="operator", password=PASSWORD) for name in "abcd"]
        threads = [SqlThread() for _ in users]
        sides = [People(s.people._settings, database, thread, s.world.store) for thread in threads]
        following = [*users[1:], users[0]]
        attempts = [
            side.users.edit(user.actor(""), other.id, {"role": "none"})
            for side, user, other in zip(sides, users, following, strict=True)
        ]
        ended = await asyncio.gather(*attempts, return_exceptions=True)
        for side, thread in zip(sides, threads, strict=True):
            side.close()
            thread.close()
        refused = [one for one in ended if isinstance(one, BaseException)]
        assert all(isinstance(one, Forbidden) for one in refused), refused
        roles = [user.role for user in await s.people.users.list(ROOT)]
        assert roles.count("operator") >= 1 and len(refused) == roles.count("operator")


@pytest.mark.holds("people.md#who-is-who-9")
def test_every_change_that_an_actor_asks_for_reads_the_rights_again() -> None:
    """`Transactions.write` is for what people without rights and the gateway itself do."""
    forgotten = list[str]()
    files = [
        file
        for room in (gateway.admin, gateway.people, gateway.imports)
        for file in Path(room.__path__[0]).rglob("*.py")
    ]
    assert len(files) > 80
    for file in sorted(files):
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "write"):
                continue
            if any(isinstance(one, ast.Name) and one.id == "actor" for one in node.args):
                forgotten.append(f"{file.name}:{node.lineno}")
    assert forgotten == []
