"""What a restore undoes: compares a backup with what is known of the time after it.

Sources are the store and the database that are there before the restore, as far as they can be read: keys and accounts
that were closed after the backup are open again, later ledger lines and other later changes are lost.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from msgspec import Struct

from gateway.accounts.accounts import time_text
from gateway.admin.audit_event import AuditEvent
from gateway.admin.audit_trail import event_of
from gateway.admin.outbox import AuditOutbox
from gateway.admin.times import from_micros, to_micros
from gateway.amounts import format_amount
from gateway.backup.saved_state import SavedAccount, SavedState
from gateway.database.engine import Database
from gateway.database.people_tables import audit_events
from gateway.database.tables import ledger_lines
from gateway.history.line_row import LINE_COLUMNS, line_of
from gateway.ledger.gather_all import gather_bounded
from gateway.ledger.line import LedgerLine, read_lines
from gateway.ledger.listing.names import ACCOUNTS
from gateway.ledger.paging import scan_set
from gateway.store import Store
from gateway.store.links import slot

EVENTS = 10_000  # that are read at most
ACCOUNTS_AT_ONCE, KEYS_AT_ONCE = 50, 100  # of each account: 5,000 commands at most
#: Actions that close something, and those that open it again.
CLOSING = frozenset(
    {"keys.revoke", "keys.disable", "accounts.disable", "users.disable", "users.erase", "tokens.revoke"}
)
OPENING = frozenset({"keys.enable", "accounts.enable", "users.enable"})
CLOSED = (b"revoked", b"disabled")  # states of keys
IN_STORE = ("account", "key")
CALLS = frozenset({"use", "reclaim"})


class Revived(Struct, frozen=True, order=True):
    """Something that was closed after the backup and is open again."""

    kind: str  # key, account, user, token
    id: str
    account: str = ""


class LostLine(Struct, frozen=True):
    """A credit, debit or refund of after the backup; the amount as decimal text."""

    account: str
    kind: str
    id: str  # of the operation
    amount: str
    at: str


class LostLines(Struct, frozen=True):
    """The ledger lines of an account that are not in the backup; the amount is their sum as decimal text."""

    account: str
    lines: int
    amount: str


class Undone(Struct):
    """What a restore undoes, as far as it is known."""

    revived: list[Revived] = []
    lost: list[LostLines] = []
    lost_credits: list[LostLine] = []
    changes: list[dict[str, Any]] = []  # audit events since the backup, newest first
    accounts: list[str] = []  # created after the backup

    def add(self, other: Undone) -> None:
        """Add what another source knows; what both know is listed once."""
        self.revived = sorted({*self.revived, *other.revived})
        known = {one.account for one in self.lost}
        self.lost += [one for one in other.lost if one.account not in known]
        self.lost_credits += [one for one in other.lost_credits if one.account not in known]
        events = {event["id"]: event for event in (*self.changes, *other.changes)}
        self.changes = [events[id_] for id_ in sorted(events, reverse=True)]
        self.accounts = sorted({*self.accounts, *other.accounts})


async def undone_in_store(store: Store, saved: SavedState, begun: datetime) -> Undone:
    """What the store that is there now knows of after the backup."""
    undone = Undone()
    compared = (_compare_account(store, name, account) for name, account in saved.accounts.items())
    for name, (revived, lines) in zip(saved.accounts, await gather_bounded(compared, ACCOUNTS_AT_ONCE), strict=True):
        undone.revived += revived
        _note_lines(undone, name, lines)
    undone.accounts = sorted(await scan_set(store.link(ACCOUNTS), ACCOUNTS) - saved.accounts.keys())
    outbox, after = AuditOutbox(store), ""
    events: list[AuditEvent] = []
    while entries := await outbox.read(after):
        after = entries[-1][0]
        events += [event for _, event in entries if event is not None and event.at >= to_micros(begun)]
    _note_events(undone, events, saved)
    return undone


async def _compare_account(store: Store, name: str, saved: SavedAccount) -> tuple[list[Revived], list[LedgerLine]]:
    call = store.link(slot(name)).call
    ids = list(saved.keys)
    state = await call("HGET", slot(name), "state")
    states = await gather_bounded((call("HGET", f"{slot(name)}:k:{id_}", "state") for id_ in ids), KEYS_AT_ONCE)
    revived = [Revived("account", name)] if saved.state == "active" and state == b"disabled" else []
    revived += [
        Revived("key", id_, name)
        for id_, found in zip(ids, states, strict=True)
        if saved.keys[id_] == "active" and found in CLOSED
    ]
    return revived, [line async for line in read_lines(store, name, since=saved.last_id) if line.n > saved.seq]


def undone_in_database(database: Database, saved: SavedState, begun: datetime, *, kept: bool) -> Undone:
    """What the database that is there now knows of after the backup.

    `kept`: the database stays, so only changes of the store are undone.
    """
    undone = Undone()
    with database.reading() as connection:
        query = sa.select(audit_events).where(audit_events.c.at >= to_micros(begun))
        newest = query.order_by(audit_events.c.at.desc(), audit_events.c.id.desc()).limit(EVENTS)
        events = [event_of(row) for row in connection.execute(newest)]
        _note_events(
            undone, [event for event in events if not kept or event.object.partition(":")[0] in IN_STORE], saved
        )
        columns = ledger_lines.c
        last = sa.select(columns.account, sa.func.max(columns.seq)).group_by(columns.account)
        for name, seq in connection.execute(last).all():
            if name not in saved.accounts:
                undone.accounts.append(name)
            elif seq > saved.accounts[name].seq:
                later = (columns.account == name, columns.seq > saved.accounts[name].seq)
                rows = connection.execute(sa.select(*(columns[one] for one in LINE_COLUMNS)).where(*later))
                _note_lines(undone, name, [line_of(row) for row in rows])
    return undone


def _note_lines(undone: Undone, account: str, lines: list[LedgerLine]) -> None:
    if not lines:
        return
    undone.lost.append(LostLines(account, len(lines), format_amount(sum(line.amount for line in lines))))
    undone.lost_credits += [
        LostLine(
            account,
            line.kind,
            line.request_id,
            format_amount(line.amount),
            time_text(from_micros(line.milliseconds * 1000)),
        )
        for line in lines
        if line.kind not in CALLS and line.amount
    ]


def _note_events(undone: Undone, events: list[AuditEvent], saved: SavedState) -> None:
    known = {event["id"] for event in undone.changes}
    undone.changes += [event.json_form() for event in events if event.id not in known]
    made = {event.object for event in events if event.action.endswith(".create")}
    last = {event.object: event for event in sorted(events, key=_time) if event.action in CLOSING | OPENING}
    for event in last.values():
        kind, _, id_ = event.object.partition(":")
        if event.action in CLOSING and event.object not in made and _was_open(saved, kind, id_, event.account):
            one = Revived(kind, id_, event.account if kind != "account" else "")
            undone.revived = sorted({*undone.revived, one})


def _time(event: AuditEvent) -> tuple[int, str]:
    return event.at, event.id


def _was_open(saved: SavedState, kind: str, id_: str, account: str) -> bool:
    """Whether the backup has it open, as far as its store tells."""
    if kind == "account":
        return id_ in saved.accounts and saved.accounts[id_].state == "active"
    if kind == "key":
        return account in saved.accounts and saved.accounts[account].keys.get(id_) == "active"
    return True
