"""Closes again what an older store has open: keys that were revoked or disabled since, and accounts.

The audit trail in the database says what was closed; `gateway.admin.outbox` says that the store is older. A key
that was rotated since expires again when it was to. Nothing is opened, and no other setting is changed: such changes
are named by `gateway audit`, from an event with the action `store.older`. To repeat a replay changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.accounts.accounts import CHANGED, set_state
from gateway.accounts.key_record import KeyRecord
from gateway.accounts.keys import Keys
from gateway.admin.actor import by_configuration
from gateway.admin.audit_event import AuditEvent, new_event
from gateway.admin.audit_trail import event_of, record
from gateway.admin.outbox import AuditOutbox, raise_mark, read_mark
from gateway.admin.times import from_micros, moment, time_text
from gateway.database.engine import Database
from gateway.database.people_tables import audit_events
from gateway.history.lost_changes import NAMED, OLDER, PLACE
from gateway.history.sql_thread import SqlThread
from gateway.log import gateway_log
from gateway.store.links import Links, slot

ACTOR = by_configuration("older-store")
MARGIN = 3600 * 10**6  # µs; clocks of machines differ, so events before the mark may have been moved after it
PAGE = 1000  # events read at once

REVOKE, ROTATE = "keys.revoke", "keys.rotate"
STATES = frozenset({"keys.disable", "keys.enable", "accounts.disable", "accounts.enable"})
CLOSING = (REVOKE, ROTATE, *sorted(STATES))
#: Changes in the store that are no lost change: replayed ones, and what the ledger has.
LEDGER = ("accounts.credit", "accounts.refund")


class _Wanted(Struct):
    """What the trail says of a key or an account in the end."""

    is_revoked: bool = False
    is_disabled: bool = False
    expires: int | None = None  # Unix seconds; of a rotated key


class ClosingReplay:
    """The replay of one store. `is_due` costs one read of the store."""

    def __init__(self, links: Links, sql: SqlThread) -> None:
        self._links = links
        self._sql = sql
        self._keys = Keys(links, b"")  # no key is created or looked up by its text
        self._outbox = AuditOutbox(links)
        self._seen: str | None = None  # the mark of the last check
        self._is_suspect = False

    def suspect(self) -> None:
        """Another server serves the store now: check again, and compare what was closed lately."""
        self._is_suspect = True

    @property
    def is_done(self) -> bool:
        """Whether the store was compared with the trail."""
        return self._seen is not None and not self._is_suspect

    def note(self, mark: str) -> None:
        """Remember a newer mark of the store."""
        if self._seen is not None and mark > self._seen:
            self._seen = mark

    async def is_due(self) -> bool:
        """Whether the store is to be compared: not done yet, or it has an older mark than before."""
        return self._is_suspect or self._seen is None or await read_mark(self._links) < self._seen

    async def run(self, database: Database) -> None:
        """Compare the store with the trail. The caller holds the importer's lock, and has checked that they belong.

        StoreUnavailable, DatabaseUnavailable: repeat it.
        """
        is_suspect, self._is_suspect = self._is_suspect, False
        try:
            mark = await read_mark(self._links)
            newest = await self._sql.run(_newest, database)
            if newest > mark or is_suspect:
                await self._replay(database, mark)
                await raise_mark(self._links, newest)
        except BaseException:
            self._is_suspect |= is_suspect
            raise
        self._seen = max(mark, newest)

    async def _replay(self, database: Database, mark: str) -> None:
        waiting = {event.id: event for event in await self._waiting()}
        wanted = await self._sql.run(_wanted_in, database, _time_of(mark) - MARGIN, list(waiting.values()))
        closed = [name for name, one in wanted.items() if await self._close(name, one)]
        lost = await self._sql.run(_lost_changes, database, mark, waiting.keys()) if mark else _LostChanges()
        if not closed and not lost.count:
            return
        gateway_log.error(
            "the store is older than the audit trail: %d keys and accounts were closed again,"
            " %d other changes are lost; see `gateway audit`",
            len(closed),
            lost.count,
        )
        after = {
            "since": time_text(from_micros(_time_of(mark))) if mark else None,
            "closed": len(closed),
            "changes": lost.count,
            "named": lost.named,
        }
        await self._sql.run(_record, database, after)

    async def _waiting(self) -> list[AuditEvent]:
        """The events that are still in the store: they are not lost, and may have opened something since."""
        found: list[AuditEvent] = []
        after = ""
        while page := await self._outbox.read(after):
            found += [event for _, event in page if event is not None]
            after = page[-1][0]
        return found

    async def _close(self, name: str, wanted: _Wanted) -> bool:
        """Whether something was open that the trail has closed, and is closed now."""
        kind, _, id_ = name.partition(":")
        if kind == "account":
            return wanted.is_disabled and await self._disable_account(id_)
        key = await self._keys.find(id_)
        if key is None or key.state == "revoked":
            return False
        if wanted.is_revoked:
            await self._keys.revoke(id_)
            await self._note("keys.revoke", name, key.account, {"state": key.state}, {"state": "revoked"})
            return True
        has_closed = wanted.is_disabled and await self._keys.disable(key)
        if has_closed:
            await self._note("keys.disable", name, key.account, {"state": key.state}, {"state": "disabled"})
        return await self._expire(key, wanted.expires) or has_closed

    async def _disable_account(self, account: str) -> bool:
        if not await set_state(self._links, account, slot(account), "disabled", only="active"):
            return False
        await self._links.link(slot(account)).call("PUBLISH", CHANGED, f"{account}:*")
        sides = {"state": "active"}, {"state": "disabled"}
        await self._note("accounts.disable", f"account:{account}", account, *sides)
        return True

    async def _expire(self, key: KeyRecord, expires: int | None) -> bool:
        """Let a key that was rotated expire when it was to, unless it expires before."""
        if expires is None or (key.expires is not None and key.expires.timestamp() <= expires):
            return False
        await self._links.link(slot(key.account)).call("HSET", f"{slot(key.account)}:k:{key.id}", "exp", expires)
        after = time_text(datetime.fromtimestamp(expires, UTC))
        await self._note(
            "keys.edit", f"key:{key.id}", key.account, {"expires": time_text(key.expires)}, {"expires": after}
        )
        return True

    async def _note(
        self, action: str, object_: str, account: str, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        await self._outbox.add(new_event(ACTOR, action, object_, account=account, before=before, after=after))


def _time_of(mark: str) -> int:
    """When the event of a mark was, in microseconds; 0 without a mark."""
    return int(mark[4:19], 16) if mark else 0


def _newest(database: Database) -> str:
    """The newest event about a key or an account; these come from the store."""
    newest = sa.select(audit_events.c.id).where(_of_store()).order_by(audit_events.c.id.desc()).limit(1)
    with database.reading() as connection:
        return connection.scalar(newest) or ""


def _of_store() -> sa.ColumnElement[bool]:
    objects = audit_events.c.object
    return sa.or_(objects.startswith("key:"), objects.startswith("account:"))


def _wanted_in(database: Database, since: int, waiting: Sequence[AuditEvent]) -> dict[str, _Wanted]:
    """By object, what the events since a time say in the end."""
    found: dict[str, _Wanted] = {}
    with database.reading() as connection:
        for event in _in_order(_closing(connection, since), waiting):
            _apply(found.setdefault(event.object, _Wanted()), event)
    return {name: one for name, one in found.items() if one != _Wanted()}


def _closing(connection: Connection, since: int) -> Iterator[AuditEvent]:
    """The events that open or close something, oldest first."""
    columns, last = audit_events.c, (since - 1, "")
    query = sa.select(audit_events).where(columns.action.in_(CLOSING)).order_by(columns.at, columns.id).limit(PAGE)
    while True:
        later = sa.or_(columns.at > last[0], sa.and_(columns.at == last[0], columns.id > last[1]))
        page = [event_of(row) for row in connection.execute(query.where(columns.at >= max(last[0], since), later))]
        yield from page
        if len(page) < PAGE:
            return
        last = (page[-1].at, page[-1].id)


def _in_order(stored: Iterable[AuditEvent], waiting: Sequence[AuditEvent]) -> Iterator[AuditEvent]:
    """Both, the oldest first; an event that is in both comes twice, which changes nothing."""
    rest = sorted((event for event in waiting if event.action in CLOSING), key=lambda event: (event.at, event.id))
    at = 0
    for event in stored:
        while at < len(rest) and (rest[at].at, rest[at].id) <= (event.at, event.id):
            yield rest[at]
            at += 1
        yield event
    yield from rest[at:]


def _apply(wanted: _Wanted, event: AuditEvent) -> None:
    if event.action == REVOKE:
        wanted.is_revoked = True
    elif event.action == ROTATE:
        if isinstance(text := event.after.get("expires"), str):
            wanted.expires = int(moment(text).timestamp())
    else:
        wanted.is_disabled = event.action.endswith(".disable")


class _LostChanges(Struct):
    """Changes that the store has lost and that are not replayed: their number, and the newest ones."""

    count: int = 0
    named: list[dict[str, str]] = []


def _lost_changes(database: Database, mark: str, waiting: Iterable[str]) -> _LostChanges:
    columns = audit_events.c
    wanted = (
        _of_store(),
        columns.id > mark,
        columns.at >= _time_of(mark),
        columns.action.not_in((REVOKE, ROTATE, *LEDGER, *STATES)),
        columns.action.startswith("superseded.").is_(False),
    )
    waiting_ids = set(waiting)
    lost = _LostChanges()
    with database.reading() as connection:
        query = sa.select(columns.id, columns.at, columns.action, columns.object, columns.account).where(*wanted)
        for row in connection.execute(query.order_by(columns.id.desc())).yield_per(PAGE):
            if row.id in waiting_ids:
                continue
            lost.count += 1
            if len(lost.named) < NAMED:
                at = time_text(from_micros(row.at)) or ""
                lost.named.append({"at": at, "action": row.action, "object": row.object, "account": row.account})
    return lost


def _record(database: Database, after: dict[str, Any]) -> None:
    with database.writing(durable=True) as connection:
        record(connection, ACTOR, OLDER, PLACE, after=after)
