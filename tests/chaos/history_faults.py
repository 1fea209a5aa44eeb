"""What happens to the parts of a `Stand`; every function returns when the operator's part of the mending is done."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import psycopg

from tests.chaos.chaos_store import Away
from tests.chaos.history_proof import SUPERSEDED, Sql
from tests.chaos.history_stand import WORKERS, Fault, Stand, copy_of_store, gateway_of, put_back
from tests.chaos.traffic import PER_TOKEN, traffic_on
from tests.polling import until
from tests.postgres import PostgresServer
from tests.processes.served import Served, is_alive

LOCK_HOLDER = """SELECT activity.usename FROM pg_locks AS locks JOIN pg_stat_activity AS activity USING (pid)
    WHERE locks.locktype = 'advisory' AND locks.objid = 7205182 AND locks.granted"""
REFUSAL = "The store's history is in another database"
WAITS = "the importer waits"


async def _importer(gateway: Served) -> int:
    return await until(lambda: gateway.importer, within=30.0)


async def importer_killed(stand: Stand) -> None:
    """Once, or again while it starts."""
    gateway = stand.one_gateway()
    for _ in range(stand.rng.choice((1, 1, 2))):
        pid = await _importer(gateway)
        await asyncio.sleep(stand.rng.uniform(0.0, 0.3))
        os.kill(pid, signal.SIGKILL)
        await until(lambda pid=pid: not is_alive(pid))


async def supervisor_killed(stand: Stand) -> None:
    """Its workers drain; an embedded store ends with it. The operator's service manager starts it again."""
    gateway = stand.one_gateway()
    os.kill(gateway.pid, signal.SIGKILL)
    await gateway.ended()
    await gateway.started(workers=WORKERS)


async def embedded_store_killed(stand: Stand) -> None:
    """The supervisor starts it again."""
    pid = stand.first.store_pid
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not is_alive(pid))

    async def ready() -> bool:
        return await stand.first.readiness() == 200

    await until(ready, within=20.0)


async def own_store_killed(stand: Stand) -> None:
    """Somebody starts it again."""
    away: Away = stand.parts["store"]
    await away.killed(stand.rng.uniform(0.0, 1.5))


async def database_killed(stand: Stand) -> None:
    """The whole server, or the process of one of its clients, after which it restarts itself."""
    server: PostgresServer = stand.parts["postgres"]
    if stand.rng.random() < 0.3:
        with psycopg.connect(server.url()) as connection:
            found = connection.execute(b"SELECT pid FROM pg_stat_activity WHERE datname LIKE 'test_%'").fetchall()
        if found:
            os.kill(stand.rng.choice(found)[0], signal.SIGKILL)
        return
    server.kill()
    await asyncio.sleep(stand.rng.uniform(0.0, 2.0))
    await asyncio.to_thread(server.start)


async def disk_full(stand: Stand) -> None:
    """Until an importer has noticed, or for some seconds."""
    waits, began = _waits(stand), time.monotonic()
    seconds = stand.rng.uniform(1.0, 4.0)
    with stand.parts["disk"].full():
        while time.monotonic() < began + seconds:
            await asyncio.sleep(0.05)
    if _waits(stand) > waits:
        stand.notes.append("the importer waited for a disk")
    server: PostgresServer | None = stand.parts.get("postgres")
    if server is not None and not server.is_running:
        stand.notes.append("PostgreSQL had ended")
        server.stop()
        await asyncio.to_thread(server.start)


def _waits(stand: Stand) -> int:
    return sum(gateway.text.count(WAITS) for gateway in stand.gateways)


async def worker_stopped(stand: Stand) -> None:
    """A worker is stopped, the leases of its calls end and are reclaimed, and it goes on."""
    pid = stand.rng.choice(stand.first.workers)
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(0.1)
        await stand.end_leases()
        await asyncio.sleep(stand.rng.uniform(0.0, 1.0))
    finally:
        os.kill(pid, signal.SIGCONT)


async def importer_stopped(stand: Stand) -> None:
    """The lock on SQLite's file has no lease: nobody imports meanwhile."""
    pid = await _importer(stand.first)
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(stand.rng.uniform(0.5, 3.0))
    os.kill(pid, signal.SIGCONT)


async def lock_holder_stopped(stand: Stand) -> None:
    """The importer with the lock is stopped in a transaction, loses its sessions, and goes on beside another one."""
    server: PostgresServer = stand.parts["postgres"]
    url = server.url(stand.parts["database"])
    with psycopg.connect(url) as blocking, psycopg.connect(url, autocommit=True) as connection:
        with blocking.transaction():
            blocking.execute(b"LOCK TABLE ledger_lines IN EXCLUSIVE MODE")
            user = await until(lambda: _blocked_holder(connection), within=20.0)
            holder = stand.gateways[int(user.removeprefix("machine"))]
            stopped = holder.importer
            os.kill(stopped, signal.SIGSTOP)
        try:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [user])
            await until(lambda: _other_holder(connection, user), within=20.0)
            await asyncio.sleep(stand.rng.uniform(0.2, 1.5))
        finally:
            os.kill(stopped, signal.SIGCONT)
    stand.notes.append("another importer took over from a stopped one")


