"""The money that moves without a call, over all accounts by hour: credits, debits and opening balances.

Calls, and what amends them, are in the sums of usage. A line counts in the transaction that adds it, like there.
"""

from __future__ import annotations

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.database.bulk import add_rows
from gateway.database.tables import money_site_hourly
from gateway.history.calendar import HOUR
from gateway.ledger.line import LedgerLine

_HOUR_MS = HOUR // 1000
_MEASURES = ("lines", "credits", "debits")


class Movements:
    """Sums of a batch of lines by hour and kind: their number, and what they add and take, both positive."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, str], list[int]] = {}

    def add(self, line: LedgerLine) -> None:
        """Add a line that is not about a call."""
        key = (line.milliseconds // _HOUR_MS * HOUR, line.kind)
        sums = self._sums.setdefault(key, [0, 0, 0])
        sums[0] += 1
        sums[1 if line.amount > 0 else 2] += abs(line.amount)

    def write(self, connection: Connection, *, sign: int = 1) -> None:
        """Add the sums, in the connection's transaction; with `sign=-1`, subtract them."""
        rows = [(*key, *(sign * value for value in sums)) for key, sums in sorted(self._sums.items())]
        add_rows(connection, money_site_hourly, ("hour", "kind"), _MEASURES, rows)


class Movement(Struct, frozen=True):
    """The lines of one kind; amounts are positive nano-units."""

    kind: str
    lines: int
    credits: int
    debits: int


def read_movements(connection: Connection, since: int, until: int) -> list[Movement]:
    """The sums by kind from the hour of `since` to before `until`, in microseconds."""
    column = money_site_hourly.c
    sums = [sa.func.sum(column[name]) for name in _MEASURES]
    query = sa.select(column.kind, *sums).where(column.hour >= since // HOUR * HOUR, column.hour < until)
    rows = connection.execute(query.group_by(column.kind).order_by(column.kind))
    return [Movement(row[0], *map(int, row[1:])) for row in rows if row[1]]
