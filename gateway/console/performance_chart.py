"""The table behind a chart of calls, failures and times to the first token. The script draws the chart from it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from gateway.history.usage_sums import Period
from gateway.reports.site_health import Point


class PerformanceRow(Struct, frozen=True):
    """One period; times in milliseconds, None without a streamed call."""

    start: datetime
    served: int
    failed: int
    p50: int | None
    p95: int | None


class PerformanceTable(Struct, frozen=True):
    """A row for each period."""

    period: Period
    rows: list[PerformanceRow]

    @property
    def has_calls(self) -> bool:
        """Whether there is anything to draw."""
        return any(row.served or row.failed for row in self.rows)


def performance_table(period: Period, points: Sequence[Point]) -> PerformanceTable:
    """The table of these points."""
    rows = []
    for point in points:
        times = point.first_token
        p50, p95 = (times.p50, times.p95) if times is not None else (None, None)
        rows.append(PerformanceRow(point.start, point.calls - point.failed, point.failed, p50, p95))
    return PerformanceTable(period, rows)
