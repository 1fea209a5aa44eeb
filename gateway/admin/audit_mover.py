"""Moves audit events from the store to the database, and replays closings in an older store; the importer runs it.

An event's id is unique in the database, and the event leaves the store after the commit, so each is there once. Only
the database that the store has taken gets them (`gateway.history.binding`). The importer's lock is held meanwhile, so
that nothing is written to a database while it is copied or replaced. Events are rare: the database is opened for each
move. The mark of the newest moved event stays in the store and in the data directory (`gateway.admin.outbox`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.audit_event import AuditEvent
from gateway.admin.closing_replay import ClosingReplay
from gateway.admin.outbox import AuditOutbox, raise_mark, read_mark
from gateway.database.engine import Database
from gateway.database.people_tables import audit_events, users
from gateway.errors import DatabaseUnavailable, StoreUnavailable
from gateway.history import binding
from gateway.history.sql_thread import SqlThread
from gateway.log import gateway_log
from gateway.store.known_text import KnownText
from gateway.store.links import Links

EVERY = 2.0  # seconds
AFTER_A_FAILURE = 10.0
WHILE_LOCKED = 0.2


class AuditMover:
    """Moves events until it is stopped; a failure is repeated, because the events stay in the store."""

    def __init__(
        self, links: Links, open_database: Callable[[], Database], sql: SqlThread, known: KnownText | None = None
    ) -> None:
        self._links = links
        self._outbox = AuditOutbox(links)
        self._known = known
        self._replay = ClosingReplay(links, sql)
        self._foreign = ""  # the store's database, which the opened one was not
        self._open = open_database
        self._sql = sql
        self._has_failed = False

    async def run(self, stop: asyncio.Event) -> None:
        """Move events every two seconds until `stop` is set."""
        while not stop.is_set():
            pause = await self._attempt()
            try:
                async with asyncio.timeout(pause):
                    await stop.wait()
            except TimeoutError:
                continue

    def suspect(self) -> None:
        """Another server serves the store now, which may be older."""
        self._replay.suspect()

    async def move(self) -> bool:
        """Move the events that are there; False if some stay. StoreUnavailable, DatabaseUnavailable."""
        bound = await binding.remembered(self._links)
        is_due = bool(bound) and bound != self._foreign and await self._replay.is_due()
        if is_due or await self._outbox.read():
            database = await self._sql.run(self._open)
            try:
                if not await self._locked_move(database, is_due=is_due):
                    return False
            finally:
                await self._sql.run(database.close)
        await self._remember()
        return True

    async def _locked_move(self, database: Database, *, is_due: bool) -> bool:
        lock = database.lock("importer")
        if not await self._sql.run(lock.take):
            return False
        try:
            bound = await binding.remembered(self._links)
            self._foreign = bound if bound != database.id else ""
            if bound == database.id:  # else the events wait for the store's own database
                if is_due:
                    await self._replay.run(database)
                await self._move_to(database)
            return True
        finally:
            await self._sql.run(lock.release)

    async def _move_to(self, database: Database) -> None:
        while entries := await self._outbox.read():
            for entry, event in entries:
                if event is None:
                    gateway_log.error("the audit event %s in the store cannot be read; it is left out", entry)
            events = [event for _, event in entries if event is not None]
            await self._sql.run(_insert, database, events)
            await raise_mark(self._links, max((event.id for event in events), default=""))
            await self._outbox.remove([entry for entry, _ in entries])

    async def _remember(self) -> None:
        """Keep the store's mark, here and in the data directory, so that an older store is known by it."""
        if not self._replay.is_done:
            return
        mark = await read_mark(self._links)
        self._replay.note(mark)
        if self._known is not None:
            try:
                self._known.write(mark)
            except OSError as error:
                gateway_log.warning("the mark of the audit trail cannot be remembered: %s", error)

    async def _attempt(self) -> float:
        try:
            is_done = await self.move()
        except (DatabaseUnavailable, StoreUnavailable) as error:
            if not self._has_failed:
                gateway_log.error("audit events wait in the store: %s %s", error.message, error.log_text())
            self._has_failed = True
            return AFTER_A_FAILURE
        except Exception as error:
            # A task of its own: a bug here must neither end silently nor stop the import of the ledger.
            if not self._has_failed:
                gateway_log.exception("audit events wait in the store: %s", type(error).__name__)
            self._has_failed = True
            return AFTER_A_FAILURE
        self._has_failed = False
        return EVERY if is_done else WHILE_LOCKED


def _insert(database: Database, events: list[AuditEvent]) -> None:
    if events:
        with database.writing(durable=True) as connection:
            _insert_new(connection, database, events)


def _insert_new(connection: Connection, database: Database, events: list[AuditEvent]) -> None:
    insert = database.insert(audit_events).on_conflict_do_nothing(index_elements=["id"])
    known = _known_users(connection, {event.actor_id for event in events if event.actor_kind == "user"})
    rows = [event.row() for event in events]
    for row in rows:
        if row["actor_kind"] == "user" and row["actor_id"] not in known:
            row["address"] = ""  # the person was erased meanwhile
    connection.execute(insert, rows)


def _known_users(connection: Connection, ids: set[str]) -> set[str]:
    return set(connection.scalars(sa.select(users.c.id).where(users.c.id.in_(ids)))) if ids else set()
