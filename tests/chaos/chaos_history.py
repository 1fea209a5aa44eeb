"""A hundred random moments: the importer and trimming run under load, and something is killed, stopped, full or old.

After each moment the load ends, the database catches up, and SQL, the store's ledger and the upstream's log are held
against each other line by line. The seed is printed; CHAOS_SEED runs the same order of faults again. `tox -e chaos`, or
`python -m pytest -s -o python_files='chaos_*.py' tests/chaos/chaos_history.py`; a table comes at the end.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import psycopg
import pytest
from msgspec import Struct

from gateway.testing import FakeUpstream
from tests.chaos import history_faults as faults
from tests.chaos.chaos_store import own_store
from tests.chaos.history_proof import Proof, Sql
from tests.chaos.history_stand import WORKERS, Fault, Stand, gateway_of
from tests.chaos.redis_topologies import SentinelTrio, sentinel_trio
from tests.full_disk import FullDisk, full_disk
from tests.postgres import PostgresServer, postgres_server
from tests.processes.conftest import Yard

EMBEDDED = {
    faults.IMPORTER: 13,
    faults.EMBEDDED_STORE: 8,
    faults.SUPERVISOR: 6,
    faults.FULL: 5,
    faults.WORKER_LEASE: 4,
    faults.STOPPED: 3,
    faults.OLDER_STARTED: 2,
    faults.OLDER_ALONE: 2,
}
TWO_MACHINES = {
    faults.IMPORTER: 10,
    faults.DATABASE: 10,
    faults.OWN_STORE: 6,
    faults.TAKEN_OVER: 5,
    faults.SUPERVISOR: 4,
    faults.FULL: 4,
    faults.OLDER_RUNNING: 2,
}
TRIO_SQLITE = {faults.FAILOVER: 5, faults.SECOND_MACHINE: 4, faults.IMPORTER: 1}
TRIO_POSTGRES = {faults.FAILOVER: 5, faults.DATABASE: 1}
LONG = 1500  # seconds


class Row(Struct):
    """A fault's moments so far."""

    moments: int = 0
    lines: int = 0
    superseded: int = 0
    findings: int = 0
    seconds: float = 0.0
    notes: Counter[str] = msgspec.field(default_factory=Counter)


class Table:
    """What all moments came to."""

    def __init__(self) -> None:
        self.seed = int(os.environ.get("CHAOS_SEED") or random.randrange(10**9))
        self.rows: dict[tuple[str, str], Row] = {}

    def text(self) -> str:
        """One row for each fault and deployment."""
        head = f"{'fault':30} {'deployment':22} moments  lines superseded findings seconds"
        shown = [f"seed {self.seed}", head]
        for (fault, stand), row in sorted(self.rows.items()):
            notes = ", ".join(f"{count} x {note}" for note, count in row.notes.items())
            shown.append(
                f"{fault:30} {stand:22} {row.moments:7} {row.lines:6} {row.superseded:10} {row.findings:8} "
                f"{row.seconds:7.0f}  {notes}"
            )
        rows = self.rows.values()
        sums = [sum(getattr(row, name) for row in rows) for name in ("moments", "lines", "superseded", "findings")]
        seconds = sum(row.seconds for row in rows)
        shown.append(f"{'all':30} {'':22} {sums[0]:7} {sums[1]:6} {sums[2]:10} {sums[3]:8} {seconds:7.0f}")
        return "\n".join(shown)


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    table = Table()
    print(f"\nseed {table.seed}")
    yield table
    print(f"\n{table.text()}")


@pytest.fixture
def disk() -> Iterator[FullDisk]:
    with full_disk() as disk:
        yield disk


