"""Imports do not hold up the event loop, however the file is made."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.accounts.key_record import KeyRecord
from gateway.admin.actor import command_line
from gateway.errors import InvalidValue
from gateway.imports.keys import KeyImport
from gateway.imports.plan import Plan, run_import
from gateway.imports.table import MOST_COLUMNS, Row, Table, read_table

ROOT = command_line("root")


def faults(content: str) -> list[str]:
    table = read_table("x.csv", content.encode(), {"name": str}, required=("name",))
    with pytest.raises(InvalidValue) as refused:
        table.raise_faults()
    return refused.value.message.split("\n")


def test_columns_that_stand_twice_or_are_too_many_are_one_fault() -> None:
    assert faults("name,name,name\n") == ["x.csv, line 1, column name: stands twice"]
    assert faults(",".join(["name"] * MOST_COLUMNS)) == ["x.csv, line 1, column name: stands twice"]
    assert faults(",".join(["name"] * 8000)) == ["x.csv, line 1: has 8000 columns; at most 100 are possible"]


async def test_file_is_read_in_a_thread() -> None:
    threads = set()

    def cell(text: str) -> str:
        threads.add(threading.get_ident())
        return text

    async def plan_row(table: Table, row: Row, plan: Plan) -> None:
        plan.add(row.line, "nothing", row.values["name"])

    done = await run_import("x.csv", b"name\na\n", {"name": cell}, plan_row, required=("name",), dry_run=False)
    assert done.nothing == 1 and len(threads) == 1 and threading.get_ident() not in threads


async def test_others_get_their_turn_while_rows_are_planned() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    seen = []

    async def plan_row(table: Table, row: Row, plan: Plan) -> None:
        seen.append(turns)

    task = asyncio.create_task(others())
    content = b"name\n" + b"a\n" * 1000
    await run_import("x.csv", content, {"name": str}, plan_row, required=("name",), dry_run=True)
    task.cancel()
    assert len(seen) == 1000 and len(set(seen)) >= 9


async def test_key_is_found_by_its_name_without_a_look_at_all_others() -> None:
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    number = 300
    made: dict[str, Any] = dict.fromkeys(("expires", "rpm", "tpm", "concurrency", "models", "budget"), None) | {
        "account": "acme",
        "last4": "0000",
        "state": "active",
        "created": datetime.now(UTC),
        "spent": 0,
    }
    records = [KeyRecord(id=f"key_{at}", name=Name(f"k{at}"), show_cost=False, **made) for at in range(number)]

    async def list_(account: str) -> list[KeyRecord]:
        return records

    async def check_pepper() -> None:
        pass

    keys: Any = SimpleNamespace(list=list_)
    service: Any = SimpleNamespace(check_pepper=check_pepper)
    importing = KeyImport(keys, service, models={}, turn=asyncio.Lock())
    content = "account,name\n" + "".join(f"acme,k{at}\n" for at in range(number))
    done = await importing.run(ROOT, "keys.csv", content.encode(), dry_run=True, on_new=None)
    assert done.nothing == number and compared <= 3 * number
