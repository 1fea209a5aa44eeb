"""Events of refunds, limits and changed keys in the audit trail, and who may make these changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gateway.admin.account_limits import AccountLimits
from gateway.admin.actor import Actor, command_line
from gateway.admin.money import MoneyAdmin
from gateway.admin.outbox import AuditOutbox
from gateway.admin.refunds import Refunds
from gateway.errors import Forbidden
from tests.ledger.records import settle
from tests.world import OpenWorld, World

ROOT = command_line("root")
READER = Actor(kind="token", id="tok_1", scopes=frozenset({"read", "accounts"}))


def money_of(w: World) -> MoneyAdmin:
    return MoneyAdmin(w.accounts, Refunds(w.ledger), AccountLimits(w.store, w.accounts), AuditOutbox(w.store))


async def events(w: World) -> list[tuple[str, str, Any, Any]]:
    found = [event for _, event in await AuditOutbox(w.store).read() if event is not None]
    return [(event.action, event.object, event.before, event.after) for event in found]


async def test_refund_has_one_event_also_if_it_is_repeated(world: OpenWorld) -> None:
    async with world() as w:
        hold = await w.admit(await w.caller())
        await settle(w.ledger, hold, 500)
        for _ in range(2):
            await money_of(w).refund(ROOT, "acme", hold.request_id, 200, operation="op-1", note="slow")
        ((action, object_, _, after),) = await events(w)
        assert (action, object_) == ("accounts.refund", "account:acme")
        assert "0.0000002" in str(after)
        assert "op-1" in str(after)


async def test_limits_have_an_event_with_both_sides(world: OpenWorld) -> None:
    async with world() as w:
        await w.caller()
        await money_of(w).limit(ROOT, "acme", rpm=7)
        ((action, _, before, after),) = await events(w)
        assert action == "accounts.limit"
        assert ("7" in str(before), "7" in str(after)) == (False, True)


async def test_edit_and_rotation_of_a_key_have_events(world: OpenWorld) -> None:
    async with world() as w:
        key = await w.caller()
        await w.key_service.edit(ROOT, await w.keys.show(key.id), rpm=5)
        rotated = await w.key_service.rotate(ROOT, await w.keys.show(key.id), overlap=timedelta(hours=1))
        edit, rotation = await events(w)
        assert edit[:2] == ("keys.edit", f"key:{key.id}")
        assert rotation[:2] == ("keys.rotate", f"key:{key.id}")
        assert rotated.new.id in str(rotation[3])
        assert rotated.new.text not in str(await events(w))


async def test_program_without_the_scope_changes_nothing(world: OpenWorld) -> None:
    async with world() as w:
        key = await w.caller()
        before = await w.accounts.show("acme")
        with pytest.raises(Forbidden):
            await money_of(w).limit(READER, "acme", floor=-5)
        with pytest.raises(Forbidden):
            await money_of(w).refund(READER, "acme", "req_1")
        with pytest.raises(Forbidden):
            await w.key_service.edit(READER, await w.keys.show(key.id), rpm=5)
        with pytest.raises(Forbidden):
            await w.key_service.rotate(READER, await w.keys.show(key.id), overlap=timedelta())
        assert await w.accounts.show("acme") == before
        assert await events(w) == []
