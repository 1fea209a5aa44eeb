"""The OpenAPI document."""

from __future__ import annotations

from typing import Any

from gateway.admin_api.access import PUBLIC
from gateway.admin_api.call import Call
from gateway.admin_api.route import Route


async def openapi(call: Call) -> bytes:
    return call.openapi()


ROUTES = (
    Route(
        method="GET",
        path="/openapi.json",
        access=PUBLIC,
        summary="Show this document",
        function=openapi,
        answer=dict[str, Any],
    ),
)
