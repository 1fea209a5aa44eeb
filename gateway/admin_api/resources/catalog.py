"""`/models` and `/plugins`: what the configuration serves, and what is loaded."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from gateway.admin.models import health_forms, model_form
from gateway.admin.pages import page_of
from gateway.admin.plugin_reports import plugin_forms
from gateway.admin_api import documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import Call
from gateway.admin_api.pagination import Page, PageQuery, page, read_cursor
from gateway.admin_api.route import Route
from gateway.routing.circuit_sync import read_circuit_events

READ = Access(scope="config", reads=True)


async def models(call: Call, query: PageQuery) -> dict[str, Any]:
    after = read_cursor("models", query.cursor, tuple[str])
    known = call.services.settings.models
    names = [name for name in sorted(known) if after is None or name > after[0]]
    shown, last = page_of(names, query.limit)
    return page("models", [model_form(name, known[name]) for name in shown], [last] if last else None)


async def health(call: Call) -> dict[str, Any]:
    events = await read_circuit_events(call.store.store)
    return page("health", health_forms(call.services.settings, events, time.time()), None)


async def plugins(call: Call) -> dict[str, Any]:
    events = await read_circuit_events(call.store.store)
    return page("plugins", await asyncio.to_thread(plugin_forms, call.services.settings, events), None)


ROUTES = (
    Route(
        method="GET",
        path="/models",
        access=READ,
        summary="List the models of the configuration by name",
        function=models,
        query=PageQuery,
        answer=Page[documents.Model],
    ),
    Route(
        method="GET",
        path="/models/health",
        access=READ,
        summary="List the state of every target, as the workers found it",
        function=health,
        answer=Page[documents.TargetHealth],
    ),
    Route(
        method="GET",
        path="/plugins",
        access=READ,
        summary="List the installed plugins",
        function=plugins,
        answer=Page[documents.Plugin],
    ),
)
