"""`gateway backup` and `gateway restore`: what is in a backup, what a restore puts back, and what it says is undone."""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
import stat
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from gateway.amounts import NANO
from gateway.backup import store_dump
from gateway.backup.account_export import export_lines
from gateway.backup.backup import make_backup
from gateway.backup.files import note_of
from gateway.config.loader import load
from gateway.database import migrate
from gateway.database.address import address_of
from gateway.database.engine import Database
from gateway.database.people_tables import metadata
from gateway.history.trim_pause import PAUSED, TrimPause
from gateway.ledger import Journal, Ledger
from gateway.store import Store
from tests.cli.conftest import Terminal, on_store
from tests.cli.test_history_commands import acme, import_all, in_store, lines_of
from tests.databases import KINDS
from tests.ledger.records import record_of
from tests.polling import until
from tests.world import World

__all__ = ["acme"]


MEMBER_WITHOUT_A_KEY = "{a:acme}:u:usr_2"


def new_id() -> str:
    return f"req_{secrets.token_hex(16)}"


@pytest.fixture(params=KINDS)
def deployment(request: pytest.FixtureRequest, acme: Terminal, valkey: Path) -> Terminal:
    """An account with ten lines, of which the store has four, a user, and a database of each kind with the history."""
    if request.param == "postgresql":
        use_database(acme, request.getfixturevalue("postgres_database")())
    import_all(acme, valkey)
    acme.ok("users", "create", "ada@example.com", "--operator")
    return acme


def use_database(terminal: Terminal, url: str) -> None:
    text = terminal.config.read_text().partition("\n[database]")[0]
    terminal.config.write_text(f'{text}\n[database]\nurl = "{url}"\n')


