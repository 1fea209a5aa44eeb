"""A database opens, brings its tables up to date once, and refuses what it cannot use."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from gateway.config.loader import parse
from gateway.database.address import DatabaseAddress, address_of, postgres_address
from gateway.database.engine import ATTEMPTS, Database, _engine
from gateway.database.migrate import FOLDER, revisions_known
from gateway.database.tables import meta, metadata, usage_hourly
from gateway.errors import DatabaseRefused, DatabaseUnavailable
from tests.databases import database, database_address, empty_database_address

__all__ = ["database", "database_address", "empty_database_address"]


def test_migrations_make_the_tables_of_the_code(database: Database) -> None:
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_known_versions_are_those_of_the_migrations() -> None:
    scripts = ScriptDirectory(str(FOLDER)).walk_revisions()  # the newest first
    assert [script.revision for script in scripts] == list(revisions_known())


def test_upgrade_keeps_the_lines_and_sums_of_before_the_upstream_cost(
    empty_database_address: DatabaseAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade = command.upgrade
    with monkeypatch.context() as patch:
        patch.setattr(command, "upgrade", lambda config, _: upgrade(config, "0002"))
        with pytest.raises(DatabaseRefused, match="older than this program"):
            Database.open(empty_database_address)
    old = _engine(empty_database_address)
    with old.begin() as connection:
        columns = sa.inspect(connection).get_columns("usage_hourly")
        values = {column["name"]: 7 if isinstance(column["type"], sa.Integer) else "x" for column in columns}
        names = ", ".join(values)
        places = ", ".join(f":{name}" for name in values)
        connection.execute(sa.text(f"INSERT INTO usage_hourly ({names}) VALUES ({places})"), values)
    old.dispose()
    new = Database.open(empty_database_address)
    with new.reading() as connection:
        row = connection.execute(sa.select(usage_hourly)).one()
        assert (row.cost, row.upstream_cost, row.upstream_cost_known) == (7, 0, 0)
    new.close()


def test_connection_to_sqlite_keeps_at_most_16_mib_of_its_file(tmp_path: Path) -> None:
    database = Database.open(DatabaseAddress(file=tmp_path / "gateway.db"))
    with database.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA cache_size").scalar() == -16 * 1024
    database.close()


def test_database_keeps_its_id(database: Database) -> None:
    again = Database.open(database.address)
    again.close()
    assert again.id == database.id
    assert len(database.id) == len("db_") + 32


def test_processes_that_open_a_new_database_at_once_agree_on_its_id(empty_database_address: DatabaseAddress) -> None:
    with ThreadPoolExecutor(4) as threads:
        opened = list(threads.map(lambda _: Database.open(empty_database_address), range(4)))
    for one in opened:
        one.close()
    assert len({one.id for one in opened}) == 1


@pytest.mark.holds("operations/history.md#history-6")
def test_newer_database_is_refused(database: Database) -> None:
    with database.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseRefused, match="newer than this program") as caught:
        Database.open(database.address)
    assert "9999" in caught.value.log_text()


def test_failed_migration_leaves_nothing_behind(
    empty_database_address: DatabaseAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(size: int) -> str:
        raise RuntimeError("no randomness")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="no randomness"):
        patch.setattr("gateway.database.migrate.secrets.token_hex", fail)
        Database.open(empty_database_address)
    Database.open(empty_database_address).close()


def test_transaction_that_fails_changes_nothing(database: Database) -> None:
    def write() -> None:
        with database.writing() as connection:
            connection.execute(meta.insert().values(key="a", value="b"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write()
    with database.reading() as connection:
        assert connection.scalar(sa.select(meta.c.value).where(meta.c.key == "a")) is None


def test_lock_is_held_by_one_at_a_time(database: Database) -> None:
    one, other = database.lock("importer"), database.lock("importer")
    assert one.take()
    assert not other.take()
    one.release()
    assert other.take()
    other.release()


def test_unreachable_server_is_an_error_that_hides_the_password() -> None:
    address = postgres_address("postgresql://me:secret@127.0.0.1:1/gateway")
    with pytest.raises(DatabaseUnavailable) as caught:
        Database.open(address)
    assert "secret" not in caught.value.log_text() + repr(address)


def test_sqlite_file_has_the_promised_pragmas_and_mode(tmp_path: Path) -> None:
    opened = Database.open(DatabaseAddress(file=tmp_path / "folder" / "gateway.db"))
    with opened.reading() as connection:
        found = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in PRAGMAS}
    opened.close()
    assert found == PRAGMAS
    assert (tmp_path / "folder" / "gateway.db").stat().st_mode & 0o777 == 0o600


PRAGMAS = {"journal_mode": "wal", "foreign_keys": 1, "synchronous": 1, "busy_timeout": 10_000}


def test_address_is_the_file_in_the_data_directory_or_a_reference(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://me@db/gateway\n")
    default = parse({"store": {"data_dir": str(tmp_path)}})
    assert address_of(default) == DatabaseAddress(file=tmp_path / "gateway.db")
    by_file = parse({"database": {"url": f"file:{tmp_path / 'url'}"}})
    assert address_of(by_file) == DatabaseAddress(url="postgresql+psycopg://me@db/gateway")
    literal = parse({"database": {"url": "postgres://me@db/gateway"}})
    assert address_of(literal) == address_of(by_file)


@pytest.mark.slow
def test_commands_and_workers_do_not_load_sqlalchemy() -> None:
    modules = (
        "import sys, gateway.runtime.worker, gateway.runtime.supervisor, gateway.cli\n"
        "from gateway.cli import COMMANDS, cli\n"
        "import click\n"
        "for name in COMMANDS: cli.get_command(click.Context(cli), name)\n"
        "print(sorted({'sqlalchemy', 'alembic', 'psycopg'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", modules], text=True).strip() == "[]"


def test_second_opening_in_a_process_does_not_let_other_processes_end_the_write_ahead_log(tmp_path):
    file = tmp_path / "gateway.db"
    look = f"import sqlite3; print(sqlite3.connect({str(file)!r}).execute('select count(*) from meta').fetchone()[0])"

    def seen_by_another_process() -> int:  # which closes its connection, and ends the log if it is the last one
        return int(subprocess.run([sys.executable, "-c", look], capture_output=True, check=True, text=True).stdout)

    database = Database.open(DatabaseAddress(file=file))
    Database.open(DatabaseAddress(file=file)).close()
    before = seen_by_another_process()
    for n in range(3):
        with database.writing() as connection:
            connection.execute(meta.insert().values(key=f"key {n}", value=""))
        assert seen_by_another_process() == before + n + 1
    database.close()


class Undone(Exception):
    """What a driver raises for a transaction that the server undid."""

    sqlstate = "40P01"


@pytest.mark.parametrize("times", [1, ATTEMPTS - 1, ATTEMPTS])
def test_transaction_that_the_server_undoes_is_tried_five_times(database: Database, times: int) -> None:
    calls = 0

    def change(_: object) -> int:
        nonlocal calls
        calls += 1
        if calls <= times:
            raise sa.exc.OperationalError("UPDATE", {}, Undone())
        return calls

    if times < ATTEMPTS:
        assert database.write(change) == times + 1
    else:
        with pytest.raises(DatabaseUnavailable):
            database.write(change)
        assert calls == ATTEMPTS
