"""An address that nobody has proved gives no rights: what others set up for it ends when its holder comes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.admin.actor import EVERYTHING, Actor
from gateway.admin.user_rows import User
from gateway.database.people_tables import admin_tokens, users
from gateway.errors import (
    AddressNotProved,
    Forbidden,
    InvalidLink,
    InvalidValue,
    NotFound,
    NotSignedIn,
    SignInFailed,
    SignInToAccept,
)
from gateway.imports.users import UserImport
from gateway.people.identities import insert_identity
from gateway.people.invitations import NewInvitation
from gateway.people.sessions import NewSession
from tests.admin.services import HOME, PASSWORD, ROOT, Services, token

BOSS = "boss@example.com"
NEW = "a password of the boss"
SMALL = "other"  # the account of the attacker


async def invite(
    s: Services, actor: Actor = ROOT, *, account: str = "", email: str = BOSS, **rest: Any
) -> NewInvitation:
    """An invitation as an operator of the site, or as an owner of an account."""
    if account:
        return await s.people.invitations.to_account(actor, email, account, rest.get("role", "owner"))
    return await s.people.invitations.to_site(actor, email, rest.get("role", "operator"))


class Attacker:
    """An owner of a small account, who opens the link of an invitation to it and sets all up that a user can."""

    def __init__(self, s: Services, user: User, session: NewSession, key: str, admin_token: str) -> None:
        self.s = s
        self.user = user
        self.session = session
        self.key = key
        self.token = admin_token

    @classmethod
    async def of(cls, s: Services, new: NewInvitation) -> Attacker:
        user = await s.people.invitations.accept(new.token, name="Boss", password=PASSWORD)
        session = await s.signed_in(BOSS)
        await s.people.transactions.write(insert_identity, user.actor(""), user.id, "https://idp.test", "attacker")
        key = await s.people.member_keys.create(ROOT, SMALL, user.id, name="planted")
        admin_token = await s.people.tokens.create(ROOT, "planted", ["read"])
        await s.people.transactions.write(_set_maker, admin_token.record.id, user.actor("").name)
        await s.people.transactions.write(_set_second_factor, user.id)
        return cls(s, await s.people.users.show(ROOT, user.id), session, key.id, admin_token.text)

    async def ways_in(self) -> list[str]:
        """By what the attacker is still the user."""
        s, found = self.s, list[str]()
        for name, way in (
            ("password", s.people.sign_in.with_password(BOSS, PASSWORD, HOME)),
            ("session", s.people.sessions.authenticate(self.session.token)),
            ("token", s.people.tokens.authenticate(self.token)),
        ):
            try:
                await way
                found.append(name)
            except (SignInFailed, NotSignedIn):
                continue
        found += ["identity"] * len(await s.people.identities.list(ROOT, self.user.id))
        if (await s.people.users.show(ROOT, self.user.id)).has_second_factor:
            found.append("second factor")
        record = await s.people.keys.find(self.key)
        if record is not None and record.state == "active":
            found.append("key")
        return found


def _set_maker(connection: Any, token_id: str, maker: str) -> None:
    connection.execute(admin_tokens.update().where(admin_tokens.c.id == token_id).values(created_by=maker))


def _set_second_factor(connection: Any, user_id: str) -> None:
    connection.execute(users.update().where(users.c.id == user_id).values(totp_secret="sealed", totp_step=1))


ALL = ["password", "session", "token", "identity", "second factor", "key"]


@pytest.mark.holds("people.md#proved-addresses-3", "security.md#e-mail-addresses-and-invitations-2")
@pytest.mark.parametrize("account", ["", "acme"], ids=["site", "account"])
@pytest.mark.parametrize("operator_first", [False, True])
async def test_holder_of_an_operators_invitation_ends_all_that_somebody_else_set_up_for_the_address(
    services, account: str, operator_first: bool
) -> None:
    async with services() as s:
        owner = await s.owner(account=SMALL)
        if operator_first:
            theirs = await invite(s, account=account)
        attacker = await Attacker.of(s, await invite(s, owner, account=SMALL))
        assert await attacker.ways_in() == ALL and attacker.user.proved == "no"
        if not operator_first:
            theirs = await invite(s, account=account)
        with pytest.raises(InvalidValue):  # a press of the button alone gives nothing
            await s.people.invitations.accept(theirs.token)
        assert await attacker.ways_in() == ALL
        boss = await s.people.invitations.accept(theirs.token, name="The boss", password=NEW)
        assert (boss.id, boss.name, boss.role) == (attacker.user.id, "The boss", "none" if account else "operator")
        assert boss.accounts.get("acme") == ("owner" if account else None)
        assert await attacker.ways_in() == [] and boss.proved == "no"
        await s.signed_in(BOSS, NEW)
        [event] = [e for e in await s.events(object=f"user:{boss.id}") if e.action == "users.take_over"]
        assert event.before | {"tokens": 1} == {
            "password": True,
            "sessions": 1,
            "identities": ["https://idp.test"],
            "second_factor": True,
            "tokens": 1,
        }


@pytest.mark.holds("people.md#proved-addresses-4")
async def test_invitation_of_somebody_weaker_does_not_lead_into_a_user_who_has_more(services) -> None:
    """The other order: the person is an operator, or an owner elsewhere, and the attacker invites them afterwards."""
    async with services() as s:
        owner = await s.owner(account=SMALL)
        await s.user("boss@example.com", role="operator", is_proved=False)
        await s.user("ann@example.com", password=PASSWORD, is_proved=False)
        await s.user("root@example.com", role="operator")
        ann = await s.people.users.find(ROOT, "ann@example.com")
        await s.people.users.prove(ROOT, ann.id)
        await s.people.memberships.set(ROOT, ann.id, "acme", "owner")
        await s.people.users.edit(ROOT, ann.id, {"email": "anne@example.com"})  # is not proved any more
        makers: list[tuple[Actor, str]] = [(owner, "owner")]
        for scopes, account, role in (
            (("read", "keys", "users"), None, "member"),
            (("read", "accounts", "keys", "users"), SMALL, "owner"),
        ):
            made = await s.people.tokens.create(ROOT, "t", scopes, account=account)
            makers.append((await s.people.tokens.authenticate(made.text), role))
        for email in (BOSS, "anne@example.com"):
            for actor, role in makers:
                new = await invite(s, actor, account=SMALL, email=email, role=role)
                with pytest.raises(SignInToAccept):
                    await s.people.invitations.accept(new.token, password=NEW)
        # The user accepts while signed in, and sets the password anew: somebody else may have done so before.
        accepted = await s.people.invitations.accept(
            new.token, password=NEW, signed_in=ann.actor(""), is_confirmed=True
        )
        assert accepted.accounts == {"acme": "owner", SMALL: "owner"}
        with pytest.raises(SignInFailed):
            await s.signed_in("anne@example.com")
        await s.signed_in("anne@example.com", NEW)


@pytest.mark.holds("people.md#proved-addresses-8", "security.md#e-mail-addresses-and-invitations-3")
async def test_proved_user_accepts_only_while_signed_in_and_nothing_else_changes(services) -> None:
    async with services() as s:
        user, other = await s.user(BOSS, password=PASSWORD, name="Boss"), await s.user("eve@example.com")
        session = await s.signed_in(BOSS)
        for new in (await invite(s, account="acme"), await invite(s, role="viewer")):
            assert await s.people.invitations.way_of(new.token) == "sign_in"
            for signed_in in (None, other.actor("")):
                with pytest.raises(SignInToAccept):
                    await s.people.invitations.accept(new.token, name="Eve", password=NEW, signed_in=signed_in)
            await s.people.invitations.accept(
                new.token, name="Eve", password=NEW, signed_in=user.actor(""), is_confirmed=True
            )
        found = await s.people.users.show(ROOT, user.id)
        assert (found.name, found.role, found.accounts, found.proved) == ("Boss", "viewer", {"acme": "owner"}, "mail")
        await s.people.sessions.authenticate(session.token)
        await s.signed_in(BOSS)


@pytest.mark.holds("people.md#proved-addresses-2", "security.md#e-mail-addresses-and-invitations-2")
async def test_no_role_is_added_by_the_address_alone_to_a_user_whom_somebody_has_entered(services) -> None:
    async with services() as s:
        owner = await s.owner(account=SMALL)
        new = await s.people.invitations.to_account(owner, BOSS, SMALL, "member")
        user = await s.people.invitations.accept(new.token, password=PASSWORD)
        imports = UserImport(
            s.people.users,
            s.people.memberships,
            s.people.directory,
            budgets=s.people.member_budgets,
            turn=asyncio.Lock(),
        )

        async def attempts(actor: Actor) -> list[Any]:
            lines = (b"email,role\nboss@example.com,viewer\n", b"email,account\nboss@example.com,acme\n")
            return [
                s.people.memberships.set(actor, user.id, "acme", "member"),
                s.people.memberships.set(actor, user.id, SMALL, "owner"),
                s.people.users.edit(actor, user.id, {"role": "viewer"}),
                *(imports.run(actor, "x.csv", line, dry_run=dry) for line in lines for dry in (True, False)),
            ]

        for attempt in await attempts(ROOT):
            with pytest.raises((AddressNotProved, InvalidValue), match="not proved"):
                await attempt
        with pytest.raises(AddressNotProved):
            await s.people.memberships.set(token("read", "keys", "users"), user.id, "acme", "member")
        with pytest.raises(AddressNotProved):
            await s.people.memberships.set(owner, user.id, SMALL, "owner")
        assert await s.people.users.show(ROOT, user.id) == user
        await s.people.users.prove(ROOT, user.id)
        for attempt in await attempts(ROOT):
            await attempt
        user = await s.people.users.show(ROOT, user.id)
        assert (user.role, user.accounts) == ("viewer", {"acme": "member", SMALL: "owner"})


@pytest.mark.holds("people.md#proved-addresses-2")
async def test_user_whom_nobody_has_entered_gets_roles_unless_a_link_of_others_is_open(services) -> None:
    async with services() as s:
        operator = (await s.user("root@example.com", role="operator")).actor("")
        for maker, is_open in ((ROOT, True), (operator, True), (token(*EVERYTHING), False), (token("users"), False)):
            user = await s.people.users.create(maker, f"{maker.kind}{len(maker.scopes)}@example.com")
            link = await s.people.sign_in_links.create(maker, user.id)
            if is_open:
                assert (await s.people.memberships.set(ROOT, user.id, "acme", "owner")).accounts == {"acme": "owner"}
                continue
            with pytest.raises(AddressNotProved):
                await s.people.memberships.set(ROOT, user.id, "acme", "owner")
            with pytest.raises(AddressNotProved):
                await s.people.users.edit(ROOT, user.id, {"role": "operator"})
            await s.people.sign_in_links.create(ROOT, user.id)  # it replaces the other
            await s.people.memberships.set(ROOT, user.id, "acme", "owner")
            with pytest.raises(InvalidLink):
                await s.people.sign_in.with_link(link.token, HOME)


@pytest.mark.holds("people.md#proved-addresses-5", "security.md#e-mail-addresses-and-invitations-2")
async def test_operators_link_for_a_user_who_is_not_proved_sets_the_password_anew_and_ends_all_else(services) -> None:
    async with services() as s:
        owner = await s.owner(account=SMALL)
        attacker = await Attacker.of(s, await invite(s, owner, account=SMALL))
        link = await s.people.sign_in_links.create(ROOT, attacker.user.id)
        assert not await s.people.sign_in.link_signs_in(link.token)
        assert await s.people.sign_in.link_takes_over(link.token)
        with pytest.raises(InvalidValue):
            await s.people.sign_in.with_link(link.token, HOME)
        assert isinstance(await s.people.sign_in.reset_password(link.token, NEW, HOME), NewSession)
        assert await attacker.ways_in() == []
        assert (await s.people.users.show(ROOT, attacker.user.id)).proved == "no"


async def test_first_link_of_a_user_signs_in_and_keeps_keys_that_an_operator_made(services) -> None:
    async with services() as s:
        user = await s.user(is_proved=False)
        await s.people.memberships.set(ROOT, user.id, "acme", "member")
        key = await s.people.member_keys.create(ROOT, "acme", user.id, name="made before")
        link = await s.people.sign_in_links.create(ROOT, user.id)
        assert await s.people.sign_in.link_signs_in(link.token)
        await s.people.sign_in.reset_password(link.token, PASSWORD, HOME)
        record = await s.people.keys.find(key.id)
        assert record is not None and record.state == "active"
        assert "users.take_over" not in await s.actions()


@pytest.mark.holds("people.md#proved-addresses-1")
async def test_answered_message_proves_the_address(services) -> None:
    async with services() as s:
        owner = await s.owner(account=SMALL)
        attacker = await Attacker.of(s, await invite(s, owner, account=SMALL))
        await s.people.messages.request_reset(BOSS)
        await s.people.messages.finish()
        reset = s.mail.sent.pop()[2].partition("token=")[2].split()[0]
        await s.people.sign_in.reset_password(reset, NEW, HOME)
        assert await attacker.ways_in() == []
        assert (await s.people.users.show(ROOT, attacker.user.id)).proved == "mail"
        assert [e.after for e in await s.events() if e.action == "users.prove"] == [{"proved": "mail"}]
        for problem, proved in (("", "mail"), ("away", "no")):
            s.mail.problem = problem
            email = f"{proved}@example.com"
            invited = await s.people.messages.invite_to_account(owner, email, SMALL, "member")
            assert invited.is_sent is (proved == "mail")
            user = await s.people.invitations.accept(invited.new.token, password=PASSWORD)
            assert user.proved == proved  # a message that fails leaves a link that the owner sees


@pytest.mark.holds("people.md#proved-addresses-4")
async def test_invitation_that_was_sent_leads_into_a_user_who_is_not_proved_whoever_invites(services) -> None:
    async with services() as s:
        owner, attacker_owner = await s.owner(account="acme"), await s.owner("mallory@example.com", SMALL)
        attacker = await Attacker.of(s, await invite(s, attacker_owner, account=SMALL))
        new = (await s.people.messages.invite_to_account(owner, BOSS, "acme", "owner")).new
        boss = await s.people.invitations.accept(new.token, password=NEW)
        assert (boss.accounts, boss.proved) == ({"acme": "owner", SMALL: "owner"}, "mail")
        assert await attacker.ways_in() == []


@pytest.mark.holds("people.md#proved-addresses-1", "security.md#e-mail-addresses-and-invitations-4")
async def test_only_operators_mark_users_as_proved_and_another_address_is_not(services) -> None:
    async with services() as s:
        owner, user = await s.owner(), await s.user(BOSS, is_proved=False)
        for actor in (owner, user.actor(""), token("users"), token(*EVERYTHING, account="acme")):
            with pytest.raises(Forbidden):
                await s.people.users.prove(actor, user.id)
        for _ in range(2):
            assert (await s.people.users.prove(ROOT, user.id)).proved == "operator"
        assert [user.email for user in await s.people.users.list(ROOT, proved=True)] == [BOSS, "owner@example.com"]
        changed = await s.people.users.edit(ROOT, user.id, {"email": "other@example.com"})
        assert changed.proved == "no"
        assert [user.email for user in await s.people.users.list(ROOT, proved=False)] == ["other@example.com"]
        assert await s.actions(object=f"user:{user.id}") == ["users.create", "users.prove", "users.edit"]


@pytest.mark.holds("people.md#who-is-who-7", "security.md#e-mail-addresses-and-invitations-8")
async def test_token_of_one_account_adds_nobody_without_an_invitation(services) -> None:
    bound = token("read", "keys", "accounts", "users", account="acme")
    async with services() as s:
        user = await s.user()
        for user_id in (user.id, "usr_none"):
            with pytest.raises(NotFound):
                await s.people.memberships.set(bound, user_id, "acme", "member")
        await s.people.memberships.set(ROOT, user.id, "acme", "member")
        assert (await s.people.memberships.set(bound, user.id, "acme", "owner")).accounts == {"acme": "owner"}
        with pytest.raises(Forbidden):
            await s.people.memberships.set(bound, user.id, "other", "member")


async def test_password_change_that_was_under_way_does_not_outlive_the_taking_over(services, hashes) -> None:
    async with services() as s:
        owner = await s.owner(account=SMALL)
        user = await s.people.invitations.accept((await invite(s, owner, account=SMALL)).token, password=PASSWORD)
        link, hash_ = await s.people.sign_in_links.create(ROOT, user.id), hashes.hash

        async def slow(password: str, address: str) -> str:
            hashes.hash = hash_
            await s.people.sign_in.reset_password(link.token, NEW, HOME)
            return await hash_(password, address)

        hashes.hash = slow
        with pytest.raises(SignInFailed):
            await s.people.sign_in.change_password(user.actor(""), PASSWORD, "the attacker's next", session_id="")
        await s.signed_in(BOSS, NEW)
