"""The OpenAPI document."""

from __future__ import annotations

from typing import Any

from gateway.admin_api.access import PUBLIC
from gateway.admin_api.call import AdminCall
from gateway.admin_api.route import AdminRoute


async def openapi(call: AdminCall) -> bytes:
    return call.openapi()


ROUTES = (
    AdminRoute(
        method="GET",
        path="/openapi.json",
        access=PUBLIC,
        summary="Show this document",
        function=openapi,
        answer=dict[str, Any],
    ),
)
