"""A person gets all that is stored about them, and is erased so that nothing leads to them."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.actor import Actor
from gateway.database.people_tables import identities
from gateway.errors import Forbidden, NotFound
from tests.admin.services import HOME, PASSWORD, ROOT, Services


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
        with pytest.raises(NotFound):
            await s.people.personal_data.export(actor, actor.id)
        assert (await s.actions())[-1] == "users.erase"


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


async def test_only_the_person_and_operators_get_the_export(services) -> None:
    async with services() as s:
        user, other = await s.user(), await s.user("bob@example.com")
        with pytest.raises(Forbidden):
            await s.people.personal_data.export(other.actor(""), user.id)
        with pytest.raises(Forbidden):
            await s.people.personal_data.erase(other.actor(""), user.id)
