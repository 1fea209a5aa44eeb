"""Removes history that is older than `database.keep`: whole days of lines and of sums of usage.

The lines that are removed from an account become its opening sum. Only lines that have left the store are removed, so
the database always has what the store does not.
"""

from __future__ import annotations

import time
from datetime import timedelta

import sqlalchemy as sa
from msgspec import structs
from sqlalchemy.engine import Connection

from gateway.database.engine import Database
from gateway.database.tables import (
    ADDITIVE,
    LABELS,
    MAXIMA,
    MEASURES,
    ROLLUPS,
    USER,
    ledger_lines,
    money_site_hourly,
    refusal_batches,
    refusals_hourly,
    refusals_site_hourly,
    superseded_lines,
    usage_daily,
    usage_monthly,
)
from gateway.history.calendar import DAY, month_of, next_month
from gateway.history.import_state import read_states, write_states
from gateway.history.refusals import REMEMBERED
from gateway.history.sql_thread import SqlThread
from gateway.ledger.archive_checkpoint import read_archive_checkpoint
from gateway.store.connection import RedisReplyError
from gateway.store.links import Links

ACCOUNTS = 100  # accounts in one call


def first_kept(keep: timedelta) -> int:
    """The beginning of the oldest day that is kept, in microseconds; by this machine's clock."""
    return (time.time_ns() // 1000 - keep // timedelta(microseconds=1)) // DAY * DAY


async def remove_old(links: Links, database: Database, sql: SqlThread, keep: timedelta) -> int:
    """Remove what is too old, of some accounts; returns the number of lines."""
    until = first_kept(keep)
    removed = 0
    for account, seq in await sql.run(_find, database, until):
        try:
            left = (await read_archive_checkpoint(links, account)).n
        except (RedisReplyError, ValueError, LookupError):
            continue  # the audit says what is wrong with it
        if min(seq, left):
            removed += await sql.run(_remove, database, account, min(seq, left))
    await sql.run(_remove_sums, database, until)
    return removed


def _find(database: Database, until: int) -> list[tuple[str, int]]:
    columns = ledger_lines.c
    query = sa.select(columns.account, sa.func.max(columns.seq)).where(columns.at < until)
    with database.reading() as connection:
        return [(row[0], row[1]) for row in connection.execute(query.group_by(columns.account).limit(ACCOUNTS))]


def _remove(database: Database, account: str, seq: int) -> int:
    """Remove the lines up to number `seq`."""
    columns = ledger_lines.c
    old = (columns.account == account, columns.seq <= seq)
    with database.writing() as connection:
        state = read_states(connection, [account])[account]
        last = connection.execute(
            sa.select(columns.stream_id, columns.balance, columns.hash).where(
                columns.account == account, columns.seq == seq
            )
        ).one_or_none()
        if last is None:
            return 0
        uncollected = int(connection.scalar(sa.select(sa.func.sum(columns.uncollected)).where(*old)) or 0)
        removed = connection.execute(ledger_lines.delete().where(*old)).rowcount
        after = structs.replace(
            state,
            opening_seq=seq,
            opening_id=last.stream_id,
            opening_balance=last.balance,
            opening_hash=last.hash,
            total=state.balance - last.balance,
            uncollected=state.uncollected - uncollected,
        )
        write_states(connection, [(state, after)])
    return removed


def _remove_sums(database: Database, until: int) -> None:
    with database.writing() as connection:
        has_old_days = connection.scalar(sa.select(sa.func.min(usage_daily.c.day) < until))
        for table in (*ROLLUPS, money_site_hourly, refusals_hourly, refusals_site_hourly):
            if table is not usage_monthly:
                period = next(iter(table.primary_key.columns))
                connection.execute(table.delete().where(period < until))
        if has_old_days:
            _remove_months(connection, until)
        connection.execute(superseded_lines.delete().where(superseded_lines.c.superseded_at < until))
        connection.execute(refusal_batches.delete().where(refusal_batches.c.at < first_kept(REMEMBERED)))


def _remove_months(connection: Connection, until: int) -> None:
    """Remove older months; the one in which `until` is gets the sums of the days that are left of it."""
    months, days, month = usage_monthly.c, usage_daily.c, month_of(until)
    connection.execute(usage_monthly.delete().where(months.month <= month))
    labels = [days[label] for label in LABELS]
    sums = [sa.func.max(days[USER]), *(sa.func.sum(days[name]) for name in ADDITIVE)]
    sums += [sa.func.max(days[name]) for name in MAXIMA]
    kept = sa.select(sa.literal(month, sa.BigInteger), *labels, *sums)
    kept = kept.where(days.day >= until, days.day < next_month(month)).group_by(*labels)
    connection.execute(usage_monthly.insert().from_select(["month", *LABELS, USER, *MEASURES], kept))
