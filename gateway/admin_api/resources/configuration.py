"""`/configuration` and `/history`: the file on disk, reloads, and how far the database is behind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gateway.admin.history_state import read_history_state
from gateway.admin_api import documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall
from gateway.admin_api.history_documents import HistoryState
from gateway.admin_api.pagination import PageQuery, read_cursor, write_cursor
from gateway.admin_api.route import AdminRoute
from gateway.setup.configuration_check import CheckOptions, Findings, check_in_thread
from gateway.web.request_limits import CHECKS

READ = Access(scope="config", reads=True)


class Check(Struct, frozen=True, kw_only=True):
    """How to check the file."""

    offline: Annotated[bool, Meta(description="The file and the plugins alone.")] = False
    force: Annotated[bool, Meta(description="Only warn of accounts whose group the file lacks.")] = False


class Reload(Struct, frozen=True):
    """With `force`, reload also if accounts are in a group that the file lacks."""

    force: bool = False


async def check(call: AdminCall, body: Check) -> dict[str, Any]:
    settings = call.services.settings
    options = CheckOptions(demo=settings.demo, offline=body.offline, force=body.force)
    found = await check_in_thread(Path(settings.file) if settings.file else None, options)
    form: dict[str, Any] = msgspec.to_builtins(found)
    return form


async def reload(call: AdminCall, body: Reload) -> dict[str, Any]:
    return await call.services.reload.run(call.actor, call.services.settings, force=body.force)


async def history(call: AdminCall, query: PageQuery) -> dict[str, Any]:
    after = read_cursor("history", query.cursor, tuple[str]) or ("",)
    store, database, sql = call.store.store, await call.services.database(), call.services.sql
    found = await read_history_state(call.actor, store, database, sql, after=after[0], limit=query.limit)
    return {**found.json_form(), "next_cursor": write_cursor("history", [found.last]) if found.last else None}


ROUTES = (
    AdminRoute(
        method="POST",
        path="/configuration/check",
        access=READ,
        summary="Check the configuration file on the gateway's disk, its plugins and its store",
        function=check,
        body=Check,
        answer=Findings,
        limit=CHECKS,
    ),
    AdminRoute(
        method="POST",
        path="/configuration/reload",
        access=Access(scope="config"),
        summary="Let the running gateway read its configuration file again; its log says when it has",
        function=reload,
        body=Reload,
        answer=documents.Reloaded,
    ),
    AdminRoute(
        method="GET",
        path="/history",
        access=READ,
        summary="Show how far the database is behind the store, and which of the accounts of a page cannot be imported",
        function=history,
        query=PageQuery,
        answer=HistoryState,
    ),
)
