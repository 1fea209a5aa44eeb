"""Keys of an account with many are read in pages while it is at rest, and all at one moment while it is used."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.backup import account_pages
from gateway.backup.account_export import Export, export
from gateway.backup.records import Part
from tests.ledger.records import settle, void

ENOUGH = 1_000


def parts_of(exported: Export | None) -> dict[str, Any]:
    """The values of each key of the account."""
    assert exported is not None
    found: dict[str, Any] = {}
    for part in exported.parts:
        found.setdefault(part.key, set()).update(pairs_of(part))
    return found


def pairs_of(part: Part) -> set[Any]:
    return set(part.values) if part.kind == "set" else set(zip(part.values[::2], part.values[1::2], strict=True))


async def filled(w: Any) -> Any:
    """An account with seven keys, some of which belong to a member, and a key that has spent."""
    key = await w.caller("acme", user="usr_1", monthly=10**12)
    for number in range(6):
        await w.caller("acme", user=f"usr_{number // 3}")
    await settle(w.ledger, await w.admit(key), 7)
    return key


async def exported(w: Any, monkeypatch: pytest.MonkeyPatch, together: int) -> dict[str, Any]:
    monkeypatch.setattr(account_pages, "KEYS_TOGETHER", together)
    return parts_of(await export(w.store, "acme"))


@pytest.mark.holds("operations/backup.md#backup-and-restore-10")
async def test_pages_are_what_one_script_reads(world, monkeypatch) -> None:
    async with world() as w:
        key = await filled(w)
        await void(w.ledger, await w.admit(key))  # a call that has begun and ended without a line
        found = await exported(w, monkeypatch, 3)
        assert found == await exported(w, monkeypatch, ENOUGH)
        assert dict(found[f"{{a:acme}}:k:{key.id}"])[b"spent"] == b"7"
        assert dict(found["{a:acme}:u:usr_1"])[b"spent"] == b"7"


@pytest.mark.holds("operations/backup.md#backup-and-restore-10")
@pytest.mark.parametrize("ends", [True, False])
async def test_call_while_pages_are_read_is_in_the_account_and_in_its_key(world, monkeypatch, ends: bool) -> None:
    async with world() as w:
        key = await filled(w)
        read, calls = account_pages._hashes, 0

        async def called(*args: Any) -> Any:
            nonlocal calls
            found = await read(*args)
            calls += 1
            if calls == 1:
                hold = await w.admit(key)
                if ends:
                    await settle(w.ledger, hold, 5)
            return found

        monkeypatch.setattr(account_pages, "_hashes", called)
        found = await exported(w, monkeypatch, 3)
        assert found == await exported(w, monkeypatch, ENOUGH)
        spent = dict(found[f"{{a:acme}}:k:{key.id}"])
        assert spent[b"spent"] == (b"12" if ends else b"7")


async def test_hold_that_began_and_ended_without_a_line_is_in_no_page(world, monkeypatch) -> None:
    async with world() as w:
        await filled(w)
        read = account_pages._hashes

        async def called(*args: Any) -> Any:
            await w.store.client.hincrby("{a:acme}:u:usr_1", "held", 5)
            found = await read(*args)
            await w.store.client.hincrby("{a:acme}:u:usr_1", "held", -5)
            return found

        monkeypatch.setattr(account_pages, "_hashes", called)
        found = await exported(w, monkeypatch, 3)
        assert dict(found["{a:acme}:u:usr_1"])[b"held"] == b"0"
        assert found == await exported(w, monkeypatch, ENOUGH)
