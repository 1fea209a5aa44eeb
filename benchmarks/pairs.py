"""Two contenders against each other in pairs: `python -m benchmarks pairs --at FOLDER`.

::

    python -m benchmarks pairs --at ../before                 # json, open at 300 per s, streams; about 25 minutes
    python -m benchmarks pairs json --pairs 25 --at ../before --json pairs.json

In each pair both run once, one right after the other, each from a fresh start; who begins changes from pair to pair.
The CPU per request or chunk of one is divided by that of the other within the pair. Printed is the median of these
ratios, with an interval that holds the true median in at least 90 of 100 benches, whatever the distribution.

A gateway's CPU per request is given in two parts, that of the importer and that of all its other processes, and as
their sum. Older reports have the sum only, as `cpu_us`.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from msgspec import Struct, structs
from rich.console import Console
from rich.table import Table

from benchmarks.contenders import Contender, all_contenders
from benchmarks.cores import available_cores, pinned, share_out
from benchmarks.fault import BenchFault
from benchmarks.report import machine
from benchmarks.rounds import Plan, Sample, run_scenario
from benchmarks.scenarios import Scenario, all_scenarios
from benchmarks.start import prepare

CONFIDENCE = 0.9
# The one point of each scenario that is run, and the figures that are compared.
WORK = {
    "json": ("64 connections", ("request_us", "importer_us", "cpu_us", "store_us")),
    "open": ("300 per s", ("request_us", "importer_us", "cpu_us", "store_us")),
    "streams": ("1000 × 50 ms", ("chunk_us", "store_us")),
}


class Interval(Struct, frozen=True):
    """Two of the sorted values; `coverage` is how sure it is that the true median lies between them."""

    low: float
    high: float
    coverage: float


class PairLine(Struct, frozen=True, kw_only=True):
    """One figure of one scenario over all pairs; ratios are first ÷ second."""

    scenario: str
    point: str
    figure: str
    medians: tuple[float, float]
    ratio: float
    interval: Interval | None  # None: too few pairs
    ratios: list[float]


class PairReport(Struct, frozen=True, kw_only=True, tag_field="kind", tag="pairs"):
    """The document of --json."""

    machine: dict[str, str | int]
    settings: dict[str, str | int | float]
    contenders: tuple[str, str]
    lines: list[PairLine]
    samples: list[tuple[Sample, Sample]]


@click.command()
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
@click.option("--at", envvar="BENCH_AT", default="", metavar="FOLDER", help="Another checkout, for gateway-at.")
@click.option(
    "--against", default="gateway-at", show_default=True, help="The contender that `gateway` is compared with."
)
@click.option("--pairs", "count", default=15, show_default=True, type=click.IntRange(1), help="How many pairs.")
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.2, 600), help="Measured time.")
@click.option("--warmup", default=2.0, show_default=True, type=click.FloatRange(0.1, 60), help="Load before that.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write everything measured to FILE.")
def pairs(
    scenarios: tuple[str, ...],
    *,
    at: str,
    against: str,
    count: int,
    seconds: float,
    warmup: float,
    json_file: Path | None,
) -> None:
    """Compare the CPU per request and per chunk of two contenders in pairs: json, open, streams (default: all)."""
    if unknown := [name for name in scenarios if name not in WORK]:
        raise click.BadParameter(f"{', '.join(unknown)}; known: {', '.join(WORK)}")
    messages, tables = Console(stderr=True), Console(width=None if sys.stdout.isatty() else 140)
    both = _contenders(against, at=at)
    plan = Plan(rounds=1, seconds=seconds, warmup=warmup, cores=available_cores(), tell=lambda text: None)
    lines: list[PairLine] = []
    samples: list[tuple[Sample, Sample]] = []
    try:
        prepare()
        with pinned(share_out(plan.cores, workers=1).load):
            for name in scenarios or WORK:
                scenario = _one_point(name)
                taken = []
                for number in range(1, count + 1):
                    messages.print(f"{name}: pair {number} of {count}", markup=False)
                    taken.append(_pair(scenario, both, plan, swapped=number % 2 == 0))
                lines += lines_of(scenario, taken)
                samples += taken
    except BenchFault as fault:
        raise click.ClickException(str(fault)) from None
    tables.print(table_of(lines, both))
    report = PairReport(
        machine=machine(),
        settings={"pairs": count, "seconds": seconds, "warmup": warmup},
        contenders=(both[0].name, both[1].name),
        lines=lines,
        samples=samples,
    )
    if json_file:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    wrong = [f"{s.scenario}, {s.contender}: {s.faults}" for pair in samples for s in pair if s.faults]
    for text in wrong:
        tables.print(f"! left out with its pair: {text}", markup=False, highlight=False)
    if wrong:
        sys.exit(1)


def _contenders(against: str, *, at: str) -> tuple[Contender, Contender]:
    known = {contender.name: contender for contender in all_contenders(at=at)}
    if against not in known or against == "gateway":
        raise click.BadParameter(f"{against}; known: {', '.join(name for name in known if name != 'gateway')}")
    for name in ("gateway", against):
        if reason := known[name].absent():
            raise click.ClickException(f"{name}: {reason}")
    return known["gateway"], known[against]


def _one_point(name: str) -> Scenario:
    scenario = all_scenarios()[name]
    return structs.replace(scenario, points=tuple(point for point in scenario.points if point.name == WORK[name][0]))


def _pair(scenario: Scenario, both: tuple[Contender, Contender], plan: Plan, *, swapped: bool) -> tuple[Sample, Sample]:
    """One sample of each, in the order of `both`."""
    taken = run_scenario(scenario, list(reversed(both)) if swapped else list(both), plan)
    first, second = reversed(taken) if swapped else taken
    return first, second


def lines_of(scenario: Scenario, taken: Sequence[tuple[Sample, Sample]]) -> list[PairLine]:
    """One line for each figure that both have; a pair with faults is left out."""
    sound = [(first.figures, second.figures) for first, second in taken if not (first.faults or second.faults)]
    lines = []
    for figure in WORK[scenario.name][1]:
        values = [(a[figure], b[figure]) for a, b in sound if a.get(figure) and b.get(figure)]
        if not values:
            continue
        ratios = [a / b for a, b in values]
        lines.append(
            PairLine(
                scenario=scenario.name,
                point=scenario.points[0].name,
                figure=figure,
                medians=(statistics.median(a for a, _ in values), statistics.median(b for _, b in values)),
                ratio=statistics.median(ratios),
                interval=median_interval(ratios),
                ratios=ratios,
            )
        )
    return lines


def median_interval(values: Sequence[float], *, confidence: float = CONFIDENCE) -> Interval | None:
    """The narrowest interval between two sorted values, as far from both ends, that holds the median with `confidence`.

    The number of values below the true median is binomial with one half, so nothing is assumed of the distribution.
    None where the least and the most do not reach `confidence`: fewer than five values for 90 %.
    """
    ordered, count = sorted(values), len(values)
    best = None
    below = 0.0  # the chance that at most `cut` values lie below the true median
    for cut in range(count // 2):
        below += math.comb(count, cut) / 2**count
        coverage = 1 - 2 * below
        if coverage < confidence:
            break
        best = Interval(ordered[cut], ordered[count - 1 - cut], coverage)
    return best


def table_of(lines: Sequence[PairLine], both: tuple[Contender, Contender]) -> Table:
    """Medians of both, and the median of the ratios with its interval."""
    first, second = (contender.name for contender in both)
    table = Table(title="CPU in µs: medians, and the median of the pairs' ratios", title_justify="left")
    for title in ("load", "of", first, second, f"{first} ÷ {second}", "90 % interval", "pairs"):
        table.add_column(title, justify="left" if title in ("load", "of") else "right")
    names = {
        "request_us": "all but the importer, request",
        "importer_us": "importer, request",
        "cpu_us": "gateway, request: the sum",
        "chunk_us": "gateway, chunk",
        "store_us": "store",
    }
    for line in lines:
        interval = f"{line.interval.low:.3f}–{line.interval.high:.3f}" if line.interval else "too few pairs"
        table.add_row(
            f"{line.scenario}, {line.point}",
            names[line.figure],
            *(f"{value:,.1f}" for value in line.medians),
            f"{line.ratio:.3f}",
            interval,
            str(len(line.ratios)),
        )
    return table
