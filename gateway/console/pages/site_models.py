"""`/site/models`: the targets with their state; `/site/configuration`; `/site/connect`; `/site/plugins`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from gateway.admin.discovered_models import discovered_forms, provider_forms
from gateway.attention.provider_rules import provider_page
from gateway.config.pattern_models import REASONS, SERVED
from gateway.console.fields import whole_number
from gateway.console.numbered_pages import numbered_page
from gateway.console.replies import PAGE, Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.reports.provider_health import probe, target_forms, with_performance
from gateway.reports.reports import Reports
from gateway.routing.circuit_sync import read_circuit_events
from gateway.setup.configuration_check import CheckOptions, check_in_thread
from gateway.setup.effective_configuration import effective_configuration, effective_models, models_of_file
from gateway.setup.file_additions import additions
from gateway.setup.found_providers import find_providers
from gateway.setup.known_providers import SERVERS, VENDORS
from gateway.setup.plugin_reports import plugin_forms
from gateway.web import request_limits
from gateway.web.work_threads import CHECKS

MODELS = "/site/models"
CONFIGURATION = "/site/configuration"


async def models(visit: Visit) -> Reply:
    people = await visit.people()
    found = await target_forms(visit.actor, visit.settings, visit.store.store)
    search, only_bad = visit.query("q").lower(), visit.query("state") == "bad"
    fitting = [
        form
        for form in found
        if (search in form["model"].lower() or search in form["provider"].lower())
        and not (only_bad and form["state"] == "ok")
    ]
    shown = numbered_page(fitting, visit.query("page"))
    values = {
        "targets": await with_performance(visit.actor, Reports(people.transactions), shown.rows),
        "shown": shown,
        "bad": sum(form["state"] != "ok" for form in found),
        "known": len(found),
        "search": visit.query("q"),
        "only_bad": only_bad,
        "page_of": provider_page,
        "providers": sorted(visit.settings.providers.items()),
        "lists": {one["provider"]: one for one in provider_forms(visit.services.discovered)},
    }
    return View("site_models.html", "Models and providers", values)


async def discovered(visit: Visit) -> Reply:
    search, state = visit.query("q").lower(), visit.query("state")
    known = list(discovered_forms(visit.services.discovered))
    fitting = [
        form
        for form in known
        if (search in form["upstream_model"].lower() or search in form["id"].lower() or search in form["provider"])
        and state in ("", form["state"])
    ]
    shown = numbered_page(fitting, visit.query("page"))
    values = {
        "shown": shown,
        "known": len(known),
        "lists": provider_forms(visit.services.discovered),
        "states": [SERVED, *REASONS],
        "search": visit.query("q"),
        "state": state,
    }
    return View("site_discovered.html", "Models of providers' lists", values)


async def probe_target(visit: Visit) -> Reply:
    credential = whole_number(visit.text("credential"))
    is_due = await probe(
        visit.actor,
        visit.settings,
        visit.store.store,
        visit.store.outbox,
        provider=visit.text("provider"),
        credential=credential or 0,
        model=visit.text("model"),
    )
    visit.note("The next call tries the target." if is_due else "The target is in use already, or is tried next.")
    return Redirect(MODELS)


async def configuration(visit: Visit) -> Reply:
    await visit.services.machines.refresh()
    return View("site_configuration.html", "Configuration", _configuration(visit))


async def check(visit: Visit) -> Reply:
    file = Path(visit.settings.file) if visit.settings.file else None
    findings = await check_in_thread(file, CheckOptions(demo=visit.settings.demo))
    return View(
        "site_configuration.html",
        "Configuration",
        {**_configuration(visit), "findings": msgspec.to_builtins(findings)},
    )


async def reload(visit: Visit) -> Reply:
    if await visit.services.reloaded(visit.actor):
        visit.note("The configuration of the file is in use now.")
    else:
        visit.note("The file is not in use: check it, and see the log of the gateway.")
    return Redirect(CONFIGURATION)


async def connect(visit: Visit) -> Reply:
    settings, found = visit.settings, await find_providers(os.environ)
    # Without a file, `gateway init` writes all of them into one.
    new = await CHECKS.run(additions, found, settings) if settings.file else None
    values = {"file": settings.file, "found": found, "additions": new, "vendors": VENDORS, "servers": SERVERS}
    return View("site_connect.html", "Connect a provider", values)


async def plugins(visit: Visit) -> Reply:
    events = await read_circuit_events(visit.store.store)
    reports = await CHECKS.run(plugin_forms, visit.settings, events)  # it imports them
    return View("site_plugins.html", "Plugins", {"plugins": reports})


def _configuration(visit: Visit) -> dict[str, Any]:
    settings, search = visit.settings, visit.query("q").lower()
    named = models_of_file(settings)
    is_large = len(named) > PAGE
    fitting = [name for name in sorted(named) if search in name.lower()] if is_large else []
    shown = numbered_page(fitting, visit.query("page"))
    return {
        "text": effective_configuration(settings, but="models" if is_large else ""),
        "models_text": effective_models(settings, shown.rows),
        "shown": shown,
        "search": visit.query("q"),
        "is_large": is_large,
        "file": settings.file,
        "warnings": settings.warnings,
        "findings": None,
        "machines": visit.services.machines.found,
    }


ROUTES = (
    PageRoute(
        method="GET",
        path=MODELS,
        audience="viewer",
        function=models,
        help="routing#health",
        menu="Models",
        group="Models",
    ),
    PageRoute(
        method="GET",
        path=f"{MODELS}/discovered",
        audience="viewer",
        function=discovered,
        help="operations/models#why-a-model-is-not-served",
    ),
    PageRoute(method="POST", path=f"{MODELS}/probe", audience="operator", function=probe_target, form=models),
    PageRoute(
        method="GET",
        path=CONFIGURATION,
        audience="viewer",
        function=configuration,
        help="configuration",
        menu="Configuration",
        group="System",
    ),
    PageRoute(
        method="POST",
        path=f"{CONFIGURATION}/check",
        audience="operator",
        function=check,
        form=configuration,
        limit=request_limits.CHECKS,
    ),
    PageRoute(method="POST", path=f"{CONFIGURATION}/reload", audience="operator", function=reload, form=configuration),
    PageRoute(
        method="GET",
        path="/site/connect",
        audience="operator",
        function=connect,
        help="console#what-operators-do",
        waits=True,
    ),
    PageRoute(
        method="GET",
        path="/site/plugins",
        audience="viewer",
        function=plugins,
        help="plugins",
        menu="Plugins",
        group="System",
        waits=True,
        limit=request_limits.CHECKS,
    ),
)
