"""What a site of a given size needs, and what reaches its limit first, computed from measured costs.

::

    python -m benchmarks scale --requests-per-second 1000 --streams 5000 --accounts 20000

Cores of the gateway, servers of the store, memory of both, the database, disk per day, by multiplication with
costs.json, which `costs` measures. What cannot be made larger by another machine has a limit, as requests a second;
the lowest one is the first. Sharp edge: it is computed for a steady load. Peaks are what `--load` leaves room for.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from benchmarks.costs import FILE, Costs
from benchmarks.page import DOCS, put
from benchmarks.report import measured_on

DAY, HOUR = 86_400, 3_600
MARKER_DAYS = 1  # how long a settled call is remembered by its id
JOURNAL_SECONDS = 120  # a segment is open for 30 s, kept for 60 s, and removed when the next one ends
DOUBLED = 2  # a rewrite of the append-only file: both files are there, and memory is copied as it changes


class Site(Struct, frozen=True, kw_only=True):
    """What is asked of a site."""

    requests: float  # per second
    streams: int  # open at a time
    chunks: float  # per second and stream
    accounts: int
    keys: int  # of each account
    largest: float  # share of all requests that one account makes
    hours: float  # that ledger lines stay in the store
    compact: bool  # whether they are stored in the compact form
    kept: float  # days that they stay in the database
    database: float  # TiB that the database may take
    load: float  # share of a core that may be used
    cores: int  # of a gateway's machine
    memory: float  # GiB that a store server may hold


#: 10,000 requests a second of 1,000,000 accounts, a tenth of them streams of 5 s.
LARGE = Site(
    requests=10_000,
    streams=5_000,
    chunks=20,
    accounts=1_000_000,
    keys=1,
    largest=0.1,
    hours=25,
    compact=True,
    kept=30,
    database=20,
    load=0.5,
    cores=16,
    memory=64,
)


class Need(Struct, frozen=True):
    """One line of the answer: how much of what, and where it comes from."""

    what: str
    amount: str
    because: str


class Limit(Struct, frozen=True):
    """The rate at which a part is used up that another machine does not make larger."""

    what: str
    requests: float  # per second, of the whole site
    because: str


def needs(site: Site, costs: Costs) -> Iterator[Need]:
    """Everything, part by part."""
    yield from _gateway(site, costs)
    yield from _store(site, costs)
    yield from _database(site, costs)
    yield from _disk(site, costs)


def limits(site: Site, costs: Costs) -> list[Limit]:
    """Those that the costs know of, the lowest one first."""
    return sorted(_limits(site, costs), key=lambda limit: limit.requests)


def _limits(site: Site, costs: Costs) -> Iterator[Limit]:
    if site.largest:
        yield Limit(
            "the largest account",
            site.load * 1e6 / costs.store_cpu_per_request / site.largest,
            f"one store server has all of it, and {site.largest:.0%} of the requests; split the account",
        )
    if costs.importer_cpu_per_line:
        yield Limit(
            "the importer",
            site.load * 1e6 / costs.importer_cpu_per_line,
            f"one process copies all lines, {costs.importer_cpu_per_line:.0f} µs each; beyond it the store keeps lines "
            "longer",
        )
    if line := costs.postgres_line or costs.sqlite_line:
        yield Limit(
            "the database's disk",
            site.database * 2**40 / (line * site.kept * DAY),
            f"{site.database:g} TiB for lines of {site.kept:g} days; a smaller database.keep",
        )


def _gateway(site: Site, costs: Costs) -> Iterator[Need]:
    chunks = site.streams * site.chunks
    calls, pieces = site.requests * costs.cpu_per_request_spread / 1e6, chunks * costs.cpu_per_chunk / 1e6
    workers = max(1, math.ceil((calls + pieces) / site.load))
    yield Need(
        "gateway cores",
        f"{workers:,}",
        f"{calls:.2f} for requests and {pieces:.2f} for {chunks:,.0f} chunks/s, at {site.load:.0%}; a worker each",
    )
    machines = math.ceil(workers / site.cores)
    yield Need("gateway machines", f"{machines:,}", f"of {site.cores} cores; one more, so that one may fail")
    memory = machines * costs.supervisor_memory + workers * costs.worker_memory + site.streams * costs.stream_memory
    yield Need(
        "gateway memory",
        size(memory),
        f"{size(costs.worker_memory)} a worker, {size(costs.stream_memory)} for each of {site.streams:,} streams",
    )


def _store(site: Site, costs: Costs) -> Iterator[Need]:
    people = site.accounts * (costs.account_memory + site.keys * costs.key_memory)
    each = costs.compact_line_memory if site.compact and costs.compact_line_memory else costs.line_memory
    lines = site.requests * HOUR * site.hours * each
    markers = site.requests * DAY * MARKER_DAYS * costs.marker_memory
    holds = (site.streams + site.requests) * costs.hold_memory
    memory = people + lines + markers + holds
    ceiling = site.load * 1e6 / costs.store_cpu_per_request_spread
    by_cpu, by_memory = math.ceil(site.requests / ceiling), math.ceil(memory / site.memory / 2**30)
    yield Need(
        "store servers",
        f"{max(1, by_cpu, by_memory):,}",
        f"{by_cpu} by CPU: one carries {ceiling:,.0f} requests/s; {by_memory} by memory: {site.memory:g} GiB in each; "
        "more than one are a cluster's masters",
    )
    slot, one = site.load * 1e6 / costs.store_cpu_per_request, site.requests * site.largest
    verdict = "fits" if one <= slot else "does NOT fit, make several accounts of it"
    yield Need(
        "largest account",
        f"{one:,.0f}/s",
        f"{verdict}: a slot is on one server, which carries {slot:,.0f}/s of one account",
    )
    yield Need(
        "store memory",
        size(memory),
        f"{size(lines)} ledger lines of {site.hours:g} hours, {size(markers)} markers of {MARKER_DAYS} day, "
        f"{size(people)} accounts and keys, {size(holds)} holds",
    )
    yield Need("… while files are rewritten", size(DOUBLED * memory), "at worst, when everything changes meanwhile")


def _database(site: Site, costs: Costs) -> Iterator[Need]:
    line, kind = costs.postgres_line or costs.sqlite_line, "PostgreSQL" if costs.postgres_line else "SQLite"
    if not line:
        return
    daily = site.requests * DAY * line
    yield Need("database growth", f"{size(daily)}/day", f"{line} bytes a line in {kind}, with indexes and sums")
    yield Need("database at last", size(daily * site.kept), f"lines of {site.kept:g} days (database.keep)")


def _disk(site: Site, costs: Costs) -> Iterator[Need]:
    calls = site.requests * DAY
    yield Need(
        "append-only file", f"{size(calls * costs.aof_per_request)}/day", "written; rewritten when it has doubled"
    )
    yield Need(
        "… at rest",
        size(site.requests * HOUR * site.hours * costs.line_on_disk),
        f"ledger lines of {site.hours:g} hours, once rewritten",
    )
    yield Need("journals", size(site.requests * JOURNAL_SECONDS * costs.journal_per_request), "the last two minutes")
    yield Need("access log", f"{size(calls * costs.log_per_request)}/day", "until you rotate it")


def page_table(site: Site, costs: Costs) -> str:
    """The tables of docs/scaling.md."""
    rows = [f"| {need.what} | {need.amount} | {need.because} |" for need in needs(site, costs)]
    ends = [f"| {limit.what} | {limit.requests:,.0f} | {limit.because} |" for limit in limits(site, costs)]
    return "\n".join(
        [
            "| what | amount | because |",
            "|---|--:|---|",
            *rows,
            "",
            "| what reaches its limit | at requests a second | because |",
            "|---|--:|---|",
            *ends,
            "",
        ]
    )


def size(amount: float) -> str:
    """Bytes for people."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if amount >= scale:
            return f"{amount / scale:,.1f} {unit}"
    return f"{amount:,.0f} bytes"


