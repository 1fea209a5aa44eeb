"""Hours, days and months in UTC, as integers of microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

HOUR = 3_600_000_000  # µs
DAY = 24 * HOUR
_SECOND = 1_000_000


@lru_cache(maxsize=256)
def month_of_day(day: int) -> int:
    """The first moment of the month of a day, given by its first moment."""
    moment = datetime.fromtimestamp(day // _SECOND, UTC)
    return int(moment.replace(day=1).timestamp()) * _SECOND


def month_of(moment: int) -> int:
    """The first moment of the month of a moment."""
    return month_of_day(moment // DAY * DAY)


def next_month(month: int) -> int:
    """The first moment of the month after the one that begins at `month`."""
    return month_of(month + 31 * DAY)
