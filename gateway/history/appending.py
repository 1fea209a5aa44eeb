"""Writes new lines, their sums and the import state in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from gateway.database.bulk import Row, insert_rows
from gateway.database.engine import Database
from gateway.database.tables import ledger_lines
from gateway.history.import_state import ImportConflict, ImportState, chain, write_states
from gateway.history.line_row import facts_of, row_of
from gateway.history.new_lines import NewLines
from gateway.history.rollups import Rollup


class Unstorable(Exception):
    """The database cannot hold a value of a line; the text says which."""


def append(database: Database, batch: Sequence[NewLines]) -> list[ImportState]:
    """Append the lines of several accounts; returns the states after them. Each part has at least one line.

    ImportConflict if another process has imported one of the accounts meanwhile, Unstorable for a value that does not
    fit its column; then nothing is written.
    """
    rollup = Rollup()
    rows: list[Row] = []
    changes: list[tuple[ImportState | None, ImportState]] = []
    for part in batch:
        hashes, last = [], part.start.last_hash
        for line in part.lines:
            last = chain(last, line)
            hashes.append(last)
            facts = facts_of(line.meta_text)
            rows.append(row_of(line, last, facts))
            rollup.add(line, facts)
        changes.append((part.before, part.start.after_all(part.lines, hashes)))
    try:
        with database.writing() as connection:
            write_states(connection, changes)
            insert_rows(connection, ledger_lines, rows)
            rollup.write(connection)
    except sa.exc.IntegrityError:
        raise ImportConflict from None
    except (sa.exc.DataError, OverflowError, UnicodeEncodeError) as error:
        raise Unstorable(" ".join(str(getattr(error, "orig", error)).split())) from None
    return [after for _, after in changes]
