"""`python -m benchmarks instructions`: one table, and before → after beside another checkout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

import click
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from benchmarks.checkout import HERE, Checkout
from benchmarks.fault import BenchFault
from benchmarks.instructions.counting import FEW, Counted, count
from benchmarks.instructions.stages import MEANINGS, OUTSIDE, STAGES
from benchmarks.start import prepare

WORK = {"request": "JSON request", "chunk": "chunk", "stream": f"stream of {FEW} chunks"}


class Column(Struct, frozen=True):
    """A tree, counted twice: as it is, and with a C function entered at each stage."""

    plain: Counted
    staged: Counted


@click.command()
@click.argument("tree", default=HERE, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--at", envvar="BENCH_AT", default="", metavar="FOLDER", help="The checkout of before, for comparison.")
@click.option("--with", "tables", type=click.File(encoding="utf-8"), help="TOML tables that only the tree gets.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1), help="How often each is counted.")
def instructions(*, tree: Path, at: str, tables: TextIO | None, repeats: int) -> None:
    """Count the instructions of a warm request and of a chunk under callgrind, in all and by stage."""
    messages, output = Console(stderr=True), Console(width=None if sys.stdout.isatty() else 140)
    further = tables.read() if tables else ""
    roots = [Path(at).resolve(), tree.resolve()] if at else [tree.resolve()]
    try:
        prepare()
        columns = [_column(root, repeats, messages, further=further if root is roots[-1] else "") for root in roots]
    except BenchFault as fault:
        raise click.ClickException(str(fault)) from None
    output.print(totals_of(columns, repeats=repeats))
    output.print(stages_of(columns))
    for stage, meaning in MEANINGS.items():
        output.print(f"{stage}: {meaning}", markup=False, highlight=False)


def _column(root: Path, repeats: int, messages: Console, *, further: str) -> Column:
    def counted(*, by_stage: bool) -> Counted:
        def tell(text: str) -> None:
            messages.print(f"{root.name}{', by stage' if by_stage else ''}: {text}", markup=False)

        return count(Checkout(root), repeats=repeats, by_stage=by_stage, tell=tell, further=further)

    return Column(counted(by_stage=False), counted(by_stage=True))


def totals_of(columns: list[Column], *, repeats: int) -> Table:
    """Instructions of each piece of work."""
    table = Table(title=f"instructions of the worker, median of {repeats} (least–most)", title_justify="left")
    table.add_column("of")
    for name in ("before", "after") if len(columns) > 1 else ("count",):
        table.add_column(name, justify="right")
    if len(columns) > 1:
        table.add_column("after ÷ before", justify="right")
    for key, title in WORK.items():
        costs = [getattr(column.plain, key) for column in columns]
        cells = [f"{cost.total:,.0f} ({cost.least:,.0f}–{cost.most:,.0f})" for cost in costs]
        ratio = [f"{costs[1].total / costs[0].total:.3f}"] if len(costs) > 1 else []
        table.add_row(title, *cells, *ratio)
    idle = [column.plain.idle for column in columns]
    table.add_row("a second without work", *(f"{value:,.0f}" for value in idle), *[""] * (len(idle) - 1))
    return table


def stages_of(columns: list[Column]) -> Table:
    """The same by stage; counted with a C function entered at each stage, which makes each call cost more."""
    table = Table(title="by stage, counted in runs of their own", title_justify="left")
    table.add_column("stage")
    for title in (WORK["request"], WORK["chunk"]):
        table.add_column(f"{title}, before → after" if len(columns) > 1 else title, justify="right")
        table.add_column("share", justify="right")
    for stage in (*STAGES, OUTSIDE):
        cells = []
        for key in ("request", "chunk"):
            values = [getattr(column.staged, key).stages[stage] for column in columns]
            cells.append(" → ".join(f"{value:,.0f}" for value in values))
            cells.append(f"{100 * values[-1] / getattr(columns[-1].staged, key).total:.1f} %")
        table.add_row(stage, *cells)
    totals = [[getattr(column.staged, key).total for column in columns] for key in ("request", "chunk")]
    table.add_row("all", *(cell for values in totals for cell in (" → ".join(f"{v:,.0f}" for v in values), "100 %")))
    return table
