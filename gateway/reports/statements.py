"""Statements: an account's month with its opening and closing balance, and every movement between them.

A statement is final once the month is over and the database has every line up to the month's end. It is then stored
with a number and a hash, and is always shown as it was stored. Before that it is preliminary, and computed each time.
Months are in UTC.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct, structs
from sqlalchemy.engine import Connection

from gateway.accounts.accounts import Directory
from gateway.admin.actor import Actor
from gateway.admin.audit_trail import record, require_reader
from gateway.admin.times import from_micros, now, time_text, to_micros
from gateway.admin.transactions import Transactions
from gateway.amounts import format_amount
from gateway.database.tables import statements
from gateway.errors import Conflict, InternalError, InvalidValue, NotFound
from gateway.history.calendar import HOUR, next_month
from gateway.history.import_state import ImportState, read_states
from gateway.history.month_lines import MonthLines, hash_at, read_month
from gateway.ledger.gather_all import gather_bounded
from gateway.ledger.line import milliseconds
from gateway.reports.statement import MONTH_FORMAT, Statement, draft_statement
from gateway.store.links import Links, slot
from gateway.web.work_threads import LONG

GRACE = HOUR  # after the end of a month: a failover may still take back its last lines
TRIES = 5  # two statements may ask for the same number
AT_ONCE = 500  # keys read from the store at the same time

_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])", re.ASCII)


class StatementSummary(Struct, frozen=True):
    """A final statement in a list; the amount in nano-units."""

    number: int
    account: str
    month: str
    closing_balance: int
    fixed: datetime

    def json_form(self) -> dict[str, Any]:
        """A row of `gateway accounts statements`."""
        amount = format_amount(self.closing_balance)
        return {**structs.asdict(self), "closing_balance": amount, "fixed": time_text(self.fixed)}


class Statements:
    """Statements of accounts, final ones and preliminary ones."""

    def __init__(self, transactions: Transactions, links: Links, directory: Directory) -> None:
        self._transactions = transactions
        self._links = links
        self._directory = directory

    async def statement(self, actor: Actor, account: str, month: str) -> Statement:
        """The statement of a month such as 2026-10, which is made final if it can be.

        InvalidValue: no month, or one that has not begun. NotFound: no such account, it was opened later, or its lines
        of that month are not in the database any more.
        """
        start = _parsed(month)
        require_reader(actor, account)
        await self._directory.require(account)
        for _ in range(TRIES):
            stored = await self._transactions.read(_stored, account, start)
            if stored is not None:
                return stored
            seq, now = await self._store_end(account)
            if start > now:
                raise InvalidValue(f"The month {month} has not begun", param="month")
            is_over = now >= next_month(start) + GRACE
            draft, lines = await self._draft(account, start, seq, from_sums=not is_over)
            if draft.missing_lines or not is_over:
                return draft
            try:
                return await self._transactions.write_as(actor, _fix, draft, lines)
            except (sa.exc.IntegrityError, _Moved):
                continue  # another one has this number or this month now, or a fork was resolved
        raise Conflict("The account's history is changing; try again", retry_after=1.0)

    async def list(self, actor: Actor, account: str) -> list[StatementSummary]:
        """The final statements of an account, the newest month first; NotFound: no such account."""
        require_reader(actor, account)
        await self._directory.require(account)
        return await self._transactions.read(_summaries, account)

    async def make(self, actor: Actor, account: str, month: str) -> Statement:
        """The final statement of a month; Conflict if it cannot be final yet, with the reason."""
        made = await self.statement(actor, account, month)
        if made.is_final:
            return made
        if made.missing_lines:
            raise Conflict(f"{made.missing_lines} lines are not imported yet; try again", retry_after=5.0)
        raise Conflict(f"The month {month} ends at {time_text(made.until)}, and its statement is final an hour later")

    async def _store_end(self, account: str) -> tuple[int, int]:
        """The number of the account's last line in the store, and then the time there in microseconds."""
        link, key = self._links.link(slot(account)), slot(account)
        seconds, micros = await link.call("TIME")
        seq = await link.call("HGET", key, "seq")
        return int(seq or 0), int(seconds) * 1_000_000 + int(micros)

    async def _draft(self, account: str, month: int, seq: int, *, from_sums: bool) -> tuple[Statement, MonthLines]:
        state, lines, before = await self._transactions.read(_read, account, month, from_sums=from_sums)
        missing = max(0, seq - state.last_seq)
        if not lines.last_seq and not missing:
            raise NotFound(f"Account {account!r} was opened after that month")
        names = await self._key_names(account, sorted({charged.key for charged in lines.charges}))
        draft = await LONG.run(draft_statement, account, month, lines, names, before=before, missing_lines=missing)
        return draft, lines

    async def _key_names(self, account: str, keys: Sequence[str]) -> dict[str, str]:
        """The names of keys, by id."""
        call = self._links.link(slot(account)).call
        found = await gather_bounded((call("HGET", f"{slot(account)}:k:{key}", "name") for key in keys), AT_ONCE)
        return {key: name.decode() for key, name in zip(keys, found, strict=True) if name}


