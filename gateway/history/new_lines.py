"""Reads the lines of an account that the database does not have yet, and checks that they continue it."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from gateway.history.import_state import ImportState
from gateway.ledger.archive_checkpoint import ArchiveCheckpoint, read_archive_checkpoint
from gateway.ledger.line import LedgerLine, read_line
from gateway.store.links import Links, slot

PAGE = 1000  # lines per read; they take about 2 ms of Redis's time


class Blocked(Exception):
    """The account's lines cannot be imported; the text is one line for the operator."""


class Forked(Exception):
    """The store has another history than the database: it lost the end of its ledger."""


class NewLines(Struct, frozen=True):
    """The next lines of an account; `before` is its state in the database, None for an account without one."""

    before: ImportState | None
    start: ImportState  # the state that the first line continues
    lines: list[LedgerLine]
    more: bool  # the store has further lines


def request_lines(links: Links, account: str, state: ImportState | None, *, page: int) -> asyncio.Future[Any]:
    """Ask the store for the first page of an account's new lines, for `read_new_lines`."""
    return _request(links, account, "-" if state is None else state.last_id, _first_count(state, page))


async def read_new_lines(
    links: Links,
    account: str,
    state: ImportState | None,
    *,
    most: int,
    page: int = PAGE,
    first: list[Any] | None = None,
) -> NewLines:
    """Lines after the last one in the database: at most `most`, rounded up to whole pages of `page` lines.

    `first` is what `request_lines` got, if it was called. Blocked if lines between are missing or do not add up, Forked
    if the last one is not in the store's history.
    """
    page = min(page, most)
    entries = await request_lines(links, account, state, page=page) if first is None else first
    lines = _parse(account, entries)
    if state is None:
        start = ImportState.opening(account, await _checkpoint(links, account))
    else:
        start = state
        if state.has_lines and lines and lines[0].id == state.last_id:
            if not state.ends_with(lines[0]):
                raise Forked
            del lines[0]
        else:
            _check_end(state, await _checkpoint(links, account))
    more = len(entries) >= _first_count(state, page)
    while more and len(lines) < most:
        entries = await _request(links, account, f"({lines[-1].id}", page)
        lines += _parse(account, entries)
        more = len(entries) >= page
    _check_order(start, lines)
    return NewLines(state, start, lines, more)


def _check_end(state: ImportState, checkpoint: ArchiveCheckpoint) -> None:
    """The database's last line is not in the stream: then it must be the last one that left the store."""
    if checkpoint.n > state.last_seq:
        raise Blocked(
            f"lines {state.last_seq + 1} to {checkpoint.n} are neither in the store nor in the database;"
            " if an archive file has them, import it with `gateway history import-archive`"
        )
    if not state.ends_at(checkpoint):
        raise Forked


def _check_order(start: ImportState, lines: list[LedgerLine]) -> None:
    n, balance = start.last_seq, start.balance
    for line in lines:
        n, balance = n + 1, balance + line.amount
        if (line.n, line.balance) != (n, balance):
            raise Blocked(f"its ledger does not add up at line {line.n}; see `gateway audit`")
        if "\0" in line.request_id or "\0" in line.meta_text:
            raise Blocked(f"line {line.n} holds a zero byte, which PostgreSQL cannot store")


async def _checkpoint(links: Links, account: str) -> ArchiveCheckpoint:
    try:
        return await read_archive_checkpoint(links, account)
    except (ValueError, LookupError):
        raise Blocked("its archive checkpoint is unreadable; see `gateway audit`") from None


def _first_count(state: ImportState | None, page: int) -> int:
    """The number of entries to ask for: a page, and the last line that the database has."""
    return page if state is None else page + 1


def _request(links: Links, account: str, since: str, count: int) -> asyncio.Future[Any]:
    key = slot(account)
    return links.link(key).call("XRANGE", f"{key}:lg", since, "+", "COUNT", count)


def _parse(account: str, entries: list[Any]) -> list[LedgerLine]:
    try:
        return [read_line(account, id_, fields) for id_, fields in entries]
    except (ValueError, LookupError):
        raise Blocked("a ledger line is unreadable; see `gateway audit`") from None
