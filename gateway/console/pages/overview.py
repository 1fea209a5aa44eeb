"""`/accounts/{account}`: the balance, and what was spent lately, by model and key."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from heapq import nsmallest
from typing import Any

from gateway.admin.key_lookups import key_names
from gateway.admin.money import low_balance
from gateway.admin.rights import creates_keys
from gateway.console.choices import sees_all
from gateway.console.ranges import LABELS, Range, chosen_range
from gateway.console.refused_requests import count_of_refused, refused_requests
from gateway.console.replies import Reply, View
from gateway.console.route import PageRoute
from gateway.console.usage_chart import chart_table
from gateway.console.visit import Visit
from gateway.history.usage_sums import ERRORS, PERIODS, TooManyRows
from gateway.reports.reports import ReportQuery, Reports
from gateway.reports.usage_report import Report
from gateway.web.work_threads import PAGES

TOP = 8  # keys, and sums of refused requests


async def overview(visit: Visit, account: str) -> Reply:
    chosen, people = chosen_range(visit), await visit.people()
    reports = Reports(people.transactions)
    record = await visit.store.accounts.show(account)
    by_model = await report_by_model(visit, reports, chosen)
    by_key = await report(visit, reports, chosen, ["key"])
    refused = await refused_requests(visit, chosen, most=TOP)
    total = await PAGES.run(lambda: by_key.total_form)  # of many rows it takes long
    calls = by_key.total["calls"]
    values = {
        "account": record,
        "low": await low_balance(visit.store.store, visit.settings, record),
        "range": chosen,
        "labels": LABELS,
        "spent": by_key.total["cost"],
        "calls": calls,
        "tokens_in": total["tokens_in"],
        "tokens_out": total["tokens_out"],
        "failed": by_key.total[ERRORS],
        "refused": refused,
        "attempted": calls + await count_of_refused(visit, chosen),
        "chart": await PAGES.run(chart_table, by_model),
        "top": await _top(visit, by_key),
        "has_keys": bool(await visit.store.key_service.newest_ids(visit.actor, account, 1)),
        "may_create": creates_keys(visit.actor, account),
        "sees_all": sees_all(visit, account),
    }
    return View("overview.html", f"Overview of {account}", values)


async def report(
    visit: Visit, reports: Reports, chosen: Range, group_by: Sequence[str], filters: dict[str, list[str]] | None = None
) -> Report:
    """A report of the account of the page, as far as the reader may see it."""
    query = ReportQuery(
        since=chosen.since,
        until=chosen.until,
        group_by=group_by,
        filters={"account": [visit.account], **(filters or {})},
    )
    return await reports.report(visit.actor, query)


async def report_by_model(
    visit: Visit, reports: Reports, chosen: Range, filters: dict[str, list[str]] | None = None
) -> Report:
    """A report by model and the period of the range; by a longer period if it would have too many rows."""
    for period in PERIODS[PERIODS.index(chosen.period) : -1]:
        with suppress(TooManyRows):
            return await report(visit, reports, chosen, [period, "model"], filters)
    return await report(visit, reports, chosen, [PERIODS[-1], "model"], filters)


async def _top(visit: Visit, by_key: Report) -> list[dict[str, Any]]:
    ranked = nsmallest(TOP, by_key.rows, key=lambda row: (-row.sums["cost"], row.labels))
    names = await key_names(visit.store.store, [row.labels[0] for row in ranked])
    return [
        {"id": id_, "name": names.get(id_, ""), "cost": row.sums["cost"], "calls": row.sums["calls"]}
        for row in ranked
        for id_ in row.labels
    ]


ROUTES = (
    PageRoute(
        method="GET",
        path="/accounts/{account}",
        audience="member",
        function=overview,
        help="console#usage-and-overview",
        menu="Overview",
    ),
)
