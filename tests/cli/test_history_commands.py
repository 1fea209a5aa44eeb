"""Commands that read or change the history, with the database in the data directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gateway.amounts import NANO
from gateway.config.loader import load
from gateway.database.address import DatabaseAddress, address_of, postgres_address
from gateway.database.engine import Database
from gateway.database.tables import ROLLUPS, ledger_lines, usage_daily_tags
from gateway.history import copying, rollups
from gateway.history.appending import append
from gateway.history.new_lines import NewLines, read_new_lines
from gateway.history.service import HistoryService
from gateway.history.sql_thread import SqlThread
from gateway.ledger.entry import Entry
from gateway.ledger.refusal_counts import RefusalCounts
from gateway.ledger.refused import RefusedFile
from gateway.metrics import Metrics
from gateway.store import Store
from tests.cli.conftest import Terminal, on_store
from tests.ledger.archiving import archive
from tests.ledger.records import record_of
from tests.world import World

SUMMED = [table for table in ROLLUPS if table is not usage_daily_tags]  # the calls have no tags


def import_all(terminal: Terminal, valkey: Path, address: DatabaseAddress | None = None) -> None:
    """What an importer does when it starts: it imports every account, and trims."""

    async def work(store: Store) -> None:
        sql = SqlThread()
        where = address or address_of(load(terminal.config))
        service = HistoryService(
            store,
            lambda: Database.open(where),
            sql,
            Metrics(),
            keep_lines=timedelta(hours=48),
            keep_history=timedelta(days=2555),
            keep_addresses=timedelta(days=30),
        )
        while await service.attempt() == 0.0:
            pass
        await service.attempt()
        await service.close()
        sql.close()

    on_store(valkey, work)


@pytest.fixture
def acme(terminal: Terminal, valkey: Path) -> Terminal:
    """An account with ten lines, six of them older than two days."""

    async def work(store: Store) -> None:
        world = World(store, {})
        key = await world.caller("acme", balance=10 * NANO)
        for cost in range(1, 10):
            world.ledger.book(await world.admit(key), record_of(cost, provider="p"))
        await world.ledger.drain()
        client: Any = store.client
        entries = await client.xrange("{a:acme}:lg")
        await client.delete("{a:acme}:lg")
        for place, (id_, fields) in enumerate(entries):
            ms, _, step = id_.decode().partition("-")
            back = 49 * 3_600_000 if place < 6 else 0
            await client.xadd("{a:acme}:lg", fields, id=f"{int(ms) - back}-{step}")

    on_store(valkey, work)
    return terminal


def in_store(valkey: Path) -> int:
    found: list[int] = []

    async def work(store: Store) -> None:
        found.append(await store.client.xlen("{a:acme}:lg"))

    on_store(valkey, work)
    return found[0]


@pytest.mark.holds("operations/history.md#history-8")
def test_usage_shows_lines_that_left_the_store(acme: Terminal, valkey: Path) -> None:
    before = acme.json("usage", "acme")
    import_all(acme, valkey)
    assert in_store(valkey) == 4
    assert acme.json("usage", "acme") == before
    assert acme.json("usage", "acme", "--since", "3d") == before
    assert acme.json("usage", "acme", "--since", "1d") == before[6:]


def test_usage_shows_the_sum_of_lines_that_the_database_does_not_have(acme: Terminal, valkey: Path) -> None:
    import_all(acme, valkey)
    path = address_of(load(acme.config)).file
    assert path is not None
    path.rename(path.with_suffix(".gone"))
    carried, *kept = acme.json("usage", "acme")
    assert (carried["kind"], len(kept)) == ("carry", 4)


def test_old_refused_settlement_is_booked_once_by_the_lines_in_the_database(acme: Terminal, valkey: Path) -> None:
    charged = acme.json("usage", "acme")[1]
    key = acme.json("keys", "list", "acme")[0]["id"]
    import_all(acme, valkey)
    at = (int(datetime.fromisoformat(charged["at"]).timestamp()) - 1) * 1_000_000
    folder = load(acme.config).data_dir / "journal"
    folder.mkdir(parents=True, exist_ok=True)
    file = RefusedFile(folder)
    for request_id in (charged["request_id"], "req_other"):
        file.add(Entry("acme", request_id, key, "use", -5, 1, at, json.dumps({"key": key, "model": "m"}), hold=5))
    before = acme.json("accounts", "show", "acme")["balance"]
    assert [row["state"] for row in acme.json("refused", "book", "--all")] == ["booked", "booked"]
    assert Decimal(before) - Decimal(acme.json("accounts", "show", "acme")["balance"]) == Decimal("0.000000005")
    assert file.read() == []
    acme.ok("audit")


def test_charge_that_left_the_store_is_refunded(acme: Terminal, valkey: Path) -> None:
    charged = acme.json("usage", "acme")[3]
    import_all(acme, valkey)
    on_store(valkey, lambda store: store.client.delete(f"{{a:acme}}:st:{charged['request_id']}"))
    refund = ("accounts", "refund", "acme", charged["request_id"])
    assert acme.json(*refund, "0.000000001", "--note", "slow")["refunded"] == "0.000000001"
    assert acme.json(*refund)["refunded"] == "0.000000002"
    assert "nothing is left" in acme.refused(*refund)
    acme.ok("audit")


def test_audit_proves_both_and_names_a_changed_line(acme: Terminal, valkey: Path) -> None:
    import_all(acme, valkey)
    report = acme.json("audit")
    assert (report["lines"], report["history_lines"], report["mismatches"]) == (4, 10, [])
    database = Database.open(address_of(load(acme.config)))
    with database.writing() as connection:
        connection.execute(sa.update(ledger_lines).where(ledger_lines.c.seq == 2).values(meta="{}"))
    database.close()
    result = acme.run("audit")
    assert result.exit_code == 1
    assert "history hash 2" in result.stdout


def test_audit_fails_with_another_database(acme: Terminal, valkey: Path, tmp_path: Path) -> None:
    import_all(acme, valkey, DatabaseAddress(file=tmp_path / "other.db"))
    Database.open(address_of(load(acme.config))).close()
    result = acme.run("audit")
    assert result.exit_code == 1
    assert "The store's history is in another database" in result.stderr


def rollup_sums(database: Database) -> list[tuple[int, int]]:
    with database.reading() as connection:
        return [
            tuple(connection.execute(sa.select(sa.func.sum(table.c.calls), sa.func.sum(table.c.cost))).one())
            for table in SUMMED
        ]


@pytest.fixture
def history(acme: Terminal, valkey: Path) -> Iterator[Database]:
    """The imported history of the account."""
    import_all(acme, valkey)
    database = Database.open(address_of(load(acme.config)))
    yield database
    database.close()


def test_refusals_are_shown_by_key_model_and_code(acme: Terminal, valkey: Path) -> None:
    async def refuse(store: Store) -> None:
        counts = RefusalCounts(store)
        for key_id in ("key_a", "key_b", "key_b"):
            counts.count("acme", key_id, "m", "rate_limit_exceeded")
        counts.count("", "", "", "invalid_api_key")
        await counts.send()

    on_store(valkey, refuse)
    import_all(acme, valkey)
    row = {"account": "acme", "key": "key_b", "model": "m", "code": "rate_limit_exceeded", "requests": 2}
    assert acme.json("history", "refusals", "acme") == [row, {**row, "key": "key_a", "requests": 1}]
    assert acme.json("history", "refusals", "acme", "--key", "key_b", "--since", "1h") == [row]
    assert acme.json("history", "refusals", "acme", "--since", "9d", "--until", "2h") == []
    assert len(acme.json("history", "refusals", "acme", "--since", "9d", "--until", "0s")) == 2
    assert [one["code"] for one in acme.json("history", "refusals") if not one["account"]] == ["invalid_api_key"]


def test_rebuild_computes_the_sums_of_usage_again(acme: Terminal, history: Database, monkeypatch) -> None:
    monkeypatch.setattr(rollups, "REBUILT_AT_ONCE", 3)
    with history.writing() as connection:
        connection.execute(ROLLUPS[0].update().values(cost=7))
        connection.execute(ROLLUPS[1].delete())
        connection.execute(ROLLUPS[2].delete())
    assert acme.run("audit").exit_code == 1
    assert acme.json("history", "rebuild") == {"lines": 10}
    assert rollup_sums(history) == [(9, 45)] * len(SUMMED)
    acme.ok("audit")


def test_commands_of_the_history_say_that_there_is_no_database(terminal: Terminal) -> None:
    assert "there is no database yet" in terminal.refused("history", "rebuild")
    assert "there is no database yet" in terminal.refused("history", "attach")


@pytest.mark.holds("operations/history.md#history-5")
def test_check_finds_a_database_that_is_not_the_stores(acme: Terminal, valkey: Path, tmp_path: Path) -> None:
    acme.ok("check")
    import_all(acme, valkey, DatabaseAddress(file=tmp_path / "other.db"))
    assert "the store has its history in another database" in acme.refused("check")
    Database.open(address_of(load(acme.config))).close()
    refused = acme.refused("check")
    assert "database.url" in refused
    assert "The store's history is in another database" in refused
    acme.ok("history", "attach")
    acme.ok("check")


def test_check_finds_a_newer_database(acme: Terminal, history: Database) -> None:
    with history.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    assert "The database is newer than this program" in acme.refused("check")


@pytest.mark.holds("operations/history.md#history-5")
def test_store_that_was_emptied_imports_again_after_attach(acme: Terminal, valkey: Path, history: Database) -> None:
    async def empty(store: Store) -> None:
        await store.client.flushall()

    on_store(valkey, empty)
    acme.ok("accounts", "create", "acme", "--balance", "3")
    import_all(acme, valkey)
    assert len(lines_of(history)) == 10
    done = acme.json("history", "attach")
    assert done == {"database": history.id, "before": ""}
    import_all(acme, valkey)
    assert lines_of(history) == [(1, 3 * NANO)]
    assert rollup_sums(history) == [(0, 0)] * len(SUMMED)


def lines_of(database: Database) -> list[tuple[int, int]]:
    with database.reading() as connection:
        query = sa.select(ledger_lines.c.seq, ledger_lines.c.amount).order_by(ledger_lines.c.seq)
        return [(row.seq, row.amount) for row in connection.execute(query)]


def test_archives_are_imported_before_and_after_the_rest_of_the_ledger(
    acme: Terminal, valkey: Path, tmp_path: Path
) -> None:
    """Line 1 to 6 are in archives; the importer knows the rest."""
    before = acme.json("usage", "acme")
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    on_store(valkey, lambda store: archive(World(store, {}), Path(first)))
    import_all(acme, valkey)
    database = Database.open(address_of(load(acme.config)))
    assert [seq for seq, _ in lines_of(database)] == [7, 8, 9, 10]
    acme.ok("audit")
    assert acme.json("history", "import-archive", first) == {"accounts": 1, "lines": 6}
    assert [seq for seq, _ in lines_of(database)] == list(range(1, 11))
    assert rollup_sums(database) == [(9, 45)] * len(SUMMED)
    assert acme.json("audit")["history_lines"] == 10
    assert acme.json("usage", "acme") == before
    assert acme.json("history", "import-archive", first) == {"accounts": 0, "lines": 0}
    database.close()
    Path(second).write_bytes(Path(first).read_bytes().replace(b'"amount":-1,', b'"amount":-2,'))
    acme.refused("history", "import-archive", second)


def test_archive_that_was_written_behind_the_importer_closes_the_gap(
    acme: Terminal, valkey: Path, tmp_path: Path
) -> None:
    file = str(tmp_path / "archive")
    on_store(valkey, lambda store: archive(World(store, {}), Path(file)))
    Database.open(address_of(load(acme.config))).close()
    assert acme.json("history", "import-archive", file) == {"accounts": 1, "lines": 6}
    import_all(acme, valkey)
    database = Database.open(address_of(load(acme.config)))
    assert [seq for seq, _ in lines_of(database)] == list(range(1, 11))
    database.close()
    acme.ok("audit")


def test_archive_that_does_not_begin_at_the_first_line_is_refused(acme: Terminal, valkey: Path, tmp_path: Path) -> None:
    file = tmp_path / "archive"
    on_store(valkey, lambda store: archive(World(store, {}), Path(file)))
    import_all(acme, valkey)
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole[2:]))
    assert "give all archives, the oldest first" in acme.refused("history", "import-archive", str(file))
    file.write_bytes(b"".join(whole[:4]))
    assert "the database begins after line 6" in acme.refused("history", "import-archive", str(file))


@pytest.mark.holds("operations/history.md#history-10")
@pytest.mark.slow
def test_history_moves_to_postgresql(
    acme: Terminal, valkey: Path, history: Database, postgres_database, monkeypatch
) -> None:
    monkeypatch.setattr(copying, "PAGE", 3)
    url = postgres_database()
    before = lines_of(history)
    acme.ok("users", "create", "ada@example.com", "--operator")
    people = acme.json("users", "list")
    copied = acme.json("history", "copy", "--to", url)
    assert (copied["accounts"], copied["lines"]) == (1, 10)
    assert copied["database"] != history.id
    assert "The store's history is in another database" in acme.refused("check")
    acme.config.write_text(acme.config.read_text() + f'\n[database]\nurl = "{url}"\n')
    acme.ok("check")
    assert acme.json("audit")["history_lines"] == 10
    assert [user["email"] for user in people] == ["ada@example.com"]
    assert acme.json("users", "list") == people
    new = Database.open(postgres_address(url))
    assert lines_of(new) == before
    assert rollup_sums(new) == [(9, 45)] * len(SUMMED)
    acme.ok("accounts", "credit", "acme", "1")
    import_all(acme, valkey)
    assert len(lines_of(new)) == 11
    new.close()
    assert "has a history already" in acme.refused("history", "copy", "--to", url)


def test_archive_closes_a_gap_after_the_lines_of_the_database(acme: Terminal, valkey: Path, tmp_path: Path) -> None:
    """The database has lines 1 to 3, an archive 1 to 6, the store the others."""
    found: list[NewLines] = []

    async def read(store: Store) -> None:
        found.append(await read_new_lines(store, "acme", None, most=3))

    on_store(valkey, read)
    database = Database.open(address_of(load(acme.config)))
    append(database, found)
    file = str(tmp_path / "archive")
    on_store(valkey, lambda store: archive(World(store, {}), Path(file)))
    import_all(acme, valkey)
    assert len(lines_of(database)) == 3
    assert acme.json("history", "import-archive", file) == {"accounts": 1, "lines": 3}
    import_all(acme, valkey)
    assert [seq for seq, _ in lines_of(database)] == list(range(1, 11))
    assert rollup_sums(database) == [(9, 45)] * len(SUMMED)
    database.close()
    acme.ok("audit")


@pytest.mark.slow
def test_check_accepts_an_empty_database_and_warns_of_an_older_one(
    terminal: Terminal, postgres_database, monkeypatch
) -> None:
    url = postgres_database()
    terminal.config.write_text(terminal.config.read_text() + f'\n[database]\nurl = "{url}"\n')
    terminal.ok("check")
    terminal.ok("audit", "--expect-accounts", "0")
    Database.open(postgres_address(url)).close()
    terminal.ok("check")
    monkeypatch.setattr("gateway.database.engine.migrate.version_of", lambda connection: "older")
    result = terminal.run("check")
    assert result.exit_code == 0
    assert "warning: the tables of the database are older than this program" in result.stderr
