"""The audit trail is filtered and read by those who may."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway.admin.actor import EVERYTHING
from gateway.admin.audit_trail import AuditFilter
from gateway.errors import Forbidden
from tests.admin.services import ROOT, token


async def test_events_are_filtered_by_time_actor_object_and_account(services) -> None:
    async with services() as s:
        user = await s.user()
        bound = await s.people.tokens.create(ROOT, "ci", ["read"], account="acme")
        await s.people.memberships.set(
            user.actor("").__class__(kind="token", id="t", scopes=EVERYTHING), user.id, "acme", "owner"
        )
        assert await s.actions(object=f"user:{user.id}") == ["users.create", "members.set"]
        assert await s.actions(object="token") == ["tokens.create"]
        assert await s.actions(actor="token") == await s.actions(actor="t") == await s.actions(actor="token:t")
        assert await s.actions(actor="cli:root") == ["users.create", "tokens.create"]
        assert await s.actions(actor="user:t") == []
        assert await s.actions(account="acme") == ["tokens.create", "members.set"]
        assert await s.actions(since=datetime.now(UTC) + timedelta(minutes=1)) == []
        assert bound.record.id in (await s.events(object="token"))[0].object
        for event in await s.events():
            assert AuditFilter(object=event.object, actor=event.actor_kind).matches(event)
            assert not AuditFilter(object="key").matches(event)


async def test_events_are_read_in_pages(services) -> None:
    async with services() as s:
        for n in range(5):
            await s.user(f"u{n}@example.com")
        first = await s.people.audit_trail.list(ROOT, AuditFilter(), limit=3)
        rest = await s.people.audit_trail.list(ROOT, AuditFilter(before=first[-1].id), limit=3)
        ids = [event.id for event in (*first, *rest)]
        assert len(ids) == 5 and ids == sorted(ids, reverse=True)


async def test_actor_is_found_by_email(services) -> None:
    async with services() as s:
        user = await s.user()
        await s.people.users.edit(user.actor(""), user.id, {"name": "Ann"})
        wanted = await s.people.audit_trail.resolved(AuditFilter(actor="Ann@Example.com"))
        assert wanted.actor == user.id
        unknown = await s.people.audit_trail.resolved(AuditFilter(actor="nobody@example.com"))
        assert await s.people.audit_trail.list(ROOT, unknown) == []


async def test_owner_reads_the_events_of_the_account_and_no_others(services) -> None:
    async with services() as s:
        owner = await s.owner()
        assert [event.action for event in await s.people.audit_trail.list(owner, AuditFilter(account="acme"))] == [
            "members.set"
        ]
        for actor, wanted in (
            (owner, AuditFilter()),
            (owner, AuditFilter(account="other")),
            (token("users"), AuditFilter()),
            (token("read", account="acme"), AuditFilter()),
        ):
            with pytest.raises(Forbidden):
                await s.people.audit_trail.list(actor, wanted)
