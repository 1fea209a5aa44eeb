"""The table of all routes."""

from __future__ import annotations

from gateway.admin_api.resources import (
    accounts,
    audits,
    batches,
    calls,
    catalog,
    configuration,
    explanations,
    imports,
    keys,
    member_keys,
    members,
    notifications,
    prices,
    refused,
    reports,
    server,
    statements,
    superseded,
    tokens,
    users,
)
from gateway.admin_api.route import AdminRoute

ROUTES: tuple[AdminRoute, ...] = (
    *server.ROUTES,
    *accounts.ROUTES,
    *keys.ROUTES,
    *members.ROUTES,
    *users.ROUTES,
    *tokens.ROUTES,
    *audits.ROUTES,
    *catalog.ROUTES,
    *calls.ROUTES,
    *batches.ROUTES,
    *member_keys.ROUTES,
    *reports.ROUTES,
    *statements.ROUTES,
    *prices.ROUTES,
    *explanations.ROUTES,
    *refused.ROUTES,
    *superseded.ROUTES,
    *imports.ROUTES,
    *configuration.ROUTES,
    *notifications.ROUTES,
)
