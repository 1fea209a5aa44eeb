"""Superseded lines in the database: which of them are open, that is neither booked again nor acknowledged.

Whether a line is booked again is not stored with it. It is what the ledger says: a line of the same id, in the database
or in the store. So a journal that is sent later books it, and an older store that loses the booking opens it again.
Lines that moved no money are not open. Of lines of one call or operation that were superseded more than once, the last
ones count.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct, structs
from sqlalchemy.engine import Connection

from gateway.amounts import format_amount
from gateway.database.engine import Database
from gateway.database.tables import ledger_lines, superseded_lines
from gateway.errors import StoreUnavailable
from gateway.history.line_row import LINE_COLUMNS, line_of
from gateway.history.sql_thread import SqlThread
from gateway.ledger.auditing.report import AuditReport, Superseded
from gateway.ledger.line import LedgerLine
from gateway.ledger.superseded import OPENING, are_booked
from gateway.store.links import Links

PAGE = 500  # lines per query
LISTED = 100  # lines that an audit names

OF_CALLS = ("use", "reclaim", "adj", "refund")  # kinds of the lines of a call; the last two may be an operator's
KINDS = (*OF_CALLS, "open", "topup")

_lost, _later = superseded_lines.alias("lost"), superseded_lines.alias("later")
_line, _same = ledger_lines.alias("line"), ledger_lines.alias("same")


class SupersededLine(Struct, frozen=True):
    """A superseded line, and its id in the database."""

    id: int
    line: LedgerLine

    @property
    def summary(self) -> Superseded:
        """What an audit names of it."""
        line = self.line
        return Superseded(self.id, line.account, line.n, line.kind, line.request_id, line.amount, line.at_text)

    def json_form(self) -> dict[str, Any]:
        """The JSON document of a row of `gateway superseded list`."""
        return structs.asdict(self.summary) | {"amount": format_amount(self.line.amount)}


#: The next open lines behind an id: `read(after)`.
ReadLines = Callable[[int], Awaitable[list[SupersededLine]]]


def open_lines(
    connection: Connection,
    *,
    account: str | None = None,
    after: int = 0,
    kinds: Collection[str] = KINDS,
    ids: Collection[int] | None = None,
    limit: int = 0,
) -> list[SupersededLine]:
    """The open lines behind the id `after`, as far as the database knows, by id; at most `limit`, by default a page."""
    columns = [_lost.c.id, *(_lost.c[name] for name in LINE_COLUMNS)]
    query = sa.select(*columns).where(*_open(account), _lost.c.id > after, _lost.c.kind.in_(kinds))
    if ids is not None:
        query = query.where(_lost.c.id.in_(ids))
    rows = connection.execute(query.order_by(_lost.c.id).limit(limit or PAGE))
    return [SupersededLine(row.id, line_of(row)) for row in rows]


def lines_of_calls(
    connection: Connection, account: str, request_ids: Collection[str]
) -> dict[str, tuple[list[LedgerLine], list[LedgerLine]]]:
    """By request id, the lines of a call in the ledger, and those that it lost the last time; both in their order."""
    found: dict[str, tuple[list[LedgerLine], list[LedgerLine]]] = {one: ([], []) for one in request_ids}
    newest: sa.ColumnElement[bool] = ~sa.exists().where(*_is_later())
    for place, (table, condition) in enumerate(((_line, sa.true()), (_lost, newest))):
        columns = table.c
        query = sa.select(*(columns[name] for name in LINE_COLUMNS)).where(
            columns.account == account, columns.request_id.in_(request_ids), columns.kind.in_(OF_CALLS), condition
        )
        for row in connection.execute(query.order_by(columns.seq)):
            found[row.request_id][place].append(line_of(row))
    return found


def known_ids(connection: Connection, ids: Collection[int]) -> set[int]:
    """Those of the ids that a superseded line has."""
    return set(connection.scalars(sa.select(_lost.c.id).where(_lost.c.id.in_(ids))))


def acknowledge(connection: Connection, now: int, ids: Collection[int]) -> list[LedgerLine]:
    """Close those of the lines that are open; returns them."""
    closed = open_lines(connection, ids=ids, limit=len(ids))
    chosen = superseded_lines.c.id.in_([one.id for one in closed])
    connection.execute(superseded_lines.update().where(chosen).values(acknowledged_at=now))
    return [one.line for one in closed]


async def unbooked_pages(links: Links, read: ReadLines) -> AsyncIterator[Sequence[SupersededLine]]:
    """The lines of `read` page by page, without those that the store has booked again. StoreUnavailable."""
    after = 0
    while found := await read(after):
        after = found[-1].id
        booked = await are_booked(links, [one.line for one in found])
        yield [one for one, is_booked in zip(found, booked, strict=True) if not is_booked]


async def audit_superseded(links: Links, database: Database, sql: SqlThread, account: str | None = None) -> AuditReport:
    """The report on open superseded lines: their number, and the first ones. DatabaseUnavailable."""
    report = AuditReport()

    def read(after: int) -> list[SupersededLine]:
        with database.reading() as connection:
            return open_lines(connection, account=account, after=after)

    try:
        async for page in unbooked_pages(links, lambda after: sql.run(read, after)):
            report.superseded += [one.summary for one in page[: LISTED - len(report.superseded)]]
            report.superseded_lines += len(page)
    except StoreUnavailable:
        report.unreachable.append("superseded lines")
    return report


def _open(account: str | None) -> list[sa.ColumnElement[bool]]:
    moved = [_lost.c.amount != 0, _lost.c.acknowledged_at.is_(None)]
    if account is not None:
        moved.append(_lost.c.account == account)
    newer = sa.exists().where(*_is_later(), _lost.c.kind != "open")
    back = sa.exists().where(
        _same.c.account == _lost.c.account, _same.c.seq == _lost.c.seq, _same.c.hash == _lost.c.hash
    )
    return [*moved, ~newer, ~back, ~sa.exists().where(*_is_booking())]


def _is_later() -> list[Any]:
    """A line of the same id was superseded after this one."""
    return [
        _later.c.account == _lost.c.account,
        _later.c.request_id == _lost.c.request_id,
        _later.c.superseded_at > _lost.c.superseded_at,
    ]


def _is_booking() -> list[Any]:
    """The line in the ledger that books a superseded one; see `gateway.ledger.superseded`."""
    is_opening = _lost.c.kind == "open"
    id_ = sa.case((is_opening, sa.literal(OPENING) + _lost.c.stream_id), else_=_lost.c.request_id)
    kind = sa.case((is_opening, "topup"), else_=_lost.c.kind)
    charges = sa.or_(_line.c.kind.in_(("use", "adj")), sa.and_(_line.c.kind == "reclaim", _lost.c.kind == "reclaim"))
    return [
        _line.c.account == _lost.c.account,
        _line.c.request_id == id_,
        sa.or_(
            sa.and_(_lost.c.kind.in_(OF_CALLS), charges),
            sa.and_(_line.c.kind == kind, _line.c.amount == _lost.c.amount),
        ),
    ]
