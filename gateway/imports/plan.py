"""A plan: what an import will do, step by step, before it does anything; and the run of an import by its plan."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from gateway.imports.table import Parser, Row, Table, read_table
from gateway.web.work_threads import LONG

CHECKED_EVERY = 50  # steps

#: Raises if the rights of who imports have ended.
Check = Callable[[], Awaitable[object]]
Action = Literal["create", "change", "credit", "nothing"]
ROWS_AT_ONCE = 100  # rows that may be planned before others get their turn


class Step(Struct, frozen=True):
    """One thing: the line of the file, what happens to what, and the new values as people read them."""

    line: int
    action: Action
    object: str  # `KIND:NAME`
    values: dict[str, Any] = {}


class Imported(Struct):
    """The document of the `gateway import` commands."""

    dry_run: bool
    create: int
    change: int
    credit: int
    nothing: int  # lines that are as the store or the database has them
    steps: list[Step]


class Plan:
    """The steps, and what carries each out."""

    def __init__(self) -> None:
        self._steps: list[tuple[Step, Callable[[], Awaitable[object]] | None]] = []

    def add(
        self,
        line: int,
        action: Action,
        object_: str,
        values: dict[str, Any] | None = None,
        apply: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Add a step."""
        self._steps.append((Step(line, action, object_, values or {}), apply))

    async def carry_out(self, *, dry_run: bool, check: Check | None = None) -> Imported:
        """Do the steps in order, unless it is a dry run. After an interruption, the import can be repeated.

        `check` is called before the first step and now and then: others import first, and many steps take long.
        """
        if not dry_run:
            steps_to_do = [apply for _, apply in self._steps if apply is not None]
            for done, apply in enumerate(steps_to_do):
                if check is not None and done % CHECKED_EVERY == 0:
                    await check()
                await apply()
        steps = [step for step, _ in self._steps]
        return Imported(
            dry_run,
            _count(steps, "create"),
            _count(steps, "change"),
            _count(steps, "credit"),
            _count(steps, "nothing"),
            [step for step in steps if step.action != "nothing"],
        )


def _count(steps: Iterable[Step], action: Action) -> int:
    return sum(step.action == action for step in steps)


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
    check: Check | None = None,
) -> Imported:
    """Read a file, plan every row, and carry out the plan if no row has a fault.

    InvalidValue names all faults; then nothing is changed. `check`: see `Plan.carry_out`.
    """
    table, plan = await LONG.run(read_table, name, content, columns, required=required), Plan()
    for planned, row in enumerate(table.rows, 1):
        await plan_row(table, row, plan)
        if planned % ROWS_AT_ONCE == 0:
            await asyncio.sleep(0)  # not every row waits for the store
    table.raise_faults()
    return await plan.carry_out(dry_run=dry_run, check=check)