@click.command()
@click.option("--requests-per-second", "requests", default=1000.0, show_default=True, type=click.FloatRange(0))
@click.option("--streams", default=1000, show_default=True, type=click.IntRange(0), help="Open at a time.")
@click.option("--chunks-per-second", "chunks", default=20.0, show_default=True, help="Of each stream.")
@click.option("--accounts", default=1000, show_default=True, type=click.IntRange(1))
@click.option("--keys", default=3, show_default=True, type=click.IntRange(1), help="Of each account.")
@click.option("--largest", default=0.1, show_default=True, type=click.FloatRange(0, 1), help="Account's share of all.")
@click.option("--hours", default=48.0, show_default=True, type=click.FloatRange(25), help="store.keep_lines.")
@click.option("--compact", is_flag=True, help="store.compact_lines.")
@click.option("--kept", default=2555.0, show_default=True, type=click.FloatRange(2), help="database.keep, in days.")
@click.option("--database", default=8.0, show_default=True, type=click.FloatRange(0.001), help="TiB of its disk.")
@click.option("--load", default=0.5, show_default=True, type=click.FloatRange(0.05, 1), help="Of a core, at most.")
@click.option("--cores", default=4, show_default=True, type=click.IntRange(1), help="Of a gateway's machine.")
@click.option("--memory", default=32.0, show_default=True, type=click.FloatRange(1), help="GiB in a store server.")
@click.option("--costs", "file", default=FILE, type=click.Path(path_type=Path, exists=True), help="Measured costs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--large", is_flag=True, help="Compute the large site of docs/scaling.md, and write its tables there.")
def scale(
    *,
    requests: float,
    streams: int,
    chunks: float,
    accounts: int,
    keys: int,
    largest: float,
    hours: float,
    compact: bool,
    kept: float,
    database: float,
    load: float,
    cores: int,
    memory: float,
    file: Path,
    as_json: bool,
    large: bool,
) -> None:
    """Compute what a site needs: cores, store servers, memory, the database, disk per day; and its limits."""
    costs = msgspec.json.decode(file.read_bytes(), type=Costs)
    site = Site(
        requests=requests,
        streams=streams,
        chunks=chunks,
        accounts=accounts,
        keys=keys,
        largest=largest,
        hours=hours,
        compact=compact,
        kept=kept,
        database=database,
        load=load,
        cores=cores,
        memory=memory,
    )
    if large:
        site = LARGE
        put(DOCS / "scaling.md", "large site", page_table(site, costs), by="scale --large")
    found, ends = list(needs(site, costs)), limits(site, costs)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"site": site, "needs": found, "limits": ends}), indent=1))
        return
    title = f"{site.requests:,.0f} requests/s, {site.streams:,} streams, {site.accounts:,} accounts"
    table = Table(title=title, title_justify="left")
    table.add_column("what")
    table.add_column("amount", justify="right")
    table.add_column("because")
    for need in found:
        table.add_row(need.what, need.amount, need.because)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    last = Table(title="what reaches its limit first", title_justify="left")
    last.add_column("what")
    last.add_column("at requests/s", justify="right")
    last.add_column("because")
    for limit in ends:
        last.add_row(
            limit.what, f"{limit.requests:,.0f}{'' if limit.requests > site.requests else ' !'}", limit.because
        )
    console.print(last)
    console.print(
        f"Costs on {costs.machine['cpu']}, {measured_on([costs.machine])}; "
        f"others used {costs.others_percent:.0f} % of the core."
    )
    if costs.importer_cpu_per_request is None:
        console.print("These costs have no CPU of the importer: `python -m benchmarks costs` measures it.")
