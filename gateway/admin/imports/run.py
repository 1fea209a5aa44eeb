"""Runs an import: reads the file, plans every row, and carries out the plan if no row has a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from gateway.admin.imports.plan import Imported, Plan
from gateway.admin.imports.table import Parser, Row, Table, read_table

ROWS_AT_ONCE = 100  # rows that may be planned before others get their turn

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
    table, plan = await asyncio.to_thread(read_table, name, content, columns, required=required), Plan()
    for planned, row in enumerate(table.rows, 1):
        await plan_row(table, row, plan)
        if planned % ROWS_AT_ONCE == 0:
            await asyncio.sleep(0)  # not every row waits for the store
    table.raise_faults()
    return await plan.carry_out(dry_run=dry_run)
