"""The table of all routes; the navigation has their order."""

from __future__ import annotations

from gateway.console.pages import (
    account,
    import_links,
    invitation,
    keys,
    oidc,
    overview,
    playground,
    prices,
    profile,
    reports,
    sign_in,
    sign_up,
    site_accounts,
    site_calls,
    site_imports,
    site_models,
    site_prices,
    site_reports,
    site_superseded,
    site_users,
    start,
    usage,
)
from gateway.console.route import PageRoute

ROUTES: tuple[PageRoute, ...] = (
    *start.ROUTES,
    *sign_in.ROUTES,
    *oidc.ROUTES,
    *sign_up.ROUTES,
    *invitation.ROUTES,
    *overview.ROUTES,
    *keys.ROUTES,
    *usage.ROUTES,
    *reports.ROUTES,
    *prices.ROUTES,
    *playground.ROUTES,
    *account.ROUTES,
    *site_accounts.ROUTES,
    *site_prices.ROUTES,
    *site_users.ROUTES,
    *site_imports.ROUTES,
    *import_links.ROUTES,
    *site_models.ROUTES,
    *site_calls.ROUTES,
    *site_superseded.ROUTES,
    *site_reports.ROUTES,
    *profile.ROUTES,
)
