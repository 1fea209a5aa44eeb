"""Imports archive files, which older versions made: lines that are neither in the store nor in the database.

The files are read once, in one transaction. Every line's hash is checked, and the lines must continue into those of the
database: the opening sum of each account then becomes zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, structs
from sqlalchemy.engine import Connection

from gateway.database.bulk import Row, insert_rows
from gateway.database.engine import Database
from gateway.database.tables import ledger_lines
from gateway.history.exclusive import importers_waiting
from gateway.history.import_state import ImportState, chain, read_states, write_states
from gateway.history.line_row import facts_of, row_of
from gateway.history.rollups import Rollup
from gateway.ledger.archive import ArchiveError, read_archive
from gateway.ledger.line import LedgerLine

TOGETHER = 2000  # lines written at once


class ArchiveImported(Struct):
    """The `gateway history import-archive` document."""

    accounts: int = 0  # with lines that were new to the database
    lines: int = 0  # that were new


class _Account:
    """The import of one account. `state` is the database's, None if it has none."""

    def __init__(self, account: str, state: ImportState | None) -> None:
        self.before = state
        self.lines = 0  # new ones
        self._read = ImportState(account)  # the chain over the lines of the files
        self._after = state or ImportState(account)
        self._before_last = self._after.before_hash
        self._prepended = self._prepended_uncollected = 0

    def add(self, line: LedgerLine) -> bool:
        """Check the next line of the files; whether it is new to the database."""
        read, known = self._read, self._after
        if not read.continues_with(line):
            raise ArchiveError(
                f"{line.account}: line {line.n} follows line {read.last_seq}: give all archives, the oldest first"
            )
        hash_ = chain(read.last_hash, line)
        if hash_.hex() != line.hash:
            raise ArchiveError(f"{line.account}: line {line.n} was changed: its hash is not that of the lines up to it")
        if line.n == known.last_seq:
            self._before_last = read.last_hash
        self._read = read.after(line, hash_)
        for n, expected in ((known.opening_seq, known.opening_hash), (known.last_seq, known.last_hash)):
            if line.n == n and n and hash_ != expected:
                raise ArchiveError(f"{line.account}: the files have another line {n} than the database")
        if known.opening_seq < line.n <= known.last_seq:
            return False
        if line.n > known.last_seq:
            self._after = known.after(line, hash_)
        else:
            self._prepended += line.amount
            self._prepended_uncollected += line.uncollected
        self.lines += 1
        return True

    def change(self) -> tuple[ImportState | None, ImportState]:
        """The change of the state, after the last line."""
        after = self._after
        if self._read.last_seq < after.opening_seq:
            raise ArchiveError(
                f"{after.account}: the files end at line {self._read.last_seq}, the database begins after line"
                f" {after.opening_seq}: give all archives, the oldest first"
            )
        return self.before, structs.replace(
            after,
            opening_seq=0,
            opening_id="0-0",
            opening_balance=0,
            opening_hash=b"",
            before_hash=self._before_last if after.last_seq == (self.before or after).last_seq else after.before_hash,
            total=after.total + self._prepended,
            uncollected=after.uncollected + self._prepended_uncollected,
        )


def import_archives(database: Database, paths: Sequence[Path]) -> ArchiveImported:
    """Add the lines of these files, the oldest first. ArchiveError if they do not fit; then nothing is changed."""
    with importers_waiting(database), database.writing() as connection:
        return _Import(connection).run(paths)


class _Import:
    """One import in a transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._accounts: dict[str, _Account] = {}
        self._rows: list[Row] = []
        self._rollup = Rollup()

    def run(self, paths: Sequence[Path]) -> ArchiveImported:
        for path in paths:
            for line in read_archive(path):
                account = self._account(line.account)
                if account.add(line):
                    self._put(line)
        self._flush()
        write_states(self._connection, [account.change() for account in self._accounts.values()])
        new = [account.lines for account in self._accounts.values() if account.lines]
        return ArchiveImported(len(new), sum(new))

    def _account(self, name: str) -> _Account:
        account = self._accounts.get(name)
        if account is None:
            state = read_states(self._connection, [name]).get(name)
            account = self._accounts[name] = _Account(name, state)
        return account

    def _put(self, line: LedgerLine) -> None:
        facts = facts_of(line.meta_text)
        self._rows.append(row_of(line, bytes.fromhex(line.hash), facts))
        self._rollup.add(line, facts)
        if len(self._rows) >= TOGETHER:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            insert_rows(self._connection, ledger_lines, self._rows)
            self._rollup.write(self._connection)
        self._rows, self._rollup = [], Rollup()
