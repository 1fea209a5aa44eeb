"""Tables and JSON from samples: medians with least and most, and ratios that are taken within each round.

A ratio of 3.1 (2.9–3.4) means: the reference was 3.1 times better in the middle round, 2.9 in its worst, 3.4 in its
best.
"""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.checkout import HERE, Checkout
from benchmarks.cores import Cores
from benchmarks.rounds import Sample
from benchmarks.scenarios import Figure, Point, Scenario


class Summary(msgspec.Struct, frozen=True):
    """One figure over the rounds."""

    median: float
    least: float
    most: float


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One contender at one point: its figures, and how many times better the reference is."""

    scenario: str
    point: str
    contender: str
    figures: dict[str, Summary]
    ratios: dict[str, Summary]
    faults: list[str]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The document of --json."""

    machine: dict[str, str | int]
    settings: dict[str, str | int | float]
    reference: str
    absent: dict[str, str]
    lines: list[Line]
    samples: list[Sample]


def summarise(values: list[float]) -> Summary:
    """Median, least and most."""
    return Summary(statistics.median(values), least=min(values), most=max(values))


def lines_of(scenario: Scenario, samples: Iterable[Sample], *, reference: str) -> list[Line]:
    """One line for each point and contender that took part."""
    mine = [sample for sample in samples if sample.scenario == scenario.name]
    by_place = {(sample.point, sample.contender, sample.round): sample for sample in mine}
    lines = []
    for point in scenario.points:
        for contender in dict.fromkeys(sample.contender for sample in mine if sample.point == point.name):
            here = [s for s in mine if s.point == point.name and s.contender == contender]
            # Against its own first point where points differ in workers, else against the reference at this point.
            base = (scenario.points[0].name, contender) if scenario.scaling else (point.name, reference)
            pairs = [(s, by_place[*base, s.round]) for s in here if (*base, s.round) in by_place]
            lines.append(
                Line(
                    scenario=scenario.name,
                    point=point.name,
                    contender=contender,
                    figures=_figures(here),
                    ratios={} if base == (point.name, contender) else _ratios(pairs, scenario),
                    faults=[f"round {s.round}: {s.faults}" for s in here if s.faults],
                )
            )
    return lines


def _figures(samples: list[Sample]) -> dict[str, Summary]:
    keys = dict.fromkeys(key for sample in samples for key in sample.figures)
    return {key: summarise([s.figures[key] for s in samples if key in s.figures]) for key in keys}


def _ratios(pairs: list[tuple[Sample, Sample]], scenario: Scenario) -> dict[str, Summary]:
    """How many times better the base is, round by round; for scaling, how many times better they are than it."""
    found = {}
    for figure in scenario.figures:
        if not figure.better:
            continue
        values = [
            here.figures[figure.key] / base.figures[figure.key]
            for here, base in pairs
            if here.figures.get(figure.key) and base.figures.get(figure.key)
        ]
        if values:
            as_is = (figure.better == "less") != scenario.scaling
            found[figure.key] = summarise(values if as_is else [1 / value for value in values])
    return found


# Tables --------------------------------------------------------------------------------------------------------------


def show(scenario: Scenario, lines: list[Line], console: Console, *, reference: str) -> None:
    """One table for each point, with the faults below it."""
    for point in scenario.points:
        here = [line for line in lines if line.scenario == scenario.name and line.point == point.name]
        if not here:
            continue
        console.print(_table(scenario, point, here, reference=reference))
        for line in here:
            for fault in line.faults:
                console.print(f"  ! {line.contender}, {fault}", markup=False, highlight=False)


def _table(scenario: Scenario, point: Point, lines: list[Line], *, reference: str) -> Table:
    figures = [figure for figure in scenario.figures if any(figure.key in line.figures for line in lines)]
    ratios = [figure for figure in figures if any(figure.key in line.ratios for line in lines)]
    table = Table(title=f"{scenario.title}, {point.name}", title_justify="left")
    table.add_column("contender")
    for figure in figures:
        table.add_column(figure.title, justify="right")
    for figure in ratios:
        whose = f"× {scenario.points[0].name}" if scenario.scaling else f"{reference} better by"
        table.add_column(f"{whose}, {figure.title}", justify="right")
    for line in lines:
        cells = [_cell(line.figures.get(figure.key), figure) for figure in figures]
        cells += [_cell(line.ratios.get(figure.key), Figure(figure.key, "", 2)) for figure in ratios]
        table.add_row(f"{line.contender} !" if line.faults else line.contender, *cells)
    return table


def _cell(summary: Summary | None, figure: Figure) -> str:
    if summary is None:
        return "–"
    texts = [f"{value:,.{figure.digits}f}" for value in (summary.median, summary.least, summary.most)]
    return texts[0] if texts[1] == texts[2] else f"{texts[0]}\n({texts[1]}–{texts[2]})"


# The machine ---------------------------------------------------------------------------------------------------------


def machine() -> dict[str, str | int]:
    """The machine, the day and the tree of a measurement; nothing that names the machine or its user."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    models = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count() or 0,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
        "tree": Checkout(HERE).revision,
    }


def measured_on(machines: Sequence[dict[str, str | int]]) -> str:
    """The days and the trees of measurements, as the end of a sentence; older documents do not have them."""
    days = dict.fromkeys(str(told.get("date") or "an unknown day") for told in machines)
    trees = dict.fromkeys(str(told.get("tree") or "unknown") for told in machines)
    return f"measured on {' and '.join(days)}, tree {' and '.join(trees)}"


def sharing_note(cores: Cores) -> str:
    """A warning where the load takes time from the contender; empty where it does not."""
    if not cores.shared:
        return ""
    return (
        f"{len(cores.contender)} worker(s) on cores {list(cores.contender)}, the load on {list(cores.load)}: "
        "they share a core, so rates are lower bounds; compare CPU per request"
    )