@pytest.fixture
def empty_place(
    deployment: Terminal, valkey: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[[], None]:
    """Moves the deployment to another data directory and another database, and empties the store."""

    def move() -> None:
        on_store(valkey, lambda store: store.client.flushall())
        text = deployment.config.read_text().replace(str(tmp_path / "var"), str(tmp_path / "new"))
        deployment.config.write_text(text)
        if "[database]" in text:
            use_database(deployment, request.getfixturevalue("postgres_database")())

    return move


def more_calls(valkey: Path, *costs: int) -> None:
    async def work(store: Store) -> None:
        world = World(store, {})
        key = await world.caller("acme")
        for cost in costs:
            world.ledger.book(await world.admit(key, request_id=new_id()), record_of(cost, provider="p"))
        await world.ledger.drain()

    on_store(valkey, work)


def content(valkey: Path) -> Any:
    """Everything in the store that does not expire, but who made events, and short-lived keys."""
    found: list[Any] = []

    async def work(store: Store) -> None:
        dump = await World(store, {}).dump()
        skipped = (b":rpm", b":tpm", b":cc", PAUSED.encode(), b"cfg:probe")
        names = sorted(name for name in dump if not any(part in name for part in skipped))
        found.extend(
            [[name, await as_text(store, name), await store.client.pexpiretime(name.decode())] for name in names]
        )

    on_store(valkey, work)
    return found


async def as_text(store: Store, name: bytes) -> str:
    client: Any = store.client
    kind = (await client.type(name)).decode()
    readers = {"hash": client.hgetall, "set": client.smembers, "string": client.get, "stream": client.xrange}
    value = await (readers[kind](name) if kind in readers else client.zrange(name, 0, -1, withscores=True))
    return repr(sorted(value.items()) if kind == "hash" else sorted(value) if kind == "set" else value)


@pytest.mark.holds("operations/backup.md#backup-and-restore-1", "security.md#backups-and-older-stores-1")
def test_restore_into_an_empty_place_brings_everything_back(
    deployment: Terminal, empty_place: Callable[[], None], valkey: Path, tmp_path: Path
) -> None:
    more_calls(valkey, 50)
    users = deployment.json("users", "list")
    done = deployment.json("backup", str(tmp_path / "backup"), "--with-pepper")
    before, usage = content(valkey), deployment.json("usage", "acme")
    assert (done["accounts"], done["keys"], done["lines"], done["history_lines"]) == (1, 2, 5, 10)
    files = [path for path in (tmp_path / "backup").rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    empty_place()
    restored = deployment.json("restore", str(tmp_path / "backup"))
    assert restored["undone"] == {"revived": [], "lost": [], "lost_credits": [], "changes": [], "accounts": []}
    assert restored["audit"]["mismatches"] == []
    assert (restored["pepper"], restored["audit"]["history_lines"]) == (True, 10)
    assert content(valkey) == before
    assert deployment.json("users", "list") == users
    assert deployment.json("usage", "acme") == usage
    deployment.ok("audit")
    deployment.ok("check")
    import_all(deployment, valkey)
    database = Database.open(address_of(load(deployment.config)))
    assert len(lines_of(database)) == 11
    database.close()
    more_calls(valkey, 60)
    deployment.ok("keys", "create", "acme")
    deployment.ok("audit")


@pytest.mark.holds("operations/backup.md#backup-and-restore-3", "operations/backup.md#backup-and-restore-4")
def test_restore_lists_what_is_open_again_and_what_is_lost(deployment: Terminal, valkey: Path, tmp_path: Path) -> None:
    deployment.ok("accounts", "create", "quiet")
    deployment.ok("accounts", "create", "paused")
    revoked = deployment.json("keys", "list", "acme")[0]["id"]
    token = deployment.json("tokens", "create", "ci", "--scopes", "read")["id"]
    folder = str(tmp_path / "backup")
    deployment.ok("backup", folder)
    deployment.ok("keys", "revoke", revoked)
    later = deployment.json("keys", "create", "acme")["id"]
    deployment.ok("keys", "revoke", later)
    deployment.ok("tokens", "revoke", token)
    deployment.ok("accounts", "disable", "quiet")
    deployment.ok("accounts", "disable", "paused")
    deployment.ok("accounts", "enable", "paused")
    deployment.ok("accounts", "create", "newer")
    deployment.ok("accounts", "credit", "acme", "3", "--id", "invoice-7", "--note", "by card")
    more_calls(valkey, 70, 80)
    import_all(deployment, valkey)
    refusal = deployment.refused("restore", folder)
    assert "not empty: the store, the database" in refusal
    restored = deployment.json("restore", folder, "--force")
    undone = restored["undone"]
    assert undone["revived"] == [
        {"kind": "account", "id": "quiet", "account": ""},
        {"kind": "key", "id": revoked, "account": "acme"},
        {"kind": "token", "id": token, "account": ""},
    ]
    assert undone["accounts"] == ["newer"]
    assert undone["lost"] == [{"account": "acme", "lines": 3, "amount": "2.99999985"}]
    (credit,) = undone["lost_credits"]
    assert (credit["id"], credit["kind"], credit["amount"]) == ("invoice-7", "topup", "3")
    assert {event["action"] for event in undone["changes"]} >= {"keys.revoke", "accounts.credit", "tokens.revoke"}
    assert deployment.json("keys", "show", revoked)["state"] == "active"
    deployment.ok("audit")


def test_keys_of_a_user_who_was_disabled_are_listed_though_the_database_stays(
    deployment: Terminal, tmp_path: Path
) -> None:
    deployment.ok("users", "create", "ann@example.com")
    deployment.ok("users", "member", "ann@example.com", "acme", "member")
    key = deployment.json("keys", "create", "acme", "--user", "ann@example.com")["id"]
    folder = str(tmp_path / "backup")
    deployment.ok("backup", folder)
    deployment.ok("users", "disable", "ann@example.com")
    restored = deployment.json("restore", folder, "--force", "--keep-database")
    assert restored["undone"]["revived"] == [{"kind": "key", "id": key, "account": "acme"}]
    assert deployment.json("keys", "show", key)["state"] == "active"
    assert deployment.json("users", "show", "ann@example.com")["state"] == "disabled"


@pytest.mark.holds("operations/backup.md#backup-and-restore-5")
def test_older_store_under_the_newer_database_is_superseded_by_the_importer(
    deployment: Terminal, valkey: Path, tmp_path: Path
) -> None:
    folder = str(tmp_path / "backup")
    deployment.ok("backup", folder)
    more_calls(valkey, 70, 80)
    import_all(deployment, valkey)
    on_store(valkey, lambda store: store.client.flushall())
    restored = deployment.json("restore", folder, "--force", "--keep-database")
    assert restored["undone"]["lost"] == [{"account": "acme", "lines": 2, "amount": "-0.00000015"}]
    more_calls(valkey, 90)
    import_all(deployment, valkey)
    database = Database.open(address_of(load(deployment.config)))
    assert [-amount for _, amount in lines_of(database)][-2:] == [9, 90]
    database.close()
    report = json.loads(deployment.run("audit", "--json").stdout)
    assert (report["history_lines"], report["superseded_lines"], report["mismatches"]) == (11, 2, [])


@pytest.mark.holds("operations/backup.md#backup-and-restore-3", "security.md#backups-and-older-stores-1")
def test_changed_or_incomplete_backup_is_refused_and_nothing_is_changed(
    deployment: Terminal, valkey: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    deployment.ok("backup", str(folder))
    before = content(valkey)
    store = folder / "store.records.gz"
    whole = store.read_bytes()
    store.write_bytes(whole[:-9] + b"x" + whole[-8:])
    assert "was changed" in deployment.refused("restore", str(folder), "--force")
    store.unlink()
    assert "is missing" in deployment.refused("restore", str(folder), "--force")
    store.write_bytes(whole)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"form": 2}))
    assert "form 2" in deployment.refused("restore", str(folder), "--force")
    (folder / "manifest.json").unlink()
    assert "no complete backup" in deployment.refused("restore", str(folder), "--force")
    assert "not empty" in deployment.refused("backup", str(folder))
    assert content(valkey) == before


