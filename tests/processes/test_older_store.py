"""A gateway that starts over an older store: what was closed since is closed before the first call."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from typing import Any

import pytest

from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import MODELS, Served, children, is_alive
from tests.processes.test_importer import rows, url

__all__ = ["url"]

WITHIN = 120.0  # seconds: the importer has the lowest priority, and other tests use the processor first
MOVED = "SELECT id, object FROM audit_events WHERE action = 'keys.revoke' AND actor_kind = 'cli'"


async def stopped(gateway: Served) -> None:
    """End it, and keep what it stored."""
    assert gateway.process is not None
    pids = [gateway.process.pid, *children(gateway.process.pid)]
    gateway.process.send_signal(signal.SIGTERM)
    await gateway.ended()
    await until(lambda: not any(map(is_alive, pids)))


async def older(yard: Yard, url: str, *, by_copy: bool) -> tuple[Served, str]:
    """A stopped gateway whose store is as it was before a key was revoked; the id of the key."""
    gateway = await yard.serve(f'{MODELS}\n[database]\nurl = "{url}"\n')
    [key] = await gateway.command("keys", "list")
    await gateway.command("accounts", "credit", "test", "1")  # the first event of the trail
    assert (await gateway.chat()).status == 200
    await until(lambda: (gateway.data_dir / "audit-mark").exists(), within=WITHIN)
    backup = str(gateway.folder / "backup")
    if by_copy:
        await stopped(gateway)
        shutil.copytree(gateway.data_dir / "store", backup, ignore=shutil.ignore_patterns("*.sock", "*.lock"))
        await gateway.started()
    else:
        await gateway.command("backup", backup)
    await gateway.command("keys", "revoke", key["id"])

    async def moved() -> list[Any]:
        return rows(gateway, MOVED, url=url)

    found = await until(moved, within=WITHIN)
    assert [one for _, one in found] == [f"key:{key['id']}"]
    mark = gateway.data_dir / "audit-mark"
    await until(lambda: mark.read_text().strip() == found[0][0], within=WITHIN)
    await stopped(gateway)
    if by_copy:
        shutil.rmtree(gateway.data_dir / "store")
        shutil.copytree(backup, gateway.data_dir / "store")
    else:
        await gateway.command("restore", backup, "--force", "--keep-database")
    return gateway, key["id"]


@pytest.mark.holds("operations/backup.md#older-store-7")
async def test_revoked_key_gets_401_from_the_first_call_on(yard: Yard, url: str) -> None:
    await refuses_revoked_key(*await older(yard, url, by_copy=False))


@pytest.mark.holds("operations/backup.md#older-store-7")
async def test_revoked_key_gets_401_when_the_files_of_the_store_were_put_back(yard: Yard) -> None:
    await refuses_revoked_key(*await older(yard, "", by_copy=True))


async def refuses_revoked_key(gateway: Served, key: str) -> None:
    """It starts, and refuses the key from its first answer on."""
    gateway.launch()
    answered: list[int] = []

    async def ready() -> bool:
        return await gateway.readiness() == 200

    await until(ready, within=WITHIN)
    for _ in range(3):
        answered.append((await gateway.chat()).status)
    assert answered == [401, 401, 401]
    [shown] = await gateway.command("keys", "list")
    assert (shown["id"], shown["state"]) == (key, "revoked")
    assert "the store is older than the audit trail" in gateway.text
    assert "1 keys and accounts were closed again" in gateway.text


@pytest.mark.holds("operations/backup.md#older-store-7")
async def test_older_store_serves_no_call_while_the_database_is_away(yard: Yard) -> None:
    if sys.version_info >= (3, 12):
        pytest.skip("one interpreter is enough")
    gateway, _ = await older(yard, "", by_copy=False)
    database = gateway.data_dir / "gateway.db"
    kept = database.read_bytes()
    for end in ("", "-wal", "-shm"):
        (gateway.data_dir / f"gateway.db{end}").unlink(missing_ok=True)
    database.write_bytes(b"this is no database" * 100)
    gateway.launch()
    await until(lambda: "no call is admitted before" in gateway.text, within=WITHIN)
    await until(lambda: "audit events wait in the store" in gateway.text, within=WITHIN)
    assert await gateway.readiness() != 200
    database.write_bytes(kept)
    os.utime(database)

    async def ready() -> bool:
        return await gateway.readiness() == 200

    await until(ready, within=WITHIN)
    assert (await gateway.chat()).status == 401
