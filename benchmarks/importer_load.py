"""`python -m benchmarks importer`: calls at half load without and beside the importer, and how far it is behind.

Phases take turns: the importer stopped by a signal, and at work on the worker's own core. What it could not copy while
it was stopped it copies before the next phase begins. The last phase has a steady rate of calls, each of which writes
one ledger line; a line's lag is the time between its write to the store and the first read that finds it in the
database, both looked for every 0.1 s.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median

import click
import redis
import sqlalchemy as sa
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from benchmarks.contenders.contender import Place, Running
from benchmarks.contenders.gateway import NO_CONSOLE, Gateway
from benchmarks.cores import Cores, available_cores, pinned, share_out
from benchmarks.fault import BenchFault
from benchmarks.load import Load, Result, Spread, http_request, run_load
from benchmarks.processes import CpuMeter, stopped
from benchmarks.rounds import IMPORTER
from benchmarks.start import prepare
from benchmarks.store_log import keep_log
from benchmarks.upstream import mock_upstream
from gateway.database.address import DatabaseAddress, postgres_address
from gateway.database.engine import Database
from gateway.database.tables import ledger_lines
from gateway.store.links import slot

ACCOUNT = "bench"
CONNECTIONS = 64
MOST = 1.10  # p99 beside the importer / without it
MOST_LAG = 2.0  # seconds, p99
EVERY = 0.1  # seconds between two looks
CAUGHT_UP_WITHIN = 120.0
LONGEST = 40.0  # seconds of a phase: an importer that is silent for 60 s is replaced
Drive = Callable[[Load, Running, float], Result]  # runs a load for so many seconds


class Phase(Struct, frozen=True):
    """What callers saw. `importer`: of a core, 0 to 1."""

    kind: str
    calls: int
    failures: str
    latency: Spread
    importer: float


class WithDatabase(Gateway):
    """The gateway of the other benchmarks, with another database."""

    def __init__(self, url: str) -> None:
        self._url = url

    def further_settings(self) -> str:
        return NO_CONSOLE + (f'[database]\nurl = "{self._url}"\n' if self._url else "")


class Progress:
    """How many lines of the account the store and the database have."""

    def __init__(self, server: Running, address: DatabaseAddress) -> None:
        self._store = redis.Redis(unix_socket_path=server.store_socket)
        self._database = Database.open(address)
        self._newest = sa.select(sa.func.max(ledger_lines.c.seq)).where(ledger_lines.c.account == ACCOUNT)

    def written(self) -> int:
        return int(self._store.hget(slot(ACCOUNT), "seq") or 0)

    def imported(self) -> int:
        with self._database.reading() as connection:
            return int(connection.scalar(self._newest) or 0)

    def wait(self) -> None:
        """Wait until the database has every line."""
        deadline = time.monotonic() + CAUGHT_UP_WITHIN
        while self.imported() < self.written():
            if time.monotonic() > deadline:
                raise BenchFault(f"the importer has {self.imported()} of {self.written()} lines")
            time.sleep(EVERY)

    def close(self) -> None:
        self._database.close()
        self._store.close()


class Watch:
    """Looks at the progress in a thread, for the length of a block."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._written: list[tuple[int, float]] = []
        self._imported: list[tuple[int, float]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        is_done = False
        while not is_done:  # it looks once more at the end of the block
            is_done = self._done.wait(EVERY)
            # A line's write is seen late rather than early, its import too: both by at most EVERY.
            self._written.append((self._progress.written(), time.monotonic()))
            self._imported.append((self._progress.imported(), time.monotonic()))

    def lags(self) -> list[float]:
        """Seconds, one per line, in order of size; lines that were not imported at the end are left out."""
        numbers = [number for number, _ in self._written]
        last = self._imported[-1][0]
        imported = [number for number, _ in self._imported]
        lags = []
        for line in range(numbers[0] + 1, last + 1):
            there = self._written[bisect_left(numbers, line)][1]
            copied = self._imported[bisect_left(imported, line)][1]
            lags.append(max(0.0, copied - there))
        return sorted(lags)


@click.command()
@click.option("--minutes", default=4.0, show_default=True, type=click.FloatRange(0.05), help="Of all phases together.")
@click.option("--rounds", default=6, show_default=True, type=click.IntRange(1), help="Phases of each kind.")
@click.option("--warmup", default=2.0, show_default=True, type=click.FloatRange(0.1, 10), help="Load before a phase.")
@click.option("--search", default=4.0, show_default=True, type=click.FloatRange(0.2, 60), help="To find the full load.")
@click.option("--lag-rate", default=500.0, show_default=True, help="Lines per second in the last phase.")
@click.option("--postgres", default="", metavar="URL", help="An empty PostgreSQL database; default: SQLite.")
def importer(*, minutes: float, rounds: int, warmup: float, search: float, lag_rate: float, postgres: str) -> None:
    """Measure calls at half load beside the importer, and its lag at a steady rate."""
    messages, tables = Console(stderr=True), Console(width=None if sys.stdout.isatty() else 120)
    cores = share_out(available_cores(), workers=1)
    seconds = min(LONGEST, minutes * 60 / (2 * rounds + 1))
    phases: list[Phase] = []
    try:
        prepare()
        with served(postgres, cores) as (server, folder, progress):
            send = partial(drive, folder=folder, cores=cores, warmup=warmup)
            rate = saturated(server, search, send) / 2
            messages.print(f"half load: {rate:.0f} calls per second", markup=False, highlight=False)
            for number in range(2 * rounds):
                progress.wait()
                kind = ("stopped", "at work")[number % 2]
                phases.append(run_phase(kind, server, rate, seconds, send))
                messages.print(line_of(phases[-1]), markup=False, highlight=False)
            progress.wait()
            with Watch(progress) as watch:
                phases.append(run_phase("at work", server, lag_rate, seconds, send))
                progress.wait()  # the lag of the last lines counts, too
            lags = watch.lags()
    except BenchFault as fault:
        raise click.ClickException(str(fault)) from None
    tables.print(table_of(phases))
    p99 = {
        kind: median(phase.latency.p99 for phase in phases[:-1] if phase.kind == kind)
        for kind in ("stopped", "at work")
    }
    ratio, lag = p99["at work"] / p99["stopped"], lags[int(len(lags) * 0.99)]
    tables.print(f"p99 beside the importer / without it: {ratio:.2f}")
    tables.print(
        f"lag at {lag_rate:.0f} lines per second: p50 {median(lags):.2f} s, p99 {lag:.2f} s, {len(lags)} lines"
    )
    if any(phase.failures for phase in phases) or ratio > MOST or lag > MOST_LAG:
        sys.exit(1)


@contextmanager
def served(postgres: str, cores: Cores) -> Iterator[tuple[Running, Path, Progress]]:
    """A gateway, a folder, and the progress of its importer."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, pinned(cores.load):
        folder = Path(name)
        with mock_upstream(folder, cores=cores.load) as upstream:
            place = Place(folder, cores=cores, upstream=upstream, models=("mock",))
            with WithDatabase(postgres).running(place) as server:
                file = folder / "data" / "gateway.db"
                address = postgres_address(postgres) if postgres else DatabaseAddress(file=file)
                progress = Progress(server, address)
                keep_log(server)
                try:
                    yield server, folder, progress
                finally:
                    progress.close()


def saturated(server: Running, seconds: float, send: Drive) -> float:
    """The calls per second of the full load."""
    result = send(Load(mode="json", connections=CONNECTIONS), server, seconds)
    return result.completed / result.seconds


def run_phase(kind: str, server: Running, rate: float, seconds: float, send: Drive) -> Phase:
    """One phase."""
    with stopped(server.pids, IMPORTER) if kind == "stopped" else nullcontext():
        meter, began = CpuMeter(server.pids, module=IMPORTER), time.monotonic()
        load = Load(mode="open", connections=CONNECTIONS * 4, rate=rate)
        result = send(load, server, seconds)
        used = meter.used() / (time.monotonic() - began)
    if result.latency is None:
        raise BenchFault(f"no call was served: {result.faults}")
    return Phase(kind, result.completed, result.faults, result.latency, used)


def drive(load: Load, server: Running, seconds: float, *, folder: Path, cores: Cores, warmup: float) -> Result:
    """Run a load."""
    return run_load(
        load,
        port=server.port,
        request=http_request(load, path=server.path, headers=server.headers),
        folder=folder,
        cores=cores.load,
        warmup=warmup,
        seconds=seconds,
        on_begin=lambda: None,
        on_end=lambda: None,
    )


def line_of(phase: Phase) -> str:
    """One line of progress."""
    return f"importer {phase.kind}: {phase.calls} calls, p99 {phase.latency.p99:.2f} ms"


def table_of(phases: list[Phase]) -> Table:
    """Every phase."""
    table = Table(title="calls beside the importer; times in ms", title_justify="left")
    for name in ("importer", "calls", "failures", "p50", "p90", "p99", "p99.9", "importer's core"):
        table.add_column(name, justify="left" if name in ("importer", "failures") else "right")
    for phase in phases:
        calls = phase.latency
        table.add_row(
            phase.kind,
            str(phase.calls),
            phase.failures or "0",
            *(f"{value:.2f}" for value in (calls.p50, calls.p90, calls.p99, calls.p999)),
            f"{phase.importer:.0%}",
        )
    return table
