"""`python -m benchmarks console`: calls at half load, without and beside sessions that replay the Usage page."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import IO

import click
import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from benchmarks.console.sessions import Replayed
from benchmarks.contenders.contender import Place, Running
from benchmarks.contenders.gateway import COMMAND, Gateway, command
from benchmarks.cores import Cores, available_cores, pinned, share_out
from benchmarks.fault import BenchFault
from benchmarks.load import Load, Result, Spread, http_request, run_load
from benchmarks.processes import CpuMeter, module_of, tree
from benchmarks.start import prepare
from benchmarks.store_log import keep_log
from benchmarks.upstream import mock_upstream
from gateway.runtime.priority import lower_priority
from gateway.testing.ports import free_ports

KINDS = ("none", "elsewhere", "here")  # where the sessions are
SEARCHES = 3  # loads, to find the one that keeps the worker busy half of the time
HALF = 0.5
CONNECTIONS = 64
MODULE, WORKER = "gateway.runtime.console", "gateway.runtime.worker"
PATH = "/accounts/bench/usage"
MOST = 1.10  # p99 with the sessions here / elsewhere
LEAST = 0.9  # of the pages that the sessions are to get: one a second each
ENDS_WITHIN = 40.0
NICENESS = 10  # of the sessions: the load generator must be able to measure
Drive = Callable[[Load, Running, float], Result]  # runs a load for so many seconds


class Phase(Struct, frozen=True):
    """What callers and sessions saw. `console`, `worker`: of a core, 0 to 1. `seconds`: of the sessions."""

    kind: str
    seconds: float
    calls: int
    failures: str
    latency: Spread
    console: float
    worker: float
    sessions: Replayed


class Served(Struct, frozen=True):
    """A gateway with a console, and the sessions that are signed in there."""

    server: Running
    sessions: Sessions


class WithConsole(Gateway):
    """The gateway of the other benchmarks, with its console."""

    def __init__(self, port: int) -> None:
        self._port = port

    def further_settings(self) -> str:
        return f"[console]\nport = {self._port}\n"


class Sessions:
    """The process of the sessions."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout
        if self._line() != "ready":
            raise BenchFault("the sessions did not sign in")

    def go(self) -> None:
        """Begin to ask."""
        print("go", file=self._in, flush=True)

    def stop(self) -> Replayed:
        """Stop asking; what came back."""
        print("stop", file=self._in, flush=True)
        return msgspec.json.decode(self._line(), type=Replayed)

    def _line(self) -> str:
        line = self._out.readline().strip()
        if not line:
            raise BenchFault("the sessions ended early")
        return line


@click.command()
@click.option("--minutes", default=9.0, show_default=True, type=click.FloatRange(0.05), help="Of all phases together.")
@click.option("--rounds", default=9, show_default=True, type=click.IntRange(1), help="Phases of each kind.")
@click.option("--sessions", default=50, show_default=True, type=click.IntRange(1, 50), help="Of the console.")
@click.option("--warmup", default=1.0, show_default=True, type=click.FloatRange(0.1, 60), help="Load before a phase.")
@click.option(
    "--search", default=4.0, show_default=True, type=click.FloatRange(0.2, 60), help="Each load to find half."
)
@click.option("--together", is_flag=True, help="The console shares the core of the worker.")
@click.option("--of-rate", is_flag=True, help="Half of the calls of the full load, not of the worker's time.")
def console(
    *, minutes: float, rounds: int, sessions: int, warmup: float, search: float, together: bool, of_rate: bool
) -> None:
    """Measure calls at half load beside people who have the Usage page of the console open.

    Phases take turns: without sessions, with sessions at the console of another gateway, and at that of the measured
    one. The sessions and both consoles use the same cores in both kinds.
    """
    messages, tables = Console(stderr=True), Console(width=None if sys.stdout.isatty() else 160)
    cores = share_out(available_cores(), workers=1)
    phases: list[Phase] = []
    try:
        prepare()
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as name,
            pinned(cores.load),
            served(Path(name) / "here", cores, sessions=sessions, together=together) as here,
            served(Path(name) / "elsewhere", cores, sessions=sessions, together=together) as elsewhere,
        ):
            send = partial(drive, folder=Path(name), cores=cores, warmup=warmup)
            saturated(elsewhere.server, search, send)  # so that its page has calls, too
            full = saturated(here.server, search, send)
            rate = full * HALF if of_rate else half_busy(here.server, full * HALF, search, send)
            messages.print(f"half load: {rate:.0f} of {full:.0f} calls per second", markup=False, highlight=False)
            asking = {"none": None, "elsewhere": elsewhere.sessions, "here": here.sessions}
            seconds = minutes * 60 / (rounds * len(KINDS))
            for kind in KINDS * rounds:
                phases.append(run_phase(kind, here.server, asking[kind], rate, seconds, send))
                messages.print(line_of(phases[-1]), markup=False, highlight=False)
    except BenchFault as fault:
        raise click.ClickException(str(fault)) from None
    tables.print(table_of(phases))
    p99 = {kind: median(phase.latency.p99 for phase in phases if phase.kind == kind) for kind in KINDS}
    ratio = p99["here"] / p99["elsewhere"]
    failed = [phase.failures for phase in phases if phase.failures] or sum(phase.sessions.failures for phase in phases)
    shares = [phase.sessions.pages / (sessions * phase.seconds) for phase in phases if phase.kind == "here"]
    tables.print(
        f"p99 with the sessions here / elsewhere: {ratio:.2f}; / without any: {p99['here'] / p99['none']:.2f} "
        f"(medians {p99['here']:.2f}, {p99['elsewhere']:.2f}, {p99['none']:.2f} ms); "
        f"pages a second here: {median(shares) * sessions:.1f} of {sessions}; failures: {failed}"
    )
    if failed or ratio > MOST or median(shares) < LEAST:
        sys.exit(1)


