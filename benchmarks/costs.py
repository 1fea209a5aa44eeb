"""What a request, a chunk, a stream, an account and a ledger line cost, measured and written to costs.json.

::

    python -m benchmarks costs                      # about a minute; `scale` reckons with what it writes
    python -m benchmarks costs --to mine.json --seconds 10

CPU is that of the processes, commands and bytes are what the store says of itself (INFO), both divided by the calls
that the ledger has booked meanwhile. Sharp edge: bytes hold anywhere; CPU for this machine alone, while it is quiet.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
import redis
from msgspec import Struct, structs
from rich.console import Console

from benchmarks.contenders import Place
from benchmarks.cores import available_cores, pinned, share_out
from benchmarks.database_size import database_line
from benchmarks.fault import BenchFault
from benchmarks.load import Load
from benchmarks.page import DOCS, put
from benchmarks.populated import Population, Site, populate, populated
from benchmarks.processes import module_of, rss, tree
from benchmarks.report import machine, measured_on
from benchmarks.rounds import IMPORTER, Measurement, Plan, measure
from benchmarks.start import prepare
from benchmarks.upstream import mock_upstream
from gateway.store import EmbeddedServer

FILE = Path(__file__).with_name("costs.json")
CONNECTIONS = 64
ACCOUNTS = 1000
LINES = 20_000
STREAMING = "mock-100x50"
STREAMS = 1000
HELD = "mock-2x1200000"
HOLDS = 1000
BUSY = 10.0  # percent of a core
PEPPER = b"benchmark pepper, not a secret"


class Costs(Struct, frozen=True, kw_only=True):
    """The document; CPU in µs, memory and disk in bytes."""

    machine: dict[str, str | int]
    others_percent: float  # of the gateway's core, used by somebody else meanwhile: above a few, CPU is told too high
    # The gateway
    cpu_per_request: float  # of all processes, the importer too where it was measured
    cpu_per_request_spread: float  # over many accounts
    importer_cpu_per_request: float | None = None  # a part of it; None: measured before there was an importer
    importer_cpu_per_request_spread: float | None = None
    cpu_per_chunk: float
    worker_memory: int
    supervisor_memory: int
    stream_memory: int  # of one that is open, in its worker
    # The store's thread
    store_cpu_per_request: float  # of one account, whose calls share scripts
    store_cpu_per_request_spread: float  # over many accounts, each call with scripts of its own
    scripts_per_request: float
    scripts_per_request_spread: float
    commands_per_request: float  # within the scripts
    commands_per_request_spread: float
    # The store's memory
    empty_store_memory: int
    account_memory: int
    key_memory: int
    line_memory: int  # until it is trimmed
    compact_line_memory: int | None = None  # the same with `store.compact_lines`
    marker_memory: int  # for 24 hours after a call
    hold_memory: int  # while a call runs
    # Disk
    aof_per_request: int  # until the file is rewritten
    line_on_disk: int  # in a rewritten file, at most as much as in memory
    journal_per_request: int  # for some two minutes
    log_per_request: int
    # The database, per ledger line
    sqlite_line: int | None = None
    postgres_line: int | None = None
    importer_cpu_per_line: float | None = None  # while it catches up; under load it waits for calls and falls behind


@click.command()
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(1, 60), help="Of each measurement.")
@click.option(
    "--to", "file", default=FILE, type=click.Path(path_type=Path), metavar="FILE", help="Default: costs.json."
)
@click.option("--database", default="", metavar="URL", help="An empty PostgreSQL database, to measure lines in it.")
def costs(*, seconds: float, file: Path, database: str) -> None:
    """Measure what `scale` reckons with and write it to FILE; of costs.json, docs/scaling.md gets a table."""
    messages = Console(stderr=True)
    plan = Plan(rounds=1, seconds=seconds, warmup=2.0, cores=available_cores(), tell=messages.print)
    try:
        prepare()
        with pinned(share_out(plan.cores, workers=1).load):
            found = take(plan, database)
    except BenchFault as fault:
        raise click.ClickException(str(fault)) from None
    text = msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"
    file.write_bytes(text)
    if file == FILE:
        put(DOCS / "scaling.md", "costs", table_of(found), by="costs")
    click.echo(text.decode(), nl=False)


def take(plan: Plan, database: str) -> Costs:
    """Everything, in five parts."""
    plan.tell("what things take in the store")
    memory = store_memory()
    plan.tell("what lines take in the database")
    lines = database_line()
    in_postgres = database_line(database) if database else None
    in_database: dict[str, Any] = {
        "sqlite_line": lines.size,
        "postgres_line": in_postgres and in_postgres.size,
        "importer_cpu_per_line": (in_postgres or lines).cpu,
    }
    plan.tell("one account")
    one = one_account(plan)
    plan.tell("open streams")
    held = open_streams(plan)
    plan.tell(f"{ACCOUNTS:,} accounts")
    many = many_accounts(plan)
    return Costs(
        machine=machine(),
        others_percent=round(max(one.pop("others"), many.pop("others")), 1),
        **memory,
        **in_database,
        **one,
        **held,
        **many,
    )


def table_of(costs: Costs) -> str:
    """The table of docs/scaling.md."""
    rows = [
        *_request_rows("one account", costs.cpu_per_request, costs.importer_cpu_per_request),
        *_request_rows(
            f"{ACCOUNTS:,} accounts in turn", costs.cpu_per_request_spread, costs.importer_cpu_per_request_spread
        ),
        (f"worker: CPU per streamed chunk, {STREAMS:,} streams", f"{costs.cpu_per_chunk:.0f} µs"),
        ("worker: memory when it starts", f"{costs.worker_memory / 2**20:.0f} MiB"),
        ("worker: memory per open stream", f"{costs.stream_memory / 1024:.1f} KiB"),
        ("store: CPU per request, one account", f"{costs.store_cpu_per_request:.0f} µs"),
        (f"the same, {ACCOUNTS:,} accounts in turn", f"{costs.store_cpu_per_request_spread:.0f} µs"),
        (
            "scripts per request, commands in them, one account",
            f"{costs.scripts_per_request:.2f}, {costs.commands_per_request:.1f}",
        ),
        (
            f"the same, {ACCOUNTS:,} accounts in turn",
            f"{costs.scripts_per_request_spread:.2f}, {costs.commands_per_request_spread:.1f}",
        ),
        ("store: memory per account, with its first ledger line", f"{costs.account_memory:,} bytes"),
        ("store: memory per key", f"{costs.key_memory:,} bytes"),
        ("store: memory per ledger line, until it is trimmed", f"{costs.line_memory:,} bytes"),
        *_bytes_row("the same with store.compact_lines", costs.compact_line_memory),
        ("store: memory per settled call, for 24 hours (its marker)", f"{costs.marker_memory:,} bytes"),
        ("store: memory per call that runs (its hold)", f"{costs.hold_memory:,} bytes"),
        ("append-only file per request", f"{costs.aof_per_request:,} bytes"),
        ("a ledger line in it once it was rewritten", f"{costs.line_on_disk:,} bytes"),
        ("journal per request, for two minutes", f"{costs.journal_per_request:,} bytes"),
        ("access log per request", f"{costs.log_per_request:,} bytes"),
        *_cpu_row("importer: CPU per ledger line, while it catches up", costs.importer_cpu_per_line),
        *_bytes_row("database: a ledger line with indexes and sums, SQLite", costs.sqlite_line),
        *_bytes_row("the same in PostgreSQL", costs.postgres_line),
    ]
    told = f"{costs.machine['cpu']}, Python {costs.machine['python']}, {measured_on([costs.machine])}"
    busy = f"; others used {costs.others_percent:.0f} % of the gateway's core meanwhile, so CPU is told too high"
    lines = ["| what | costs |", "|---|--:|", *(f"| {what} | {amount} |" for what, amount in rows)]
    return "\n".join(lines) + f"\n\n{told}{busy if costs.others_percent > BUSY else ''}.\n"


def _cpu_row(what: str, amount: float | None) -> list[tuple[str, str]]:
    """A row, if it was measured."""
    return [] if amount is None else [(what, f"{amount:.0f} µs")]


def _bytes_row(what: str, amount: int | None) -> list[tuple[str, str]]:
    """A row, if it was measured."""
    return [] if amount is None else [(what, f"{amount:,} bytes")]


def _request_rows(accounts: str, cpu: float, importer: float | None) -> list[tuple[str, str]]:
    """The CPU of a request by process, and the sum."""
    if importer is None:
        return [
            (f"gateway without the importer: CPU per request, {accounts}", f"{cpu:.0f} µs"),
            ("importer: CPU per request", "not measured"),
        ]
    return [
        (f"gateway without the importer: CPU per request, {accounts}", f"{cpu - importer:.0f} µs"),
        ("importer: CPU per request", f"{importer:.0f} µs"),
        ("sum of both", f"{cpu:.0f} µs"),
    ]


# The store by itself -------------------------------------------------------------------------------------------------


def store_memory() -> dict[str, Any]:
    """Bytes of the store's memory by what is in it."""

    def used(population: Population) -> tuple[int, int]:
        """Memory, and the size of the file once it is rewritten."""
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            server = EmbeddedServer(Path(name))
            server.start_blocking()
            try:
                asyncio.run(populate(server.socket, PEPPER, population))
                with redis.Redis(unix_socket_path=str(server.socket)) as client:
                    client.bgrewriteaof()
                    while told(client)["aof_rewrite_in_progress"] or told(client)["aof_rewrite_scheduled"]:
                        time.sleep(0.05)
                    info = told(client)
                    return int(info["used_memory"]), int(info["aof_current_size"])
            finally:
                server.stop_blocking()

    empty, _ = used(Population(accounts=1))
    accounts, _ = used(Population(accounts=1 + ACCOUNTS))
    keys, _ = used(Population(accounts=1, keys=1 + ACCOUNTS))
    lines, on_disk = used(Population(accounts=1, lines=LINES))
    compact_lines, _ = used(Population(accounts=1, lines=LINES, compact=True))
    key = (keys - empty) / ACCOUNTS
    return {
        "empty_store_memory": empty,
        "account_memory": round((accounts - empty) / ACCOUNTS - key),
        "key_memory": round(key),
        "line_memory": round((lines - empty) / LINES),
        "compact_line_memory": round((compact_lines - empty) / LINES),
        "line_on_disk": round(on_disk / LINES),
    }


