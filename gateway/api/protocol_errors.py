"""Requests that reach no handler: malformed heads, and heads too large or too slow. They are answered like all others.

`HTTPServer(app, limits, on_protocol_error=ProtocolErrors(gateway))` gives them a request id and the fixed headers, and
writes them into the metrics, as endpoint "other", and the access log. What goes wrong later, in a body for instance, is
refused through `BaseHandler.on_transport_error`, because by then a handler knows whose request it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.errors import GatewayError
from gateway.http_server.reply import JSON, fixed_headers
from gateway.ids import request_id
from gateway.log import AccessLine

if TYPE_CHECKING:
    from gateway.inference.services import Services


class ProtocolErrors:
    """Makes the answers of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, error: GatewayError) -> tuple[dict[str, str], bytes]:
        """Headers and body of the answer to a request nobody could read."""
        id, services, outcome = request_id(), self._services, error.code or "error"
        services.metrics.refused("other", "unknown", outcome, 0.0)
        if services.access_log.enabled:
            # Nothing of the request is in the line: what could not be parsed has no method and no path.
            line = AccessLine(id, "", "", error.status, 0.0, outcome=outcome, detail=error.log_text())
            services.access_log.write(line)
        return {**fixed_headers(id), "Content-Type": JSON, **error.headers()}, error.body()
