"""Reads the lines of an account that the database does not have yet, and checks that they continue it."""

from __future__ import annotations

from msgspec import Struct

from gateway.history.import_state import ImportState
from gateway.ledger.archive_checkpoint import ArchiveCheckpoint, read_archive_checkpoint
from gateway.ledger.line import LedgerLine, read_line
from gateway.ledger.scripts import Links, slot


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


async def read_new_lines(links: Links, account: str, state: ImportState | None, *, most: int) -> NewLines:
    """At most `most` lines after the last one in the database.

    Blocked if lines between are missing or do not add up, Forked if the last one is not in the store's history.
    """
    if state is None:
        start = ImportState.opening(account, await _checkpoint(links, account))
        lines = await _read(links, account, "-", most)
    else:
        start = state
        lines = await _read(links, account, state.last_id, most + 1)
        if state.has_lines and lines and lines[0].id == state.last_id:
            if not state.ends_with(lines[0]):
                raise Forked
            lines = lines[1:]
        else:
            _check_end(state, await _checkpoint(links, account))
    more = len(lines) >= most
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


async def _read(links: Links, account: str, since: str, most: int) -> list[LedgerLine]:
    key = slot(account)
    page = await links.link(key).call("XRANGE", f"{key}:lg", since, "+", "COUNT", most)
    try:
        return [read_line(account, id_, fields) for id_, fields in page]
    except (ValueError, LookupError):
        raise Blocked("a ledger line is unreadable; see `gateway audit`") from None
