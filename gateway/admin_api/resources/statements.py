"""`/accounts/{account}/statements`: an account's months."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.accounts.accounts import StoreDirectory
from gateway.admin_api import history_documents as documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall
from gateway.admin_api.pagination import Page, page
from gateway.admin_api.route import AdminRoute
from gateway.reports.csv_file import csv_pieces, in_pages
from gateway.reports.statement import CSV_COLUMNS
from gateway.reports.statements import Statements
from gateway.web.request_limits import REPORTS

READ = Access(scope="read", target="account", owners=True)


class Month(Struct, frozen=True):
    """The month of a statement, in UTC."""

    month: Annotated[str, Meta(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])$(?!\n)", examples=["2026-10"])]


async def list_(call: AdminCall, account: str) -> dict[str, Any]:
    found = await (await _statements(call)).list(call.actor, account)
    return page("statements", [statement.json_form() for statement in found], None)


async def make(call: AdminCall, account: str, body: Month) -> dict[str, Any]:
    return (await (await _statements(call)).make(call.actor, account, body.month)).json_form()


async def show(call: AdminCall, account: str, month: str) -> dict[str, Any]:
    return (await (await _statements(call)).statement(call.actor, account, month)).json_form()


async def show_csv(call: AdminCall, account: str, month: str) -> AsyncGenerator[bytes]:
    statement = await (await _statements(call)).statement(call.actor, account, month)
    return await csv_pieces(CSV_COLUMNS, in_pages(statement.csv_records()))


async def _statements(call: AdminCall) -> Statements:
    links = call.store.store
    return Statements(await call.services.history(), links, StoreDirectory(links))


ROUTES = (
    AdminRoute(
        method="GET",
        path="/accounts/{account}/statements",
        access=READ,
        summary="List the final statements of an account, the newest month first",
        function=list_,
        answer=Page[documents.StatementSummary],
    ),
    AdminRoute(
        method="POST",
        path="/accounts/{account}/statements",
        access=READ,
        summary="Make the statement of a month final; 409 if it cannot be final yet",
        function=make,
        body=Month,
        answer=documents.Statement,
        limit=REPORTS,
    ),
    AdminRoute(
        method="GET",
        path="/accounts/{account}/statements/{month}",
        access=READ,
        summary="Show the statement of a month such as 2026-10; it is final as soon as it can be",
        function=show,
        answer=documents.Statement,
        limit=REPORTS,
    ),
    AdminRoute(
        method="GET",
        path="/accounts/{account}/statements/{month}/csv",
        access=READ,
        summary="The same as a CSV file",
        function=show_csv,
        answer=str,
        media_type="text/csv; charset=utf-8",
        limit=REPORTS,
    ),
)
