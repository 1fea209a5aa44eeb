"""What the pages of usage reports share: reading a report, its values for the template, and its files."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from gateway.admin.key_lookups import key_names
from gateway.console.json_files import json_file
from gateway.console.ranges import LABELS
from gateway.console.replies import Download
from gateway.console.report_form import ReportForm
from gateway.console.report_rows import MOST_SHOWN, ReportRows, first_rows, keys_of, report_rows
from gateway.console.visit import Visit
from gateway.errors import InvalidValue, NotFound
from gateway.history.usage_sums import TooManyRows
from gateway.reports.csv_file import csv_pieces, in_pages
from gateway.reports.report_table import ReportTable
from gateway.reports.reports import ReportQuery, Reports
from gateway.reports.usage_report import Report
from gateway.web.work_threads import LONG


async def report_values(visit: Visit, form: ReportForm) -> dict[str, Any]:
    """The values of the page; for a query that is not possible without a report, and with a message."""
    report: Report | None = None
    shown: ReportRows | None = None
    try:
        report = await _read(visit, form, has_others=True)
        shown = await _shown(visit, report)
    except (InvalidValue, NotFound) as error:
        visit.error = error
    return {
        "form": form,
        "range": form.range,
        "labels": LABELS,
        "keep": form.link(),
        "report": report,
        "shown": shown,
    }


async def report_csv(visit: Visit, form: ReportForm) -> Download:
    """The file that `gateway report --format csv` prints."""
    report = await _read_for_file(visit, form)
    total = await LONG.run(lambda: report.total_form)
    table = ReportTable({"group_by": report.group_by, "total": total})
    pieces = await csv_pieces(table.columns(), in_pages(table.record(report.row_form(row)) for row in report.rows))
    return Download(_name(report, form, "csv"), "text/csv; charset=utf-8", pieces)


async def report_json(visit: Visit, form: ReportForm) -> Download:
    """The file that `gateway report --format json` prints."""
    report = await _read_for_file(visit, form)
    return await json_file(_name(report, form, "json"), lambda: b"".join(report.json_pieces()))


async def _read_for_file(visit: Visit, form: ReportForm) -> Report:
    """As `_read`; InvalidValue for an impossible range, too."""
    if visit.error is not None:
        raise visit.error
    return await _read(visit, form)


async def _read(visit: Visit, form: ReportForm, *, has_others: bool = False) -> Report:
    """The report, with the margin if it is one of all accounts and any cost is known.

    It is read beside the pages, because one of many rows takes long. `has_others`: of too many rows it has the most
    expensive ones, and the others as one.
    """
    query = form.query(margin=not form.account)
    query = structs.replace(query, filters=await _with_ids(visit, query))
    reports = Reports(await visit.services.history())
    try:
        report = await reports.report(visit.actor, query)
    except TooManyRows:
        if not has_others:
            raise
        report = await reports.largest(visit.actor, query, MOST_SHOWN)
    total = await LONG.run(lambda: report.total)
    return report if not form.account and total["upstream_cost_known"] else structs.replace(report, margin=False)


async def _with_ids(visit: Visit, query: ReportQuery) -> dict[str, Any]:
    """The filters, where operators and viewers may give the e-mail of a person instead of the id."""
    people = query.filters.get("user", ())
    if not any("@" in text for text in people) or not visit.actor.may("read"):
        return dict(query.filters)
    users = (await visit.people()).users
    ids = [(await users.find(visit.actor, text)).id if "@" in text else text for text in people]
    return {**query.filters, "user": ids}


async def _shown(visit: Visit, report: Report) -> ReportRows:
    rows = await LONG.run(first_rows, report)
    names = await key_names(visit.store.store, keys_of(report, rows))
    return await LONG.run(report_rows, report, rows, names)


def _name(report: Report, form: ReportForm, ending: str) -> str:
    return f"report-{form.account or 'all'}-{report.since:%Y%m%d}-{report.until:%Y%m%d}.{ending}"
