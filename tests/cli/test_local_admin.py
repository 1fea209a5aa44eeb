"""Commands on this machine ask the same functions as requests over HTTP."""

from __future__ import annotations

import importlib

from gateway.admin_api.table import ROUTES
from gateway.cli.local_admin import MODULES, module_of


def test_commands_find_the_module_of_each_route_that_they_ask() -> None:
    modules = {name: importlib.import_module(f"gateway.admin_api.resources.{name}") for name in MODULES.values()}
    elsewhere = list[str]()
    for name, module in modules.items():
        for route in module.ROUTES:
            found = module_of(tuple(route.path[1:].split("/")))
            if found != name:
                elsewhere.append(f"{name}: {route.method} {route.path}")
    # No command asks these.
    assert elsewhere == [
        "prices: GET /accounts/{account}/models",
        "tokens: GET /token",
        "tokens: DELETE /token",
        "audits: GET /accounts/{account}/lines",
        "audits: POST /audits",
    ]
    assert all(route in ROUTES for module in modules.values() for route in module.ROUTES)
