"""How long each call of a crowd waits, and which calls pass it: `python -m benchmarks fairness`.

::

    python -m benchmarks fairness --json after.json               # 2,000 connections, 1 and 1,000 accounts; a minute
    python -m benchmarks fairness --at ../before --json before.json
    python -m benchmarks fairness --draw before.json after.json   # writes docs/img/fairness.svg

All connections are opened at once, each in a closed loop. A call of a new connection is wanted when the connection is,
so its time in the queue of the system counts. `passed` is the number of calls that were wanted later and answered
earlier. `later` are the calls of a connection after its first, which waited in no queue of the system.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

import click
import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from benchmarks.checkout import Checkout
from benchmarks.closed_loop import Call, closed_loop, overtaking
from benchmarks.contenders import Place
from benchmarks.cores import available_cores, pinned, share_out
from benchmarks.fault import BenchFault
from benchmarks.load import Load
from benchmarks.page import DOCS
from benchmarks.plot import Scale, number
from benchmarks.populated import Population, populated
from benchmarks.start import prepare
from benchmarks.svg import Drawing
from benchmarks.upstream import mock_upstream

ACCOUNTS: Final = (1, 1_000)
FILE: Final = DOCS / "img" / "fairness.svg"
NETSTAT: Final = Path("/proc/net/netstat")
PERCENTILES: Final = (*(half / 2 for half in range(200)), 99.9, 100.0)
WIDTH, HEIGHT, LEFT, TOP, PANEL, PANEL_HEIGHT, APART = 760, 380, 70, 84, 280, 220, 380


class Crowd(Struct, frozen=True, kw_only=True):
    """What the calls of one crowd saw; `seconds` at each of `PERCENTILES`."""

    accounts: int
    connections: int
    answered: int  # connections that got an answer at all
    calls: int
    failed: int  # other than 200
    overflows: int  # of the queues of new connections, on this machine
    passed: int  # by how many calls, of the call that was passed by the most
    seconds: list[float]
    later: list[float] = []  # the same without the first call of each connection

    def at(self, percentile: float) -> float:
        """Seconds at one of `PERCENTILES`."""
        return self.seconds[PERCENTILES.index(percentile)]


@click.command()
@click.option("--connections", default=2_000, show_default=True, type=click.IntRange(2, 20_000), help="Of the crowd.")
@click.option("--seconds", default=15.0, show_default=True, type=click.FloatRange(1, 600), help="Of each load.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write everything measured to FILE.")
@click.option("--at", default="", metavar="FOLDER", help="Measure the gateway of another checkout.")
@click.option(
    "--draw", nargs=2, type=click.Path(path_type=Path, exists=True), metavar="BEFORE AFTER", help="Draw two documents."
)
def fairness(
    *, connections: int, seconds: float, json_file: Path | None, at: str, draw: tuple[Path, Path] | None
) -> None:
    """Measure how long each call of a crowd waits, and which calls pass it."""
    if draw is not None:
        before, after = (msgspec.json.decode(file.read_bytes(), type=list[Crowd]) for file in draw)
        FILE.write_text(drawing(before, after).svg(), encoding="utf-8")
        click.echo(str(FILE))
        return
    tables = Console(width=None if sys.stdout.isatty() else 120)
    try:
        prepare()
        found = [measure(count, connections, seconds, at=at) for count in ACCOUNTS]
    except BenchFault as fault:
        raise click.ClickException(str(fault)) from None
    if json_file:
        json_file.write_bytes(msgspec.json.encode(found) + b"\n")
    tables.print(table_of(found))


def measure(accounts: int, connections: int, seconds: float, *, at: str = "", most: int = sys.maxsize) -> Crowd:
    """Start a gateway with so many accounts, and send the crowd, until `most` calls are answered."""
    cores = share_out(available_cores(), workers=1)
    with (
        pinned(cores.load),
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        mock_upstream(Path(name), cores=cores.load) as upstream,
    ):
        place = Place(Path(name), cores=cores, upstream=upstream, models=("mock",), workers=1)
        checkout = Checkout(Path(at).resolve()) if at else None
        env = {"PYTHONPATH": str(checkout.path_entry(place.folder))} if checkout is not None else {}
        with populated(Population(accounts=accounts), place, env=env) as site:
            requests = site.requests(Load(mode="json", connections=connections))
            before = overflows()
            calls = closed_loop(site.server.port, requests, connections=connections, seconds=seconds, most=most)
            return crowd_of(calls, accounts, connections, overflows() - before)


def overflows() -> int:
    """How often a queue of new connections was full on this machine since it was started."""
    names, values = (line.split() for line in NETSTAT.read_text().splitlines() if line.startswith("TcpExt:"))
    return int(dict(zip(names[1:], values[1:], strict=True))["ListenOverflows"])


def crowd_of(calls: list[Call], accounts: int, connections: int, overflowed: int) -> Crowd:
    """The figures of a crowd's calls; BenchFault without any."""
    if not calls:
        raise BenchFault("no call was answered")
    first = {call.connection: call.wanted for call in sorted(calls, key=lambda call: -call.wanted)}
    later = [call for call in calls if call.wanted > first[call.connection]]
    statuses = Counter(call.status for call in calls)
    return Crowd(
        accounts=accounts,
        connections=connections,
        answered=len({call.connection for call in calls}),
        calls=len(calls),
        failed=len(calls) - statuses[200],
        overflows=overflowed,
        passed=max(overtaking(calls)),
        seconds=_at_percentiles(calls),
        later=_at_percentiles(later) if later else [],
    )


