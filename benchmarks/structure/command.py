"""`python -m benchmarks structure`: one table, and before → after beside another checkout."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.checkout import HERE, Checkout
from benchmarks.fault import BenchFault
from benchmarks.start import prepare
from benchmarks.structure.executed import executed
from benchmarks.structure.figures import Figure, executed_figures, key_change_figure, static_figures
from benchmarks.structure.key_change import commands_of_a_key_change


@click.command()
@click.argument("tree", default=HERE, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--at", envvar="BENCH_AT", default="", metavar="FOLDER", help="The checkout of before, for comparison.")
@click.option("--static", is_flag=True, help="Only what the syntax trees say; nothing is run.")
@click.option("--names", is_flag=True, help="Print what was counted, name by name.")
def structure(*, tree: Path, at: str, static: bool, names: bool) -> None:
    """Print the figures of a tree's structure (default: this one) with their definitions."""
    roots = [Path(at).resolve(), tree.resolve()] if at else [tree.resolve()]
    for root in roots:
        if not (root / "gateway").is_dir():
            raise click.BadParameter(f"no gateway in {root}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    try:
        columns = [figures(Checkout(root), static=static) for root in roots]
    except BenchFault as fault:
        raise click.ClickException(str(fault)) from None
    console.print(table_of(columns))
    for figure in columns[-1]:
        console.print(f"{figure.title}: {figure.definition}.", markup=False, highlight=False)
    if names:
        for root, column in zip(roots, columns, strict=True):
            _print_names(root, column, console)


def figures(checkout: Checkout, *, static: bool) -> list[Figure]:
    """Every figure of a tree, in the order of the table."""
    found = static_figures(checkout)
    if static:
        return found
    prepare()
    change = key_change_figure(commands_of_a_key_change(checkout))
    return [*executed_figures(executed(checkout), checkout), change, *found]


def table_of(columns: list[list[Figure]]) -> Table:
    """A row for each figure; with two columns their values as before → after."""
    table = Table()
    table.add_column("figure")
    table.add_column("before → after" if len(columns) > 1 else "value", justify="right")
    table.add_column("where it is largest")
    for row in zip(*columns, strict=True):
        values = " → ".join(f"{figure.value:,}" for figure in row)
        few = row[-1].names if len(row[-1].names) <= 3 and row[-1].value > len(row[-1].names) else ()
        table.add_row(row[-1].title, values, ", ".join(few))
    return table


def _print_names(root: Path, column: list[Figure], console: Console) -> None:
    for figure in column:
        if figure.names:
            console.print(f"\n{root.name}, {figure.title}: {figure.value:,}", markup=False, highlight=False)
            for name in figure.names:
                console.print(f"  {name}", markup=False, highlight=False)
            for name in figure.aside:
                console.print(f"  {name} (not counted: in some chats only)", markup=False, highlight=False)
