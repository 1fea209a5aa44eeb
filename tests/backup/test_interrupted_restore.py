"""A restore that stops half-way: the data are wholly the old ones or wholly the new ones, and it can be repeated."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.backup.files import note_of
from gateway.backup.manifest import STORE
from gateway.config.loader import load
from gateway.store import EmbeddedServer, Store
from gateway.store.configured import configured_address
from tests.cli.conftest import Terminal, on_store, terminal
from tests.full_disk import full_disk
from tests.processes.test_store_user import PASSWORD, documented_user

__all__ = ["terminal"]

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
OLD, NEW = ("6", 2), ("5", 1)  # balance and users: after the backup there was a credit and another user

Deployment = tuple[Terminal, Path]  # and its backup


def kinds(*kinds: str) -> pytest.MarkDecorator:
    """The kinds of store and database whose deployments a test interrupts.

    Two kinds that share nothing stand for all four. PostgreSQL counts only from the moment when its tables are written.
    """
    return pytest.mark.parametrize("deployment", kinds, indirect=True)


@pytest.fixture
def deployment(request: pytest.FixtureRequest, terminal: Terminal, tmp_path: Path) -> Deployment:
    """A deployment with a backup, and later changes."""
    store, database = request.param.split("-")
    text = terminal.config.read_text()
    if store == "embedded":
        text = "\n".join(line for line in text.splitlines() if not line.startswith("url ="))
    if database == "postgresql":
        text += f'\n[database]\nurl = "{request.getfixturevalue("postgres_database")()}"\n'
    terminal.config.write_text(text)
    folder = tmp_path / "backup"
    terminal.ok("accounts", "create", "acme", "--balance", "5")
    for _ in range(5):
        terminal.ok("keys", "create", "acme")
    terminal.ok("users", "create", "ada@example.com", "--operator")
    terminal.ok("backup", str(folder), "--with-pepper")
    terminal.ok("accounts", "credit", "acme", "1")
    terminal.ok("users", "create", "bob@example.com", "--operator")
    (tmp_path / "var" / "journal").mkdir(exist_ok=True)
    assert state(terminal) == OLD
    return terminal, folder


def state(terminal: Terminal) -> tuple[str, int]:
    return terminal.json("accounts", "show", "acme")["balance"], len(terminal.json("users", "list"))


def started(deployment: Deployment, point: str, after: int, action: str, **environment: str) -> subprocess.Popen[str]:
    """A restore that something happens to."""
    terminal, folder = deployment
    command = [sys.executable, "-m", "tests.backup.interrupted", point, str(after), action]
    return subprocess.Popen(
        [*command, "restore", str(folder), "--force"],
        cwd=ROOT,
        env=os.environ | terminal.environment | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupted(
    deployment: Deployment, point: str, after: int, action: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A restore that does not come to its end."""
    process = started(deployment, point, after, action, **environment)
    output, errors = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def staged_keys(terminal: Terminal) -> list[bytes]:
    """What a restore has left in an external store."""
    address, found = configured_address(load(terminal.config)), list[bytes]()

    async def scan(store: Store) -> None:
        found.extend([name async for name in store.client.scan_iter(match="restore:*")])

    if address is not None:
        on_store(address, scan)
    return found


def leaves_the_old_data(deployment: Deployment, ended: subprocess.CompletedProcess[str]) -> None:
    terminal, _ = deployment
    assert ended.returncode == 1, ended.stderr
    assert "nothing was replaced, the data are as before" in ended.stderr
    assert "Traceback" not in ended.stderr
    data_dir = terminal.config.parent / "var"
    assert not (data_dir / "restoring").exists()
    assert not (data_dir / "restore.json").exists()
    assert staged_keys(terminal) == []
    terminal.ok("audit")
    assert state(terminal) == OLD
    restores_again(deployment)


def restores_again(deployment: Deployment) -> None:
    terminal, folder = deployment
    restored = terminal.json("restore", str(folder), "--force")
    assert restored["audit"]["mismatches"] == []
    assert state(terminal) == NEW
    assert staged_keys(terminal) == []
    terminal.ok("audit")


@pytest.mark.holds("operations/backup.md#backup-and-restore-6")
@pytest.mark.parametrize(
    ("deployment", "name"),
    [
        ("embedded-sqlite", "SIGTERM"),
        ("embedded-sqlite", "SIGINT"),
        ("external-sqlite", "SIGHUP"),
    ],
    indirect=["deployment"],
)
def test_signal_while_the_store_is_filled_leaves_the_old_data(deployment: Deployment, name: str) -> None:
    ended = interrupted(deployment, "record", 3, name)
    assert f"stopped by {name}" in ended.stderr
    leaves_the_old_data(deployment, ended)


