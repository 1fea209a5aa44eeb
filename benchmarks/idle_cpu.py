"""What each process of a gateway uses while no request comes: `python -m benchmarks idle-cpu`.

The supervisor, its children and the store run as they do in `json`, serve one request, and are then left alone.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.checkout import HERE
from benchmarks.contenders.contender import Place
from benchmarks.contenders.gateway import GatewayAt
from benchmarks.cores import available_cores, share_out
from benchmarks.fault import BenchFault
from benchmarks.processes import Stat, cpu_seconds, module_of, tree
from benchmarks.start import prepare
from benchmarks.upstream import mock_upstream

SETTLED_AFTER = 5.0  # seconds from the first answer, for what is done once at the start


@click.command()
@click.argument("tree_", metavar="[TREE]", default=HERE, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--at", envvar="BENCH_AT", default="", metavar="FOLDER", help="The checkout of before, for comparison.")
@click.option("--seconds", default=30.0, show_default=True, type=click.FloatRange(1, 600), help="Measured time.")
def idle_cpu(*, tree_: Path, at: str, seconds: float) -> None:
    """Measure the CPU that each process uses without any request, in ms per second."""
    messages, tables = Console(stderr=True), Console(width=None if sys.stdout.isatty() else 100)
    roots = [Path(at).resolve(), tree_.resolve()] if at else [tree_.resolve()]
    columns = []
    try:
        prepare()
        for root in roots:
            messages.print(f"{root.name}: idle for {seconds:g} s", markup=False)
            columns.append(measure_idle(str(root), seconds=seconds))
    except BenchFault as fault:
        raise click.ClickException(str(fault)) from None
    tables.print(table_of(columns))


def measure_idle(checkout: str, *, seconds: float) -> dict[str, float]:
    """Milliseconds of CPU per second by process, for a gateway with one worker; processes of one name together."""
    cores = share_out(available_cores(), workers=1)
    contender = GatewayAt(checkout)
    if reason := contender.absent():
        raise BenchFault(reason)
    with tempfile.TemporaryDirectory(prefix="bench-") as name, mock_upstream(Path(name), cores=cores.load) as upstream:
        place = Place(Path(name), cores=cores, upstream=upstream, models=("mock",))
        with contender.running(place) as server:
            assert server.store_pid is not None
            time.sleep(SETTLED_AFTER)
            processes = tree((*server.pids, server.store_pid))
            names = {stat.pid: _name(stat, server.pids[0], server.store_pid) for stat in processes}
            before, began = {stat.pid: cpu_seconds(stat) for stat in processes}, time.monotonic()
            time.sleep(seconds)
            used = {stat.pid: cpu_seconds(stat) - before[stat.pid] for stat in processes}
            elapsed = time.monotonic() - began
    found = dict.fromkeys(names.values(), 0.0)
    for pid, value in used.items():
        found[names[pid]] += 1000 * value / elapsed
    return found


def _name(stat: Stat, supervisor: int, store: int) -> str:
    """What a process is; a child of the supervisor by the name of the module that it runs."""
    if stat.pid in (supervisor, store):
        return "supervisor" if stat.pid == supervisor else "store"
    return module_of(stat.pid).rpartition(".")[2]  # the same in trees that keep it in different packages


def table_of(columns: list[dict[str, float]]) -> Table:
    """A row for each process, and their sum."""
    table = Table(title="CPU without requests, ms per second", title_justify="left")
    table.add_column("process")
    table.add_column("before → after" if len(columns) > 1 else "ms/s", justify="right")
    for name in dict.fromkeys(name for column in columns for name in column):
        table.add_row(name, " → ".join(f"{column[name]:.2f}" if name in column else "–" for column in columns))
    table.add_row("all", " → ".join(f"{sum(column.values()):.2f}" for column in columns))
    return table