# Under load ----------------------------------------------------------------------------------------------------------


def one_account(plan: Plan) -> dict[str, Any]:
    """Calls of one account, then streams."""
    with _site(Population(), plan) as (site, place), redis.Redis(unix_socket_path=str(site.store.socket)) as client:
        processes = tree(site.server.pids)
        importer = sum(stat.rss for stat in processes if module_of(stat.pid) == IMPORTER)
        supervisor = rss(site.server.pids) - importer
        worker = sum(stat.rss for stat in processes if module_of(stat.pid) == "gateway.runtime.worker")
        json, books = _booked(site, place, plan, client, Load(mode="json", connections=CONNECTIONS))
        streams = _measured(site, place, plan, Load(mode="streams", connections=STREAMS, model=STREAMING, chunks=100))
    return {
        "others": 100 * json.others_cpu / json.result.seconds,
        "cpu_per_request": round(json.cpu / json.result.completed * 1e6, 1),
        "importer_cpu_per_request": round(json.importer_cpu / json.result.completed * 1e6, 1),
        "cpu_per_chunk": round(streams.cpu / streams.result.chunks * 1e6, 1),
        "worker_memory": worker,
        "supervisor_memory": supervisor - worker,
        "store_cpu_per_request": round(json.store_cpu / json.result.completed * 1e6, 1),
        "scripts_per_request": round(books["scripts"], 2),
        "commands_per_request": round(books["commands"], 1),
        "marker_memory": round(books["memory"] - books["lines"]),
        "aof_per_request": round(books["aof"]),
        "journal_per_request": round(books["journal"]),
        "log_per_request": round(books["log"]),
    }