@pytest.mark.holds("operations/backup.md#backup-and-restore-6")
@kinds("external-sqlite")
def test_full_disk_while_the_store_is_filled_leaves_the_old_data(deployment: Deployment) -> None:
    ended = interrupted(deployment, "record", 3, "full")
    assert "No space left on device" in ended.stderr
    leaves_the_old_data(deployment, ended)


@pytest.mark.holds("operations/backup.md#backup-and-restore-6")
@pytest.mark.parametrize("where", ["deployment", "gateway.db", "journal", "store"])
@kinds("embedded-sqlite")
def test_full_disk_under_the_new_data_leaves_the_old_ones(deployment: Deployment, where: str) -> None:
    terminal, folder = deployment
    place = terminal.config.parent / "var" / "restoring" / where
    (folder / "journal").mkdir(exist_ok=True)
    (folder / "journal" / "refused.jsonl").write_text("{}\n")
    with full_disk() as disk, disk.full():
        ended = interrupted(deployment, "record", 0, "full", **disk.environment(place))
    shutil.rmtree(folder / "journal")
    assert "No space left on device" in ended.stderr or "free space" in ended.stderr
    leaves_the_old_data(deployment, ended)


@pytest.mark.holds("operations/backup.md#backup-and-restore-7")
@kinds("embedded-sqlite", "external-sqlite")
def test_killed_restore_leaves_the_old_data_and_the_next_command_removes_its_parts(deployment: Deployment) -> None:
    terminal, _ = deployment
    assert interrupted(deployment, "record", 3, "SIGKILL").returncode == -9
    said = terminal.run("audit")
    assert said.exit_code == 0, said.stderr
    assert "removed what an interrupted restore had left" in said.stderr
    assert staged_keys(terminal) == []
    assert state(terminal) == OLD
    restores_again(deployment)


