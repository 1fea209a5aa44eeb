"""Writes new lines, their sums and the import state in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from gateway.database.engine import Database
from gateway.database.tables import ledger_lines
from gateway.history.import_state import ImportConflict, ImportState, chain, write_states
from gateway.history.line_row import facts_of, row_of
from gateway.history.new_lines import NewLines
from gateway.history.rollups import Rollup


class Unstorable(Exception):
    """The database cannot hold a value of a line; the text says which."""


def append(database: Database, batch: Sequence[NewLines]) -> int:
    """Append the lines of several accounts; returns their number.

    ImportConflict if another process has imported one of the accounts meanwhile, Unstorable for a value that does not
    fit its column; then nothing is written.
    """
    rollup, rows = Rollup(), []
    changes: list[tuple[ImportState | None, ImportState]] = []
    for part in batch:
        state = part.start
        for line in part.lines:
            hash_ = chain(state.last_hash, line)
            facts = facts_of(line.meta_text)
            rows.append(row_of(line, hash_, facts))
            rollup.add(line, facts)
            state = state.after(line, hash_)
        changes.append((part.before, state))
    if not rows:
        return 0
    try:
        with database.writing() as connection:
            write_states(connection, changes)
            connection.execute(ledger_lines.insert(), rows)
            rollup.write(connection, database)
    except sa.exc.IntegrityError:
        raise ImportConflict from None
    except (sa.exc.DataError, OverflowError, UnicodeEncodeError) as error:
        raise Unstorable(" ".join(str(getattr(error, "orig", error)).split())) from None
    return len(rows)