@pytest.fixture
def server(disk: FullDisk, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    """A server whose files are on the disk, with a role for each machine."""
    if sys.version_info >= (3, 12):
        pytest.skip("PostgreSQL is tested on one interpreter")
    for name, value in disk.environment(Path(tempfile.gettempdir()) / "pg").items():
        monkeypatch.setenv(name, value)  # also for a server that is started again
    with postgres_server() as server:
        if server is None:
            pytest.skip("no PostgreSQL server on this machine")
        yield server


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[SentinelTrio]:
    with sentinel_trio(tmp_path) as sentinels:
        yield sentinels


def urls(server: PostgresServer, machines: int) -> list[str]:
    """The addresses of one new database for each machine."""
    url = server.new_database()
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for number in range(machines):
            connection.execute(f"CREATE ROLE machine{number} SUPERUSER LOGIN".encode())
    _, _, rest = url.partition("@")
    return [f"postgresql://machine{number}@{rest}" for number in range(machines)]


async def findings(table: Table, name: str, stand: Stand, plan: Mapping[Fault, int], share: float) -> list[str]:
    """What is wrong after all moments of the plan, which come in a random order."""
    order = [fault for fault, count in plan.items() for _ in range(max(1, round(count * share)))]
    stand.rng.shuffle(order)
    found: list[str] = []
    proof = Proof()
    for number, fault in enumerate(order, start=1):
        row = table.rows.setdefault((fault.name, name), Row())
        before, started = sums_of(stand), time.monotonic()
        charged, proof = proof.charged, await stand.moment(fault)
        after = sums_of(stand)
        row.moments += 1
        row.lines += after[0] - before[0]
        row.superseded += after[1] - before[1]
        row.findings += len(proof.faults)
        row.seconds += time.monotonic() - started
        row.notes.update(stand.notes)
        stand.notes.clear()
        print(
            f"{name} {number}/{len(order)} {fault.name}: {after[0] - before[0]} lines, {after[1] - before[1]} "
            f"superseded, {proof.lines} in SQL, {proof.in_store} in the store, {time.monotonic() - started:.1f} s"
            + "".join(f"\n    {text}" for text in proof.faults[:5])
        )
        found += [f"moment {number}, {fault.name}: {text}" for text in proof.faults[:5]]
        if proof.charged <= charged and fault.after is None:  # a store that is put back afterwards loses charges
            found.append(f"moment {number}, {fault.name}: no call was charged")
    if share == 1.0 and proof.in_store >= proof.lines:
        found.append("no line has left the store")
    return found


def sums_of(stand: Stand) -> tuple[int, int]:
    """Lines in the database, and superseded ones."""
    rows = stand.sql.rows("SELECT (SELECT count(*) FROM ledger_lines), (SELECT count(*) FROM superseded_lines)")
    return rows[0] if rows else (0, 0)


@pytest.mark.holds("operations/history.md#history-13")
@pytest.mark.gen_test(timeout=LONG)
async def test_embedded_store_with_sqlite(
    yard: Yard, upstream: FakeUpstream, share: float, table: Table, disk: FullDisk
) -> None:
    gateway = gateway_of(yard, upstream, name="one", disk=disk)
    await gateway.started(workers=WORKERS)
    stand = Stand([gateway], upstream, Sql(file=gateway.data_dir / "gateway.db"), random.Random(table.seed))
    stand.parts["disk"] = disk
    await stand.open_accounts()
    assert await findings(table, "embedded, SQLite", stand, EMBEDDED, share) == []


@pytest.mark.holds("operations/history.md#history-13")
@pytest.mark.gen_test(timeout=LONG)
async def test_two_machines_with_postgresql(
    server: PostgresServer, yard: Yard, upstream: FakeUpstream, share: float, table: Table, disk: FullDisk
) -> None:
    addresses = urls(server, 2)
    async with own_store(yard.folder / "elsewhere", proxied=False) as (store, url):
        gateways = [
            gateway_of(yard, upstream, name=f"m{number}", store=url, database=address)
            for number, address in enumerate(addresses)
        ]
        for gateway in gateways:
            await gateway.started(workers=WORKERS)
        stand = Stand(gateways, upstream, Sql(url=addresses[0]), random.Random(table.seed + 1))
        database = addresses[0].partition("@/")[2].partition("?")[0]
        stand.parts |= {"disk": disk, "postgres": server, "store": store, "database": database}
        await stand.open_accounts()
        assert await findings(table, "two machines, PostgreSQL", stand, TWO_MACHINES, share) == []
        await yard.clear()


@pytest.mark.holds("operations/history.md#history-13")
@pytest.mark.gen_test(timeout=LONG)
async def test_sentinels_with_sqlite(
    trio: SentinelTrio, yard: Yard, upstream: FakeUpstream, share: float, table: Table
) -> None:
    gateway = gateway_of(yard, upstream, name="one", store=trio.url)
    await gateway.started(workers=WORKERS)
    stand = Stand([gateway], upstream, Sql(file=gateway.data_dir / "gateway.db"), random.Random(table.seed + 2))
    stand.parts |= {"trio": trio, "yard": yard, "url": trio.url}
    await stand.open_accounts()
    assert await findings(table, "sentinels, SQLite", stand, TRIO_SQLITE, share) == []


@pytest.mark.holds("operations/history.md#history-13")
@pytest.mark.gen_test(timeout=LONG)
async def test_sentinels_with_postgresql(
    trio: SentinelTrio, server: PostgresServer, yard: Yard, upstream: FakeUpstream, share: float, table: Table
) -> None:
    (address,) = urls(server, 1)
    gateway = gateway_of(yard, upstream, name="one", store=trio.url, database=address)
    await gateway.started(workers=WORKERS)
    stand = Stand([gateway], upstream, Sql(url=address), random.Random(table.seed + 3))
    stand.parts |= {"trio": trio, "postgres": server}
    await stand.open_accounts()
    assert await findings(table, "sentinels, PostgreSQL", stand, TRIO_POSTGRES, share) == []
