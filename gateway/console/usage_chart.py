"""The table behind a chart: spend and calls by period and model. The script draws the chart from the table."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from gateway.admin.times import from_micros
from gateway.console.ranges import DAY, YEAR
from gateway.reports.usage_report import Report

MOST = 7  # models with a column of their own
OTHER = "other models"


class Cell(Struct):
    """What the calls of a model in a period cost, in nano-units, and how many they are."""

    spend: int = 0
    calls: int = 0


class ChartTable(Struct, frozen=True):
    """Columns by what they cost; each row has the beginning of its period and a cell for each column."""

    period: str
    columns: list[str]
    rows: list[tuple[datetime, list[Cell]]]


def chart_table(report: Report) -> ChartTable:
    """A report by period and model; it may have further dimensions.

    Periods without a call are there, too, but no month after the last call, or before both the first one and a year.
    """
    period = report.period or "month"
    totals: dict[str, tuple[int, int]] = {}
    for row in report.rows:
        spend, calls = totals.get(row.labels[0], (0, 0))
        totals[row.labels[0]] = spend + row.sums["cost"], calls + row.sums["calls"]
    ranked = sorted(sorted(totals), key=totals.__getitem__, reverse=True)
    columns = ranked[:MOST] + ([OTHER] if len(ranked) > MOST else [])
    place = {model: min(at, MOST) for at, model in enumerate(ranked)}
    table = {moment: [Cell() for _ in columns] for moment in _periods(report, period)}
    for row in report.rows:
        cells = table.setdefault(from_micros(row.period), [Cell() for _ in columns])
        cell = cells[place[row.labels[0]]]
        cell.spend += row.sums["cost"]
        cell.calls += row.sums["calls"]
    return ChartTable(period, columns, sorted(table.items()))


def _periods(report: Report, period: str) -> list[datetime]:
    found, moment = [], report.since
    if period == "hour":
        moment = moment.replace(minute=0, second=0, microsecond=0)
    else:
        moment = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        moment = moment.replace(day=1) if period == "month" else moment
    until = report.until
    if period == "month" and report.rows:
        first, last = (from_micros(of(row.period for row in report.rows)) for of in (min, max))
        moment, until = max(moment, min(first, (last - YEAR).replace(day=1))), min(until, last + DAY)
    while moment < until:
        found.append(moment)
        if period == "month":
            moment = (moment + timedelta(days=32)).replace(day=1)
        else:
            moment += timedelta(hours=1) if period == "hour" else timedelta(days=1)
    return found
