"""Moves audit events from the store to the database; the importer process runs it.

An event's id is unique in the database, and the event leaves the store afterwards, so each is there once. Only the
database that the store has taken gets them (`gateway.history.binding`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.audit_event import AuditEvent
from gateway.admin.outbox import PAGE, AuditOutbox
from gateway.database.engine import Database
from gateway.database.people_tables import audit_events, users
from gateway.errors import DatabaseUnavailable, StoreUnavailable
from gateway.history import binding
from gateway.history.sql_thread import SqlThread
from gateway.ledger.scripts import Links
from gateway.log import gateway_log

EVERY = 2.0  # seconds
AFTER_A_FAILURE = 10.0


class AuditMover:
    """Moves events until it is stopped; a failure is repeated, because the events stay in the store."""

    def __init__(self, links: Links, open_database: Callable[[], Database], sql: SqlThread) -> None:
        self._links = links
        self._outbox = AuditOutbox(links)
        self._open = open_database
        self._sql = sql
        self._database: Database | None = None
        self._has_failed = False

    async def run(self, stop: asyncio.Event) -> None:
        """Move events every two seconds until `stop` is set."""
        try:
            while not stop.is_set():
                pause = await self._attempt()
                try:
                    async with asyncio.timeout(pause):
                        await stop.wait()
                except TimeoutError:
                    continue
        finally:
            if self._database is not None:
                await self._sql.run(self._database.close)

    async def move(self) -> int:
        """Move the events that are there; returns how many. StoreUnavailable, DatabaseUnavailable."""
        moved = 0
        while entries := await self._outbox.read():
            database = await self._opened()
            if await binding.remembered(self._links) != database.id:
                return moved
            await self._sql.run(self._insert, database, [event for _, event in entries if event is not None])
            for entry, event in entries:
                if event is None:
                    gateway_log.error("the audit event %s in the store cannot be read; it is left out", entry)
            await self._outbox.remove([entry for entry, _ in entries])
            moved += len(entries)
            if len(entries) < PAGE:
                break
        return moved

    async def _attempt(self) -> float:
        try:
            await self.move()
        except (DatabaseUnavailable, StoreUnavailable) as error:
            if not self._has_failed:
                gateway_log.error("audit events wait in the store: %s %s", error.message, error.log_text())
            self._has_failed = True
            return AFTER_A_FAILURE
        self._has_failed = False
        return EVERY

    async def _opened(self) -> Database:
        if self._database is None:
            self._database = await self._sql.run(self._open)
        return self._database

    @staticmethod
    def _insert(database: Database, events: list[AuditEvent]) -> None:
        if events:
            with database.writing() as connection:
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
