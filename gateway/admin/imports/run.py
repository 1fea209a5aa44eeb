"""Runs an import: reads the file, plans every row, and carries out the plan if no row has a fault."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from gateway.admin.imports.plan import Imported, Plan
from gateway.admin.imports.table import Parser, Row, Table, read_table

#: Adds the steps of a row to the plan, or its faults to the table.
PlanRow = Callable[[Table, Row, Plan], Awaitable[None]]


async def run_import(
    name: str,
    content: bytes,
    columns: Mapping[str, Parser],
    plan_row: PlanRow,
    *,
    required: Collection[str],
    dry_run: bool,
) -> Imported:
    """Import a file. InvalidValue names all faults; then nothing is changed."""
    table, plan = read_table(name, content, columns, required=required), Plan()
    for row in table.rows:
        await plan_row(table, row, plan)
    table.raise_faults()
    return await plan.carry_out(dry_run=dry_run)
