"""How far an account is imported: its row of `import_state`, which changes by compare-and-set only."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import sqlalchemy as sa
from msgspec import Struct, structs
from sqlalchemy.engine import Connection

from gateway.database.bulk import insert_rows, update_rows
from gateway.database.tables import import_state
from gateway.ledger.archive_checkpoint import ArchiveCheckpoint
from gateway.ledger.line import LedgerLine

#: What identifies a state: a change of it is a change of these.
_SAME = ("account", "last_seq", "last_hash", "opening_seq")


class ImportConflict(Exception):
    """Another process has changed the state meanwhile; nothing was written."""


class ImportState(Struct, frozen=True):
    """One account. Lines 1 … `opening_seq` are not in the database; `opening_balance` is their sum, in nano-units.

    Without lines in the database, the last line is the last one before the opening. `total` and `uncollected` are the
    sums of the lines in the database.
    """

    account: str
    opening_seq: int = 0
    opening_id: str = "0-0"
    opening_balance: int = 0
    opening_hash: bytes = b""
    last_seq: int = 0
    last_id: str = "0-0"
    before_hash: bytes = b""  # the chain before the last line
    last_hash: bytes = b""
    balance: int = 0
    total: int = 0
    uncollected: int = 0

    @classmethod
    def opening(cls, account: str, checkpoint: ArchiveCheckpoint) -> ImportState:
        """The state of an account of which nothing is imported, and whose first lines are not in the store."""
        hash_ = bytes.fromhex(checkpoint.hash)
        n, id_, balance = checkpoint.n, checkpoint.id, checkpoint.balance
        return cls(account, n, id_, balance, hash_, n, id_, b"", hash_, balance)

    @property
    def has_lines(self) -> bool:
        """Whether the database has a line of the account."""
        return self.last_seq > self.opening_seq

    def continues_with(self, line: LedgerLine) -> bool:
        """Whether the line is the next one by its number and balance."""
        return line.n == self.last_seq + 1 and line.balance == self.balance + line.amount

    def ends_with(self, line: LedgerLine) -> bool:
        """Whether the line is the last one in the database."""
        return line.n == self.last_seq and chain(self.before_hash, line) == self.last_hash

    def ends_at(self, checkpoint: ArchiveCheckpoint) -> bool:
        """Whether the last line in the database is the last one that left the store."""
        return checkpoint.n == self.last_seq and checkpoint.hash == self.last_hash.hex()

    def after(self, line: LedgerLine, hash_: bytes) -> ImportState:
        """The state with the next line."""
        return structs.replace(
            self,
            last_seq=line.n,
            last_id=line.id,
            before_hash=self.last_hash,
            last_hash=hash_,
            balance=line.balance,
            total=self.total + line.amount,
            uncollected=self.uncollected + line.uncollected,
        )

    def after_all(self, lines: Sequence[LedgerLine], hashes: Sequence[bytes]) -> ImportState:
        """The state with the next lines, at least one; `hashes` are those of the chain up to each."""
        last = lines[-1]
        return structs.replace(
            self,
            last_seq=last.n,
            last_id=last.id,
            before_hash=hashes[-2] if len(hashes) > 1 else self.last_hash,
            last_hash=hashes[-1],
            balance=last.balance,
            total=self.total + sum([line.amount for line in lines]),
            uncollected=self.uncollected + sum([line.uncollected for line in lines]),
        )


def chain(before: bytes, line: LedgerLine) -> bytes:
    """The hash chain up to a line."""
    return line.chained_bytes(before)


def read_states(connection: Connection, accounts: Collection[str]) -> dict[str, ImportState]:
    """The states of these accounts, as far as there are any."""
    if not accounts:
        return {}
    rows = connection.execute(sa.select(import_state).where(import_state.c.account.in_(accounts)))
    return {row.account: ImportState(*row) for row in rows}


def write_states(connection: Connection, changes: Sequence[tuple[ImportState | None, ImportState]]) -> None:
    """Replace each first state by its second one, or insert that. ImportConflict if a first one is there no more."""
    new = [structs.astuple(after) for before, after in changes if before is None]
    if new:
        try:
            with connection.begin_nested():
                insert_rows(connection, import_state, new)
        except sa.exc.IntegrityError:
            raise ImportConflict from None
    changed = [
        (*structs.astuple(after), *(getattr(before, name) for name in _SAME))
        for before, after in changes
        if before is not None and before != after
    ]
    if update_rows(connection, import_state, ImportState.__struct_fields__, _SAME, changed) != len(changed):
        raise ImportConflict
