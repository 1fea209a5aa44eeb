"""Plots of what was measured: `python -m benchmarks plot bench.json growth.json` writes SVG files into docs/img.

Reads the documents of `--json`, of the bench and of `growth`; a figure that a document does not hold makes no plot.
Bars are medians on a scale of powers of ten, because contenders differ by a factor of a thousand; whiskers reach from
the least to the most of all rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import click
from msgspec import Struct

from benchmarks.growth import GrowthLine, GrowthReport
from benchmarks.page import DOCS
from benchmarks.report import Line, Report, Summary, measured_on
from benchmarks.svg import Drawing
from benchmarks.targets import read

FOLDER = DOCS / "img"
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 110, 130, 64, 34
BAR, GAP = 18, 8
PANEL, PANEL_HEIGHT, PANELS = 300, 170, 2  # growth: a small plot for each dimension, two beside each other
OURS = "gateway"


class Bars(Struct, frozen=True):
    """One plot of bars: which figures of which point, and how to tell them."""

    file: str
    title: str
    scenario: str
    point: str
    figures: tuple[tuple[str, str], ...]  # key, label
    unit: str
    skip: tuple[str, ...] = ()
    more: bool = False  # is better


BARS = (
    Bars(
        "throughput.svg",
        "Requests per second on one core, JSON, 64 connections (more is better)",
        "json",
        "64 connections",
        (("rate", ""),),
        "",
        ("direct",),
        more=True,
    ),
    Bars(
        "added-latency.svg",
        "Delay added at 1,000 requests per second (less is better)",
        "open",
        "1000 per s",
        (("added_p50", "p50"), ("added_p99", "p99")),
        " ms",
        ("direct",),
    ),
    Bars(
        "chunks.svg",
        "CPU per streamed chunk, 100 streams of a chunk every 20 ms (less is better)",
        "streams",
        "100 × 20 ms",
        (("chunk_us", ""),),
        " µs",
        ("direct",),
    ),
)


@click.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@click.option(
    "--to",
    "folder",
    default=FOLDER,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Where the plots go; default: docs/img.",
)
@click.option("--mark", default="", metavar="TEXT", help="Words below each plot, as of figures that are not results.")
def plot(files: tuple[Path, ...], *, folder: Path, mark: str) -> None:
    """Draw the documents of --json: added latency, throughput, cost of a chunk, growth."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawing in drawings(files, mark).items():
        (folder / name).write_text(drawing.svg(), encoding="utf-8")
        click.echo(str(folder / name))


def drawings(files: Iterable[Path], mark: str = "") -> dict[str, Drawing]:
    """By file name, every plot that documents of --json are good for."""
    reports, grown = read(files)
    found = {bars.file: drawn for report in reports for bars in BARS if (drawn := draw_bars(bars, report, mark))}
    return found | ({"growth.svg": draw_growth(grown, mark)} if grown is not None else {})


def footnote(machine: dict[str, str | int], rounds: object, mark: str) -> str:
    """What a plot stands on."""
    told = f"{machine['cpu']}, Python {machine['python']}; median, least and most of {rounds} rounds; "
    told += measured_on([machine])
    return f"{mark}: {told}" if mark else told


# Bars ----------------------------------------------------------------------------------------------------------------


class Scale:
    """Positions on an axis of powers of ten."""

    def __init__(self, values: list[float], start: float, *, length: float) -> None:
        self.low = 10.0 ** math.floor(math.log10(min(values)))
        self.high = 10.0 ** math.ceil(math.log10(max(values) * 1.0001))
        self._start, self._length = start, length

    def __call__(self, value: float) -> float:
        """Where a value is; what lies below the axis, at its start."""
        share = math.log10(max(value, self.low) / self.low) / math.log10(self.high / self.low)
        return self._start + share * self._length

    @property
    def decades(self) -> list[float]:
        """The powers of ten."""
        count = round(math.log10(self.high / self.low))
        return [self.low * 10.0**exponent for exponent in range(count + 1)]


def draw_bars(bars: Bars, report: Report, mark: str) -> Drawing | None:
    """A plot, or None when the report has none of its figures."""
    rows = [
        (line, label, line.figures[key])
        for line in sorted_lines(bars, report)
        for key, label in bars.figures
        if key in line.figures
    ]
    values = [value for _, _, one in rows for value in (one.least, one.median, one.most) if value > 0]
    if not values:
        return None
    bottom = TOP + len(rows) * (BAR + GAP)
    drawing = Drawing(WIDTH, bottom + BOTTOM + 16, title=bars.title)
    drawing.text(16, 28, bars.title, kind="title")
    scale = Scale(values, LEFT, length=WIDTH - LEFT - RIGHT)
    for value in scale.decades:
        drawing.line(scale(value), TOP - 6, to=(scale(value), bottom), kind="grid")
        drawing.text(scale(value), bottom + 15, number(value) + bars.unit, kind="soft", anchor="middle")
    for place, (line, label, one) in enumerate(rows):
        y = TOP + place * (BAR + GAP)
        _bar(drawing, scale, y, one, kind=_kind(line.contender, label))
        drawing.text(LEFT - 8, y + 13, f"{line.contender} {label}".strip(), anchor="end")
        drawing.text(scale(max(one.most, one.median)) + 8, y + 13, number(one.median) + bars.unit, kind="soft")
    drawing.text(16, bottom + BOTTOM + 4, footnote(report.machine, report.settings["rounds"], mark), kind="soft")
    return drawing


