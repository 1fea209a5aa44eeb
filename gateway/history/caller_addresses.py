"""The addresses of callers in the database: by call, and by key and day; both leave it after `keep_addresses`.

A batch that comes again, because a process was killed, changes nothing: its calls are in the same row, and the times of
a key only become earlier and later.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.database.engine import Database
from gateway.database.people_tables import users
from gateway.database.tables import call_addresses, key_addresses, usage_daily
from gateway.history.batch_mover import BatchMover
from gateway.history.calendar import DAY
from gateway.history.retention import first_kept
from gateway.history.sql_thread import SqlThread
from gateway.ledger.caller_addresses import AddressBatch, read_addresses, remove_addresses
from gateway.store.links import Links

if TYPE_CHECKING:
    from gateway.database.engine import Insert

EVERY = 20.0  # seconds: the longer, the fewer rows
PAGE = 10  # batches in one transaction
#: Microseconds before and after the end of a call in which the row with it begins: usually, and at most.
SEARCHED = ((120_000_000, 60_000_000), (3_600_000_000, 3_600_000_000))
MOST_DAYS = 367  # that the tables can have
MOST = 1000  # addresses of a key
KEYS_TOGETHER = 500  # in one transaction
REMOVED_TOGETHER = 10_000  # rows: others write between two of these transactions

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict[str, list[str]])  # request ids by address


class UsedFrom(Struct, frozen=True):
    """An address that a key was used from; times in microseconds since 1970, a few seconds after the call."""

    key: str
    address: str
    first: int
    last: int


def address_mover(links: Links, database: Database, sql: SqlThread) -> BatchMover[AddressBatch]:
    """Moves the addresses of callers."""
    return BatchMover(
        links,
        database,
        sql,
        name="addresses",
        every=EVERY,
        page=PAGE,
        read=read_addresses,
        add=add_addresses,
        remove=remove_addresses,
    )


def add_addresses(database: Database, batches: Sequence[AddressBatch]) -> None:
    """Add the calls and the keys of the batches, the oldest first."""
    calls, keys = _rows(batches)
    if not calls:
        return
    of_call, of_key = database.insert(call_addresses), database.insert(key_addresses)
    first, last, new = key_addresses.c.first_at, key_addresses.c.last_at, of_key.excluded
    times = {
        "first_at": sa.case((new.first_at < first, new.first_at), else_=first),
        "last_at": sa.case((new.last_at > last, new.last_at), else_=last),
    }
    with database.writing() as connection:
        _upsert(connection, call_addresses, of_call, {"calls": of_call.excluded.calls}, calls)
        _upsert(connection, key_addresses, of_key, times, keys)
        _forget_erased(connection, keys)


def forget_late_addresses(database: Database, *, of_all_days: bool = False) -> None:
    """Remove the addresses of erased users that came before the lines that say whose the keys are.

    They are looked for in the last days; in all days they are, too, if the importer was away.
    """
    days, columns = _days() if of_all_days else _last_days(), usage_daily.c
    query = sa.select(columns.key_id).where(columns.day.in_(days), _is_erased())
    with database.reading() as connection:
        erased = list(connection.scalars(query.distinct()))
    for start in range(0, len(erased), KEYS_TOGETHER):
        with database.writing() as connection:
            _forget(connection, erased[start : start + KEYS_TOGETHER], days)


def _forget_erased(connection: Connection, added: Sequence[dict[str, Any]]) -> None:
    """Remove what was just added of users who were erased meanwhile. `added`: rows with the day and the key.

    An address arrives some seconds after its call, and days later if the importer was away.
    """
    columns = usage_daily.c
    key_ids, days = ({row[name] for row in added} for name in ("key_id", "day"))
    query = sa.select(columns.key_id).where(columns.key_id.in_(sorted(key_ids)), _is_erased())
    if erased := list(connection.scalars(query.distinct())):
        _forget(connection, erased, sorted(days))


def _is_erased() -> sa.ColumnElement[bool]:
    """Whether a row of the sums is of a user who is not there any more."""
    user = usage_daily.c.user_id
    return sa.and_(user != "", user.not_in(sa.select(users.c.id)))


def _forget(connection: Connection, key_ids: Collection[str], days: Sequence[int]) -> None:
    for table in (call_addresses, key_addresses):
        connection.execute(table.delete().where(table.c.day.in_(days), table.c.key_id.in_(key_ids)))


def _upsert(
    connection: Connection, table: sa.Table, insert: Insert, values: dict[str, Any], rows: list[dict[str, Any]]
) -> None:
    places = list(table.primary_key.columns)
    connection.execute(insert.on_conflict_do_update(index_elements=places, set_=values), rows)


def _rows(batches: Sequence[AddressBatch]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of both tables, in the order of their primary keys.

    The calls of a key are one row: a row for each call took half as long as the whole import of its line. Its place is
    the time of the first batch. So batches that come again, with others behind them, replace it by one with all calls.
    """
    uses: dict[tuple[int, str, str], list[Any]] = {}  # first and last time, request ids; of lists, for their speed
    for batch in batches:
        at = batch.at
        day = at // DAY * DAY
        for key_id, address, ids in batch.uses:
            place = day, key_id, address
            found = uses.get(place)
            if found is None:
                uses[place] = [at, at, [*ids]]
            else:
                found[1] = at
                found[2] += ids
    calls: dict[tuple[int, str], dict[str, list[str]]] = {}
    keys = list[dict[str, Any]]()
    for (day, key_id, address), (first, last, ids) in sorted(uses.items()):
        calls.setdefault((day, key_id), {})[address] = ids
        keys.append({"day": day, "key_id": key_id, "address": address, "first_at": first, "last_at": last})
    return (
        [
            {"day": day, "key_id": key_id, "at": batches[0].at, "calls": _encoder.encode(of_key).decode()}
            for (day, key_id), of_key in calls.items()
        ],
        keys,
    )


