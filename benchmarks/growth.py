"""Cost as work grows: CPU per governed request with more accounts, models, ledger lines, workers, and larger bodies.

::

    python -m benchmarks growth                                 # about 12 minutes
    python -m benchmarks growth accounts ledger --rounds 3 --json growth.json

Each step is a gateway with a store of its own, filled beforehand; a dimension's steps take turns, round by round, and
are compared within the round. Sharp edge: with one account, all admissions of an event-loop tick share one script; with
as many accounts as calls, each has its own. That difference is not growth: what must be level is 100 against 10,000.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import click
import msgspec
from msgspec import Struct, structs
from rich.console import Console
from rich.table import Table

from benchmarks.contenders import Place
from benchmarks.cores import available_cores, pinned, share_out
from benchmarks.fault import BenchFault
from benchmarks.load import Load
from benchmarks.populated import Population, Site, populated
from benchmarks.report import Summary, machine, summarise
from benchmarks.rounds import Plan, measure
from benchmarks.start import prepare
from benchmarks.upstream import mock_upstream

CONNECTIONS = 64
FIGURES = {"cpu_us": "CPU µs/req", "store_us": "store µs/req", "rate": "req/s", "others": "others %"}
COMPARED = ("cpu_us", "store_us")


class Step(Struct, frozen=True, kw_only=True):
    """One size of one dimension."""

    size: int
    population: Population = Population()
    body: int = 0
    workers: int = 1


class Dimension(Struct, frozen=True):
    """What grows; `level` says whether the cost of a request may not."""

    name: str
    title: str
    steps: tuple[Step, ...]
    level: bool = True


class GrowthSample(Struct, frozen=True, kw_only=True):
    """One step in one round."""

    dimension: str
    size: int
    round: int
    figures: dict[str, float]
    faults: str


class GrowthLine(Struct, frozen=True, kw_only=True):
    """One step over all rounds; `ratios` are against the dimension's first step in the same round."""

    dimension: str
    title: str
    size: int
    figures: dict[str, Summary]
    ratios: dict[str, Summary]
    faults: list[str]


class GrowthReport(Struct, frozen=True, kw_only=True, tag_field="kind", tag="growth"):
    """The document of --json."""

    machine: dict[str, str | int]
    settings: dict[str, str | int | float]
    lines: list[GrowthLine]
    samples: list[GrowthSample]


def all_dimensions() -> dict[str, Dimension]:
    """By name, in the order they run."""
    return {
        "accounts": Dimension(
            "accounts",
            "accounts, asked in turn",
            tuple(Step(size=n, population=Population(accounts=n)) for n in (1, 100, 10_000)),
        ),
        "models": Dimension(
            "models",
            "models, asked in turn",
            tuple(Step(size=n, population=Population(models=n)) for n in (1, 100, 1_000)),
        ),
        "ledger": Dimension(
            "ledger",
            "ledger lines of the account at the start",
            tuple(Step(size=n, population=Population(lines=n)) for n in (10, 1_000_000)),
        ),
        "workers": Dimension("workers", "workers", tuple(Step(size=n, workers=n) for n in (1, 2))),
        "bodies": Dimension(
            "bodies", "bytes of body", tuple(Step(size=n, body=n) for n in (1_000, 100_000, 1_000_000)), level=False
        ),
    }


@click.command()
@click.argument("dimensions", nargs=-1, metavar="[DIMENSION]...")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="How often each step runs.")
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.2, 600), help="Measured time.")
@click.option("--warmup", default=3.0, show_default=True, type=click.FloatRange(0.1, 60), help="Load before that.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write everything measured to FILE.")
def growth(dimensions: tuple[str, ...], *, rounds: int, seconds: float, warmup: float, json_file: Path | None) -> None:
    """Measure the cost of a request as work grows: accounts, models, ledger, workers, bodies (default: all)."""
    known = all_dimensions()
    if unknown := [name for name in dimensions if name not in known]:
        raise click.BadParameter(f"{', '.join(unknown)}; known: {', '.join(known)}")
    messages, tables = Console(stderr=True), Console(width=None if sys.stdout.isatty() else 160)
    plan = Plan(rounds=rounds, seconds=seconds, warmup=warmup, cores=available_cores(), tell=messages.print)
    samples: list[GrowthSample] = []
    lines: list[GrowthLine] = []
    try:
        prepare()
        with pinned(share_out(plan.cores, workers=1).load):
            for dimension in [known[name] for name in dimensions or known]:
                taken = run_dimension(dimension, plan)
                samples += taken
                lines += (here := lines_of(dimension, taken))
                tables.print(table_of(dimension, here))
    except BenchFault as fault:
        raise click.ClickException(str(fault)) from None
    report = GrowthReport(
        machine=machine(),
        settings={"rounds": rounds, "seconds": seconds, "warmup": warmup, "connections": CONNECTIONS},
        lines=lines,
        samples=samples,
    )
    if json_file:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    for line in lines:
        for wrong in line.faults:
            tables.print(f"! {line.dimension} {line.size}, {wrong}", markup=False, highlight=False)
    if any(line.faults for line in lines):
        sys.exit(1)


def run_dimension(dimension: Dimension, plan: Plan) -> list[GrowthSample]:
    """All steps at the same time, of which one works: filling a store takes longer than a round."""
    samples = []
    with ExitStack() as stack:
        sites = []
        for step in dimension.steps:
            plan.tell(f"{dimension.name}: filling {step.size:,}")
            sites.append((step, *_site(step, plan, stack)))
            _greet(*sites[-1], plan)
        for number in range(1, plan.rounds + 1):
            for step, place, site in sites:
                plan.tell(f"{dimension.name}: round {number} of {plan.rounds}, {step.size:,}")
                samples.append(_sample(dimension, step, place, site, plan=plan, number=number))
    return samples


