"""A restore that keeps the database keeps the journals, too, and adds those of the backup."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.loader import load
from gateway.store.identity import known_deployment
from tests.cli.conftest import Terminal, terminal
from tests.cli.test_backup import deployment
from tests.cli.test_history_commands import acme

__all__ = ["acme", "deployment", "terminal"]


@pytest.mark.holds("operations/backup.md#backup-and-restore-5")
def test_journals_of_the_backup_are_added_to_those_that_stay(deployment: Terminal, tmp_path: Path) -> None:
    data_dir = load(deployment.config).data_dir
    journal = data_dir / "journal"
    journal.mkdir(exist_ok=True)
    for name in ("1-a.jsonl", "1-a.lock", "2-b.jsonl", "2-b.lock"):
        (journal / name).touch()
    folder = str(tmp_path / "backup")
    known_deployment(data_dir).write(deployment.json("backup", folder)["deployment"])
    (journal / "1-a.jsonl").unlink()  # its lock stays
    (journal / "2-b.jsonl").write_text("\n")
    (journal / "3-c.jsonl").touch()
    restored = deployment.json("restore", folder, "--force", "--keep-database")
    assert (restored["journals"], restored["replaced"]) == (1, "")
    names = sorted(path.name for path in journal.glob("*.*") if path.name[1] == "-")
    assert names == ["1-a.jsonl", "1-a.lock", "2-b.jsonl", "2-b.lock", "3-c.jsonl"]
    assert (journal / "2-b.jsonl").read_text() == "\n"
