"""`/usage`: sums of usage, and what callers were refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gateway.admin_api import history_documents as documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall, visible_account
from gateway.admin_api.pagination import Page, page
from gateway.admin_api.resources.keys import Moment
from gateway.admin_api.route import AdminRoute
from gateway.history.refusals import RefusalQuery, read_refusals
from gateway.reports.csv_file import csv_pieces, in_pages
from gateway.reports.report_table import MOST_GROUPS, ReportTable
from gateway.reports.reports import ReportQuery, Reports
from gateway.reports.usage_report import Report
from gateway.web.request_limits import REPORTS
from gateway.web.work_threads import LONG

READ = Access(scope="read", target="visible", owners=True)
DAYS = 30  # of a report without a beginning

Names = Annotated[str, Meta(max_length=20_000, description="Permitted values, separated by commas.")]


class UsageSums(Struct, frozen=True, kw_only=True, rename={"since": "from", "until": "to"}):
    """The query of a usage report. Without `from` it begins 30 days before `to`, which is now if it is absent."""

    since: Moment | None = None
    until: Moment | None = None
    group_by: Annotated[
        str, Meta(description="account, user, key, model, provider, endpoint, outcome, tag; hour, day or month.")
    ] = ""
    account: Names = ""
    user: Names = ""
    key: Names = ""
    model: Names = ""
    provider: Names = ""
    endpoint: Names = ""
    outcome: Names = ""
    tag: Names = ""
    session: Annotated[str, Meta(max_length=20_000, description="Ids of sessions; not with tags.")] = ""
    margin: Annotated[bool, Meta(description="Also what the calls cost the operator.")] = False


class UsageQuery(UsageSums, frozen=True, kw_only=True):
    """The same for a document, which may have the most expensive groups only."""

    limit: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_GROUPS)] | None,
        Meta(description="Only so many groups, the most expensive; `others` has the rest."),
    ] = None


FILTERS = ("account", "user", "key", "model", "provider", "endpoint", "outcome", "tag", "session")


class RefusalsQuery(Struct, frozen=True, kw_only=True):
    """The query of refused requests. Without `since` they are those of the 24 hours before `until`, by default now.

    An hour that `since` or `until` cuts counts whole.
    """

    since: Moment | None = None
    until: Moment | None = None
    account: str = ""
    key: Annotated[str, Meta(description="The id of the key.")] = ""


async def usage(call: AdminCall, query: UsageQuery) -> AsyncGenerator[bytes]:
    report = await _report(call, query, limit=query.limit)
    pieces, made = report.json_pieces(), list[bytes]()
    while piece := await LONG.run(next, pieces, b""):
        made.append(piece)
    return _each(made)


async def usage_csv(call: AdminCall, query: UsageSums) -> AsyncGenerator[bytes]:
    report = await _report(call, query)
    total = await LONG.run(lambda: report.total_form)
    table = ReportTable({"group_by": report.group_by, "total": total})
    pieces = await csv_pieces(table.columns(), in_pages(table.record(report.row_form(row)) for row in report.rows))
    return _each([piece async for piece in pieces])


async def refusals(call: AdminCall, query: RefusalsQuery) -> dict[str, Any]:
    account = visible_account(call, query.account)
    since = query.since or (query.until or datetime.now(UTC)) - timedelta(days=1)
    keys = [query.key] if query.key else None
    wanted = RefusalQuery(since=since, until=query.until, account=account, keys=keys)
    found = await call.services.read_database(read_refusals, wanted)
    return page("refusals", [msgspec.to_builtins(one) for one in found], None)


async def _report(call: AdminCall, query: UsageSums, *, limit: int | None = None) -> Report:
    filters = {name: names for name in FILTERS if (names := _names(getattr(query, name)))}
    for account in filters.get("account", ()):
        visible_account(call, account)
    until = query.until or datetime.now(UTC)
    since = query.since or until - timedelta(days=DAYS)
    wanted = ReportQuery(
        since=since, until=until, group_by=_names(query.group_by), filters=filters, margin=query.margin
    )
    return await Reports(await call.services.history()).report(call.actor, wanted, limit=limit)


async def _each(pieces: list[bytes]) -> AsyncGenerator[bytes]:
    """All pieces of a report are made before they are sent: its rows take more memory than its file."""
    for piece in pieces:
        yield piece


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


ROUTES = (
    AdminRoute(
        method="GET",
        path="/usage",
        access=READ,
        summary="Sum calls, tokens, money and times of a range, in groups",
        function=usage,
        query=UsageQuery,
        answer=documents.UsageReport,
        limit=REPORTS,
    ),
    AdminRoute(
        method="GET",
        path="/usage/csv",
        access=READ,
        summary="The same as a CSV file",
        function=usage_csv,
        query=UsageSums,
        answer=str,
        media_type="text/csv; charset=utf-8",
        limit=REPORTS,
    ),
    AdminRoute(
        method="GET",
        path="/refusals",
        access=Access(scope="read", target="visible"),
        summary="Count refused requests by key, model and error code, most first",
        function=refusals,
        query=RefusalsQuery,
        answer=Page[documents.RefusalSum],
    ),
)
