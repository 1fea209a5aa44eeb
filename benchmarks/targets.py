"""The targets, and how far they are reached: `python -m benchmarks targets bench.json` prints a Markdown table.

Reads documents of `--json`; `--write` puts the table into docs/benchmarks.md. "Per core" is CPU per request turned
round, so that a contender which did not fill its core is judged by what it used. Each figure is the median of all
rounds with the least and the most; ratios are taken within a round. A document of `growth` gets a table of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from benchmarks.growth import GrowthReport, growth_rows, joined
from benchmarks.page import DOCS, put
from benchmarks.report import Line, Report, Summary, measured_on

PAGE = DOCS / "benchmarks.md"


class Target(Struct, frozen=True):
    """One figure that is to be reached, or to stay below."""

    text: str
    must: float
    aim: float
    scenario: str
    point: str
    figure: str
    against: str = ""  # the contender whose ratio it is; empty for a figure of the gateway itself
    unit: str = ""
    scale: float = 1
    least: bool = False  # to be reached, not to stay below

    def reached(self, value: float) -> str:
        """What that value comes to."""
        for name, bound in (("aim", self.aim), ("must", self.must)):
            if value >= bound if self.least else value <= bound:
                return name
        return "missed"


def _per_core(against: str, must: float, aim: float, *, text: str) -> Target:
    return Target(text, must, aim, "json", "64 connections", "cpu_us", against, unit="×", least=True)


AT_1000, MANY = "1000 per s", "1000 × 50 ms"
TARGETS = (
    _per_core("litellm", 60, 100, text="governed requests per core against LiteLLM"),
    _per_core("portkey", 5, 8, text="… against Portkey, which does none of it"),
    _per_core("stock", 2, 3, text="… against stock Tornado + aiohttp, passing through without keys"),
    Target("… against nginx", 7, 10, "json", "64 connections", "cpu_us", "nginx", unit=" %", scale=100, least=True),
    Target("added at 1,000 requests per second, p50", 0.6, 0.4, "open", AT_1000, "added_p50", unit=" ms"),
    Target("… p99", 3, 1.5, "open", AT_1000, "added_p99", unit=" ms"),
    Target("first token at 100 streams, added p50", 2, 0.7, "streams", "100 × 20 ms", "added_first_p50", unit=" ms"),
    Target("1,000 streams, 20,000 chunks per second: CPU", 65, 40, "streams", MANY, "busy", unit=" %"),
    Target("… a chunk's added p99", 5, 1.5, "streams", MANY, "added_chunk_p99", unit=" ms"),
    Target("9,900 idle streams, each", 24, 12, "idle", "9900 streams", "each_kib", unit=" KiB"),
    Target("two workers against one", 1.5, 1.9, "workers", "2 workers", "rate", "gateway", unit="×", least=True),
    Target("… half a core each", 1.5, 1.9, "halves", "2 workers", "rate", "gateway", unit="×", least=True),
)


@click.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@click.option("--write", is_flag=True, help="Put the tables into docs/benchmarks.md as well.")
def targets(files: tuple[Path, ...], *, write: bool) -> None:
    """Judge documents of --json, each of some scenarios, by the targets; tell growth in a table of its own."""
    reports, grown = read(files)
    tables: dict[str, Iterable[str]] = {}
    if reports:
        tables["targets"] = rows(reports)
    if grown is not None:
        tables["growth"] = [*growth_rows(grown), "", machine_line(grown.machine)]
    for name, lines in tables.items():
        table = "\n".join(lines) + "\n"
        click.echo(table)
        if write:
            put(PAGE, name, table, by="targets --write")


def read(files: Iterable[Path]) -> tuple[list[Report], GrowthReport | None]:
    """Documents of --json: those of the bench, and those of growth as one."""
    reports, grown = [], []
    for document in (file.read_bytes() for file in files):
        if "kind" in msgspec.json.decode(document, type=dict[str, msgspec.Raw]):
            grown.append(msgspec.json.decode(document, type=GrowthReport))
        else:
            reports.append(msgspec.json.decode(document, type=Report))
    return reports, joined(grown) if grown else None


def rows(reports: Sequence[Report]) -> Iterator[str]:
    """The table's lines."""
    rounds = sorted({str(report.settings["rounds"]) for report in reports})
    lines = [line for report in reports for line in report.lines]
    yield f"| target | must | aim | median of {' or '.join(rounds)} (least–most) | reached |"
    yield "|---|--:|--:|--:|---|"
    for target in TARGETS:
        summary = _summary(target, lines)
        must, aim = (_text(bound, target) for bound in (target.must, target.aim))
        if summary is None:
            yield f"| {target.text} | {must} | {aim} | not measured | – |"
            continue
        values = [value * target.scale for value in (summary.median, summary.least, summary.most)]
        median, least, most = (_text(value, target) for value in values)
        yield f"| {target.text} | {must} | {aim} | {median} ({least}–{most}) | {target.reached(values[0])} |"
    yield ""
    yield machine_line(*(report.machine for report in reports))
    for name, reason in {name: reason for report in reports for name, reason in report.absent.items()}.items():
        yield f"Absent: {name} ({reason})."


def machine_line(*machines: dict[str, str | int]) -> str:
    """The machine, the days and the trees of measurements, in one sentence."""
    told = machines[0]
    kernel = str(told["kernel"]).partition("-")[0]
    machine = f"{told['cpu']}, {told['cores']} cores, Linux {kernel}, Python {told['python']}"
    return f"{machine}, {measured_on(machines)}."


def _summary(target: Target, lines: list[Line]) -> Summary | None:
    name = target.against or "gateway"
    for line in lines:
        if (line.scenario, line.point, line.contender) == (target.scenario, target.point, name):
            return (line.ratios if target.against else line.figures).get(target.figure)
    return None


def _text(value: float, target: Target) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}".rstrip("0").rstrip(".") + target.unit if digits else f"{value:,.0f}{target.unit}"
