"""Users are added, changed, disabled and enabled; the rules about power and the last operator hold."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy.engine import Connection

from gateway.admin.actor import EVERYTHING, Actor
from gateway.admin.values import known_email
from gateway.errors import AlreadyExists, Forbidden, InvalidLink, InvalidValue, LastOperator, NotFound
from gateway.history.sql_thread import SqlThread
from gateway.people.people import People
from tests.admin.services import PASSWORD, ROOT, token


async def test_emails_are_compared_without_case_and_spaces(services) -> None:
    async with services() as s:
        user = await s.user(" Ann@Example.COM ")
        assert user.email == "ann@example.com"
        assert (await s.people.users.find(ROOT, "ANN@example.com")).id == user.id
        with pytest.raises(AlreadyExists):
            await s.user("ann@EXAMPLE.com")


@pytest.mark.parametrize(
    "email", ["", "ann", "@b.c", "a@", "a b@c.d", "a@b@c", "a\n@b.c", "<a@b.c>", "a" * 65 + "@b.c", "a@-b.c", "a@b..c"]
)
async def test_text_that_is_no_email_is_refused(services, email: str) -> None:
    async with services() as s:
        with pytest.raises(InvalidValue):
            await s.user(email)
        assert await s.people.users.list(ROOT) == []


def test_address_of_before_is_looked_up_by_every_spelling() -> None:
    for capital in (
        "J\u030c",
        "H\u0331",
        "T\u0308",
        "W\u030a",
    ):  # only their small letters have a composed form
        normal = known_email(f"{capital}ane@example.com")
        assert known_email(normal) == normal == known_email(f"{capital.lower()}ane@example.com")
    assert known_email("ann@BÜCHER.example") == "ann@xn--bcher-kva.example"
    different = [
        "fi@example.com",
        "\ufb01@example.com",
        "ann@example.com",
        "\uff41nn@example.com",
        "\u0130@example.com",
    ]
    assert len(set(map(known_email, different))) == len(different)
    for email in ("\u212aim@example.com", "rene\u0301\u212a@example.com", "a\u200bnn@example.com"):
        with pytest.raises(InvalidValue):
            known_email(email)


async def test_users_are_listed_in_pages_by_email(services) -> None:
    async with services() as s:
        for name in ("c", "a", "b"):
            await s.user(f"{name}@example.com")
        first = await s.people.users.list(ROOT, limit=2)
        rest = await s.people.users.list(ROOT, after=first[-1].email, limit=2)
        assert [user.email[0] for user in (*first, *rest)] == ["a", "b", "c"]


@pytest.mark.holds("people.md#audit-trail-1")
async def test_failed_write_leaves_no_change_and_no_event(services, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **rest: object) -> None:
        raise RuntimeError("a bug")

    async with services() as s:
        user = await s.user()
        events = await s.events()
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="a bug"):
            patch.setattr("gateway.people.users.record", broken)
            await s.people.users.edit(ROOT, user.id, {"name": "New"})
        with pytest.raises(InvalidValue):
            await s.people.users.edit(ROOT, user.id, {"name": "New", "email": "no address"})
        assert await s.people.users.show(ROOT, user.id) == user
        assert await s.events() == events


@pytest.mark.holds("people.md#who-is-who-3")
async def test_last_operator_is_neither_disabled_nor_demoted_nor_erased(services) -> None:
    async with services() as s:
        ann, bob = await s.user(role="operator"), await s.user("bob@example.com", role="operator")
        await s.people.users.disable(ROOT, bob.id)
        for attempt in (
            s.people.users.edit(ROOT, ann.id, {"role": "viewer"}),
            s.people.users.disable(ROOT, ann.id),
            s.people.personal_data.erase(ROOT, ann.id),
        ):
            with pytest.raises(LastOperator):
                await attempt
        assert (await s.people.users.show(ROOT, ann.id)).role == "operator"
        await s.people.users.enable(ROOT, bob.id)
        assert (await s.people.users.edit(ROOT, ann.id, {"role": "viewer"})).role == "viewer"


@pytest.mark.holds("people.md#who-is-who-3")
async def test_two_operators_cannot_demote_each_other_at_the_same_time(services, database) -> None:
    async with services() as s:
        users = [await s.user(f"{name}@example.com", role="operator") for name in "abcd"]
        threads = [SqlThread() for _ in users]
        sides = [People(s.people._settings, database, thread, s.world.store) for thread in threads]
        attempts = [side.users.edit(ROOT, user.id, {"role": "none"}) for side, user in zip(sides, users, strict=True)]
        ended = await asyncio.gather(*attempts, return_exceptions=True)
        for side, thread in zip(sides, threads, strict=True):
            side.close()
            thread.close()
        assert sum(isinstance(one, LastOperator) for one in ended) == 1
        assert [user.role for user in await s.people.users.list(ROOT)].count("operator") == 1


@pytest.mark.holds("people.md#who-is-who-4", "security.md#scopes-of-admin-tokens-3")
async def test_token_with_the_scope_users_cannot_reach_more_power(services) -> None:
    weak = token("read", "users")
    async with services() as s:
        operator, plain = await s.user(role="operator"), await s.user("bob@example.com")
        owner = await s.owner()
        for attempt in (
            s.people.users.create(weak, "eve@example.com", role="viewer"),
            s.people.users.edit(weak, plain.id, {"role": "operator"}),
            s.people.users.edit(weak, operator.id, {"email": "eve@example.com"}),
            s.people.users.edit(weak, operator.id, {"second_factor": False}),
            s.people.users.disable(weak, operator.id),
            s.people.sign_in_links.create(weak, operator.id),
            s.people.sessions.end_all(weak, operator.id),
            s.people.personal_data.erase(weak, operator.id),
            s.people.personal_data.export(weak, operator.id),
            s.people.invitations.to_site(weak, "eve@example.com", "operator"),
            s.people.tokens.create(weak, "more", ["config"]),
            s.people.memberships.set(weak, plain.id, "acme", "member"),
            s.people.memberships.set(weak, owner.id, "other", "owner"),
            s.people.users.edit(weak, owner.id, {"email": "eve@example.com"}),
            s.people.users.edit(weak, owner.id, {"second_factor": False}),
            s.people.users.edit(token("users", "keys", "read"), owner.id, {"email": "eve@example.com"}),
        ):
            with pytest.raises(Forbidden):
                await attempt
        assert (await s.people.memberships.set(weak, owner.id, "acme", "member")).accounts == {"acme": "member"}
        assert (await s.people.users.edit(weak, plain.id, {"name": "Bob"})).name == "Bob"


async def test_token_of_one_account_sees_no_users_of_the_site(services) -> None:
    bound = token(*EVERYTHING, account="acme")
    async with services() as s:
        user = await s.user()
        for attempt in (
            s.people.users.list(bound),
            s.people.users.show(bound, user.id),
            s.people.users.create(bound, "eve@example.com"),
            s.people.memberships.list(bound, "other"),
            s.people.tokens.create(bound, "more", ["read"]),
        ):
            with pytest.raises(Forbidden):
                await attempt


async def test_viewer_reads_everything_and_changes_nothing(services) -> None:
    async with services() as s:
        viewer = (await s.user(role="viewer")).actor("")
        other = await s.user("bob@example.com")
        assert len(await s.people.users.list(viewer)) == 2
        for attempt in (
            s.people.users.create(viewer, "eve@example.com"),
            s.people.users.disable(viewer, other.id),
            s.people.memberships.set(viewer, other.id, "acme", "owner"),
        ):
            with pytest.raises(Forbidden):
                await attempt


async def test_user_changes_their_own_name_and_no_more(services) -> None:
    async with services() as s:
        user = await s.user()
        own = user.actor("")
        assert (await s.people.users.edit(own, user.id, {"name": " Ann "})).name == "Ann"
        for changes in ({"role": "operator"}, {"email": "x@example.com"}, {"second_factor": False}):
            with pytest.raises(Forbidden):
                await s.people.users.edit(own, user.id, changes)
        with pytest.raises(Forbidden):
            await s.people.users.edit(own, (await s.user("bob@example.com")).id, {"name": "Eve"})


async def test_disabled_user_loses_sessions_links_and_invitations(services) -> None:
    async with services() as s:
        user = await s.user(password=PASSWORD)
        await s.people.memberships.set(ROOT, user.id, "acme", "owner")
        session = await s.signed_in()
        signed_in = await s.people.sessions.authenticate(session.token)
        await s.people.invitations.to_account(signed_in.actor, "eve@example.com", "acme", "owner")
        assert (await s.people.users.disable(ROOT, user.id)).state == "disabled"
        assert await s.people.sessions.list(ROOT, user.id) == []
        assert await s.people.invitations.list(ROOT, "acme") == []
        enabled = await s.people.users.enable(ROOT, user.id)
        assert (enabled.state, enabled.accounts) == ("active", {"acme": "owner"})


async def test_new_email_ends_links_and_new_role_ends_open_invitations(services) -> None:
    async with services() as s:
        await s.user("boss@example.com", role="operator")
        user = await s.user(role="operator")
        link = await s.people.sign_in_links.create(ROOT, user.id)
        new = await s.people.invitations.to_site(user.actor(""), "eve@example.com", "operator")
        await s.people.users.edit(ROOT, user.id, {"email": "new@example.com", "role": "none"})
        with pytest.raises(InvalidLink):
            await s.people.sign_in.owner_of_link(link.token)
        with pytest.raises(InvalidLink):
            await s.people.invitations.find(new.token)


async def test_events_of_a_user_have_no_personal_data(services) -> None:
    async with services() as s:
        user = await s.user(name="Ann Person")
        await s.people.users.edit(ROOT, user.id, {"email": "new@example.com", "name": "Ann Other", "role": "viewer"})
        created, edited = reversed(await s.events(object=f"user:{user.id}"))
        assert (created.action, created.after) == ("users.create", {"role": "none", "personal": ["email", "name"]})
        assert (edited.before, edited.after) == (
            {"role": "none", "proved": "mail"},
            {"role": "viewer", "proved": "no", "personal": ["email", "name"]},
        )


async def test_changes_of_people_outlive_a_power_failure(services, database, monkeypatch: pytest.MonkeyPatch) -> None:
    if database.address.file is None:
        pytest.skip("PostgreSQL is told nothing")
    levels: list[int] = []

    def watched(connection: Connection, *rest: Any, **sides: Any) -> None:
        levels.append(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())

    async with services() as s:
        with monkeypatch.context() as patch:
            patch.setattr("gateway.people.users.record", watched)
            await s.user()
        with database.writing() as connection:
            levels.append(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())
        assert levels == [2, 1]  # FULL, NORMAL


async def test_unknown_user_is_not_found(services) -> None:
    async with services() as s:
        with pytest.raises(NotFound):
            await s.people.users.find(ROOT, "nobody@example.com")
        with pytest.raises(NotFound):
            await s.people.users.disable(ROOT, "usr_none")


async def test_operators_cannot_disable_or_erase_themselves(services) -> None:
    async with services() as s:
        await s.user("bob@example.com", role="operator")
        own = (await s.user(role="operator")).actor("")
        assert isinstance(own, Actor)
        for attempt in (s.people.users.disable(own, own.id), s.people.personal_data.erase(own, own.id)):
            with pytest.raises(Forbidden):
                await attempt
