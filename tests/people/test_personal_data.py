"""A person gets all that is stored about them, and is erased so that nothing leads to them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gateway.admin.actor import Actor
from gateway.database.people_tables import identities, sign_ups
from gateway.errors import Forbidden, InvalidLink, NotFound
from gateway.history.caller_addresses import add_addresses
from gateway.ledger.caller_addresses import AddressBatch
from tests.admin.services import HOME, PASSWORD, ROOT, Services
from tests.history.made_lines import Account


async def busy_person(s: Services) -> Actor:
    """A user with something in every table, as one who acts from an address."""
    await s.user("boss@example.com", role="operator")
    user = await s.user("ann@example.com", password=PASSWORD, name="Ann Person")
    await s.people.memberships.set(ROOT, user.id, "acme", "owner")
    session = await s.signed_in()
    actor = (await s.people.sessions.authenticate(session.token, address=HOME.address)).actor
    await s.people.users.edit(actor, user.id, {"name": "Ann Newname"})
    await s.people.sign_in_links.create(ROOT, user.id)
    await s.people.invitations.to_account(ROOT, "ann@example.com", "other", "member")
    await s.people.invitations.to_account(actor, "bob@example.com", "acme", "member")
    with s.database.writing() as connection:
        row = {"issuer": "https://id.test", "subject": "subject-of-ann", "user_id": user.id, "created_at": 1}
        connection.execute(identities.insert().values(row))
    return actor


@pytest.mark.holds("security.md#the-console-6")
async def test_export_has_everything_but_secrets(services) -> None:
    async with services() as s:
        actor = await busy_person(s)
        document = await s.people.personal_data.export(actor, actor.id)
        assert document["user"]["email"] == "ann@example.com"
        assert document["user"]["password_set"]
        assert document["identities"][0]["subject"] == "subject-of-ann"
        assert [row["account"] for row in document["memberships"]] == ["acme"]
        assert {row["purpose"] for row in document["links"]} == {"sign_in"}
        assert document["sessions"][0]["address"] == HOME.address
        assert [row["account"] for row in document["invitations"]] == ["other"]
        assert {"users.create", "users.password", "sessions.start", "users.edit"} <= {
            event["action"] for event in document["audit_events"]
        }
        assert "argon2" not in repr(document)
        assert (await s.actions())[-1] == "users.export"


@pytest.mark.holds("people.md#export-and-erasure-1", "security.md#the-console-6")
async def test_own_export_has_the_invitations_of_the_address_only_if_it_is_proved(services) -> None:
    """Somebody else may be signed in. Operators export what is stored."""
    async with services() as s:
        await s.user("ann@example.com", password=PASSWORD, is_proved=False)
        await s.people.invitations.to_account(ROOT, "ann@example.com", "acme", "owner")
        await s.people.invitations.to_site(ROOT, "ann@example.com", "operator")
        actor = (await s.people.sessions.authenticate((await s.signed_in()).token)).actor
        assert (await s.people.personal_data.export(actor, actor.id))["invitations"] == []
        assert len((await s.people.personal_data.export(ROOT, actor.id))["invitations"]) == 2
        await s.people.users.prove(ROOT, actor.id)
        document = await s.people.personal_data.export(actor, actor.id)
        assert [one["site_role"] for one in document["invitations"]] == ["", "operator"]


@pytest.mark.holds("people.md#export-and-erasure-1", "security.md#the-console-6")
async def test_export_has_the_addresses_of_the_person_and_none_of_those_who_changed_the_user(services) -> None:
    async with services() as s:
        actor = await busy_person(s)
        boss = (await s.people.users.find(ROOT, "boss@example.com")).actor("203.0.113.77")
        await s.people.users.disable(boss, actor.id)
        document = await s.people.personal_data.export(ROOT, actor.id)
        events = {event["action"]: event for event in document["audit_events"]}
        assert events["users.disable"]["actor"] == f"user:{boss.id}"
        assert boss.address not in repr(document) and events["users.edit"]["address"] == HOME.address


async def test_export_of_a_person_who_is_erased_meanwhile_gives_nothing_and_leaves_no_event(
    services, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with services() as s:
        actor = await busy_person(s)

        async def erased_meanwhile(*_: Any) -> list[Any]:
            monkeypatch.undo()
            await s.people.personal_data.erase(ROOT, actor.id)
            return []

        monkeypatch.setattr(s.people.member_keys, "list", erased_meanwhile)
        with pytest.raises(Forbidden):
            await s.people.personal_data.export(actor, actor.id)
        assert (await s.actions())[-1] == "users.erase"


@pytest.mark.holds("people.md#export-and-erasure-2")
async def test_erased_person_leaves_nothing_but_an_id(services) -> None:
    async with services() as s:
        actor = await busy_person(s)
        await s.people.personal_data.erase(ROOT, actor.id)
        found = s.text()
        for trace in ("ann@example.com", "Ann", HOME.address, HOME.user_agent, "subject-of-ann", "argon2", "bob@"):
            assert trace not in found.replace(PASSWORD, ""), trace
        assert actor.id in found
        events = await s.events(actor=actor.id)
        assert events and all(event.address == "" for event in events)
        with pytest.raises(NotFound):
            await s.people.users.show(ROOT, actor.id)
        assert (await s.user("ann@example.com")).id != actor.id


@pytest.mark.holds("operations/history.md#addresses-of-callers-2")
async def test_addresses_of_the_keys_of_a_person_are_exported_and_erased(services) -> None:
    async with services() as s:
        actor = await busy_person(s)
        account = Account(s.database)
        for user, key in ((actor.id, "key_ann"), ("usr_other", "key_other")):
            request = account.call("2026-11-01T10:00", 5, user=user, key=key)
            batch = AddressBatch(time.time_ns() // 1000, [(key, f"192.0.2.{len(key)}", [request])])
            add_addresses(s.database, [batch])
        account.flush()
        document = await s.people.personal_data.export(actor, actor.id)
        assert [(one["key"], one["address"]) for one in document["addresses"]] == [("key_ann", "192.0.2.7")]
        await s.people.personal_data.erase(ROOT, actor.id)
        assert "192.0.2.7" not in s.text() and "192.0.2.9" in s.text()


@pytest.mark.holds("security.md#the-console-6")
async def test_only_the_person_and_operators_get_the_export(services) -> None:
    async with services() as s:
        user, other = await s.user(), await s.user("bob@example.com")
        with pytest.raises(Forbidden):
            await s.people.personal_data.export(other.actor(""), user.id)
        with pytest.raises(Forbidden):
            await s.people.personal_data.erase(other.actor(""), user.id)


@pytest.mark.holds("people.md#export-and-erasure-2", "security.md#the-console-6")
async def test_erasure_leaves_no_invitation_of_an_address_that_the_person_had_before(services) -> None:
    """Those that were used. An open one may be for whoever has the address now."""
    async with services() as s:
        new = await s.people.invitations.to_account(ROOT, "old@example.com", "acme", "member")
        user = await s.people.invitations.accept(new.token, name="Ann", password=PASSWORD)
        await s.people.users.edit(ROOT, user.id, {"email": "new@example.com"})
        assert "old@example.com" not in s.text()
        open_ = await s.people.invitations.to_account(ROOT, "old@example.com", "other", "member")
        await s.people.users.edit(ROOT, user.id, {"email": "newest@example.com"})
        await s.people.personal_data.erase(ROOT, user.id)
        assert (await s.people.invitations.find(open_.token)).account == "other"


@pytest.mark.holds("people.md#export-and-erasure-2", "security.md#the-console-6")
async def test_erasure_leaves_no_open_invitation_or_sign_up_of_an_address_of_before(services) -> None:
    """Until then, the invitation stays: who made it does not learn who is a user."""
    async with services() as s:
        user = await s.user("old@example.com", password=PASSWORD)
        open_ = await s.people.invitations.to_account(ROOT, "old@example.com", "acme", "member")
        row = {"token_hash": b"0" * 32, "email": "old@example.com", "created_at": 1, "expires_at": 2**60}
        with s.database.writing() as connection:
            connection.execute(sign_ups.insert().values(row))
        await s.people.users.edit(ROOT, user.id, {"email": "new@example.com"})
        await s.people.users.edit(ROOT, user.id, {"email": "newest@example.com"})
        assert (await s.people.invitations.find(open_.token)).account == "acme"
        await s.people.personal_data.erase(ROOT, user.id)
        assert "old@example.com" not in s.text()
        with pytest.raises(InvalidLink):
            await s.people.invitations.find(open_.token)
