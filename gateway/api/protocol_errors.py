"""Answers requests that reach no handler: heads that are malformed, too large or too slow.

`HTTPServer(app, limits, on_protocol_error=ProtocolErrors(gateway))` gives them a request id and the fixed headers, and
writes them to the metrics, as endpoint "other", and to the access log. Later errors, for example in a body, go through
`BaseHandler.on_transport_error`, because a handler then knows the caller.
"""

from __future__ import annotations

from gateway.errors import GatewayError
from gateway.http_server.reply import JSON, fixed_headers
from gateway.ids import request_id
from gateway.inference.services import Services
from gateway.log import AccessLine


class ProtocolErrors:
    """Makes the error answers of one worker."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, error: GatewayError) -> tuple[dict[str, str], bytes]:
        """Headers and body of the answer to a request that could not be parsed."""
        id, services, outcome = request_id(), self._services, error.code or "error"
        services.metrics.refused("other", "unknown", outcome, 0.0)
        if services.access_log.enabled:
            # The line has no method and no path, because the request could not be parsed.
            line = AccessLine(id, "", "", error.status, 0.0, outcome=outcome, detail=error.log_text())
            services.access_log.write(line)
        return {**fixed_headers(id), "Content-Type": JSON, **error.headers()}, error.body()
