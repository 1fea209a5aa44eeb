"""`python -m benchmarks hostile`: a healthy account alone and beside a hostile one, in turn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import click
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from benchmarks.cores import available_cores, pinned, share_out
from benchmarks.fault import BenchFault
from benchmarks.hostile.setting import NICE, STREAM, Setting, setting
from benchmarks.load import Load, Result, Spread, http_request, run_load
from benchmarks.processes import CpuMeter
from benchmarks.start import prepare

PAIRS = 4  # phases of each kind
WARMUP = 5.0  # seconds before each phase, with all of its load
SETTLES = 10.0  # seconds between two phases: calls of the plugin end, which ignores that they were cancelled
MOST = 2.0  # p99 of the hostile phases / p99 of the others
JSON = Load(mode="open", connections=64, rate=80.0)
STREAMS = Load(mode="streams", connections=10, model=STREAM, chunks=9)  # 20 streams a second
ENDS_WITHIN = 40.0


class Phase(Struct, frozen=True):
    """What the healthy account saw."""

    hostile: bool
    requests: int
    failures: str
    json: Spread
    first: Spread  # chunk of a stream
    busy: float  # of the gateway's core, 0 to 1
    late: float  # ms, p99: how far the good upstream was behind its schedule, for lack of time on its core
    attacks: dict[str, dict[str, int]]


@click.command()
@click.option("--minutes", default=20.0, show_default=True, envvar="HOSTILE_MINUTES", help="Of all phases together.")
@click.option("--scale", default=1.0, show_default=True, help="Multiplies the rates of the attacks.")
@click.option("--only", multiple=True, metavar="ATTACK", help="Only this attack; may be repeated.")
def hostile(*, minutes: float, scale: float, only: tuple[str, ...]) -> None:
    """Measure a healthy account beside one that does everything it should not.

    The gateway has one core; its store, the upstreams and all load have the others. The healthy account sends 100
    requests a second. In the phases "alone" the attackers are as busy, against a sink.
    """
    messages, tables = Console(stderr=True), Console(width=None if sys.stdout.isatty() else 160)
    cores = share_out(available_cores(), workers=1)
    phases: list[Phase] = []
    try:
        prepare()
        with (
            tempfile.TemporaryDirectory(prefix="hostile-") as folder,
            pinned(cores.load),
            setting(Path(folder), cores) as place,
        ):
            for number in range(2 * PAIRS):
                if number:
                    time.sleep(SETTLES)
                phases.append(
                    run_phase(place, minutes * 60 / (2 * PAIRS), hostile=number % 2 == 1, scale=scale, only=only)
                )
                messages.print(line_of(phases[-1]), markup=False, highlight=False)
    except BenchFault as fault:
        raise click.ClickException(str(fault)) from None
    tables.print(table_of(phases))
    tables.print(attacks_of(phases))
    failed = [phase.failures for phase in phases if phase.failures]
    ratios = ratio(phases, "json"), ratio(phases, "first")
    tables.print(f"p99, hostile / alone: JSON {ratios[0]:.2f}, first chunk {ratios[1]:.2f}; failures: {failed or 0}")
    if failed or max(ratios) >= MOST:
        sys.exit(1)


def run_phase(place: Setting, seconds: float, *, hostile: bool, scale: float, only: Sequence[str] = ()) -> Phase:
    """One phase; the attackers run during all of it."""
    meters: list[CpuMeter] = []
    used: list[float] = []
    attacks: dict[str, dict[str, int]] = {}
    with attackers(place, hostile=hostile, scale=scale, only=only, done=attacks), ThreadPoolExecutor(2) as threads:

        def drive(load: Load, *, metered: bool) -> Result:
            folder = place.folder / load.mode
            folder.mkdir(exist_ok=True)
            return run_load(
                load,
                port=place.serving.port,
                request=http_request(load, path=place.serving.path, headers=place.serving.headers),
                folder=folder,
                cores=place.cores.load,
                warmup=WARMUP,
                seconds=seconds,
                on_begin=lambda: meters.append(CpuMeter(place.serving.pids)) if metered else None,
                on_end=lambda: used.append(meters[0].used()) if metered else None,
            )

        both = threads.submit(drive, JSON, metered=True), threads.submit(drive, STREAMS, metered=False)
        plain, streams = (future.result() for future in both)
    if plain.latency is None or streams.first_chunk is None:
        raise BenchFault(f"no request was served: {plain.faults} {streams.faults}")
    return Phase(
        hostile,
        plain.completed + streams.streams,
        "; ".join(filter(None, (plain.faults, streams.faults))),
        plain.latency,
        streams.first_chunk,
        used[0] / plain.seconds,
        streams.upstream_late.p99 if streams.upstream_late else 0.0,
        attacks,
    )


@contextmanager
def attackers(
    place: Setting, *, hostile: bool, scale: float, only: Sequence[str], done: dict[str, dict[str, int]]
) -> Iterator[None]:
    """Run the attackers for the length of the block, against the gateway or the sink; `done` gets what they did."""
    port = place.serving.port if hostile else place.sink
    root = Path(__file__).parents[2]
    arguments = [str(port), place.hostile_key, place.revoked_key, str(scale), *only]
    with pinned(place.cores.load):
        process = subprocess.Popen(
            ["nice", "-n", str(NICE), sys.executable, "-m", "benchmarks.hostile.attacks", *arguments],
            stdout=subprocess.PIPE,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            told, _ = process.communicate(timeout=ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            told, _ = process.communicate()
    if not told:
        raise BenchFault("the attackers ended early")
    done.update(json.loads(told))


def ratio(phases: list[Phase], name: str) -> float:
    """The median p99 of the hostile phases, as a multiple of that of the others."""
    spreads: dict[bool, list[Spread]] = {False: [], True: []}
    for phase in phases:
        spreads[phase.hostile].append(getattr(phase, name))
    alone, beside = (median(spread.p99 for spread in spreads[kind]) for kind in (False, True))
    return float(beside / alone)


def line_of(phase: Phase) -> str:
    """One line of progress."""
    name = "hostile" if phase.hostile else "alone"
    figures = f"JSON p99 {phase.json.p99:.1f} ms, first chunk p99 {phase.first.p99:.1f} ms, busy {phase.busy:.0%}"
    return f"{name}: {phase.requests} requests, failures: {phase.failures or 0}, {figures}"


def table_of(phases: list[Phase]) -> Table:
    """Every phase."""
    table = Table(title="a healthy account, alone and beside a hostile one; times in ms", title_justify="left")
    for name in (
        "phase",
        "requests",
        "failures",
        "JSON p50",
        "p99",
        "max",
        "first chunk p50",
        "p99",
        "max",
        "busy",
        "upstream late",
    ):
        table.add_column(name, justify="left" if name in ("phase", "failures") else "right")
    for phase in phases:
        spreads = [f"{value:.1f}" for one in (phase.json, phase.first) for value in (one.p50, one.p99, one.max)]
        name = "hostile" if phase.hostile else "alone"
        table.add_row(
            name, str(phase.requests), phase.failures or "0", *spreads, f"{phase.busy:.0%}", f"{phase.late:.1f}"
        )
    return table


def attacks_of(phases: list[Phase]) -> Table:
    """What the hostile account sent, and how that ended."""
    table = Table("attack", "requests", "answers", title="in the hostile phases", title_justify="left")
    totals: dict[str, dict[str, int]] = {}
    for phase in phases:
        if phase.hostile:
            for name, results in phase.attacks.items():
                total = totals.setdefault(name, {})
                for result, count in results.items():
                    total[result] = total.get(result, 0) + count
    for name, results in totals.items():
        answers = ", ".join(f"{result} × {count}" for result, count in sorted(results.items()))
        table.add_row(name, str(sum(results.values())), answers)
    return table
