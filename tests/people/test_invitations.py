"""Owners and operators invite people; an invitation works once. Owners decide about their account only."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa

from gateway.admin.actor import Actor
from gateway.admin.user_rows import User
from gateway.database.people_tables import invitations
from gateway.errors import Forbidden, InvalidLink, InvalidValue, NotFound
from gateway.people import invitations as service
from gateway.people.invitations import LIFETIME
from tests.admin.services import PASSWORD, ROOT, token


async def test_owner_invites_a_new_person_who_sets_a_password(services) -> None:
    async with services() as s:
        owner = await s.owner()
        new = await s.people.invitations.to_account(owner, "Bob@Example.com", "acme", "member")
        assert new.url == f"https://gw.test/invitation?token={new.token}"
        assert (await s.people.invitations.find(new.token)).account == "acme"
        user = await s.people.invitations.accept(new.token, name="Bob", password=PASSWORD)
        assert (user.email, user.name, user.role, user.accounts) == (
            "bob@example.com",
            "Bob",
            "none",
            {"acme": "member"},
        )
        await s.signed_in("bob@example.com")
        assert await s.people.invitations.list(owner, "acme") == []
        assert await s.actions(account="acme") == [
            "members.set", "invitations.create", "members.set", "invitations.accept",
        ]  # fmt: skip


async def test_invitation_works_once_also_at_the_same_time(services) -> None:
    async with services() as s:
        new = await s.people.invitations.to_account(ROOT, "bob@example.com", "acme", "member")
        attempts = (s.people.invitations.accept(new.token, password=PASSWORD) for _ in range(4))
        ended = await asyncio.gather(*attempts, return_exceptions=True)
        assert sum(isinstance(one, User) for one in ended) == 1
        assert sum(isinstance(one, InvalidLink) for one in ended) == 3


async def test_invitation_that_fails_can_be_used_again(services) -> None:
    async with services() as s:
        new = await s.people.invitations.to_account(ROOT, "bob@example.com", "acme", "member")
        with pytest.raises(InvalidValue):
            await s.people.invitations.accept(new.token, password="short")
        assert (await s.people.invitations.accept(new.token, password=PASSWORD)).accounts == {"acme": "member"}


async def test_invitation_of_a_user_changes_neither_password_nor_name_nor_a_higher_role(services) -> None:
    async with services() as s:
        user = await s.user("bob@example.com", password=PASSWORD, name="Bob", role="operator")
        await s.people.memberships.set(ROOT, user.id, "acme", "owner")
        for new in (
            await s.people.invitations.to_account(ROOT, "bob@example.com", "acme", "member"),
            await s.people.invitations.to_account(ROOT, "bob@example.com", "other", "member"),
            await s.people.invitations.to_site(ROOT, "bob@example.com", "viewer"),
        ):
            await s.people.invitations.accept(
                new.token, name="Eve", password="a password of somebody", signed_in=user.actor(""), is_confirmed=True
            )
        found = await s.people.users.show(ROOT, user.id)
        assert (found.name, found.role, found.accounts) == ("Bob", "operator", {"acme": "owner", "other": "member"})
        await s.signed_in("bob@example.com", PASSWORD)


async def test_invitation_expires_and_is_replaced_and_withdrawn(services) -> None:
    async with services() as s:
        owner = await s.owner()
        first = await s.people.invitations.to_account(owner, "bob@example.com", "acme", "member")
        second = await s.people.invitations.to_account(owner, "bob@example.com", "acme", "owner")
        third = await s.people.invitations.to_account(owner, "eve@example.com", "acme", "owner")
        await s.people.invitations.withdraw(owner, third.invitation.id)
        with s.database.writing() as connection:
            connection.execute(invitations.update().values(expires_at=invitations.c.expires_at - LIFETIME))
        for new in (first, second, third):
            with pytest.raises(InvalidLink):
                await s.people.invitations.accept(new.token, password=PASSWORD)
        assert await s.people.invitations.list(owner, "acme") == []


async def test_old_invitations_are_forgotten(services) -> None:
    async with services() as s:
        await s.people.invitations.to_account(ROOT, "bob@example.com", "acme", "member")
        with s.database.writing() as connection:
            connection.execute(invitations.update().values(expires_at=1))
        await s.people.invitations.to_account(ROOT, "eve@example.com", "other", "member")
        with s.database.reading() as connection:
            assert connection.scalars(sa.select(invitations.c.email)).all() == ["eve@example.com"]


async def test_owner_decides_about_the_own_account_only(services) -> None:
    async with services() as s:
        owner, stranger = await s.owner(), await s.user("eve@example.com")
        theirs = await s.people.invitations.to_account(ROOT, "bob@example.com", "other", "member")
        for attempt in (
            s.people.invitations.to_account(owner, "bob@example.com", "other", "member"),
            s.people.invitations.to_site(owner, "bob@example.com", "none"),
            s.people.invitations.list(owner, "other"),
            s.people.invitations.list(owner),
            s.people.memberships.set(owner, stranger.id, "other", "member"),
            s.people.memberships.list(owner, "other"),
            s.people.users.find(owner, "eve@example.com"),
            s.people.users.list(owner),
        ):
            with pytest.raises(Forbidden):
                await attempt
        with pytest.raises(NotFound):
            await s.people.invitations.withdraw(owner, theirs.invitation.id)


async def test_owner_changes_members_but_does_not_add_users_without_invitation(services) -> None:
    async with services() as s:
        owner, stranger = await s.owner(), await s.user("eve@example.com")
        for user_id in (stranger.id, "usr_none"):
            with pytest.raises(NotFound):
                await s.people.memberships.set(owner, user_id, "acme", "owner")
        await s.people.memberships.set(ROOT, stranger.id, "acme", "member")
        assert (await s.people.memberships.set(owner, stranger.id, "acme", "owner")).accounts == {"acme": "owner"}
        assert [user.email for user in await s.people.memberships.list(owner, "acme")] == [
            "eve@example.com", "owner@example.com",
        ]  # fmt: skip
        assert (await s.people.memberships.remove(owner, stranger.id, "acme")).accounts == {}
        with pytest.raises(NotFound):
            await s.people.memberships.remove(owner, stranger.id, "acme")


async def test_member_may_leave_but_not_decide(services) -> None:
    async with services() as s:
        owner = await s.owner()
        user = await s.user("bob@example.com")
        member = (await s.people.memberships.set(ROOT, user.id, "acme", "member")).actor("")
        for attempt in (
            s.people.memberships.set(member, user.id, "acme", "owner"),
            s.people.memberships.remove(member, owner.id, "acme"),
            s.people.memberships.list(member, "acme"),
            s.people.invitations.to_account(member, "eve@example.com", "acme", "member"),
        ):
            with pytest.raises(Forbidden):
                await attempt
        assert (await s.people.memberships.remove(member, user.id, "acme")).accounts == {}


@pytest.mark.holds("security.md#e-mail-addresses-and-invitations-6")
async def test_owner_who_is_removed_takes_open_invitations_along(services) -> None:
    async with services() as s:
        owner = await s.owner()
        new = await s.people.invitations.to_account(owner, "eve@example.com", "acme", "owner")
        await s.people.memberships.remove(ROOT, owner.id, "acme")
        with pytest.raises(InvalidLink):
            await s.people.invitations.accept(new.token, password=PASSWORD)


@pytest.mark.holds("people.md#who-is-who-8", "security.md#e-mail-addresses-and-invitations-6")
async def test_changed_role_in_an_account_ends_the_open_invitations_that_the_person_made_there(services) -> None:
    async with services() as s:
        owner = await s.owner()
        await s.people.memberships.set(ROOT, owner.id, "other", "owner")
        owner = (await s.people.users.show(ROOT, owner.id)).actor("")
        here = await s.people.invitations.to_account(owner, "eve@example.com", "acme", "owner")
        elsewhere = await s.people.invitations.to_account(owner, "eve@example.com", "other", "owner")
        of_others = await s.people.invitations.to_account(ROOT, "bob@example.com", "acme", "member")
        await s.people.memberships.set(ROOT, owner.id, "acme", "owner")  # no change
        assert (await s.people.invitations.find(here.token)).account == "acme"
        await s.people.memberships.set(ROOT, owner.id, "acme", "member")
        with pytest.raises(InvalidLink):
            await s.people.invitations.accept(here.token, password=PASSWORD)
        assert [one.id for one in await s.people.invitations.list(ROOT, "acme")] == [of_others.invitation.id]
        assert (await s.people.invitations.find(elsewhere.token)).account == "other"


@pytest.mark.holds("people.md#who-is-who-8", "security.md#e-mail-addresses-and-invitations-6")
async def test_person_whose_rights_end_while_they_invite_makes_no_invitation(services) -> None:
    """The rights of a request are read when it begins; a demotion meanwhile ended only the invitations of before."""
    async with services() as s:
        owner, operator = await s.owner(), (await s.user("op@example.com", role="operator")).actor("")
        await s.user("root@example.com", role="operator")
        await s.people.memberships.set(ROOT, owner.id, "acme", "member")
        await s.people.users.edit(ROOT, operator.id, {"role": "none"})
        gone = await s.owner("gone@example.com")
        await s.people.personal_data.erase(ROOT, gone.id)
        for attempt in (
            s.people.invitations.to_account(owner, "eve@example.com", "acme", "owner"),
            s.people.invitations.to_account(operator, "eve@example.com", "acme", "owner"),
            s.people.invitations.to_account(gone, "eve@example.com", "acme", "owner"),
            s.people.invitations.to_site(operator, "eve@example.com", "operator"),
            s.people.invitations.to_site(operator, "eve@example.com", "none"),
        ):
            with pytest.raises(Forbidden):
                await attempt


async def test_unknown_account_and_role_are_refused(services) -> None:
    async with services() as s:
        user = await s.user()
        for account in ("nobody", "no name!"):
            with pytest.raises(NotFound):
                await s.people.memberships.set(ROOT, user.id, account, "owner")
            with pytest.raises(NotFound):
                await s.people.invitations.to_account(ROOT, "bob@example.com", account, "owner")
        with pytest.raises(InvalidValue):
            await s.people.memberships.set(ROOT, user.id, "acme", "king")
        assert (await s.people.users.show(ROOT, user.id)).accounts == {}


async def test_operator_is_made_by_invitation_of_an_operator_only(services) -> None:
    async with services() as s:
        new = await s.people.invitations.to_site(ROOT, "bob@example.com", "operator")
        user = await s.people.invitations.accept(new.token, password=PASSWORD)
        assert user.role == "operator"
        assert isinstance(user.actor(""), Actor) and user.actor("").is_operator


async def test_open_invitations_of_an_account_are_bounded(services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.people.invitations.MOST_OPEN", 3)
    async with services() as s:
        for n in range(3):
            await s.people.invitations.to_account(ROOT, f"u{n}@example.com", "acme", "member")
        with pytest.raises(InvalidValue, match="open invitations"):
            await s.people.invitations.to_account(ROOT, "u9@example.com", "acme", "member")
        await s.people.invitations.to_account(ROOT, "u9@example.com", "other", "member")


@pytest.mark.holds("people.md#who-is-who-8")
async def test_invitation_with_a_role_on_the_site_is_ended_by_operators_only(services) -> None:
    async with services() as s:
        new = await s.people.invitations.to_site(ROOT, "eve@example.com", "operator")
        await s.people.invitations.to_site(token("users"), "eve@example.com", "none")
        with pytest.raises(Forbidden):
            await s.people.invitations.withdraw(token("users"), new.invitation.id)
        assert (await s.people.invitations.find(new.token)).site_role == "operator"
        newer = await s.people.invitations.to_site(ROOT, "eve@example.com", "operator")
        with pytest.raises(InvalidLink):
            await s.people.invitations.find(new.token)
        await s.people.invitations.withdraw(ROOT, newer.invitation.id)


@pytest.mark.holds("people.md#who-is-who-8")
async def test_maker_with_many_open_invitations_leaves_room_to_others(
    services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_OPEN", 3)
    async with services() as s:
        invite, owner = s.people.invitations.to_site, await s.owner()
        for number in range(3):
            await invite(token("users"), f"x{number}@example.com", "none")
            may = token("read", "keys", "users")
            await s.people.invitations.to_account(may, f"x{number}@example.com", "acme", "member")
        with pytest.raises(InvalidValue, match="You have 3 open invitations there"):
            await invite(token("users"), "x3@example.com", "none")
        await invite(token("users"), "x2@example.com", "none")  # in place of the one of this address
        await invite(ROOT, "boss@example.com", "operator")
        await s.people.invitations.to_account(owner, "bob@example.com", "acme", "member")
        assert len(await s.people.invitations.list(ROOT)) == 4


@pytest.mark.holds("people.md#who-is-who-8")
async def test_all_makers_together_have_a_number_of_open_invitations_and_operators_some_more(
    services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_OF_ALL", 2)
    async with services() as s:
        invite = s.people.invitations.to_site
        for number in range(2):
            await invite(token("users"), f"x{number}@example.com", "none")
        with pytest.raises(InvalidValue, match="There are 2 open invitations already"):
            await invite(Actor(kind="token", id="tok_other", scopes=frozenset({"users"})), "y@example.com", "none")
        await invite(ROOT, "boss@example.com", "operator")
        newest, *_ = await s.people.invitations.list(ROOT)
        assert newest.email == "boss@example.com"
