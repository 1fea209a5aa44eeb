"""The table of all routes; the navigation has their order."""

from __future__ import annotations

from gateway.console.pages import invitation, keys, overview, prices, profile, sign_in, start, usage
from gateway.console.route import Route

ROUTES: tuple[Route, ...] = (
    *start.ROUTES,
    *sign_in.ROUTES,
    *invitation.ROUTES,
    *overview.ROUTES,
    *keys.ROUTES,
    *usage.ROUTES,
    *prices.ROUTES,
    *profile.ROUTES,
)
