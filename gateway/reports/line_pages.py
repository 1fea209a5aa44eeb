"""Pages of an account's ledger lines, the newest first: from the store, and older ones from the database.

The database is asked only if the store does not have the whole page, so this module does not load SQLAlchemy.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from gateway.accounts.accounts import Directory
from gateway.admin.actor import Actor
from gateway.admin.pages import MOST
from gateway.admin.rights import reads_account
from gateway.errors import Forbidden, InvalidValue
from gateway.ledger.archive_checkpoint import ArchiveCheckpoint, read_archive_checkpoint
from gateway.ledger.line import UNREADABLE, LedgerLine, read_newest
from gateway.store.links import Links

_CURSOR = re.compile(r"([0-9]{1,18})\.([0-9]{1,18}-[0-9]{1,18})\.(-?[0-9]{1,18})", re.ASCII)

#: Lines of an account up to a number that were booked at a Unix time in milliseconds or later, the newest first, at
#: most so many: `older(account, until, since, most)`.
OlderLines = Callable[[str, int, int, int], Awaitable[list[LedgerLine]]]


class LinePosition(Struct, frozen=True):
    """Where a page ends: the number of its last line, the line's id in the store, and the balance before it."""

    n: int
    id: str
    opening: int  # nano-units

    @classmethod
    def of(cls, line: LedgerLine) -> LinePosition:
        """The position of a line."""
        return cls(line.n, line.id, line.balance - line.amount)

    @classmethod
    def read(cls, cursor: str) -> LinePosition:
        """The position in a cursor; InvalidValue."""
        match = _CURSOR.fullmatch(cursor)
        if match is None:
            raise InvalidValue("This is no cursor of a page", param="cursor")
        return cls(int(match[1]), match[2], int(match[3]))

    @property
    def cursor(self) -> str:
        """The cursor of the lines before this one."""
        return f"{self.n}.{self.id}.{self.opening}"


class LinePage(Struct, frozen=True):
    """Lines, the newest first; `next_cursor` leads to older ones, and is None on the last page."""

    lines: list[LedgerLine]
    next_cursor: str | None
    with_costs: bool = True  # whether the lines show what the calls cost the operator

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `gateway usage list --limit` and of the admin API."""
        data = [line.json_form(with_costs=self.with_costs) for line in self.lines]
        return {"data": data, "next_cursor": self.next_cursor}


class LinePages:
    """Reads pages."""

    def __init__(self, links: Links, directory: Directory, older: OlderLines) -> None:
        self._links = links
        self._directory = directory
        self._older = older

    async def page(
        self,
        actor: Actor,
        account: str,
        *,
        limit: int = 100,
        before: str | None = None,
        since: datetime | None = None,
    ) -> LinePage:
        """The newest lines, or those before a cursor; `since` leaves out older ones.

        A line that cannot be read has the kind `unreadable`, and the number, amount and balance that the lines beside
        it leave for it.
        If the oldest lines are neither in the store nor in the database, the last line is the sum of them.

        NotFound: no such account. InvalidValue: no cursor, or a limit that is not 1 to 1,000.
        """
        if not reads_account(actor, account):
            raise Forbidden("This needs the scope 'read', or an owner of the account")
        if not 1 <= limit <= MOST:
            raise InvalidValue(f"A page has 1 to {MOST} lines", param="limit")
        position = LinePosition.read(before) if before else None
        await self._directory.require(account)
        lines = await self._read(account, position, int(since.timestamp() * 1000) if since else 0, limit + 1)
        with_costs = actor.may("read")
        if len(lines) <= limit:
            return LinePage(lines, None, with_costs)
        return LinePage(lines[:limit], LinePosition.of(lines[limit - 1]).cursor, with_costs)

    async def _read(self, account: str, before: LinePosition | None, since: int, most: int) -> list[LedgerLine]:
        lines = await read_newest(self._links, account, before=before.id if before else "", since=since, most=most)
        lines = _placed(lines, before)
        last = LinePosition.of(lines[-1]) if lines else before
        if len(lines) < most and last is None:  # the store has no line at all
            last = await self._end_of_old_lines(account)
        if len(lines) == most or last is None or last.n <= 1:
            return lines
        lines += await self._older(account, last.n - 1, since, most - len(lines))
        if lines:
            last = LinePosition.of(lines[-1])
        if len(lines) < most and not since and last.n > 1:
            lines.append(ArchiveCheckpoint(last.n - 1, last.id, last.opening).line(account))
        return lines

    async def _end_of_old_lines(self, account: str) -> LinePosition:
        """The position behind the last line that left the store."""
        checkpoint = await read_archive_checkpoint(self._links, account)
        return LinePosition(checkpoint.n + 1, checkpoint.id, checkpoint.balance)


def _placed(lines: list[LedgerLine], before: LinePosition | None) -> list[LedgerLine]:
    """The lines, the newest first, with what is left for those that cannot be read; the oldest of a row gets it."""
    placed: list[LedgerLine] = []
    newer = before
    for at, line in enumerate(lines):
        if line.kind == UNREADABLE:
            line = _between(line, newer, lines[at + 1 :])
        placed.append(line)
        newer = LinePosition.of(line)
    return placed


def _between(line: LedgerLine, newer: LinePosition | None, rest: Sequence[LedgerLine]) -> LedgerLine:
    distance, older = next(((at, one) for at, one in enumerate(rest, 1) if one.kind != UNREADABLE), (0, None))
    if newer is not None:
        n, balance = newer.n - 1, newer.opening
    elif older is not None:
        n, balance = older.n + distance, older.balance
    else:
        return line
    amount = balance - older.balance if older is not None and distance == 1 else 0
    return structs.replace(line, n=n, balance=balance, amount=amount)
