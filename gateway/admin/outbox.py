"""Audit events of changes in the store, in a stream of the store until they are moved to the database.

A command that works on the store needs no SQL, works while the database is away, and does not load SQLAlchemy, which
takes half of its time. So its event goes into the stream `audit:events`; the importer process moves it
(`gateway.admin.audit_mover`). The stream keeps the newest 100,000 events if there is no importer.

The mark of the newest event that has left the store for the database is in the store, and in a file beside it. An older
store has an older mark. The importer finds that by the events in the database, and a start of the gateway by the file,
without the database. Marks are ids of events, which grow with the time. Sharp edge: the file is of one machine, which
reads the mark every two seconds while its importer runs.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from gateway.admin.audit_event import AuditEvent
from gateway.errors import GatewayError
from gateway.log import gateway_log
from gateway.store.known_text import KnownText
from gateway.store.links import Links

STREAM = "audit:events"
KEPT = 100_000  # events
PAGE = 500  # events read at once
MARK = "audit:moved"
MARK_FILE = "audit-mark"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AuditEvent)
_EVENT_ID = re.compile(r"evt_[0-9a-f]{15,64}", re.ASCII)


class AuditOutbox:
    """The stream of events that are not in the database yet."""

    def __init__(self, links: Links) -> None:
        self._links = links

    async def add(self, event: AuditEvent) -> None:
        """Store the event. The change was made before: if the store fails now, the event goes to the log."""
        try:
            await self.put(event)
        except GatewayError as error:
            text = _encoder.encode(event).decode()
            gateway_log.error("an audit event could not be stored (%s): %s", error.log_text(), text)

    async def put(self, event: AuditEvent) -> None:
        """Store the event of a change that is made afterwards. GatewayError."""
        text = _encoder.encode(event)
        await self._links.link(STREAM).call("XADD", STREAM, "MAXLEN", "~", KEPT, "*", "e", text)

    async def read(self, after: str = "") -> list[tuple[str, AuditEvent | None]]:
        """The oldest events behind `after`, with their ids in the stream; None for one that cannot be read."""
        start = f"({after}" if after else "-"
        reply = await self._links.link(STREAM).call("XRANGE", STREAM, start, "+", "COUNT", PAGE)
        return [(entry.decode(), _decoded(fields)) for entry, fields in reply]

    async def remove(self, ids: list[str]) -> None:
        """Forget events that are in the database."""
        if ids:
            await self._links.link(STREAM).call("XDEL", STREAM, *ids)


def _decoded(fields: list[bytes]) -> AuditEvent | None:
    try:
        return _decoder.decode(fields[1])
    except (ValueError, RecursionError, IndexError):
        return None


async def read_mark(links: Links) -> str:
    """The mark in the store; empty if no event has left it. StoreUnavailable."""
    found = await links.link(MARK).call("GET", MARK)
    return found.decode() if found is not None else ""


async def raise_mark(links: Links, mark: str) -> None:
    """Replace the mark in the store by a newer one. The caller holds the importer's lock. StoreUnavailable."""
    if mark > await read_mark(links):
        await links.link(MARK).call("SET", MARK, mark)


def known_mark(data_dir: Path) -> KnownText:
    """The file in a data directory."""
    return KnownText(data_dir / MARK_FILE, _EVENT_ID)