def open_streams(plan: Plan) -> dict[str, Any]:
    """Streams that are only open, each time in a gateway that has done nothing else: used memory is not given back.

    The memory of a stream is the difference of two numbers of streams: with the first calls the importer loads what it
    needs, 55 MB.
    """
    few, hold = _open_streams(plan, HOLDS)
    many, _ = _open_streams(plan, 3 * HOLDS)
    return {"stream_memory": round((many - few) / (2 * HOLDS)), "hold_memory": hold}


def _open_streams(plan: Plan, count: int) -> tuple[int, int]:
    """Bytes of all processes with so many open streams, and of the store per hold."""
    short = structs.replace(plan, warmup=0.5, seconds=1.0)
    with _site(Population(), plan) as (site, place), redis.Redis(unix_socket_path=str(site.store.socket)) as client:
        before, inside = int(told(client)["used_memory"]), list[int]()
        load = Load(mode="idle", connections=count, model=HELD)
        held = _measured(site, place, short, load, on_end=lambda: inside.append(int(told(client)["used_memory"])))
    if held.result.held != count:
        raise BenchFault(f"{held.result.held:,} of {count:,} streams are open")
    return held.rss_after, round((inside[0] - before) / count)


def many_accounts(plan: Plan) -> dict[str, Any]:
    """The same calls, each of another account than those before it."""
    population = Population(accounts=ACCOUNTS)
    with _site(population, plan) as (site, place), redis.Redis(unix_socket_path=str(site.store.socket)) as client:
        load = Load(mode="json", connections=CONNECTIONS)
        _measured(site, place, plan, load)  # the first use of a key costs more
        json, books = _booked(site, place, plan, client, load)
    return {
        "others": 100 * json.others_cpu / json.result.seconds,
        "cpu_per_request_spread": round(json.cpu / json.result.completed * 1e6, 1),
        "importer_cpu_per_request_spread": round(json.importer_cpu / json.result.completed * 1e6, 1),
        "store_cpu_per_request_spread": round(json.store_cpu / json.result.completed * 1e6, 1),
        "scripts_per_request_spread": round(books["scripts"], 2),
        "commands_per_request_spread": round(books["commands"], 1),
    }


