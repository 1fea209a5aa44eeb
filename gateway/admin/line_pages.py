"""Pages of an account's ledger lines, the newest first: from the store, and older ones from the database.

The database is asked only if the store does not have the whole page, so this module does not load SQLAlchemy.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from gateway.admin.actor import Actor
from gateway.admin.directory import Directory
from gateway.errors import Forbidden, InvalidValue
from gateway.ledger.archive_checkpoint import read_archive_checkpoint
from gateway.ledger.line import LedgerLine, read_newest
from gateway.ledger.scripts import Links

MOST = 1000  # lines on a page

_CURSOR = re.compile(r"([0-9]{1,18})\.([0-9]{1,18}-[0-9]{1,18})", re.ASCII)

#: Lines of an account up to a number, the newest first, at most so many: `older(account, until, most)`.
OlderLines = Callable[[str, int, int], Awaitable[list[LedgerLine]]]


class LinePage(Struct, frozen=True):
    """Lines, the newest first; `next_cursor` leads to older ones, and is None on the last page."""

    lines: list[LedgerLine]
    next_cursor: str | None

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `gateway usage list --limit`."""
        return {"data": [line.json_form() for line in self.lines], "next_cursor": self.next_cursor}


class LinePages:
    """Reads pages."""

    def __init__(self, links: Links, directory: Directory, older: OlderLines) -> None:
        self._links = links
        self._directory = directory
        self._older = older

    async def page(self, actor: Actor, account: str, *, limit: int = 100, before: str | None = None) -> LinePage:
        """The newest lines, or those before a cursor. If neither place has the older ones, a line stands for them.

        NotFound: no such account. InvalidValue: no cursor, or a limit that is not 1 to 1,000.
        """
        if not actor.may("read", account) and not actor.owns(account):
            raise Forbidden("This needs the scope 'read', or an owner of the account")
        if not 1 <= limit <= MOST:
            raise InvalidValue(f"A page has 1 to {MOST} lines", param="limit")
        number, id_ = _read_cursor(before)
        await self._directory.require(account)
        lines = await read_newest(self._links, account, before=id_, most=limit + 1)
        after = lines[-1].n if lines else number
        if len(lines) <= limit and after != 1:
            lines += await self._older_lines(account, after, limit + 1 - len(lines))
        if len(lines) <= limit:
            return LinePage(lines, None)
        last = lines[limit - 1]
        return LinePage(lines[:limit], f"{last.n}.{last.id}")

    async def _older_lines(self, account: str, after: int | None, most: int) -> list[LedgerLine]:
        """Lines before number `after`, or before all if that is None."""
        checkpoint = await read_archive_checkpoint(self._links, account)
        until = checkpoint.n if after is None else min(after - 1, checkpoint.n)
        if until <= 0:
            return []
        found = await self._older(account, until, most)
        return found or ([checkpoint.line(account)] if until == checkpoint.n else [])


def _read_cursor(text: str | None) -> tuple[int | None, str]:
    """The number and the stream id in a cursor."""
    if text is None:
        return None, ""
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise InvalidValue("This is no cursor of a page", param="before")
    return int(match[1]), match[2]
