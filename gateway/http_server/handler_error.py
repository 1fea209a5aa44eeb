"""The answer to an exception of the application."""

from __future__ import annotations

import logging

from tornado.httputil import HTTPInputError

from gateway.errors import BadRequest, GatewayError, InternalError

log = logging.getLogger(__name__)


def handler_error(error: BaseException) -> GatewayError:
    """The error itself if it has an answer; 400 for Tornado's HTTPInputError; else 500, and a line in the log."""
    if isinstance(error, GatewayError):
        return error
    if isinstance(error, HTTPInputError):
        return BadRequest("The request is not valid HTTP", detail=str(error))
    log.error("Uncaught exception in a request handler", exc_info=error)
    return InternalError()
