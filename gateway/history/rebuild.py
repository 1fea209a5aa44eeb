"""Computes the sums of usage again from the ledger lines, in one transaction. Readers see the old ones till then."""

from __future__ import annotations

import sqlalchemy as sa

from gateway.database.engine import Database
from gateway.database.tables import ledger_lines
from gateway.history.exclusive import importers_waiting
from gateway.history.line_row import LINE_COLUMNS, facts_of, line_of
from gateway.history.rollups import Rollup, clear

PAGE = 5000  # lines summed at once

_COLUMNS = [ledger_lines.c[name] for name in LINE_COLUMNS]


def rebuild_rollups(database: Database) -> int:
    """Replace all sums; returns the number of lines that were read. Importers wait meanwhile."""
    columns = ledger_lines.c
    order = (columns.account, columns.seq)
    lines, last = 0, ("", 0)
    with importers_waiting(database), database.writing() as connection:
        clear(connection)
        while True:
            query = sa.select(*_COLUMNS).where(sa.tuple_(*order) > sa.tuple_(*map(sa.literal, last)))
            rows = connection.execute(query.order_by(*order).limit(PAGE)).all()
            rollup = Rollup()
            for row in rows:
                line = line_of(row)
                rollup.add(line, facts_of(line.meta_text))
            rollup.write(connection)
            lines += len(rows)
            if len(rows) < PAGE:
                return lines
            last = (rows[-1].account, rows[-1].seq)
