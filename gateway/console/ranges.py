"""Ranges of time that people choose: the last days, or dates. Dates are days in UTC, as in statements."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from gateway.admin.times import FIRST_YEAR, LAST_YEAR, checked_moment, day
from gateway.console.visit import Visit
from gateway.errors import InvalidValue
from gateway.history.usage_sums import Period

LAST = {"24h": timedelta(hours=24), "7d": timedelta(days=7), "30d": timedelta(days=30), "90d": timedelta(days=90)}
LABELS = {"24h": "24 hours", "7d": "7 days", "30d": "30 days", "90d": "90 days"}
DEFAULT = "7d"
BY_HOUR = timedelta(days=3)  # longer ranges are shown by day
BY_DAY = timedelta(days=93)  # with a row for each of more days, a page would be larger than 100 kB
YEAR = timedelta(days=366)
DAY = timedelta(days=1)


class Range(Struct, frozen=True):
    """From `since` to before `until`; `name` is one of LAST, or empty for dates."""

    name: str
    since: datetime
    until: datetime

    @property
    def period(self) -> Period:
        """The period of a chart over the range: hour, day or month."""
        length = self.until - self.since
        return "hour" if length <= BY_HOUR else "day" if length <= BY_DAY else "month"

    @property
    def longer(self) -> tuple[str, dict[str, Any]] | None:
        """A longer range that contains this one, in words, and the parameters of a link to it; None if there is none.

        Dates are extended by their own length on both sides, to a year at most and not beyond today.
        """
        if not self.name:
            wider = self._extended()
            days = wider.query()
            return None if wider == self else (f"{days['from']} to {days['to']}", days)
        names = list(LAST)
        if later := names[names.index(self.name) + 1 :]:
            return f"the last {LABELS[later[0]]}", {"range": later[0]}
        return "the last twelve months", Range("", self.until - YEAR, self.until + DAY).query()

    def _extended(self) -> Range:
        length = self.until - self.since
        more = timedelta(days=min(length.days, max(YEAR - length, timedelta()).days // 2))
        since = self.since - min(more, self.since - datetime(FIRST_YEAR, 1, 1, tzinfo=UTC))
        return Range("", since, max(self.until, min(self.until + more, _midnight() + DAY)))

    def query(self) -> dict[str, Any]:
        """The parameters of a link to the same range."""
        if self.name:
            return {"range": self.name}
        last = self.until - DAY
        return {"from": f"{self.since:%Y-%m-%d}", "to": f"{last:%Y-%m-%d}"}


def chosen_range(visit: Visit) -> Range:
    """The range of the parameters `range`, or `from` and `to`; for impossible dates the default, with a message."""
    try:
        return _chosen(visit)
    except InvalidValue as error:
        visit.error = error
        now = datetime.now(UTC)
        return Range(DEFAULT, now - LAST[DEFAULT], now)


def _chosen(visit: Visit) -> Range:
    first, last = visit.query("from"), visit.query("to")
    now = datetime.now(UTC)
    if first or last:
        since = _date(first, "from") if first else _date(last, "to") - timedelta(days=30)
        until = (_date(last, "to") if last else _midnight()) + DAY
        if since >= until:
            raise InvalidValue("The range must end after its beginning", param="to")
        return Range("", since, until)
    name = visit.query("range") if visit.query("range") in LAST else DEFAULT
    return Range(name, now - LAST[name], now)


def _midnight() -> datetime:
    """When this day began."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _date(text: str, param: str) -> datetime:
    try:
        found = day(text)
    except ValueError:
        raise InvalidValue("A date is written as 2026-01-31", param=param) from None
    try:
        return checked_moment(found)
    except ValueError:
        raise InvalidValue(f"The year is between {FIRST_YEAR} and {LAST_YEAR}", param=param) from None
