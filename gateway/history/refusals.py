"""Refused requests in the database: batches of the workers are added to the sums by hour, each once.

A batch's id is stored in the transaction that adds its counts, and the batch leaves the store after that. So a batch
that comes again, because a process was killed or a worker sent it twice, adds nothing. Ids are kept for `REMEMBERED`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.database.engine import Database
from gateway.database.tables import REFUSAL_LABELS, refusal_batches, refusals_hourly, refusals_site_hourly
from gateway.history.batch_mover import BatchMover
from gateway.history.sql_thread import SqlThread
from gateway.ledger.refusal_counts import HOUR, RefusalBatch, read_batches, remove_batches
from gateway.store.links import Links

EVERY = 5.0  # seconds
PAGE = 20  # batches in one transaction
REMEMBERED = timedelta(days=7)
MICRO = 1_000_000


def refusal_mover(links: Links, database: Database, sql: SqlThread) -> BatchMover[RefusalBatch]:
    """Moves the counts of refusals."""
    return BatchMover(
        links,
        database,
        sql,
        name="the counts of refusals",
        every=EVERY,
        page=PAGE,
        read=read_batches,
        add=add_batches,
        remove=remove_batches,
    )


def add_batches(database: Database, batches: list[RefusalBatch]) -> None:
    """Add the counts of the batches that are new to the database."""
    new = {batch.id: batch for batch in batches}
    if not new:
        return
    with database.writing(durable=True) as connection:
        known = sa.select(refusal_batches.c.id).where(refusal_batches.c.id.in_(list(new)))
        for id_ in connection.scalars(known):
            del new[id_]
        rows = _rows(list(new.values()))
        if not rows:
            return
        now = time.time_ns() // 1000
        connection.execute(refusal_batches.insert(), [{"id": id_, "at": now} for id_ in new])
        _add(database, connection, refusals_hourly, rows)
        _add(database, connection, refusals_site_hourly, _of_site(rows))


def _add(database: Database, connection: Connection, table: sa.Table, rows: list[dict[str, Any]]) -> None:
    insert = database.insert(table)
    add = {"requests": table.c.requests + insert.excluded.requests}
    key = list(table.primary_key.columns)
    connection.execute(insert.on_conflict_do_update(index_elements=key, set_=add), rows)


def _of_site(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sums over accounts and keys, in the order of the primary key."""
    sums: dict[tuple[int, str, str], int] = {}
    for row in rows:
        label = (row["hour"], row["model"], row["code"])
        sums[label] = sums.get(label, 0) + row["requests"]
    return [
        {"hour": hour, "model": model, "code": code, "requests": requests}
        for (hour, model, code), requests in sorted(sums.items())
    ]


class RefusalSum(Struct, frozen=True):
    """Refused requests of a key for a model with a code; texts are empty where they are not known."""

    account: str
    key: str
    model: str
    code: str
    requests: int


class RefusalQuery(Struct, frozen=True, kw_only=True):
    """Refused requests from `since` to before `until`; without `until` there is no end.

    Counts are of whole hours in UTC: an hour that `since` or `until` cuts counts whole, as in usage reports. An empty
    account or model lets all pass, and so does None for `keys`.
    """

    since: datetime
    until: datetime | None = None
    account: str = ""
    keys: Collection[str] | None = None
    model: str = ""

    @property
    def first_hour(self) -> int:
        """The hour of `since`, in microseconds."""
        return int(self.since.timestamp()) // HOUR * HOUR * MICRO

    @property
    def end(self) -> int:
        """The first hour that is not read."""
        return math.ceil(self.until.timestamp() / HOUR) * HOUR * MICRO if self.until is not None else 2**62

    def conditions(self) -> Iterator[sa.ColumnElement[bool]]:
        """What a row must fulfil."""
        columns = refusals_hourly.c
        yield columns.hour >= self.first_hour
        if self.until is not None:
            yield columns.hour < self.end
        if self.account:
            yield columns.account == self.account
        if self.keys is not None:
            yield columns.key_id.in_(self.keys)
        if self.model:
            yield columns.model == self.model


def read_refusals(database: Database, query: RefusalQuery, *, most: int = 1000) -> list[RefusalSum]:
    """The sums by account, key, model and code, the largest first."""
    labels = [refusals_hourly.c[name] for name in REFUSAL_LABELS]
    total = sa.func.sum(refusals_hourly.c.requests)
    select = sa.select(*labels, total).where(*query.conditions())
    select = select.group_by(*labels).order_by(total.desc(), *labels).limit(most)
    with database.reading() as connection:
        return [RefusalSum(*row[:4], int(row[4])) for row in connection.execute(select)]


def site_refusals(connection: Connection, query: RefusalQuery) -> dict[str, int]:
    """The requests that were refused over all accounts and keys, by code, the most frequent first."""
    column = refusals_site_hourly.c
    total = sa.func.sum(column.requests)
    select = sa.select(column.code, total).where(column.hour >= query.first_hour, column.hour < query.end)
    rows = connection.execute(select.group_by(column.code).order_by(total.desc(), column.code))
    return {row.code: int(row[1]) for row in rows}


def count_refusals(database: Database, query: RefusalQuery) -> int:
    """How many requests were refused."""
    select = sa.select(sa.func.sum(refusals_hourly.c.requests)).where(*query.conditions())
    with database.reading() as connection:
        return int(connection.scalar(select) or 0)


def _rows(batches: list[RefusalBatch]) -> list[dict[str, Any]]:
    """The sums of the batches in the order of the primary key."""
    sums: dict[tuple[int, str, str, str, str], int] = {}
    for batch in batches:
        for hour, account, key_id, model, code, requests in batch.counts:
            label = (hour * HOUR * MICRO, account, key_id, model, code)
            sums[label] = sums.get(label, 0) + requests
    return [
        {**dict(zip(("hour", *REFUSAL_LABELS), label, strict=True)), "requests": requests}
        for label, requests in sorted(sums.items())
    ]
