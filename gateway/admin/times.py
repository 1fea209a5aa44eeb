"""Times of the database: microseconds since 1970 in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST_YEAR, LAST_YEAR = 1970, 9998  # ranges around these times can be computed
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d))?", re.ASCII)


def moment(text: str) -> datetime:
    """RFC 3339 text, or a date, as a time in UTC; ValueError for anything else."""
    if not _MOMENT.fullmatch(text):
        raise ValueError("not RFC 3339")
    parsed = datetime.fromisoformat(text.upper())
    try:
        return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("before the year 1 or after the year 9999 in UTC") from None


def checked_moment(moment: datetime) -> datetime:
    """The time, in UTC; ValueError outside of the years that can be computed with."""
    try:
        found = moment.astimezone(UTC)
    except OverflowError:
        found = datetime.min
    if not FIRST_YEAR <= found.year <= LAST_YEAR:
        raise ValueError(f"the year is between {FIRST_YEAR} and {LAST_YEAR}")
    return found


def day(text: str) -> datetime:
    """The beginning of a date such as 2026-01-31, in UTC; ValueError for any other text."""
    if len(text) != len("2026-01-31"):
        raise ValueError("not a date")
    return moment(text)


def now() -> int:
    """This moment, as the database has it."""
    return to_micros(datetime.now(UTC))


def to_micros(moment: datetime) -> int:
    """A time as the database has it."""
    return (moment - EPOCH) // MICROSECOND


def from_micros(value: int) -> datetime:
    """A time of the database."""
    return EPOCH + timedelta(microseconds=value)


def from_micros_or_none(value: int | None) -> datetime | None:
    """A time of the database that may be absent."""
    return None if value is None else from_micros(value)


def time_text(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC, to the second; None without a time."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
