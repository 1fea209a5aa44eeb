"""How far the database is behind the store, and which accounts cannot be imported; the accounts are compared now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from gateway.admin.actor import Actor
from gateway.admin.pages import MOST, page_of
from gateway.admin.times import time_text
from gateway.database.engine import Database
from gateway.errors import GatewayError
from gateway.history import binding
from gateway.history.import_state import ImportState, read_states
from gateway.history.new_lines import Blocked, Forked, read_new_lines
from gateway.history.sql_thread import SqlThread
from gateway.history.trim_pause import is_paused
from gateway.ledger.gather_all import batches, gather_bounded
from gateway.ledger.listing.names import ACCOUNTS, account_names
from gateway.store.links import Links, slot

AT_ONCE = 500  # accounts read at the same time
LISTED = 1000  # accounts that are named
FORKED = "the store has lost lines that the database has; the importer sets them aside"


class Behind(Struct, frozen=True):
    """An account of which the database lacks lines."""

    account: str
    lines: int


class BlockedAccount(Struct, frozen=True):
    """An account whose lines cannot be imported, and why."""

    account: str
    reason: str


class HistoryState(Struct, frozen=True, kw_only=True):
    """The comparison of the store with the database, for some accounts or all."""

    attached: bool  # whether the store has its history in this database
    trimming_paused: bool  # a backup runs
    accounts: int
    missing_lines: int
    oldest_missing: datetime | None  # when the oldest of them was booked, as far as accounts are listed
    lag_seconds: float  # since then
    unreadable: int  # accounts whose server is away
    behind: list[Behind]  # most lines first
    blocked: list[BlockedAccount]
    last: str = ""  # the last account, if others follow

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `gateway history state`."""
        form: dict[str, Any] = msgspec.to_builtins(self)
        del form["last"]
        return form | {"oldest_missing": time_text(self.oldest_missing)}


class _Problem(Struct):
    """What was found about an account that is behind."""

    oldest: int | None = None  # Unix milliseconds
    blocked: str = ""


async def read_history_state(
    actor: Actor, links: Links, database: Database, sql: SqlThread, *, after: str = "", limit: int = MOST
) -> HistoryState:
    """Compare at most `limit` accounts by name, those behind the name `after`.

    It needs the scope `config` or `read` for the site. StoreUnavailable, DatabaseUnavailable.
    """
    actor.require_read("config")
    names, last = page_of(await account_names(links).page(after=after, limit=limit + 1), limit)
    missing, states, unreadable = dict[str, int](), dict[str, ImportState](), 0
    for page in batches(names, AT_ONCE):
        ends = await gather_bounded(_end(links, name) for name in page)
        found = await sql.run(_states, database, page)
        for name, end in zip(page, ends, strict=True):
            state = found.get(name, ImportState(name))
            if end is None:
                unreadable += 1
            elif end != (state.last_seq, state.balance):
                missing[name] = max(0, end[0] - state.last_seq)
                if name in found:
                    states[name] = state
    listed = sorted(missing, key=lambda name: (-missing[name], name))[:LISTED]
    problems = [await _problem(links, name, states.get(name)) for name in listed]
    oldest = min((problem.oldest for problem in problems if problem.oldest is not None), default=None)
    now, _ = await links.link(ACCOUNTS).call("TIME")
    return HistoryState(
        attached=await binding.remembered(links) in ("", database.id),
        trimming_paused=await is_paused(links),
        accounts=len(names),
        missing_lines=sum(missing.values()),
        oldest_missing=None if oldest is None else datetime.fromtimestamp(oldest / 1000, UTC),
        lag_seconds=0.0 if oldest is None else max(0.0, int(now) - oldest / 1000),
        unreadable=unreadable,
        behind=[Behind(name, missing[name]) for name in listed],
        blocked=[
            BlockedAccount(name, problem.blocked)
            for name, problem in zip(listed, problems, strict=True)
            if problem.blocked
        ],
        last=last or "",
    )


def all_pages(forms: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The document of all accounts, of those of their pages; at least one."""
    times = [form["oldest_missing"] for form in forms if form["oldest_missing"] is not None]
    behind = [row for form in forms for row in form["behind"]]
    return {
        **forms[-1],
        **{name: sum(form[name] for form in forms) for name in ("accounts", "missing_lines", "unreadable")},
        "oldest_missing": min(times, default=None),
        "lag_seconds": max(form["lag_seconds"] for form in forms),
        "behind": sorted(behind, key=lambda row: (-row["lines"], row["account"]))[:LISTED],
        "blocked": [row for form in forms for row in form["blocked"]],
    }


async def _end(links: Links, account: str) -> tuple[int, int] | None:
    """The number of the last line and the balance; None if they cannot be read now."""
    key = slot(account)
    try:
        seq, balance = await links.link(key).call("HMGET", key, "seq", "bal")
    except GatewayError:
        return None
    return int(seq or 0), int(balance or 0)


async def _problem(links: Links, account: str, state: ImportState | None) -> _Problem:
    try:
        new = await read_new_lines(links, account, state, most=1)
    except Blocked as reason:
        return _Problem(blocked=str(reason))
    except Forked:
        return _Problem(blocked=FORKED)
    except GatewayError as error:
        return _Problem(blocked=error.log_text() or error.message)
    return _Problem(new.lines[0].milliseconds if new.lines else None)


def _states(database: Database, accounts: Sequence[str]) -> dict[str, ImportState]:
    with database.reading() as connection:
        return read_states(connection, accounts)