def address_of(connection: Connection, key_id: str, request_id: str, at: int) -> str:
    """The address of a call that ended at `at`, in microseconds since 1970; "" if it is not known any more.

    Its batch came to the store soon after. If something was away meanwhile, an hour before and after is searched.
    """
    columns, day = call_addresses.c, at // DAY * DAY
    of_key = sa.select(columns.calls).where(columns.day.in_([day, day + DAY, day - DAY]), columns.key_id == key_id)
    of_key = of_key.where(columns.calls.contains(f'"{request_id}"', autoescape=True)).limit(1)
    for before, after in SEARCHED:
        found = connection.scalar(of_key.where(columns.at >= at - before, columns.at <= at + after))
        if found is not None:
            uses = _decoder.decode(found)
            return next((address for address, ids in uses.items() if request_id in ids), "")
    return ""


def addresses_of_keys(connection: Connection, key_ids: Collection[str], *, most: int = MOST) -> list[UsedFrom]:
    """The addresses that these keys were used from, the last used first."""
    columns = key_addresses.c
    last = sa.func.max(columns.last_at)
    query = sa.select(columns.key_id, columns.address, sa.func.min(columns.first_at), last)
    query = query.where(columns.day.in_(_days()), columns.key_id.in_(key_ids))
    query = query.group_by(columns.key_id, columns.address).order_by(last.desc(), columns.key_id, columns.address)
    return [UsedFrom(row[0], row[1], int(row[2]), int(row[3])) for row in connection.execute(query.limit(most))]


def keys_used_by(connection: Connection, user_id: str) -> list[str]:
    """The ids of all keys with which a user has called."""
    columns = usage_daily.c
    # Without DISTINCT: for it SQLite would read the index of all keys.
    return list(dict.fromkeys(connection.scalars(sa.select(columns.key_id).where(columns.user_id == user_id))))


def has_called(connection: Connection, user_id: str) -> bool:
    """Whether a user has called with any key."""
    columns = usage_daily.c
    return connection.scalar(sa.select(columns.key_id).where(columns.user_id == user_id).limit(1)) is not None


def forget_addresses(connection: Connection, key_ids: Collection[str]) -> None:
    """Remove the addresses of these keys."""
    _forget(connection, key_ids, _days())


def remove_old_addresses(database: Database, keep: timedelta) -> None:
    """Remove the addresses of days that are not kept."""
    until = first_kept(keep)
    for table in (call_addresses, key_addresses):
        place = sa.tuple_(*table.primary_key.columns)
        old = sa.select(*table.primary_key.columns).where(table.c.day < until).limit(REMOVED_TOGETHER)
        removed = REMOVED_TOGETHER
        while removed == REMOVED_TOGETHER:
            with database.writing() as connection:
                removed = connection.execute(table.delete().where(place.in_(old))).rowcount


def _last_days() -> list[int]:
    """Those in which addresses of the last calls can be."""
    return _days()[:3]


def _days() -> list[int]:
    """All days that the tables may have, so that their primary keys find a key without reading other ones."""
    today = time.time_ns() // 1000 // DAY * DAY
    return [today - number * DAY for number in range(-1, MOST_DAYS)]