def _at_percentiles(calls: list[Call]) -> list[float]:
    times = sorted(call.answered - call.wanted for call in calls)
    return [times[min(int(len(times) * percentile / 100), len(times) - 1)] for percentile in PERCENTILES]


def table_of(found: list[Crowd]) -> Table:
    """A row for each crowd."""
    table = Table(title=f"{found[0].connections:,} connections in a closed loop", title_justify="left")
    for column in ("accounts", "answered", "calls", "not 200", "overflows", "passed by", "p50 s", "p90 s", "p99 s"):
        table.add_column(column, justify="right")
    for column in ("longest s", "later p50 s", "later p99 s"):
        table.add_column(column, justify="right")
    for one in found:
        counts = (one.accounts, one.answered, one.calls, one.failed, one.overflows, one.passed)
        times = (one.at(50.0), one.at(90.0), one.at(99.0), one.at(100.0))
        later = (one.later[PERCENTILES.index(at)] if one.later else one.at(at) for at in (50.0, 99.0))
        table.add_row(*(f"{count:,}" for count in counts), *(f"{value:.2f}" for value in (*times, *later)))
    return table


def drawing(before: list[Crowd], after: list[Crowd]) -> Drawing:
    """A panel for each number of accounts: seconds over the share of calls, on a scale of powers of ten."""
    title = f"Time of a call in a crowd of {after[0].connections:,} connections, closed loop"
    plot = Drawing(WIDTH, HEIGHT, title=title)
    plot.text(16, 28, title, kind="title")
    for place, (kind, told) in enumerate((("b", "before"), ("a", "after"))):
        plot.rectangle(16 + place * 100, 42, width=12, height=12, kind=kind)
        plot.text(34 + place * 100, 53, told)
    scale = Scale([value for one in (*before, *after) for value in one.seconds], 0, length=PANEL_HEIGHT)
    for place, pair in enumerate(zip(before, after, strict=True)):
        _panel(plot, scale, LEFT + place * APART, pair)
    return plot


def _panel(plot: Drawing, scale: Scale, left: float, pair: tuple[Crowd, Crowd]) -> None:
    base = TOP + PANEL_HEIGHT
    for value in scale.decades:
        y = base - scale(value)
        plot.line(left, y, to=(left + PANEL, y), kind="grid")
        plot.text(left - 6, y + 4, f"{number(value)} s", kind="soft", anchor="end")
    for percent in (0, 25, 50, 75, 100):
        plot.text(left + PANEL * percent / 100, base + 18, f"{percent} %", kind="soft", anchor="middle")
    for one, kind in zip(pair, ("b", "a"), strict=True):
        points = [
            (left + PANEL * percentile / 100, base - scale(value))
            for percentile, value in zip(PERCENTILES, one.seconds, strict=True)
        ]
        plot.path(points, kind=f"line-{kind}")
    accounts = f"{pair[0].accounts:,} account{'s' * (pair[0].accounts > 1)}"
    plot.text(left + PANEL / 2, base + 40, f"share of the calls, {accounts}", anchor="middle")
