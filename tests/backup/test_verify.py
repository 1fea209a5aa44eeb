"""`gateway backup --verify`: a backup is restored into a temporary place and compared."""

from __future__ import annotations

import gzip
import json
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from gateway.backup import stage
from gateway.backup.files import note_of
from gateway.backup.manifest import STORE
from gateway.backup.records import Part, RecordWriter, read_records
from gateway.config.loader import load
from gateway.database.address import address_of
from gateway.database.engine import Database
from gateway.store import Store
from tests.cli.conftest import Terminal, on_store, terminal
from tests.cli.test_backup import deployment, more_calls
from tests.cli.test_history_commands import acme

__all__ = ["acme", "deployment", "terminal"]


def content(valkey: Path) -> dict[bytes | str, bytes]:
    found = dict[bytes | str, bytes]()

    async def work(store: Store) -> None:
        for name in await store.client.keys():
            found[name] = await store.client.dump(name) or b""

    on_store(valkey, work)
    return found


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary folders are made; its path is short enough for a socket."""
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)


@pytest.mark.holds("operations/backup.md#backup-and-restore-9")
def test_backup_is_verified_when_it_is_made_and_later_and_the_deployment_is_not_touched(
    deployment: Terminal, valkey: Path, tmp_path: Path, temporary: Path
) -> None:
    more_calls(valkey, 50)
    folder = str(tmp_path / "backup")
    made = deployment.json("backup", folder, "--verify")
    assert (made["verified"], made["accounts"], made["lines"], made["history_lines"]) == (True, 1, 5, 10)
    before, files = content(valkey), sorted((tmp_path / "var").iterdir())
    verified = deployment.run("backup", folder, "--verify-only", "--json")
    assert verified.exit_code == 0, verified.output
    assert json.loads(verified.stdout) == made | {"begun": json.loads(verified.stdout)["begun"]}
    assert "everything is as in the backup; audited accounts: 1, mismatches: 0" in verified.stderr
    assert (content(valkey), sorted((tmp_path / "var").iterdir())) == (before, files)
    assert list(temporary.iterdir()) == []
    deployment.ok("audit")
    assert [user["email"] for user in deployment.json("users", "list")] == ["ada@example.com"]


def test_backup_without_verification_says_so(acme: Terminal, tmp_path: Path) -> None:
    assert acme.json("backup", str(tmp_path / "backup"))["verified"] is False
    refusal = acme.refused("backup", str(tmp_path / "backup"), "--verify-only", "--with-pepper", status=2)
    assert "--verify-only makes no backup" in refusal


def rewrite(folder: Path, change: Callable[[Part], Part]) -> None:
    """Change the records of a backup, and let the manifest fit."""
    parts = [change(part) for part in read_records(folder / STORE)]
    (folder / STORE).unlink()
    writer = RecordWriter(folder / STORE)
    for part in parts:
        writer.write(part)
    writer.close()
    sign(folder, STORE)


def sign(folder: Path, name: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = msgspec.to_builtins(note_of(folder / name))
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.holds("operations/backup.md#backup-and-restore-9")
def test_backup_whose_ledger_does_not_add_up_is_named(acme: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    acme.ok("backup", str(folder))

    def more_money(part: Part) -> Part:
        if part.key == "{a:acme}":
            fields = dict(zip(part.values[::2], part.values[1::2], strict=True))
            fields[b"bal"] = b"%d" % (int(fields[b"bal"]) + 1)
            part.values = [value for pair in fields.items() for value in pair]
        return part

    rewrite(folder, more_money)
    said = acme.run("backup", str(folder), "--verify-only")
    assert said.exit_code == 1
    assert "audit: acme:" in said.stderr


@pytest.mark.holds("operations/backup.md#backup-and-restore-9")
def test_restore_that_loses_an_element_is_noticed(
    acme: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "backup"
    acme.ok("backup", str(folder))

    def losing(path: Path) -> Iterator[Part]:
        for part in read_records(path):
            if part.key.startswith("{a:acme}:k:"):
                del part.values[-2:]
            yield part

    monkeypatch.setattr(stage, "read_records", losing)
    refusal = acme.refused("backup", str(folder), "--verify-only")
    assert "not restored as they are in the backup: 1: {a:acme}:k:" in refusal


@pytest.mark.holds("operations/backup.md#backup-and-restore-9")
def test_damaged_file_of_a_backup_is_named(deployment: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    deployment.ok("backup", str(folder))
    records = gzip.decompress((folder / STORE).read_bytes())
    (folder / STORE).write_bytes(gzip.compress(records[:-1]))
    assert "was changed" in deployment.refused("backup", str(folder), "--verify-only")
    sign(folder, STORE)
    assert "is damaged" in deployment.refused("backup", str(folder), "--verify-only")


@pytest.mark.holds("operations/backup.md#backup-and-restore-9")
def test_damaged_database_of_a_backup_is_named(deployment: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    deployment.ok("backup", str(folder))
    if (folder / "gateway.db").exists():
        whole = (folder / "gateway.db").read_bytes()
        half = len(whole) // 8192 * 4096
        (folder / "gateway.db").write_bytes(whole[:half] + b"\xff" * 4096 + whole[half + 4096 :])
        sign(folder, "gateway.db")
        assert deployment.refused("backup", str(folder), "--verify-only")
        return
    name = "database/ledger_lines.jsonl"
    (folder / name).write_text("".join((folder / name).read_text().splitlines(keepends=True)[:-1]))
    sign(folder, name)
    assert "9 rows instead of 10" in deployment.refused("backup", str(folder), "--verify-only")
    deployment.ok("audit")


@pytest.mark.holds("operations/backup.md#backup-and-restore-9")
def test_pepper_that_is_not_the_one_of_the_keys_is_named(terminal: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    terminal.ok("accounts", "create", "acme")
    terminal.ok("keys", "create", "acme")
    terminal.ok("backup", str(folder), "--with-pepper", "--verify")
    (folder / "pepper").write_bytes(b"another pepper of the right length\n")
    sign(folder, "pepper")
    assert "is not the pepper of the keys" in terminal.refused("backup", str(folder), "--verify-only")


@pytest.mark.holds("operations/backup.md#backup-and-restore-9")
def test_database_user_who_may_not_create_a_schema_is_told_so(
    deployment: Terminal, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if request.node.callspec.params["deployment"] != "postgresql":
        pytest.skip("SQLite has no users")
    folder = tmp_path / "backup"
    deployment.ok("backup", str(folder))
    address = address_of(load(deployment.config))
    name = f"limited_{secrets.token_hex(4)}"
    with Database.transaction_at(address) as connection:
        connection.execute(sa.text(f"CREATE ROLE {name} LOGIN"))
    text = deployment.config.read_text()
    deployment.config.write_text(re.sub(r"postgresql://[^@]*@", f"postgresql://{name}@", text))
    refusal = deployment.refused("backup", str(folder), "--verify-only")
    assert "a verification needs a schema in the database: permission denied" in refusal
