"""A backup of an account with more keys than commands may be in flight."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.backup.many_keys import make_keys
from tests.cli.conftest import Terminal, terminal

__all__ = ["terminal"]

KEYS = 10_000


@pytest.mark.holds("operations/backup.md#backup-and-restore-8")
@pytest.mark.slow
def test_backup_of_an_account_with_10_000_keys_is_restored_over_it(
    terminal: Terminal, valkey: Path, tmp_path: Path
) -> None:
    terminal.ok("accounts", "create", "acme", "--balance", "5")
    make_keys(valkey, "acme", KEYS)
    assert terminal.json("backup", str(tmp_path / "backup"))["keys"] == KEYS
    revoked = terminal.json("keys", "list", "acme")[7]["id"]
    terminal.ok("keys", "revoke", revoked)
    started = time.monotonic()
    restored = terminal.json("restore", str(tmp_path / "backup"), "--force")
    print(f"restored in {time.monotonic() - started:.1f} s")
    assert [one["id"] for one in restored["undone"]["revived"]] == [revoked]
    assert (restored["keys"], restored["audit"]["mismatches"]) == (KEYS, [])
    assert len(terminal.json("keys", "list")) == KEYS
    terminal.ok("audit")
