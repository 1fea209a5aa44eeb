"""`python -m benchmarks batches`: calls at a steady rate without and beside a running batch.

Phases take turns: the process of batches stopped by a signal, and at work. It runs on the worker's own cores, at its
own priority, with as many lines at a time as the settings say. The batches have more lines than the phases last for.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from benchmarks.contenders.contender import Place, Running
from benchmarks.contenders.gateway import NO_CONSOLE, Gateway
from benchmarks.cores import Cores, available_cores, pinned, share_out
from benchmarks.fault import BenchFault
from benchmarks.importer_load import Drive, drive, saturated
from benchmarks.load import Load, Spread
from benchmarks.processes import CpuMeter, stopped
from benchmarks.start import prepare
from benchmarks.store_log import keep_log
from benchmarks.upstream import mock_upstream

CONNECTIONS = 64
MOST = 1.05  # p99 beside a batch / without one
LONGEST = 40.0  # seconds of a phase: a process that is silent for 60 s is replaced
BATCHES = "gateway.runtime.batches"
LINES = 50_000  # of each batch
RUNS_WITHIN = 60.0  # seconds until the first lines are done
BOUNDARY = "a-boundary-of-the-bench"


class Phase(Struct, frozen=True):
    """What callers saw. `lines`: of batches, done in the phase. `core`: of the process of batches, 0 to 1."""

    kind: str
    calls: int
    failures: str
    latency: Spread
    lines: int
    core: float


class WithBatches(Gateway):
    """The gateway of the other benchmarks, with files and batches."""

    def further_settings(self) -> str:
        return f"{NO_CONSOLE}[batches]\nenabled = true\nmax_open = 100\n"


@click.command()
@click.option("--minutes", default=4.0, show_default=True, type=click.FloatRange(0.05), help="Of all phases together.")
@click.option("--rounds", default=6, show_default=True, type=click.IntRange(1), help="Phases of each kind.")
@click.option("--warmup", default=2.0, show_default=True, type=click.FloatRange(0.1, 10), help="Load before a phase.")
@click.option("--search", default=4.0, show_default=True, type=click.FloatRange(0.2, 60), help="To find the full load.")
@click.option("--share", default=0.5, show_default=True, type=click.FloatRange(0.01, 1), help="Of the full load.")
@click.option("--batches", "number", default=4, show_default=True, type=click.IntRange(1, 100), help="Of 50,000 lines.")
def batches(*, minutes: float, rounds: int, warmup: float, search: float, share: float, number: int) -> None:
    """Measure calls at a share of the full load without and beside a running batch."""
    messages, tables = Console(stderr=True), Console(width=None if sys.stdout.isatty() else 120)
    cores = share_out(available_cores(), workers=1)
    seconds, phases = min(LONGEST, minutes * 60 / (2 * rounds)), list[Phase]()
    try:
        prepare()
        with served(cores) as (server, folder):
            send = partial(drive, folder=folder, cores=cores, warmup=warmup)
            rate = saturated(server, search, send) * share
            messages.print(f"{share:.0%} of the full load: {rate:.0f} calls per second", markup=False, highlight=False)
            made = [make(server) for _ in range(number)]
            wait_until_they_run(server, made)
            for turn in range(2 * rounds):
                phases.append(run_phase(("without", "beside")[turn % 2], server, made, rate, seconds, send))
                messages.print(line_of(phases[-1]), markup=False, highlight=False)
    except BenchFault as fault:
        raise click.ClickException(str(fault)) from None
    tables.print(table_of(phases))
    p99 = {kind: median(one.latency.p99 for one in phases if one.kind == kind) for kind in ("without", "beside")}
    ratio = p99["beside"] / p99["without"]
    tables.print(f"p99 beside a batch / without one: {ratio:.2f}")
    if any(phase.failures for phase in phases) or ratio > MOST:
        sys.exit(1)


@contextmanager
def served(cores: Cores) -> Iterator[tuple[Running, Path]]:
    """A gateway, and a folder."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, pinned(cores.load):
        folder = Path(name)
        with mock_upstream(folder, cores=cores.load) as upstream:
            place = Place(folder, cores=cores, upstream=upstream, models=("mock",))
            with WithBatches().running(place) as server:
                keep_log(server)
                yield server, folder


def ask(server: Running, path: str, body: bytes | None = None, media: str = "application/json") -> Any:
    """The JSON of an answer."""
    headers = {**server.headers, **({"Content-Type": media} if body is not None else {})}
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def make(server: Running) -> str:
    """The id of a new batch."""
    body = {"model": "mock", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16}
    path = "/v1/chat/completions"
    lines = (json.dumps({"custom_id": str(n), "method": "POST", "url": path, "body": body}) for n in range(LINES))
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch',
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n' + "\n".join(lines),
        f"--{BOUNDARY}--\r\n",
    ]
    form = "\r\n".join(parts).encode()
    file = ask(server, "/v1/files", form, f"multipart/form-data; boundary={BOUNDARY}")
    asked = {"input_file_id": file["id"], "endpoint": path, "completion_window": "24h"}
    return str(ask(server, "/v1/batches", json.dumps(asked).encode())["id"])


def done(server: Running, made: list[str]) -> int:
    """The lines that are done; BenchFault if nothing is left to do."""
    found = [ask(server, f"/v1/batches/{one}") for one in made]
    if all(one["status"] not in ("validating", "in_progress") for one in found):
        raise BenchFault("the batches have ended: use more of them (--batches)")
    return sum(one["request_counts"]["completed"] for one in found)


def wait_until_they_run(server: Running, made: list[str]) -> None:
    """Wait for the first lines."""
    deadline = time.monotonic() + RUNS_WITHIN
    while not done(server, made):
        if time.monotonic() > deadline:
            raise BenchFault("no line of a batch is run")
        time.sleep(0.2)


def run_phase(kind: str, server: Running, made: list[str], rate: float, seconds: float, send: Drive) -> Phase:
    """One phase."""
    with stopped(server.pids, BATCHES) if kind == "without" else nullcontext():
        before, began = done(server, made), time.monotonic()
        meter = CpuMeter(server.pids, module=BATCHES)
        result = send(Load(mode="open", connections=CONNECTIONS * 4, rate=rate), server, seconds)
        core = meter.used() / (time.monotonic() - began)
        lines = done(server, made) - before
    if result.latency is None:
        raise BenchFault(f"no call was served: {result.faults}")
    return Phase(kind, result.completed, result.faults, result.latency, lines, core)


def line_of(phase: Phase) -> str:
    """One line of progress."""
    return f"{phase.kind} a batch: {phase.calls} calls, p99 {phase.latency.p99:.2f} ms, {phase.lines} lines"


def table_of(phases: list[Phase]) -> Table:
    """Every phase."""
    table = Table(title="calls and a batch; times in ms", title_justify="left")
    for name in ("batch", "calls", "failures", "p50", "p90", "p99", "p99.9", "lines", "its core"):
        table.add_column(name, justify="left" if name in ("batch", "failures") else "right")
    for phase in phases:
        calls = phase.latency
        table.add_row(
            phase.kind,
            str(phase.calls),
            phase.failures or "0",
            *(f"{value:.2f}" for value in (calls.p50, calls.p90, calls.p99, calls.p999)),
            str(phase.lines),
            f"{phase.core:.0%}",
        )
    return table
