"""`/models`, `/machines` and `/plugins`: what the configuration serves, where, and what is loaded."""

from __future__ import annotations

import time
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from gateway.admin.discovered_models import discovered_forms, provider_forms
from gateway.admin.machines import read_machines
from gateway.admin.models import health_forms, model_form
from gateway.admin.pages import page_of
from gateway.admin_api import documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall
from gateway.admin_api.pagination import Page, PageQuery, page, read_cursor
from gateway.admin_api.route import AdminRoute
from gateway.routing.circuit_sync import read_circuit_events
from gateway.setup.plugin_reports import plugin_forms
from gateway.web import request_limits
from gateway.web.work_threads import CHECKS

_model = itemgetter("model")
READ = Access(scope="config", reads=True)


async def models(call: AdminCall, query: PageQuery) -> dict[str, Any]:
    after = read_cursor("models", query.cursor, tuple[str])
    known = call.services.settings.models
    names = [name for name in sorted(known) if after is None or name > after[0]]
    shown, last = page_of(names, query.limit)
    return page("models", [model_form(name, known[name]) for name in shown], [last] if last else None)


async def health(call: AdminCall, query: PageQuery) -> dict[str, Any]:
    """The position of a target is its model, and its number among the targets of the model."""
    model, before = read_cursor("health", query.cursor, tuple[str, int]) or ("", 0)
    events = await read_circuit_events(call.store.store)
    forms = health_forms(call.services.settings, events, time.time(), first=model)
    numbered = ((name, number, form) for name, of in groupby(forms, _model) for number, form in enumerate(of, 1))
    left = (one for one in numbered if one[:2] > (model, before))
    shown, last = page_of(list(islice(left, query.limit + 1)), query.limit)
    return page("health", [form for *_, form in shown], last[:2] if last else None)


async def machines(call: AdminCall) -> dict[str, Any]:
    return page("machines", [machine.json_form() for machine in await read_machines(call.store.store)], None)


async def plugins(call: AdminCall) -> dict[str, Any]:
    events = await read_circuit_events(call.store.store)
    return page("plugins", await CHECKS.run(plugin_forms, call.services.settings, events), None)


async def lists(call: AdminCall) -> dict[str, Any]:
    return page("discovery", provider_forms(call.services.discovered), None)


async def listed_models(call: AdminCall, query: PageQuery) -> dict[str, Any]:
    after = read_cursor("discovered models", query.cursor, tuple[str, str]) or ("", "")
    left = discovered_forms(call.services.discovered, after=after)
    shown, last = page_of(list(islice(left, query.limit + 1)), query.limit)
    cursor = [last["provider"], last["upstream_model"]] if last else None
    return page("discovered models", shown, cursor)


ROUTES = (
    AdminRoute(
        method="GET",
        path="/models",
        access=READ,
        summary="List the models of the configuration by name",
        function=models,
        query=PageQuery,
        answer=Page[documents.Model],
    ),
    AdminRoute(
        method="GET",
        path="/models/health",
        access=READ,
        summary="List the state of every target, as the workers found it",
        function=health,
        query=PageQuery,
        answer=Page[documents.TargetHealth],
    ),
    AdminRoute(
        method="GET",
        path="/discovery",
        access=READ,
        summary="List the providers that are asked for their models, and how the last questions ended",
        function=lists,
        answer=Page[documents.ProviderList],
    ),
    AdminRoute(
        method="GET",
        path="/discovery/models",
        access=READ,
        summary="List the models that providers list, and why one is not served",
        function=listed_models,
        query=PageQuery,
        answer=Page[documents.DiscoveredModel],
    ),
    AdminRoute(
        method="GET",
        path="/machines",
        access=READ,
        summary="List the gateways that run with this store, each with the hash of its configuration",
        function=machines,
        answer=Page[documents.Machine],
    ),
    AdminRoute(
        method="GET",
        path="/plugins",
        access=READ,
        summary="List the installed plugins",
        function=plugins,
        answer=Page[documents.Plugin],
        limit=request_limits.CHECKS,
    ),
)