@pytest.mark.holds("operations/backup.md#backup-and-restore-1")
def test_trimming_waits_for_a_backup_and_goes_on_after_a_dead_one(acme: Terminal, valkey: Path, tmp_path: Path) -> None:
    on_store(valkey, lambda store: TrimPause(store).take())
    import_all(acme, valkey)
    assert in_store(valkey) == 10
    assert "Another backup runs" in acme.refused("backup", str(tmp_path / "backup"))
    on_store(valkey, lambda store: store.client.pexpire(PAUSED, 1))
    on_store(valkey, lambda store: gone(store, PAUSED))
    import_all(acme, valkey)
    assert in_store(valkey) == 4


async def gone(store: Store, name: str) -> None:
    async def is_gone() -> bool:
        return not await store.client.exists(name)

    await until(is_gone)


def taking_over(folder: Path) -> Callable[[Store], Awaitable[None]]:
    """Takes over the journal of a dead process, which has one settlement."""

    async def take_over(store: Store) -> None:
        journal = Journal(folder)
        ledger = Ledger(store, {}, journal=journal)
        assert ledger.recovery is not None
        assert (await ledger.recovery.take_over()).settlements == 1
        await ledger.recovery.close()
        journal.close()

    return take_over


@pytest.mark.holds("operations/backup.md#backup-and-restore-3")
def test_journals_are_restored_and_their_settlements_are_charged_once(
    acme: Terminal, valkey: Path, tmp_path: Path
) -> None:
    """A call was held when its account was read, and its settlement was in a journal."""
    folder = load(acme.config).data_dir / "journal"

    async def crash(store: Store) -> None:
        world = World(store, {})
        key = await world.caller("acme")
        hold = await world.admit(key, 1000, request_id=new_id())
        journal = Journal(folder)
        ledger = Ledger(store, {}, journal=journal)
        ledger.book(hold, record_of(700))
        await ledger.drain()
        journal.close()

    on_store(valkey, crash)
    charged = acme.json("accounts", "show", "acme")["balance"]
    acme.ok("backup", str(tmp_path / "backup"), "--with-pepper")
    assert acme.json("restore", str(tmp_path / "backup"), "--force")["journals"] >= 1

    on_store(valkey, taking_over(folder))
    assert acme.json("accounts", "show", "acme")["balance"] == charged
    acme.ok("audit")


