"""The answer to an exception of the application."""

from __future__ import annotations

import logging

from tornado.httputil import HTTPInputError

from gateway.errors import BadRequest, GatewayError, InternalError

log = logging.getLogger(__name__)


def handler_error(error: BaseException) -> GatewayError:
    """A GatewayError unchanged, 400 for Tornado's HTTPInputError; 500 for all others, which are logged."""
    if isinstance(error, GatewayError):
        return error
    if isinstance(error, HTTPInputError):
        return BadRequest("The request is not valid HTTP", detail=str(error))
    log.error("Uncaught exception in a request handler", exc_info=error)
    return InternalError()