def sorted_lines(bars: Bars, report: Report) -> list[Line]:
    """The contenders of a plot, the best first; those without its first figure are not in it."""
    key, sign = bars.figures[0][0], -1 if bars.more else 1
    mine = [
        line
        for line in report.lines
        if (line.scenario, line.point) == (bars.scenario, bars.point)
        and line.contender not in bars.skip
        and key in line.figures
    ]
    return sorted(mine, key=lambda line: sign * line.figures[key].median)


def _kind(contender: str, label: str) -> str:
    if contender != OURS:
        return "rest"
    return "b" if label == "p99" else "a"


def _bar(drawing: Drawing, scale: Scale, y: float, one: Summary, *, kind: str) -> None:
    drawing.rectangle(LEFT, y, width=scale(one.median) - LEFT, height=BAR, kind=kind)
    middle = y + BAR / 2
    drawing.line(scale(one.least), middle, to=(scale(one.most), middle), kind="whisker")
    for end in (one.least, one.most):
        drawing.line(scale(end), middle - 4, to=(scale(end), middle + 4), kind="whisker")


def number(value: float) -> str:
    """Three digits that count, thousands with commas."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


# Growth --------------------------------------------------------------------------------------------------------------


def draw_growth(report: GrowthReport, mark: str) -> Drawing:
    """A panel for each dimension: CPU of the gateway and of the store per request, from size to size."""
    dimensions = list(dict.fromkeys(line.dimension for line in report.lines))
    rows = -(-len(dimensions) // PANELS)
    height = 60 + rows * (PANEL_HEIGHT + 70) + 24
    title = "CPU per request as work grows, in µs"
    drawing = Drawing(WIDTH, height, title=title)
    drawing.text(16, 28, title, kind="title")
    for place, (kind, told) in enumerate((("a", "gateway"), ("b", "store"))):
        drawing.rectangle(480 + place * 100, 17, width=12, height=12, kind=kind)
        drawing.text(498 + place * 100, 28, told)
    for place, dimension in enumerate(dimensions):
        lines = [line for line in report.lines if line.dimension == dimension]
        x, y = 60 + place % PANELS * (PANEL + 70), 70 + place // PANELS * (PANEL_HEIGHT + 70)
        _panel(drawing, lines, x, y)
    drawing.text(16, height - 12, footnote(report.machine, report.settings["rounds"], mark), kind="soft")
    return drawing


def _panel(drawing: Drawing, lines: list[GrowthLine], x: float, y: float) -> None:
    most = max(line.figures[key].most for line in lines for key in ("cpu_us", "store_us") if key in line.figures)
    step = 10.0 ** math.floor(math.log10(most))
    top = step * math.ceil(most / step)
    base = y + PANEL_HEIGHT

    def at(index: int, value: float) -> tuple[float, float]:
        return x + PANEL * (index + 0.5) / len(lines), base - value / top * PANEL_HEIGHT

    for share in (0.0, 0.5, 1.0):
        level = base - share * PANEL_HEIGHT
        drawing.line(x, level, to=(x + PANEL, level), kind="grid")
        drawing.text(x - 6, level + 4, number(share * top), kind="soft", anchor="end")
    for key, kind in (("cpu_us", "a"), ("store_us", "b")):
        told = [(index, line.figures[key]) for index, line in enumerate(lines) if key in line.figures]
        edge = [at(index, one.most) for index, one in told] + [at(index, one.least) for index, one in reversed(told)]
        drawing.area(edge, kind=f"{kind} band")
        drawing.path([at(index, one.median) for index, one in told], kind=f"line-{kind}")
        for index, one in told:
            left, middle = at(index, one.median)
            # The store's below its line, or where both are near each other their figures cover one another.
            drawing.text(left, middle + (-7 if kind == "a" else 16), number(one.median), kind="soft", anchor="middle")
    for index, line in enumerate(lines):
        drawing.text(at(index, 0)[0], base + 28, f"{line.size:,}", kind="soft", anchor="middle")
    drawing.text(x + PANEL / 2, base + 46, lines[0].title, anchor="middle")
