"""An older store under the newer database: the audit names what the store has lost, and a command books it again."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gateway.config.loader import load
from gateway.database.address import address_of
from gateway.database.engine import Database
from gateway.database.tables import superseded_lines
from gateway.ledger import Journal, Ledger
from gateway.ledger.api_key import ApiKey
from gateway.ledger.superseded import is_marked
from gateway.store import Store
from tests.chaos.proxy import ChaosProxy
from tests.cli.conftest import Terminal, on_store
from tests.cli.test_backup import deployment, more_calls, new_id, taking_over
from tests.cli.test_history_commands import acme, import_all
from tests.ledger.records import record_of
from tests.polling import until
from tests.world import World

__all__ = ["acme", "deployment"]


def balance(terminal: Terminal, account: str = "acme") -> str:
    return str(terminal.json("accounts", "show", account)["balance"])


def put_back(terminal: Terminal, valkey: Path, folder: str) -> None:
    """Put the store of the backup under the database of now, and let the importer notice."""
    on_store(valkey, lambda store: store.client.flushall())
    terminal.ok("restore", folder, "--force", "--keep-database")
    import_all(terminal, valkey)


def audit(terminal: Terminal) -> tuple[int, Any]:
    """Exit status and document."""
    result = terminal.run("audit", "--json")
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def older(deployment: Terminal, valkey: Path, tmp_path: Path) -> Terminal:
    """The store is as it was before a credit, two calls, a refund of the second one and a debit."""
    folder = str(tmp_path / "backup")
    deployment.ok("backup", folder)
    deployment.ok("accounts", "credit", "acme", "3", "--id", "invoice-7", "--note", "by card")
    more_calls(valkey, 70, 80)
    charged = deployment.json("usage", "acme")[-1]["request_id"]
    deployment.ok("accounts", "refund", "acme", charged, "0.00000003", "--id", "sorry-1")
    deployment.ok("accounts", "credit", "acme", "-0.5", "--allow-negative", "--id", "fee-1")
    import_all(deployment, valkey)
    deployment.ok("audit")
    put_back(deployment, valkey, folder)
    return deployment


@pytest.mark.holds(
    "operations/audit.md#audit-27", "operations/backup.md#older-store-1", "security.md#backups-and-older-stores-2"
)
def test_audit_names_superseded_lines_until_they_are_booked(older: Terminal, valkey: Path) -> None:
    assert balance(older) == "9.999999955"
    status, report = audit(older)
    assert (status, report["superseded_lines"]) == (1, 5)
    assert [(row["kind"], row["account"], row["amount"]) for row in report["superseded"]] == [
        ("topup", "acme", "3"),
        ("use", "acme", "-0.00000007"),
        ("use", "acme", "-0.00000008"),
        ("refund", "acme", "0.00000003"),
        ("adj", "acme", "-0.5"),
    ]
    assert report["superseded"][0]["request_id"] == "invoice-7"
    assert all(row["at"].endswith("Z") and row["id"] for row in report["superseded"])
    assert older.json("superseded", "list") == report["superseded"]
    assert older.json("superseded", "list", "--account", "other", "--limit", "5") == []
    assert "superseded lines: 5; see `gateway superseded list`" in older.run("audit").stderr
    done = older.json("superseded", "book", "--all")
    assert (done["booked"], done["left"], {row["state"] for row in done["lines"]}) == (5, 0, {"booked"})
    older.ok("audit")  # also before the importer has seen the new lines
    assert older.json("superseded", "list") == []
    import_all(older, valkey)
    assert audit(older)[0] == 0
    assert balance(older) == "12.499999835"


@pytest.mark.holds("operations/backup.md#older-store-2")
def test_booked_credit_has_a_note_with_the_old_line_and_an_event(older: Terminal) -> None:
    line = older.json("superseded", "list")[0]
    older.ok("superseded", "book", str(line["id"]))
    (booked,) = [row for row in older.json("usage", "acme") if row["request_id"] == "invoice-7"]
    assert (booked["kind"], booked["amount"]) == ("topup", "3")
    assert booked["note"].startswith(f"superseded line {line['line']} (")
    assert booked["note"].endswith("): by card")
    events = [one for one in older.json("audit-trail", "--account", "acme") if one["action"] == "superseded.book"]
    assert [(one["after"]["id"], one["after"]["booked"], one["object"][:5]) for one in events] == [
        ("invoice-7", "3", "line:")
    ]
    again = older.json("superseded", "book", str(line["id"]))
    assert (again["booked"], again["left"]) == (0, 0)
    assert balance(older) == "12.999999955"
    assert len(older.json("superseded", "list")) == 4
    assert "no superseded line has the id 999" in older.refused("superseded", "book", "999")
    older.refused("superseded", "book", status=2)
    older.refused("superseded", "book", "--all", "1", status=2)


@pytest.mark.holds("operations/backup.md#older-store-1")
def test_acknowledged_lines_are_closed_without_a_booking(older: Terminal) -> None:
    ids = [str(row["id"]) for row in older.json("superseded", "list")]
    assert older.json("superseded", "acknowledge", ids[0], "--note", "paid back") == {"acknowledged": 1}
    assert audit(older)[1]["superseded_lines"] == 4
    assert older.json("superseded", "acknowledge", "--all") == {"acknowledged": 4}
    assert older.json("superseded", "acknowledge", "--all") == {"acknowledged": 0}
    older.ok("audit")
    assert balance(older) == "9.999999955"
    events = [one for one in older.json("audit-trail", "--account", "acme") if "acknowledge" in one["action"]]
    assert [one["after"]["lines"] for one in events] == [4, 1]
    assert events[1]["after"]["note"] == "paid back"


@pytest.mark.holds("operations/backup.md#older-store-1")
def test_credit_that_an_operator_has_repeated_is_not_open(older: Terminal, valkey: Path) -> None:
    older.ok("accounts", "credit", "acme", "3", "--id", "invoice-7")
    assert audit(older)[1]["superseded_lines"] == 4
    older.json("superseded", "book", "--all")
    import_all(older, valkey)
    assert balance(older) == "12.499999835"


@pytest.mark.holds("operations/backup.md#older-store-5")
def test_store_that_is_put_back_again_opens_what_it_loses(older: Terminal, valkey: Path, tmp_path: Path) -> None:
    older.ok("superseded", "book", "--all")
    import_all(older, valkey)
    put_back(older, valkey, str(tmp_path / "backup"))
    assert len(older.json("superseded", "list")) == 5
    older.ok("superseded", "book", "--all")
    import_all(older, valkey)
    assert audit(older)[0] == 0
    assert balance(older) == "12.499999835"


@pytest.mark.holds("operations/backup.md#older-store-5")
def test_store_that_is_put_back_before_its_bookings_were_imported_opens_them_again(
    older: Terminal, valkey: Path, tmp_path: Path
) -> None:
    older.ok("superseded", "book", "--all")
    put_back(older, valkey, str(tmp_path / "backup"))
    assert len(older.json("superseded", "list")) == 5


@pytest.mark.holds("operations/backup.md#older-store-1")
def test_charge_that_a_journal_brings_back_is_not_open(deployment: Terminal, valkey: Path, tmp_path: Path) -> None:
    folder, known = load(deployment.config).data_dir / "journal", deployment.json("keys", "list", "acme")[0]["id"]
    deployment.ok("backup", str(tmp_path / "backup"))

    async def call(store: Store) -> None:
        world = World(store, {})
        key = ApiKey("acme", known)
        journal = Journal(folder)
        ledger = Ledger(store, {}, journal=journal)
        ledger.book(await world.admit(key, 1000, request_id=new_id()), record_of(700))
        await ledger.drain()
        journal.close()

    on_store(valkey, call)
    charged = balance(deployment)
    import_all(deployment, valkey)
    put_back(deployment, valkey, str(tmp_path / "backup"))
    assert len(deployment.json("superseded", "list")) == 1
    on_store(valkey, taking_over(folder))
    assert deployment.json("superseded", "list") == []
    deployment.ok("audit")
    import_all(deployment, valkey)
    deployment.ok("audit")
    done = deployment.json("superseded", "book", "--all")
    assert (done["booked"], done["left"]) == (0, 0)
    assert balance(deployment) == charged


@pytest.mark.holds("operations/backup.md#older-store-3")
def test_charge_takes_only_money_that_is_free(older: Terminal, valkey: Path) -> None:
    older.ok("accounts", "credit", "acme", "-9.999999905", "--allow-negative", "--force", "--id", "spent")
    rows = {row["request_id"]: row for row in older.json("superseded", "list")}
    calls = [row for row in rows.values() if row["kind"] == "use"]
    done = older.json("superseded", "book", *(str(row["id"]) for row in calls))
    assert sorted(row["booked"] for row in done["lines"]) == ["-0.00000005", "0"]
    assert balance(older) == "0"
    result = older.run("superseded", "book", str(rows["fee-1"]["id"]), "--json")
    assert result.exit_code == 1
    assert '"only 0 is free"' in result.stdout
    assert balance(older) == "0"
    import_all(older, valkey)
    assert [row["kind"] for row in older.json("superseded", "list")] == ["topup", "refund", "adj"]
    assert sum(float(row["amount"]) for row in audit(older)[1]["uncollected"]) == pytest.approx(0.0000001)


@pytest.mark.holds("operations/backup.md#older-store-3")
def test_charge_that_is_older_than_the_markers_is_booked_once(older: Terminal, valkey: Path) -> None:
    calls = [row for row in older.json("superseded", "list") if row["kind"] == "use"]

    def two_days_older() -> None:
        database = Database.open(address_of(load(older.config)))
        with database.writing() as connection:
            table = superseded_lines.c
            for row in connection.execute(sa.select(table.id, table.stream_id)).all():
                ms, _, step = row.stream_id.partition("-")
                connection.execute(
                    superseded_lines.update()
                    .where(table.id == row.id)
                    .values(stream_id=f"{int(ms) - 172_800_000}-{step}")
                )
        database.close()

    two_days_older()
    before = balance(older)
    ids = [str(row["id"]) for row in calls]
    assert older.json("superseded", "book", *ids)["booked"] == 2
    after = balance(older)
    assert float(before) - float(after) == pytest.approx(0.00000015)
    request_id = calls[0]["request_id"]
    on_store(valkey, lambda store: store.client.delete(f"{{a:acme}}:st:{request_id}"))
    assert not on_store(valkey, lambda store: is_marked(store, "acme", request_id))
    older.run("superseded", "book", *ids)
    assert balance(older) == after
    import_all(older, valkey)
    assert "use" not in {row["kind"] for row in older.json("superseded", "list")}


@pytest.mark.holds("operations/backup.md#older-store-2", "operations/backup.md#older-store-6")
def test_account_that_the_older_store_does_not_have_is_named_and_booked_when_it_is_there_again(
    deployment: Terminal, valkey: Path, tmp_path: Path
) -> None:
    folder = str(tmp_path / "backup")
    deployment.ok("backup", folder)
    deployment.ok("accounts", "create", "newer", "--balance", "5")
    deployment.ok("accounts", "credit", "newer", "2", "--id", "more")
    import_all(deployment, valkey)
    put_back(deployment, valkey, folder)
    status, report = audit(deployment)
    assert status == 1
    assert "newer" in {row["account"] for row in report["mismatches"]}
    deployment.ok("accounts", "create", "newer")
    import_all(deployment, valkey)
    assert [row["kind"] for row in deployment.json("superseded", "list")] == ["open", "topup"]
    assert deployment.json("superseded", "book", "--all", "--account", "newer")["booked"] == 2
    deployment.ok("audit")
    import_all(deployment, valkey)
    deployment.ok("audit")
    assert balance(deployment, "newer") == "7"


async def lines_in_store(store: Store) -> int:
    client: Any = store.client
    return int(await client.hget("{a:acme}", "seq"))


@pytest.mark.holds("operations/backup.md#older-store-5")
@pytest.mark.slow
def test_killed_command_is_repeated_beside_another_one_and_each_line_is_booked_once(
    deployment: Terminal, valkey: Path, tmp_path: Path
) -> None:
    """As processes: one is killed as soon as it has booked something, and two more run at once after it."""
    folder = str(tmp_path / "backup")
    deployment.ok("backup", folder)

    async def credit(store: Store) -> None:
        ledger = World(store, {}).ledger
        for number in range(400):
            await ledger.credit("acme", 10**6, operation=f"op-{number}")

    on_store(valkey, credit)
    more_calls(valkey, *range(1, 200))
    expected = balance(deployment)
    import_all(deployment, valkey)
    put_back(deployment, valkey, folder)
    begun = on_store(valkey, lines_in_store)

    command = [sys.executable, "-m", "gateway", "superseded", "book", "--all", "--json"]

    async def kill_amid(store: Store) -> int:
        """Kill the first command once it has booked something, and return how many lines it has booked.

        Each reply of the store takes time, and it takes it in this process: a pause of this process does not let the
        command book the rest. A reply answers at most 50 bookings.
        """
        async with ChaosProxy(valkey) as proxy:
            proxy.delay = 0.2
            config = deployment.config.with_name("slow.toml")
            config.write_text(
                deployment.config.read_text().replace(f"unix://{valkey}", f"redis://127.0.0.1:{proxy.port}")
            )
            environment = {**os.environ, "GATEWAY_CONFIG": str(config)}
            first = await asyncio.create_subprocess_exec(*command, env=environment, stdout=subprocess.DEVNULL)

            async def has_booked() -> bool:
                assert first.returncode is None
                return await lines_in_store(store) > begun + 20

            await until(has_booked)
            first.kill()
            await first.wait()
        return await lines_in_store(store) - begun

    booked = on_store(valkey, kill_amid)
    others = [
        subprocess.Popen(command, env={**os.environ, **deployment.environment}, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [json.loads(one.communicate()[0])["left"] for one in others] == [0, 0]
    assert 20 < booked < 599
    assert balance(deployment) == expected
    assert on_store(valkey, lines_in_store) == begun + 599
    import_all(deployment, valkey)
    deployment.ok("audit")