@contextmanager
def served(folder: Path, cores: Cores, *, sessions: int, together: bool) -> Iterator[Served]:
    """A gateway with an upstream of its own, and sessions of an operator at its console."""
    folder.mkdir()
    [port] = free_ports(1)
    with mock_upstream(folder, cores=cores.load) as upstream:
        place = Place(folder, cores=cores, upstream=upstream, models=("mock",))
        with WithConsole(port).running(place) as server:
            keep_log(server)
            env = {"BENCH_UPSTREAM_KEY": "sk-mock"}
            link = command(COMMAND, folder / "gateway.toml", env, "users", "create", "root@example.com", "--operator")
            if not together:
                move_console(server.pids, cores.load)
            with signed_in(f"http://127.0.0.1:{port}", link.strip(), sessions, cores) as visitors:
                yield Served(server, visitors)


@contextmanager
def signed_in(url: str, link: str, count: int, cores: Cores) -> Iterator[Sessions]:
    """The process of the sessions, for the length of the block."""
    root = Path(__file__).parents[2]
    with pinned(cores.load):
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.console.sessions", url, link, PATH, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            start_new_session=True,  # `lower_priority` is for all processes of a session
        )
        asyncio.run(lower_priority(process.pid, NICENESS))
    try:
        yield Sessions(process)
    finally:
        process.terminate()
        process.communicate(timeout=ENDS_WITHIN)


def move_console(pids: Iterable[int], cores: Iterable[int]) -> None:
    """Put the console process with its threads on other cores than the worker."""
    found = [stat.pid for stat in tree(pids) if module_of(stat.pid) == MODULE]
    if not found:
        raise BenchFault("no console runs")
    for pid in found:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), set(cores))


def saturated(server: Running, seconds: float, send: Drive) -> float:
    """The calls per second of the full load."""
    result = send(Load(mode="json", connections=CONNECTIONS), server, seconds)
    return result.completed / result.seconds


def half_busy(server: Running, rate: float, seconds: float, send: Drive) -> float:
    """The calls per second that keep the worker busy half of the time; `rate`, where the search begins, is the most.

    They are fewer than half of the full load: a worker with much to do handles many calls in one step of its loop. A
    search that finds more has measured a worker that others kept from working.
    """
    most = rate
    for _ in range(SEARCHES):
        meter, began = CpuMeter(server.pids, module=WORKER), time.monotonic()
        send(Load(mode="open", connections=CONNECTIONS * 4, rate=rate), server, seconds)
        rate = min(most, rate * HALF * (time.monotonic() - began) / meter.used())
    return rate


def run_phase(kind: str, server: Running, asking: Sessions | None, rate: float, seconds: float, send: Drive) -> Phase:
    """One phase."""
    if asking is not None:
        asking.go()
    meters = [CpuMeter(server.pids, module=module) for module in (MODULE, WORKER)]
    began = time.monotonic()
    load = Load(mode="open", connections=CONNECTIONS * 4, rate=rate)
    result = send(load, server, seconds)
    took = time.monotonic() - began
    console, worker = (meter.used() / took for meter in meters)
    told = asking.stop() if asking is not None else Replayed()
    if result.latency is None:
        raise BenchFault(f"no call was served: {result.faults}")
    return Phase(kind, took, result.completed, result.faults, result.latency, console, worker, told)


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
    pages = f"{phase.sessions.pages} pages, p99 {phase.sessions.p99:.0f} ms" if phase.sessions.pages else "no pages"
    return f"sessions {phase.kind}: {phase.calls} calls, p99 {phase.latency.p99:.2f} ms; {pages}"


def table_of(phases: list[Phase]) -> Table:
    """Every phase."""
    table = Table(title="calls at half load, and the Usage page; times in ms", title_justify="left")
    names = (
        "sessions", "calls", "failures", "p50", "p99", "p99.9", "pages", "failed", "KB", "p50", "p99",
        "console", "worker",
    )  # fmt: skip
    for name in names:
        table.add_column(name, justify="left" if name in ("sessions", "failures") else "right")
    for phase in phases:
        told, calls = phase.sessions, phase.latency
        table.add_row(
            phase.kind,
            str(phase.calls),
            phase.failures or "0",
            *(f"{value:.2f}" for value in (calls.p50, calls.p99, calls.p999)),
            str(told.pages),
            str(told.failures),
            f"{told.bytes / 1000:.0f}",
            *(f"{value:.0f}" for value in (told.p50, told.p99)),
            f"{phase.console:.0%}",
            f"{phase.worker:.0%}",
        )
    return table
