"""Periods of spending in UTC, as period.lua names them, and what was charged in one.

A period is named `2026-11` (a month), `w2967` (a week from Monday) or `d20780` (a day); the numbers count from 1970.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec
from msgspec import Struct

from gateway.ledger.line import read_lines
from gateway.store.links import Links

Every = Literal["month", "week", "day"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MONDAY = timedelta(days=3)  # from the Monday before 1970 to its first day


def period_of(every: Every, moment: datetime) -> str:
    """The name of the period that has `moment`."""
    since = moment - EPOCH
    if every == "day":
        return f"d{since.days}"
    if every == "week":
        return f"w{(since + MONDAY).days // 7}"
    return f"{moment.astimezone(UTC):%Y-%m}"


def start_of(period: str) -> datetime:
    """The first moment of a period."""
    if period.startswith("d"):
        return EPOCH + timedelta(days=int(period[1:]))
    if period.startswith("w"):
        return EPOCH + timedelta(days=7 * int(period[1:])) - MONDAY
    return datetime.strptime(period, "%Y-%m").replace(tzinfo=UTC)


class _Call(Struct):
    """The part of a line's meta that says whether it counts."""

    key: str = ""
    user: str = ""
    charged_at: int = 0  # of a refund, Unix milliseconds


_decoder = msgspec.json.Decoder(_Call)


async def charged_in(
    links: Links, account: str, period: str, *, until: str, key_id: str = "", user_id: str = ""
) -> int:
    """What calls of the account, of one key or of one user were charged, in nano-units.

    The lines from the period's start to the line `until` count. A refund counts if its charge was in the period. Lines
    that left the store do not count.
    """
    start, total = int(start_of(period).timestamp() * 1000), 0
    async for line in read_lines(links, account, since=str(start), until=until):
        meta = _decoder.decode(line.meta_text) if line.meta_text else _Call()
        is_meant = meta.key == (key_id or meta.key) and meta.user == (user_id or meta.user)
        if meta.key and is_meant and not 0 < meta.charged_at < start:
            total -= line.amount
    return total
