"""Who loses the rights with which they made links and invitations leaves none of them open."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.admin.actor import EVERYTHING, SCOPES
from gateway.database.people_tables import admin_tokens
from gateway.errors import Forbidden, InvalidLink, NotSignedIn
from tests.admin.services import HOME, PASSWORD, ROOT, token


async def ended_by(s: Any, how: str, user_id: str) -> None:
    people = s.people
    match how:
        case "demoted":
            await people.users.edit(ROOT, user_id, {"role": "none"})
        case "disabled":
            await people.users.disable(ROOT, user_id)
        case "erased":
            await people.personal_data.erase(ROOT, user_id)


@pytest.mark.holds("people.md#who-is-who-8", "security.md#scopes-of-admin-tokens-6")
@pytest.mark.parametrize("how", ["demoted", "disabled", "erased"])
async def test_links_that_an_operator_made_end_with_the_rights_of_the_operator(services: Any, how: str) -> None:
    async with services() as s:
        await s.user("root@example.com", role="operator", password=PASSWORD)
        victim = await s.user("olga@example.com", role="operator")
        rob = (await s.user("rob@example.com", role="operator")).actor("")
        link = await s.people.sign_in_links.create(rob, victim.id)
        mine = await s.people.sign_in_links.create(ROOT, (await s.user("max@example.com")).id)
        await ended_by(s, how, rob.id)
        with pytest.raises(InvalidLink):
            await s.people.sign_in.with_link(link.token, HOME)
        await s.people.sign_in.with_link(mine.token, HOME)


@pytest.mark.holds("people.md#who-is-who-8")
@pytest.mark.parametrize("by", ["operator", "itself", "take over"])
async def test_links_and_invitations_that_a_token_made_end_with_it(services: Any, by: str) -> None:
    async with services() as s:
        people, maker = s.people, await s.user("boss@example.com", role="operator", is_proved=False, password=PASSWORD)
        made = await people.tokens.create(maker.actor(""), "t", SCOPES)
        other = await people.tokens.create(ROOT, "u", SCOPES)
        actor, stays = await people.tokens.authenticate(made.text), await people.tokens.authenticate(other.text)
        invited = await people.invitations.to_account(actor, "eve@evil.test", "acme", "owner")
        to_site = await people.invitations.to_site(actor, "eve@evil.test", "operator")
        kept = await people.invitations.to_account(stays, "kim@example.com", "acme", "member")
        link = await people.sign_in_links.create(actor, (await s.user("max@example.com")).id)
        if by == "take over":
            await people.sign_in.reset_password(
                (await people.sign_in_links.create(ROOT, maker.id)).token, "a password of the boss", HOME
            )
        else:
            await people.tokens.revoke(ROOT if by == "operator" else actor, made.record.id)
        for new in (invited, to_site):
            with pytest.raises(InvalidLink):
                await people.invitations.accept(new.token, password=PASSWORD)
        with pytest.raises(InvalidLink):
            await people.sign_in.with_link(link.token, HOME)
        await people.invitations.accept(kept.token, password=PASSWORD)


@pytest.mark.holds("people.md#who-is-who-8")
async def test_token_that_ends_while_it_invites_or_makes_a_link_makes_none(services: Any) -> None:
    """The rights of a request are read when it begins."""
    async with services() as s:
        made = await s.people.tokens.create(ROOT, "t", SCOPES)
        actor, user = await s.people.tokens.authenticate(made.text), await s.user("max@example.com")
        await s.people.tokens.revoke(ROOT, made.record.id)
        for attempt in (
            s.people.invitations.to_account(actor, "eve@evil.test", "acme", "owner"),
            s.people.invitations.to_site(actor, "eve@evil.test", "operator"),
            s.people.sign_in_links.create(actor, user.id),
        ):
            with pytest.raises(NotSignedIn):
                await attempt


@pytest.mark.holds("security.md#scopes-of-admin-tokens-6")
async def test_link_is_not_made_for_a_user_who_got_more_than_the_token_may_since_it_asked(services: Any) -> None:
    """The service decides in its transaction; the route has read the user before."""
    async with services() as s:
        user = await s.user("max@example.com")
        await s.people.memberships.set(ROOT, user.id, "acme", "owner")
        with pytest.raises(Forbidden):
            await s.people.sign_in_links.create(token("users"), user.id)
        assert await s.people.sign_in_links.create(token(*EVERYTHING), user.id)


@pytest.mark.holds("people.md#proved-addresses-9")
async def test_link_of_a_token_ends_when_the_holder_answers_a_message(services: Any) -> None:
    async with services() as s:
        user = await s.user("boss@example.com", is_proved=False)
        link = await s.people.sign_in_links.create(token("users"), user.id)
        await s.people.messages.request_reset("boss@example.com")
        await s.people.messages.finish()
        sent = s.mail.sent[-1][2].partition("token=")[2].split()[0]
        await s.people.sign_in.reset_password(sent, PASSWORD, HOME)
        assert (await s.people.users.edit(ROOT, user.id, {"role": "operator"})).proved == "mail"
        with pytest.raises(InvalidLink):
            await s.people.sign_in.with_link(link.token, HOME)


async def valid(s: Any, *texts: str) -> list[bool]:
    """Which of these tokens still act."""
    found = list[bool]()
    for text in texts:
        try:
            await s.people.tokens.authenticate(text)
            found.append(True)
        except NotSignedIn:
            found.append(False)
    return found


@pytest.mark.holds("people.md#who-is-who-8", "people.md#admin-tokens-1", "security.md#scopes-of-admin-tokens-7")
@pytest.mark.parametrize("how", ["demoted", "viewer", "disabled", "erased"])
async def test_tokens_that_an_operator_made_end_with_the_rights_of_the_operator(services: Any, how: str) -> None:
    """The maker has seen their texts. What these tokens made ends, too."""
    async with services() as s:
        tokens = s.people.tokens
        await s.user("root@example.com", role="operator", password=PASSWORD)
        rob = (await s.user("rob@example.com", role="operator")).actor("")
        made, small = await tokens.create(rob, "t", SCOPES), await tokens.create(rob, "s", ["read"], account="acme")
        revoked, kept = await tokens.create(rob, "r", ["read"]), await tokens.create(ROOT, "k", SCOPES)
        await tokens.revoke(ROOT, revoked.record.id)
        child = await tokens.create(await tokens.authenticate(made.text), "child", SCOPES)
        grandchild = await tokens.create(await tokens.authenticate(child.text), "grandchild", SCOPES)
        of_child = await s.people.invitations.to_site(
            await tokens.authenticate(grandchild.text), "eve@evil.test", "operator"
        )
        texts = [new.text for new in (made, small, child, grandchild, kept)]
        ends = {new.record.id for new in (made, small, child, grandchild)}
        assert await valid(s, *texts) == [True] * 5
        assert {token.id for token in await tokens.ending_with(ROOT, rob.id)} == ends
        if how == "viewer":
            await s.people.users.edit(ROOT, rob.id, {"role": "viewer"})
        else:
            await ended_by(s, how, rob.id)
        assert await valid(s, *texts) == [False] * 4 + [True]
        assert await tokens.ending_with(ROOT, rob.id) == []
        with pytest.raises(InvalidLink):
            await s.people.invitations.find(of_child.token)
        events = [event for event in await s.events() if event.action == "tokens.revoke"]
        assert {event.object for event in events} == {f"token:{id_}" for id_ in (*ends, revoked.record.id)}
        assert {(event.actor_kind, event.actor_id) for event in events} == {("cli", "root")}
        assert [event.account for event in events if event.object == f"token:{small.record.id}"] == ["acme"]


async def test_tokens_of_an_operator_stay_with_another_name_or_address(services: Any) -> None:
    async with services() as s:
        rob = await s.user("rob@example.com", role="operator")
        made = await s.people.tokens.create(rob.actor(""), "t", ["read"])
        await s.people.users.edit(ROOT, rob.id, {"name": "Rob", "email": "r@example.com", "role": "operator"})
        assert await valid(s, made.text) == [True]


@pytest.mark.holds("people.md#admin-tokens-1", "security.md#scopes-of-admin-tokens-7")
@pytest.mark.parametrize("by", ["operator", "itself"])
async def test_tokens_that_a_token_made_end_with_it(services: Any, by: str) -> None:
    async with services() as s:
        tokens = s.people.tokens
        made = await tokens.create(ROOT, "t", SCOPES)
        actor = await tokens.authenticate(made.text)
        child = await tokens.create(actor, "child", SCOPES)
        grandchild = await tokens.create(await tokens.authenticate(child.text), "grandchild", ["read"])
        await tokens.revoke(ROOT if by == "operator" else actor, made.record.id)
        assert await valid(s, made.text, child.text, grandchild.text) == [False] * 3


@pytest.mark.holds("people.md#admin-tokens-1", "security.md#scopes-of-admin-tokens-7")
async def test_what_a_token_makes_expires_no_later_than_the_token(services: Any) -> None:
    async with services() as s:
        people, soon = s.people, datetime.now(UTC) + timedelta(hours=1)
        made = await people.tokens.create(ROOT, "t", SCOPES, expires=soon)
        actor, user = await people.tokens.authenticate(made.text), await s.user("max@example.com")
        later = await people.tokens.create(actor, "later", ["read"], expires=soon + timedelta(days=1))
        forever = await people.tokens.create(actor, "forever", ["read"])
        sooner = await people.tokens.create(actor, "sooner", ["read"], expires=soon - timedelta(minutes=1))
        assert [new.record.expires for new in (later, forever, sooner)] == [soon, soon, soon - timedelta(minutes=1)]
        for new in (
            await people.invitations.to_account(actor, "eve@evil.test", "acme", "owner"),
            await people.invitations.to_site(actor, "eve@evil.test", "operator"),
        ):
            assert new.invitation.expires == soon
        assert (await people.sign_in_links.create(actor, user.id)).expires == soon
        lasting = await people.tokens.authenticate((await people.tokens.create(ROOT, "u", SCOPES)).text)
        week = (await people.invitations.to_account(lasting, "kim@example.com", "acme", "member")).invitation
        assert week.expires - week.created == timedelta(days=7)


@pytest.mark.holds("people.md#admin-tokens-1")
async def test_token_that_expires_while_its_request_runs_changes_nothing(services: Any) -> None:
    async with services() as s:
        made = await s.people.tokens.create(ROOT, "t", SCOPES, expires=datetime.now(UTC) + timedelta(hours=1))
        actor, user = await s.people.tokens.authenticate(made.text), await s.user("max@example.com")
        with s.database.writing() as connection:
            connection.execute(admin_tokens.update().values(expires_at=1))
        for attempt in (
            s.people.sign_in_links.create(actor, user.id),
            s.people.tokens.create(actor, "child", SCOPES),
            s.people.invitations.to_site(actor, "eve@evil.test", "operator"),
        ):
            with pytest.raises(NotSignedIn):
                await attempt