def _site(step: Step, plan: Plan, stack: ExitStack) -> tuple[Place, Site]:
    cores = share_out(plan.cores, workers=step.workers)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
    upstream = stack.enter_context(mock_upstream(folder, cores=cores.load))
    place = Place(folder, cores=cores, upstream=upstream, models=("mock",), workers=step.workers)
    return place, stack.enter_context(populated(step.population, place))


def _greet(step: Step, place: Place, site: Site, plan: Plan) -> None:
    """Send each request once: the first use of a key costs a look into the store, and is not what is measured."""
    load = Load(mode="json", connections=CONNECTIONS, body=step.body)
    left = site.requests(load)
    short = structs.replace(plan, warmup=min(0.2, plan.warmup), seconds=min(1.0, plan.seconds))
    while left:
        done = measure(load, site.server, place, short, requests=left).result
        if done.faults or not done.completed:
            raise BenchFault(f"the gateway does not serve everybody: {done.faults}")
        left = left[done.completed :]


def _sample(dimension: Dimension, step: Step, place: Place, site: Site, *, plan: Plan, number: int) -> GrowthSample:
    load = Load(mode="json", connections=CONNECTIONS, body=step.body)
    taken = measure(load, site.server, place, plan, requests=site.requests(load))
    result = taken.result
    figures = {
        "rate": result.completed / result.seconds,
        "others": 100 * taken.others_cpu / result.seconds / step.workers,
        "rss_mib": taken.rss_after / 2**20,
    }
    if result.completed:
        figures["cpu_us"] = taken.cpu / result.completed * 1e6
        figures["store_us"] = taken.store_cpu / result.completed * 1e6
    return GrowthSample(dimension=dimension.name, size=step.size, round=number, figures=figures, faults=result.faults)


def lines_of(dimension: Dimension, samples: list[GrowthSample]) -> list[GrowthLine]:
    """One line for each step."""
    first = {sample.round: sample.figures for sample in samples if sample.size == dimension.steps[0].size}
    lines = []
    for step in dimension.steps:
        mine = [sample for sample in samples if sample.size == step.size]
        pairs = [(sample.figures, first[sample.round]) for sample in mine]
        keys = dict.fromkeys(key for sample in mine for key in sample.figures)
        ratios = {
            key: [here[key] / base[key] for here, base in pairs if key in here and base.get(key)] for key in COMPARED
        }
        lines.append(
            GrowthLine(
                dimension=dimension.name,
                title=dimension.title,
                size=step.size,
                figures={key: summarise([s.figures[key] for s in mine if key in s.figures]) for key in keys},
                ratios={key: summarise(values) for key, values in ratios.items() if values},
                faults=[f"round {sample.round}: {sample.faults}" for sample in mine if sample.faults],
            )
        )
    return lines


def table_of(dimension: Dimension, lines: list[GrowthLine]) -> Table:
    """Medians with least and most, and how many times the first step's cost."""
    table = Table(title=f"{dimension.title}{'' if dimension.level else ' (may cost more)'}", title_justify="left")
    table.add_column(dimension.name, justify="right")
    for title in FIGURES.values():
        table.add_column(title, justify="right")
    for key in COMPARED:
        table.add_column(f"× {dimension.steps[0].size:,}, {FIGURES[key]}", justify="right")
    for line in lines:
        cells = [_cell(line.figures.get(key), 1 if key in COMPARED else 0) for key in FIGURES]
        table.add_row(f"{line.size:,}", *cells, *(_cell(line.ratios.get(key), 2) for key in COMPARED))
    return table


def joined(reports: Sequence[GrowthReport]) -> GrowthReport:
    """One document of several; of a dimension that more than one has, what the last one says."""
    whose = {line.dimension: report for report in reports for line in report.lines}
    taken = {
        key: " and ".join(dict.fromkeys(str(report.machine[key]) for report in whose.values() if key in report.machine))
        for key in ("date", "tree")
    }
    return structs.replace(
        reports[-1],
        machine=reports[-1].machine | taken,
        settings={"rounds": " or ".join(sorted({str(report.settings["rounds"]) for report in whose.values()}))},
        lines=[
            line for name in all_dimensions() if name in whose for line in whose[name].lines if line.dimension == name
        ],
        samples=[],
    )


def growth_rows(report: GrowthReport) -> Iterator[str]:
    """What was measured as the lines of a Markdown table."""
    rounds = report.settings["rounds"]
    yield f"| what grows | to | gateway, µs: median of {rounds} (least–most) | × first | store, µs | × first |"
    yield "|---|--:|--:|--:|--:|--:|"
    for line in report.lines:
        told = [(found.get(key), digits) for key in COMPARED for found, digits in ((line.figures, 0), (line.ratios, 2))]
        cells = " | ".join(_cell(summary, digits).replace("\n", " ") for summary, digits in told)
        yield f"| {line.title} | {line.size:,} | {cells} |"


def _cell(summary: Summary | None, digits: int) -> str:
    if summary is None:
        return "–"
    middle, least, most = (f"{value:,.{digits}f}" for value in (summary.median, summary.least, summary.most))
    return middle if least == most else f"{middle}\n({least}–{most})"