@pytest.mark.holds("operations/backup.md#backup-and-restore-6")
@kinds("embedded-sqlite")  # the archive is read before the present data are looked at
def test_archive_with_a_damaged_end_leaves_the_old_data(deployment: Deployment) -> None:
    """Its hash is right: it was damaged before the manifest was written."""
    terminal, folder = deployment
    records, manifest = folder / STORE, json.loads((folder / "manifest.json").read_text())
    whole = records.read_bytes()
    records.write_bytes(whole[: len(whole) // 2])
    note = note_of(records)
    manifest["files"][STORE] = {"size": note.size, "sha256": note.sha256}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert "is damaged" in terminal.refused("restore", str(folder), "--force")
    terminal.ok("audit")
    assert state(terminal) == OLD


@pytest.mark.holds("operations/backup.md#backup-and-restore-7")
@pytest.mark.parametrize(
    ("deployment", "after"),
    [
        ("embedded-sqlite", 1),
        ("embedded-sqlite", 2),
        ("embedded-sqlite", 4),
        ("embedded-sqlite", 6),
        ("embedded-sqlite", 8),
        ("external-postgresql", 4),
    ],
    indirect=["deployment"],
)
def test_killed_while_files_are_moved_is_finished_by_the_next_command(deployment: Deployment, after: int) -> None:
    terminal, _ = deployment
    assert interrupted(deployment, "moving", after, "SIGKILL").returncode == -9
    said = terminal.run("audit")
    assert (said.exit_code, "finished a restore that was interrupted" in said.stderr) == (0, True), said.stderr
    assert state(terminal) == NEW
    restores_again(deployment)


@pytest.mark.holds("operations/backup.md#backup-and-restore-7")
@kinds("embedded-sqlite", "external-postgresql")
def test_killed_when_the_restore_is_decided_is_finished_by_the_next_command(deployment: Deployment) -> None:
    terminal, _ = deployment
    assert interrupted(deployment, "decided", 1, "SIGKILL").returncode == -9
    terminal.ok("audit")
    assert state(terminal) == NEW
    restores_again(deployment)


@pytest.mark.holds("operations/backup.md#backup-and-restore-7")
@kinds("embedded-sqlite", "external-postgresql")
def test_signal_when_the_restore_is_decided_does_not_stop_it(deployment: Deployment) -> None:
    terminal, _ = deployment
    ended = interrupted(deployment, "decided", 1, "SIGTERM")
    assert ended.returncode == 0, ended.stderr
    assert state(terminal) == NEW
    terminal.ok("audit")


@pytest.mark.holds("operations/backup.md#backup-and-restore-6")
@pytest.mark.parametrize(
    ("deployment", "action"),
    [
        ("external-postgresql", "SIGTERM"),
        ("embedded-postgresql", "full"),
        ("external-postgresql", "SIGKILL"),
    ],
    indirect=["deployment"],
)
def test_interrupted_while_tables_of_postgresql_are_written_leaves_the_old_data(
    deployment: Deployment, action: str
) -> None:
    terminal, _ = deployment
    ended = interrupted(deployment, "table", 5, action)
    if action != "SIGKILL":
        leaves_the_old_data(deployment, ended)
        return
    assert ended.returncode == -9
    terminal.ok("audit")
    assert state(terminal) == OLD
    restores_again(deployment)


@pytest.mark.holds("operations/backup.md#backup-and-restore-7")
@pytest.mark.parametrize(
    ("deployment", "point", "after"),
    [
        ("external-sqlite", "placing", 1),
        ("external-sqlite", "placing", 9),
        ("external-sqlite", "placing", 15),
        ("external-postgresql", "placed", 2),
    ],
    indirect=["deployment"],
)
def test_killed_while_keys_get_their_names_is_finished_by_the_next_command(
    deployment: Deployment, point: str, after: int
) -> None:
    terminal, _ = deployment
    assert interrupted(deployment, point, after, "SIGKILL").returncode == -9
    terminal.ok("audit")
    assert state(terminal) == NEW
    restores_again(deployment)


@pytest.mark.holds("operations/backup.md#backup-and-restore-6")
@kinds("embedded-sqlite")
def test_killed_server_of_the_new_store_leaves_the_old_data(deployment: Deployment) -> None:
    terminal, _ = deployment
    pid = terminal.config.parent / "var" / "restoring" / "store" / "server.pid"
    ended = interrupted(deployment, "record", 3, "store", VICTIM=str(pid))
    assert "the server of the new store ended" in ended.stderr
    leaves_the_old_data(deployment, ended)


@pytest.mark.holds("operations/backup.md#backup-and-restore-6")
@kinds("external-sqlite")
def test_killed_external_store_has_its_old_data_when_it_is_back(deployment: Deployment, tmp_path: Path) -> None:
    terminal, folder = deployment
    server = EmbeddedServer(tmp_path / "own")
    server.start_blocking()
    try:
        text = terminal.config.read_text()
        line = next(line for line in text.splitlines() if line.startswith("url ="))
        terminal.config.write_text(text.replace(line, f'url = "unix://{server.socket}"'))
        terminal.ok("restore", str(folder), "--force")
        terminal.ok("accounts", "credit", "acme", "1")
        terminal.ok("users", "create", "bob@example.com", "--operator")
        ended = interrupted(deployment, "record", 3, "store", VICTIM=str(server.pid))
        assert "nothing was replaced" in ended.stderr
        server.stop_blocking()
        server.start_blocking()
        terminal.ok("audit")
        assert state(terminal) == OLD
        restores_again(deployment)
    finally:
        server.stop_blocking()


@pytest.mark.holds("operations/backup.md#backup-and-restore-7")
@kinds("embedded-sqlite")  # the lock is of the data directory, and is looked at before anything is opened
def test_other_commands_refuse_while_a_restore_runs(deployment: Deployment) -> None:
    terminal, folder = deployment
    process = started(deployment, "record", 3, "SIGSTOP")
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        for words in (["audit"], ["accounts", "list"], ["restore", str(folder), "--force"], ["check"]):
            assert "a restore is running" in terminal.refused(*words)
    finally:
        process.send_signal(signal.SIGCONT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert state(terminal) == NEW


@pytest.mark.holds("operations/backup.md#backup-and-restore-6", "operations/redis.md#the-stores-user-1")
@pytest.mark.parametrize("may_rename", [True, False])
@kinds("external-sqlite")
def test_documented_user_may_restore_and_one_without_rename_is_refused_before_a_change(
    deployment: Deployment, tmp_path: Path, may_rename: bool
) -> None:
    terminal, folder = deployment
    rules = [word for word in documented_user() if may_rename or word != "+rename"]
    server = EmbeddedServer(tmp_path / "own")
    server.start_blocking()
    try:
        on_store(server.socket, lambda store: store.client.execute_command(*rules))
        line = next(line for line in terminal.config.read_text().splitlines() if line.startswith("url ="))
        url = f'url = "unix://gateway:{PASSWORD}@{server.socket}"'
        terminal.config.write_text(terminal.config.read_text().replace(line, url))
        if may_rename:
            restores_again(deployment)
        else:
            refusal = terminal.refused("restore", str(folder), "--force")
            assert "rename" in refusal
            assert "nothing was replaced" in refusal
            assert staged_keys(terminal) == []
    finally:
        server.stop_blocking()
