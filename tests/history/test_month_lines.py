"""The charges of a month are the same from its lines and from the sums, and the sums are not believed blindly."""

from __future__ import annotations

import random
from typing import Any

import sqlalchemy as sa

from gateway.billing.usage import Usage
from gateway.database.engine import Database
from gateway.database.tables import usage_monthly
from gateway.history.calendar import month_of
from gateway.history.import_state import read_states
from gateway.history.month_lines import MonthLines, read_month
from tests.databases import database, database_address
from tests.history.made_lines import Account, moment

__all__ = ["database", "database_address"]

MONTH = month_of(int(moment("2026-02-01").timestamp()) * 1_000_000)


def month(database: Database, *, from_sums: bool) -> MonthLines:
    with database.reading() as connection:
        state = read_states(connection, ["acme"])["acme"]
        return read_month(connection, state, MONTH, from_sums=from_sums)


def test_charges_of_the_lines_and_of_the_sums_are_equal(database: Database) -> None:
    chosen, account = random.Random(7), Account(database)
    account.line("2026-01-20T00:00", "topup", 10**9)
    for minute in range(300):
        at = f"2026-0{1 + minute // 100}-{10 + minute % 17}T00:{minute % 60:02}"
        labels: dict[str, Any] = {
            "key": chosen.choice(("key_1", "key_2")),
            "model": chosen.choice("mn"),
            "provider": "p",
        }
        usage = Usage(in_text=chosen.randrange(9), in_cached=3, out_text=chosen.randrange(9), out_reasoning=1)
        match chosen.randrange(8):
            case 0:
                account.line(at, "refund", 5, refunds="req_1", **labels)
            case 1:
                account.line(at, "adj", -2, **labels)
            case 2:
                account.line(at, "topup", 100)
            case 3:
                account.call(at, 0, kind="reclaim", usage=usage, **labels)
            case _:
                account.call(at, chosen.randrange(50), usage=usage, uncollected=chosen.randrange(2), **labels)
        account.flush()
    lines, sums = month(database, from_sums=False), month(database, from_sums=True)
    assert sums == lines
    assert len(lines.charges) == 4 and {line.kind for line in lines.listed} == {"refund", "topup"}

    with database.writing() as connection:  # only the sums know
        connection.execute(usage_monthly.update().values(calls=usage_monthly.c.calls + 1))
    assert month(database, from_sums=True).charges[0].calls > lines.charges[0].calls
    with database.writing() as connection:  # they do not lead to the closing balance any more
        cost = sa.case((usage_monthly.c.cost > 0, usage_monthly.c.cost + 1), else_=usage_monthly.c.cost)
        connection.execute(usage_monthly.update().values(cost=cost))
    assert month(database, from_sums=True) == lines
