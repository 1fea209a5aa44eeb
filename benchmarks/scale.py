"""What a site of a given size needs, reckoned from measured costs: cores, store servers, memory, disk.

::

    python -m benchmarks scale --requests-per-second 1000 --streams 5000 --accounts 20000

Cores of the gateway, servers of the store, memory of both, disk per day, by multiplication with costs.json, which
`costs` measures. Sharp edge: it is a reckoning for a steady load. Peaks are what `--load` leaves room for.
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
from benchmarks.report import measured_on

DAY = 86_400
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
    days: int  # that ledger lines stay in the store
    load: float  # share of a core that may be used
    cores: int  # of a gateway's machine
    memory: float  # GiB that a store server may hold


class Need(Struct, frozen=True):
    """One line of the answer: how much of what, and where it comes from."""

    what: str
    amount: str
    because: str


def needs(site: Site, costs: Costs) -> Iterator[Need]:
    """Everything, part by part."""
    yield from _gateway(site, costs)
    yield from _store(site, costs)
    yield from _disk(site, costs)


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
    lines = site.requests * DAY * site.days * costs.line_memory
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
        f"{size(lines)} ledger lines of {site.days} days, {size(markers)} markers of {MARKER_DAYS} day, {size(people)} "
        f"accounts and keys, {size(holds)} holds",
    )
    yield Need("… while files are rewritten", size(DOUBLED * memory), "at worst, when everything changes meanwhile")


def _disk(site: Site, costs: Costs) -> Iterator[Need]:
    calls = site.requests * DAY
    yield Need(
        "append-only file", f"{size(calls * costs.aof_per_request)}/day", "written; rewritten when it has doubled"
    )
    yield Need(
        "… at rest", size(calls * site.days * costs.line_on_disk), f"ledger lines of {site.days} days, once rewritten"
    )
    yield Need("journals", size(site.requests * JOURNAL_SECONDS * costs.journal_per_request), "the last two minutes")
    yield Need("access log", f"{size(calls * costs.log_per_request)}/day", "until you rotate it")


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
@click.option("--days", default=3, show_default=True, type=click.IntRange(2), help="Ledger lines stay in the store.")
@click.option("--load", default=0.5, show_default=True, type=click.FloatRange(0.05, 1), help="Of a core, at most.")
@click.option("--cores", default=4, show_default=True, type=click.IntRange(1), help="Of a gateway's machine.")
@click.option("--memory", default=32.0, show_default=True, type=click.FloatRange(1), help="GiB in a store server.")
@click.option("--costs", "file", default=FILE, type=click.Path(path_type=Path, exists=True), help="Measured costs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def scale(
    *,
    requests: float,
    streams: int,
    chunks: float,
    accounts: int,
    keys: int,
    largest: float,
    days: int,
    load: float,
    cores: int,
    memory: float,
    file: Path,
    as_json: bool,
) -> None:
    """Reckon what a site needs: cores, store servers, memory, disk per day."""
    costs = msgspec.json.decode(file.read_bytes(), type=Costs)
    site = Site(
        requests=requests,
        streams=streams,
        chunks=chunks,
        accounts=accounts,
        keys=keys,
        largest=largest,
        days=days,
        load=load,
        cores=cores,
        memory=memory,
    )
    found = list(needs(site, costs))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"site": site, "needs": found}), indent=1))
        return
    table = Table(title=f"{requests:,.0f} requests/s, {streams:,} streams, {accounts:,} accounts", title_justify="left")
    table.add_column("what")
    table.add_column("amount", justify="right")
    table.add_column("because")
    for need in found:
        table.add_row(need.what, need.amount, need.because)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    console.print(
        f"Costs on {costs.machine['cpu']}, {measured_on([costs.machine])}; "
        f"others used {costs.others_percent:.0f} % of the core."
    )
    if costs.importer_cpu_per_request is None:
        console.print("These costs have no CPU of the importer: `python -m benchmarks costs` measures it.")
