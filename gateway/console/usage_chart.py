"""The table behind a chart: spend by period and model. The script draws the chart from the table."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from gateway.admin.times import from_micros
from gateway.admin.usage_report import Report
from gateway.console.ranges import Range

MOST = 7  # models with a column of their own
OTHER = "other models"


class ChartTable(Struct, frozen=True):
    """Columns by the sum of their amounts; each row has the beginning of its period and an amount for each column."""

    period: str
    columns: list[str]
    rows: list[tuple[datetime, list[int]]]


def chart_table(report: Report, chosen: Range) -> ChartTable:
    """The amounts of a report by model and period; periods without a call are there, too."""
    totals: dict[str, int] = {}
    for row in report.rows:
        totals[row.labels[0]] = totals.get(row.labels[0], 0) + row.sums["cost"]
    ranked = sorted(totals, key=lambda model: (-totals[model], model))
    columns = ranked[:MOST] + ([OTHER] if len(ranked) > MOST else [])
    place = {model: min(at, MOST) for at, model in enumerate(ranked)}
    cells: dict[datetime, list[int]] = {moment: [0] * len(columns) for moment in _periods(report, chosen.period)}
    for row in report.rows:
        amounts = cells.setdefault(from_micros(row.period), [0] * len(columns))
        amounts[place[row.labels[0]]] += row.sums["cost"]
    return ChartTable(chosen.period, columns, sorted(cells.items()))


def _periods(report: Report, period: str) -> list[datetime]:
    found, moment = [], report.since
    if period == "hour":
        moment = moment.replace(minute=0, second=0, microsecond=0)
    else:
        moment = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        moment = moment.replace(day=1) if period == "month" else moment
    while moment < report.until:
        found.append(moment)
        if period == "month":
            moment = (moment + timedelta(days=32)).replace(day=1)
        else:
            moment += timedelta(hours=1) if period == "hour" else timedelta(days=1)
    return found