def _summaries(connection: Connection, account: str) -> list[StatementSummary]:
    table = statements.c
    query = sa.select(table.number, table.month, table.closing_balance, table.fixed_at).where(table.account == account)
    return [
        StatementSummary(
            row.number,
            account,
            from_micros(row.month).strftime(MONTH_FORMAT),
            row.closing_balance,
            from_micros(row.fixed_at),
        )
        for row in connection.execute(query.order_by(table.month.desc()))
    ]


class _Moved(Exception):
    """The lines are not those of the draft any more."""


def _parsed(month: str) -> int:
    """The first moment of a month such as 2026-10."""
    if not _MONTH.fullmatch(month) or month < "1970":
        raise InvalidValue(f"{month!r} is no month such as 2026-10", param="month")
    return to_micros(datetime.strptime(month, MONTH_FORMAT).replace(tzinfo=UTC))


def _stored(connection: Connection, account: str, month: int) -> Statement | None:
    row = connection.execute(
        sa.select(statements).where(statements.c.account == account, statements.c.month == month)
    ).one_or_none()
    if row is None:
        return None
    if hashlib.sha256(row.document.encode()).digest() != row.hash:
        raise InternalError(detail=f"statement {row.number} was changed in the database")
    statement = msgspec.json.decode(row.document, type=Statement)
    found = hash_at(connection, account, row.last_seq) if row.last_seq else None
    ledger = "gone" if found is None else "matches" if found == row.last_hash else "differs"
    return msgspec.structs.replace(statement, hash=row.hash.hex(), ledger=ledger)


def _read(
    connection: Connection, account: str, month: int, *, from_sums: bool
) -> tuple[ImportState, MonthLines, int | None]:
    """The state, the lines, and the closing balance of the statement of the month before, if that is final."""
    state = read_states(connection, [account]).get(account, ImportState(account))
    if state.opening_seq and milliseconds(state.opening_id) * 1000 >= month:
        raise NotFound("The ledger lines of that month are not in the database any more")
    lines = read_month(connection, state, month, from_sums=from_sums)
    before = connection.execute(
        sa.select(statements.c.month, statements.c.closing_balance)
        .where(statements.c.account == account, statements.c.month < month)
        .order_by(statements.c.month.desc())
        .limit(1)
    ).one_or_none()
    is_previous = before is not None and next_month(before.month) == month
    return state, lines, before.closing_balance if before is not None and is_previous else None


def _fix(connection: Connection, actor: Actor, draft: Statement, lines: MonthLines) -> Statement:
    state = read_states(connection, [draft.account]).get(draft.account, ImportState(draft.account))
    if lines.last_seq > state.opening_seq and hash_at(connection, draft.account, lines.last_seq) != lines.last_hash:
        raise _Moved
    number = int(connection.scalar(sa.select(sa.func.max(statements.c.number))) or 0) + 1
    fixed_at = now()
    final = msgspec.structs.replace(draft, number=number, fixed=from_micros(fixed_at))
    document = msgspec.json.encode(final)
    hash_ = hashlib.sha256(document).digest()
    connection.execute(
        statements.insert().values(
            number=number,
            account=draft.account,
            month=_parsed(draft.month),
            closing_balance=lines.closing,
            last_seq=lines.last_seq,
            last_hash=lines.last_hash,
            document=document.decode(),
            hash=hash_,
            fixed_at=fixed_at,
        )
    )
    record(connection, actor, "statements.fix", f"statement:{number}", account=draft.account)
    return msgspec.structs.replace(final, hash=hash_.hex(), ledger="matches")
