"""The rows of a usage report as a page shows them: names instead of ids, and the first rows of a long report."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest
from typing import Any

from msgspec import Struct

from gateway.console.elements import percent_text
from gateway.history.usage_sums import Sums, UsageRow
from gateway.reports.usage_report import Report

MOST_SHOWN = 200  # rows: a page is at most 100 kB


class Row(Struct, frozen=True):
    """One row: the texts of its group, its sums as in the JSON document, and its margin in percent."""

    labels: list[str]
    sums: Mapping[str, Any]
    share: str


class ReportRows(Struct, frozen=True):
    """What the page shows of a report with `count` rows."""

    rows: list[Row]
    total: Row
    count: int  # without the others
    others: Row | None = None  # all rows of a report that are too many


def first_rows(report: Report) -> list[UsageRow]:
    """The rows that the page shows: the newest period first, and in it the most expensive row."""
    return nsmallest(MOST_SHOWN, report.rows, key=lambda row: (-row.period, -row.sums["cost"], row.labels))


def keys_of(report: Report, rows: list[UsageRow]) -> list[str]:
    """The ids of the keys in the rows."""
    if "key" not in report.dimensions:
        return []
    place = report.dimensions.index("key")
    return sorted({row.labels[place] for row in rows} - {""})


def report_rows(report: Report, rows: list[UsageRow], key_names: Mapping[str, str]) -> ReportRows:
    """The rows with their texts; it takes some time for a report of many rows, and needs no event loop."""
    return ReportRows(
        rows=[_row(report, row, key_names) for row in rows],
        total=Row([], report.total_form, _share(report.total)),
        count=len(report.rows),
        others=Row([], others, _share(report.others)) if (others := report.others_form) and report.others else None,
    )


def _row(report: Report, row: UsageRow, key_names: Mapping[str, str]) -> Row:
    form = report.row_form(row)
    return Row([_label(name, form, key_names) for name in report.group_by], form, _share(row.sums))


def _label(name: str, form: Mapping[str, Any], key_names: Mapping[str, str]) -> str:
    value: str = form[name]
    match name:
        case "key":
            return key_names.get(value, value) or "–"
        case "user":
            return form["email"] or (f"{value} (erased)" if value else "service keys")
        case "hour":
            return value.replace("T", " ").replace("Z", " UTC")
    return value or "–"


def _share(sums: Sums) -> str:
    """The margin in percent of what was charged: a loss has a minus, and there is none where nothing was charged."""
    return percent_text(sums["cost"] - sums["upstream_cost"], sums["cost"])