def _blocked_holder(connection: psycopg.Connection[Any]) -> str:
    """The role of the importer with the lock, once it waits for a table; empty before."""
    found = _holder(connection)
    waiting = b"SELECT usename FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    blocked = {name for (name,) in connection.execute(waiting).fetchall()}
    return found if found in blocked else ""


def _other_holder(connection: psycopg.Connection[Any], user: str) -> bool:
    return _holder(connection) not in ("", user)


def _holder(connection: psycopg.Connection[Any]) -> str:
    """The role of the session that has the importers' lock; empty for none."""
    found = connection.execute(LOCK_HOLDER.encode()).fetchone()
    return str(found[0]) if found is not None else ""


# Stores that lose something ------------------------------------------------------------------------------------------


async def failed_over(stand: Stand) -> None:
    """The new master lacks what was written in the last moment, and SQL has some of it."""
    behind = stand.rng.uniform(0.2, 0.8)
    await asyncio.to_thread(stand.parts["trio"].fail_over, behind=behind)


async def older_store_with_journals(stand: Stand) -> None:
    """The machine of a gateway with its own store is lost, and starts on a copy of the store that is seconds old."""
    gateway = stand.first
    root = gateway.data_dir / "store"
    copy = copy_of_store(root, gateway.folder / "copy")
    await asyncio.sleep(stand.rng.uniform(0.5, 3.0))
    if stand.rng.random() < 0.5:
        await stand.kill_machine(gateway)
    else:
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGTERM)
        assert await gateway.ended() == 0
    put_back(copy, root)
    await gateway.started(workers=WORKERS)


async def older_store_while_gateways_run(stand: Stand) -> None:
    """A store of its own is put back by some seconds, and the gateways reconnect to it."""
    away: Away = stand.parts["store"]
    root = away.folder / "store"
    copy = copy_of_store(root, stand.first.folder / "copy")
    await asyncio.sleep(stand.rng.uniform(0.5, 3.0))
    pid = away.server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await away.server.stop()
    put_back(copy, root)
    away.server = type(away.server)(away.folder)
    await away.server.start()


async def copy_store(stand: Stand) -> None:
    """A copy that `older_store_alone` uses."""
    copy_of_store(stand.first.data_dir / "store", stand.first.folder / "copy")
    await asyncio.sleep(stand.rng.uniform(0.5, 2.0))


async def older_store_alone(stand: Stand) -> None:
    """The copy is put back without the journals: what was charged after it is lost, and SQL keeps it aside."""
    gateway = stand.first
    before = len(stand.sql.lines(SUPERSEDED))
    await stand.kill_machine(gateway)
    put_back(gateway.folder / "copy", gateway.data_dir / "store")
    shutil.rmtree(gateway.data_dir / "journal")
    await gateway.started(workers=WORKERS)
    await until(lambda: len(stand.sql.lines(SUPERSEDED)) > before, within=60.0)
    await stand.settled()
    for line in stand.sql.lines(SUPERSEDED)[before:]:
        stand.lost[line.call] = stand.lost.get(line.call, 0) - line.amount // PER_TOKEN
    assert (await gateway.command("superseded", "acknowledge", "--all"))["acknowledged"] > 0
    stand.notes.append("lines of a lost store were superseded")


async def second_machine(stand: Stand) -> None:
    """A machine on the same store with a database of its own: it serves, and it does not import."""
    number = stand.parts["machines"] = stand.parts.get("machines", 0) + 1
    machine = gateway_of(stand.parts["yard"], stand.upstream, name=f"m{number}", store=stand.parts["url"])
    await machine.started(workers=WORKERS)
    async with traffic_on(machine) as traffic:
        traffic.tag = "call"
        for key in stand.keys.values():
            traffic.keep(2, 3, stream=False, key=key, pause=0.05)
        await until(lambda: REFUSAL in machine.text, within=90.0)  # an importer has a low priority
        check = await asyncio.to_thread(machine.run, "check")
        assert check.returncode == 1, check.stdout
        assert "another database" in check.stdout + check.stderr, check.stdout + check.stderr
        await traffic.ended()
        stand.calls += traffic.calls
    assert any(call.answered_well for call in traffic.calls)
    assert _own_lines(machine.data_dir / "gateway.db") == 0
    assert machine.process is not None
    machine.process.send_signal(signal.SIGTERM)
    assert await machine.ended() == 0
    stand.notes.append("a second database was refused")


def _own_lines(file: Path) -> int:
    return len(Sql(file=file).lines())


IMPORTER = Fault("importer killed", importer_killed)
SUPERVISOR = Fault("supervisor killed", supervisor_killed)
EMBEDDED_STORE = Fault("store killed", embedded_store_killed)
OWN_STORE = Fault("store killed", own_store_killed)
DATABASE = Fault("database killed", database_killed)
FULL = Fault("SQL disk full", disk_full)
WORKER_LEASE = Fault("worker stopped past its lease", worker_stopped)
STOPPED = Fault("lock holder stopped", importer_stopped)
TAKEN_OVER = Fault("lock holder stopped", lock_holder_stopped)
FAILOVER = Fault("failover", failed_over)
OLDER_STARTED = Fault("older store", older_store_with_journals)
OLDER_RUNNING = Fault("older store", older_store_while_gateways_run)
OLDER_ALONE = Fault("older store, no journals", copy_store, older_store_alone)
SECOND_MACHINE = Fault("second machine", second_machine)