@contextmanager
def _site(population: Population, plan: Plan) -> Iterator[tuple[Site, Place]]:
    cores = share_out(plan.cores, workers=1)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        mock_upstream(Path(name), cores=cores.load) as upstream,
    ):
        place = Place(Path(name), cores=cores, upstream=upstream, models=("mock", STREAMING, HELD))
        with populated(population, place) as site:
            yield site, place


def _measured(site: Site, place: Place, plan: Plan, load: Load, **options: Any) -> Measurement:
    requests = site.requests(load) if load.model == "mock" else ()
    taken = measure(load, site.server, place, plan, requests=requests, **options)
    if taken.result.faults:
        raise BenchFault(taken.result.faults)
    return taken


def _booked(
    site: Site, place: Place, plan: Plan, client: redis.Redis, load: Load
) -> tuple[Measurement, dict[str, float]]:
    """The load, and by booked call: scripts, the commands in them, memory, bytes of ledger lines and of files."""
    client.config_set("auto-aof-rewrite-percentage", 0)  # or a file would become smaller meanwhile
    before = _books(site, place, client)
    client.config_resetstat()
    taken = _measured(site, place, plan, load)
    ran = {name: stats["calls"] for name, stats in told(client).items() if name.startswith("cmdstat_")}
    after = _books(site, place, client)
    calls = after.pop("calls") - before.pop("calls")
    scripts = ran.pop("cmdstat_evalsha")
    found = {name: (after[name] - before[name]) / calls for name in after}
    return taken, found | {"scripts": scripts / calls, "commands": sum(ran.values()) / calls}


def _books(site: Site, place: Place, client: redis.Redis) -> dict[str, float]:
    """How many calls the ledger has booked, and how large everything is that grows with them."""
    names = [f"{{a:a{number:07}}}" for number in range(len(site.keys))]
    pipeline = client.pipeline(transaction=False)
    for name in names:
        pipeline.hget(name, "seq")
    calls = sum(int(seq or 0) for seq in pipeline.execute())
    info = told(client)
    return {
        "calls": calls,
        "memory": int(info["used_memory"]),
        "lines": int(client.memory_usage(f"{names[0]}:lg", samples=0) or 0),
        "aof": int(info["aof_current_size"]),
        "journal": sum(file.stat().st_size for file in (site.data_dir / "journal").glob("*.jsonl")),
        "log": (place.folder / "gateway.log").stat().st_size,
    }


def told(client: redis.Redis) -> dict[str, Any]:
    """What the store says of itself."""
    return dict(client.info("everything"))