def test_call_that_is_settled_while_the_store_is_read_is_charged_by_its_journal(
    acme: Terminal, valkey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backup has its account before the settlement, and its marker is not taken, although it is read after it."""
    folder = load(acme.config).data_dir / "journal"

    async def work(store: Store) -> None:
        world = World(store, {})
        hold = await world.admit(await world.caller("acme", user="usr_1"), 1000, request_id=new_id())
        await store.client.hset(MEMBER_WITHOUT_A_KEY, "cap", 50)
        journal = Journal(folder)
        ledger = Ledger(store, {}, journal=journal)

        async def settled(*arguments: Any) -> Any:
            ledger.book(hold, record_of(700))
            await ledger.drain()
            await store.client.hset(MEMBER_WITHOUT_A_KEY, "spent", 30)  # with a key of this moment
            async for part in export_lines(*arguments):
                yield part

        monkeypatch.setattr(store_dump, "export_lines", settled)
        await make_backup(load(acme.config), store, tmp_path / "backup", with_pepper=False)
        journal.close()

    on_store(valkey, work)
    charged = acme.json("accounts", "show", "acme")["balance"]
    acme.ok("restore", str(tmp_path / "backup"), "--force")
    restored = acme.json("accounts", "show", "acme")
    assert (restored["balance"], restored["held"]) != (charged, "0")
    acme.ok("audit")  # the member of the account has spent nothing either
    assert on_store(valkey, lambda store: store.client.hgetall(MEMBER_WITHOUT_A_KEY)) == {b"cap": b"50"}

    async def take_over(store: Store) -> None:
        journal = Journal(folder)
        ledger = Ledger(store, {}, journal=journal)
        assert ledger.recovery is not None
        await ledger.recovery.take_over()
        await ledger.recovery.close()
        journal.close()

    on_store(valkey, take_over)
    restored = acme.json("accounts", "show", "acme")
    assert (restored["balance"], restored["held"]) == (charged, "0")
    acme.ok("audit")


def test_older_database_is_replaced_only_on_demand_and_not_upgraded_before(
    deployment: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.ok("backup", str(tmp_path / "backup"))
    database = Database.open(address_of(load(deployment.config)))
    with database.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))
    assert "the database" in deployment.refused("restore", str(tmp_path / "backup"))
    with database.reading() as connection:
        assert connection.scalar(sa.text("SELECT version_num FROM alembic_version")) == "0001"
    database.close()


def first_tables() -> dict[str, set[str]]:
    """The names of the columns and indexes of each table in the first version of the database."""
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        migrate.upgrade_to(connection, "0001")
        found = sa.inspect(connection)
        tables = {
            name: {str(one["name"]) for one in (*found.get_columns(name), *found.get_indexes(name))}
            for name in found.get_table_names()
        }
    engine.dispose()
    return tables


def make_older(folder: Path) -> None:
    """Make the database of a backup one of the first version, without people."""
    manifest = json.loads((folder / "manifest.json").read_text())
    first = first_tables()
    if (folder / "gateway.db").exists():
        with closing(sqlite3.connect(folder / "gateway.db")) as connection:
            for table in reversed(metadata.sorted_tables):
                if table.name not in first:
                    connection.execute(f"DROP TABLE {table.name}")
                for index in table.indexes if table.name in first else ():
                    if index.name not in first[table.name]:
                        connection.execute(f"DROP INDEX {index.name}")
                for column in table.columns if table.name in first else ():
                    if column.name not in first[table.name]:
                        connection.execute(f"ALTER TABLE {table.name} DROP COLUMN {column.name}")
            connection.execute("UPDATE alembic_version SET version_num = '0001'")
            connection.commit()
        manifest["files"]["gateway.db"] = msgspec.to_builtins(note_of(folder / "gateway.db"))
    for file in (folder / "database").glob("*.jsonl"):
        if file.stem in first:
            names, *rows = map(json.loads, file.read_text().splitlines())
            kept = [index for index, name in enumerate(names) if name in first[file.stem]]
            file.write_text("".join(json.dumps([row[index] for index in kept]) + "\n" for row in (names, *rows)))
            manifest["files"][f"database/{file.name}"] = msgspec.to_builtins(note_of(file))
        else:
            file.unlink()
            del manifest["files"][f"database/{file.name}"]
    for name in manifest["database"]["rows"].keys() - first:
        del manifest["database"]["rows"][name]
    manifest["database"]["revision"] = "0001"
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.holds("operations/backup.md#backup-and-restore-2")
def test_backup_of_an_older_version_is_upgraded_when_it_is_restored(deployment: Terminal, tmp_path: Path) -> None:
    deployment.ok("backup", str(tmp_path / "backup"))
    make_older(tmp_path / "backup")
    assert deployment.json("restore", str(tmp_path / "backup"), "--force")["history_lines"] == 10
    assert deployment.json("users", "list") == []
    deployment.ok("users", "create", "eve@example.com")
    deployment.ok("check")
    newer = json.loads((tmp_path / "backup" / "manifest.json").read_text())
    newer["database"]["revision"] = "9999"
    (tmp_path / "backup" / "manifest.json").write_text(json.dumps(newer))
    assert "is newer than this program" in deployment.refused("restore", str(tmp_path / "backup"), "--force")


@pytest.mark.holds("operations/backup.md#backup-and-restore-3", "operations/upgrade.md#upgrade-and-return-1")
def test_restore_replaces_the_database_of_a_newer_version_and_keeps_it_otherwise(
    deployment: Terminal, tmp_path: Path
) -> None:
    folder = str(tmp_path / "backup")
    deployment.ok("backup", folder)
    address = address_of(load(deployment.config))
    with closing(Database.open(address)) as database, database.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(sa.text("CREATE TABLE of_the_newer_version (id TEXT PRIMARY KEY)"))
    assert "the database; --force replaces what is there" in deployment.refused("restore", folder)
    assert "newer than this program" in deployment.refused("restore", folder, "--force", "--keep-database")
    restored = deployment.json("restore", folder, "--force")
    assert (restored["history_lines"], restored["audit"]["mismatches"]) == (10, [])
    assert [user["email"] for user in deployment.json("users", "list")] == ["ada@example.com"]
    with closing(Database.open(address)) as database, database.reading() as connection:
        assert not sa.inspect(connection).has_table("of_the_newer_version")


@pytest.mark.holds("operations/backup.md#backup-and-restore-2")
@pytest.mark.slow
def test_backup_of_an_embedded_store_is_restored_without_a_gateway(terminal: Terminal, tmp_path: Path) -> None:
    text = terminal.config.read_text()
    terminal.config.write_text("\n".join(line for line in text.splitlines() if not line.startswith("url =")))
    terminal.ok("accounts", "create", "acme", "--balance", "5")
    key = terminal.json("keys", "create", "acme")["id"]
    terminal.ok("backup", str(tmp_path / "backup"), "--with-pepper")
    terminal.ok("accounts", "credit", "acme", "1")
    pepper = tmp_path / "var" / "pepper"
    right = pepper.read_text()
    pepper.write_text("another pepper than that of the keys")
    restored = terminal.json("restore", str(tmp_path / "backup"), "--force")
    assert restored["undone"]["lost"] == [{"account": "acme", "lines": 1, "amount": "1"}]
    assert (Path(restored["replaced"]) / "store").is_dir()
    assert (restored["pepper"], pepper.read_text()) == (True, right)
    assert terminal.json("accounts", "show", "acme")["balance"] == "5"
    assert terminal.json("keys", "show", key)["state"] == "active"
    terminal.ok("audit")


@pytest.mark.holds("operations/backup.md#backup-and-restore-1")
def test_backup_during_calls_and_credits_has_each_account_at_one_moment(
    acme: Terminal, valkey: Path, tmp_path: Path
) -> None:
    async def work(store: Store) -> None:
        world = World(store, {})
        callers = [await world.caller(f"a{n}", balance=1000 * NANO, user=f"usr_{n}") for n in range(5)]
        running = True

        async def call(number: int) -> None:
            step = 0
            while running:
                step += 1
                world.ledger.book(await world.admit(callers[number], request_id=new_id()), record_of(step))
                await world.accounts.credit(f"a{number}", 5, operation=f"op-{number}-{step}")

        tasks = [asyncio.create_task(call(number)) for number in range(5)]
        await make_backup(load(acme.config), store, tmp_path / "backup", with_pepper=False)
        running = False
        await asyncio.gather(*tasks)
        await world.ledger.drain()

    on_store(valkey, work)
    restored = acme.json("restore", str(tmp_path / "backup"), "--force")
    assert restored["audit"]["mismatches"] == []
    assert restored["accounts"] == 6
    acme.ok("audit")


@pytest.mark.holds("operations/backup.md#backup-and-restore-2")
def test_sqlite_backup_is_not_restored_into_postgresql(acme: Terminal, valkey: Path, tmp_path: Path) -> None:
    import_all(acme, valkey)
    acme.ok("backup", str(tmp_path / "backup"))
    use_database(acme, "postgresql://nobody@localhost:1/none")
    assert "the database of the backup is sqlite" in acme.refused("restore", str(tmp_path / "backup"), "--force")
