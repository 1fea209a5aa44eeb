"""An account's ledger lines of one month, summed; the sums are proved against the balances on the lines.

Times are microseconds since 1970 in UTC, amounts nano-units. The lines of an account are in the order of their times,
so those of a month have consecutive numbers. The charges of a month that still runs come from the sums by month: it is
read often, and may have many lines.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.engine import Connection

from gateway.database.tables import IS_MOVEMENT, USAGE, ledger_lines, usage_monthly
from gateway.errors import InternalError
from gateway.history.calendar import next_month
from gateway.history.import_state import ImportState
from gateway.history.line_row import LINE_COLUMNS, line_of
from gateway.ledger.line import LedgerLine

CHARGES = ("use", "reclaim")
MOST_LISTED = 1000  # credits and refunds that are listed one by one

_line = ledger_lines.c
_COLUMNS = [_line[name] for name in LINE_COLUMNS]
_IS_AMENDMENT = sa.and_(_line.kind == "adj", _line.key_id != "")  # of a call that was lost


class Charged(Struct, frozen=True):
    """The calls of one model and key, and what they were charged; positive."""

    model: str
    key: str
    calls: int
    tokens_in: int
    tokens_out: int
    amount: int
    uncollected: int


class MonthLines(Struct, frozen=True):
    """The lines `first_seq` to `last_seq`; without lines, both are those of the last line before the month.

    `opening` plus all amounts is `closing`. `listed` are the first of the lines that are not charges, and `others` the
    number and sum of those that are not listed, by kind.
    """

    first_seq: int
    last_seq: int
    last_hash: bytes
    opening: int
    closing: int
    charges: list[Charged]
    listed: list[LedgerLine]
    others: dict[str, tuple[int, int]]

    @property
    def has_lines(self) -> bool:
        """Whether a line was booked in the month."""
        return self.first_seq <= self.last_seq and bool(self.charges or self.listed)


def read_month(connection: Connection, state: ImportState, month: int, *, from_sums: bool = False) -> MonthLines:
    """The lines of the month that begins at `month`. InternalError if they do not add up.

    `from_sums`: the charges are those of the sums by month, if they lead to the closing balance.
    """
    first = _first_at(connection, state, month)
    last = _first_at(connection, state, next_month(month)) - 1
    opening, _ = _end(connection, state, first - 1)
    closing, last_hash = _end(connection, state, last)
    if first > last:
        return MonthLines(last, last, last_hash, opening, closing, [], [], {})
    own = (_line.account == state.account, _line.seq >= first, _line.seq <= last)
    movements = (*own, sa.text(IS_MOVEMENT), sa.not_(_IS_AMENDMENT))
    listed = connection.execute(sa.select(*_COLUMNS).where(*movements).order_by(_line.seq).limit(MOST_LISTED)).all()
    others = _others(connection, movements, listed[-1].seq) if len(listed) == MOST_LISTED else {}
    lines = [line_of(row) for row in listed]
    moved = sum(line.amount for line in lines) + sum(amount for _, amount in others.values())
    charges = _summed_charges(connection, state.account, month, own) if from_sums else []
    if not from_sums or opening + moved - _total(charges) != closing:
        charges = _charges(connection, own)
        count = connection.scalar(sa.select(sa.func.count()).select_from(ledger_lines).where(*own))
        if (opening + moved - _total(charges), count) != (closing, last - first + 1):
            raise InternalError(detail=f"lines {first} to {last} of {state.account} do not add up; see `gateway audit`")
    return MonthLines(first, last, last_hash, opening, closing, charges, lines, others)


def hash_at(connection: Connection, account: str, seq: int) -> bytes | None:
    """The hash of a line; None if the database does not have it."""
    return connection.scalar(sa.select(_line.hash).where(_line.account == account, _line.seq == seq))


def _first_at(connection: Connection, state: ImportState, moment: int) -> int:
    """The number of the first line at `moment` or later, by bisection; without one, the number after the last line."""
    low, high = state.opening_seq + 1, state.last_seq + 1
    while low < high:
        middle = (low + high) // 2
        at = connection.scalar(sa.select(_line.at).where(_line.account == state.account, _line.seq == middle))
        if at is None:
            raise InternalError(detail=f"line {middle} of {state.account} is missing; see `gateway audit`")
        low, high = (middle + 1, high) if at < moment else (low, middle)
    return low


def _end(connection: Connection, state: ImportState, seq: int) -> tuple[int, bytes]:
    """Balance and hash after the line with this number."""
    if seq == state.opening_seq:
        return state.opening_balance, state.opening_hash
    row = connection.execute(
        sa.select(_line.balance, _line.hash).where(_line.account == state.account, _line.seq == seq)
    ).one()
    return row.balance, row.hash


def _total(charges: list[Charged]) -> int:
    return sum(charged.amount for charged in charges)


def _summed_charges(connection: Connection, account: str, month: int, own: Any) -> list[Charged]:
    """The charges from the sums by month. These have refunds subtracted, which are movements in a statement."""
    sums, total = usage_monthly.c, sa.func.sum
    tokens = [
        total(sum((sums[name] for name in USAGE if name.startswith(kind)), sa.literal(0))) for kind in ("in_", "out_")
    ]
    query = sa.select(sums.model, sums.key_id, total(sums.calls), *tokens, total(sums.cost), total(sums.uncollected))
    query = query.where(sums.account == account, sums.month == month).group_by(sums.model, sums.key_id)
    refunds = sa.select(_line.model, _line.key_id, total(_line.amount)).where(*own, sa.text(IS_MOVEMENT))
    refunds = refunds.where(_line.kind == "refund", _line.key_id != "").group_by(_line.model, _line.key_id)
    given_back = {(row[0], row[1]): int(row[2]) for row in connection.execute(refunds)}
    found = []
    for row in connection.execute(query):
        charged = Charged(*row[:2], *map(int, row[2:]))
        charged = replace(charged, amount=charged.amount + given_back.get((charged.model, charged.key), 0))
        if charged.calls or charged.amount:  # else there is nothing but a refund
            found.append(charged)
    return sorted(found, key=lambda one: (one.model, one.key))


def _charges(connection: Connection, own: Any) -> list[Charged]:
    total, is_charge = sa.func.sum, sa.or_(_line.kind.in_(CHARGES), _IS_AMENDMENT)
    query = sa.select(
        _line.model,
        _line.key_id,
        total(sa.case((_line.kind.in_(CHARGES), 1), else_=0)),
        total(_line.tokens_in),
        total(_line.tokens_out),
        -total(_line.amount),
        total(_line.uncollected),
    )
    rows = connection.execute(query.where(*own, is_charge).group_by(_line.model, _line.key_id))
    return sorted((Charged(*row[:2], *map(int, row[2:])) for row in rows), key=lambda one: (one.model, one.key))


def _others(connection: Connection, movements: Any, after: int) -> dict[str, tuple[int, int]]:
    query = sa.select(_line.kind, sa.func.count(), sa.func.sum(_line.amount)).where(*movements, _line.seq > after)
    return {kind: (int(count), int(amount)) for kind, count, amount in connection.execute(query.group_by(_line.kind))}
