"""The audit names the fields of accounts and keys that cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.services.ledger_audit import audit_ledger


@pytest.mark.holds("operations/audit.md#audit-17")
@pytest.mark.parametrize("account", [None, "acme"])
async def test_audit_names_the_fields_of_accounts_and_keys_that_cannot_be_read(api: Any, account: str | None) -> None:
    async with api() as a:
        store, client = a.services.store, a.services.store.store.client
        keys = [await store.keys.create("acme", rpm=5) for _ in range(3)]
        await store.keys.revoke(keys[2].id)
        await client.hset("{a:acme}", mapping={"rpm": "many", "mcap": "x"})
        await client.hset(f"{{a:acme}}:k:{keys[0].id}", mapping={"exp": "later", "every": "fortnight"})
        await client.hset(f"{{a:acme}}:k:{keys[2].id}", "max", "x")
        report = await audit_ledger(store, account, warn=print)
        found = {one.rule: (one.account, one.found) for one in report.mismatches}
        assert found == {
            "fields": ("acme", "unreadable: rpm, mcap"),
            f"fields {keys[0].id}": ("acme", "unreadable: every, exp"),
            f"fields {keys[2].id}": ("acme", "unreadable: max"),
        }
        assert not report.clean


@pytest.mark.parametrize("account", [None, "acme"])
async def test_fields_of_an_account_are_read_if_its_keys_cannot_be(api: Any, account: str | None) -> None:
    async with api() as a:
        store, client = a.services.store, a.services.store.store.client
        await client.hset("{a:acme}", "rpm", "many")
        await client.set("{a:acme}:ks", "a text")
        report = await audit_ledger(store, account, warn=print)
        found = {one.rule: one.found for one in report.mismatches}
        assert found["fields"] == "unreadable: rpm"
        assert "unreadable" in found
