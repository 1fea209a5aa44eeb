"""The application's edge: the answer to its exceptions, and the end of its asynchronous steps."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from tornado.concurrent import Future
from tornado.httputil import HTTPInputError

from gateway.errors import BadRequest, GatewayError, InternalError

log = logging.getLogger(__name__)
E = TypeVar("E")


def handler_error(error: BaseException) -> GatewayError:
    """A GatewayError unchanged, 400 for Tornado's HTTPInputError; 500 for all others, which are logged."""
    if isinstance(error, GatewayError):
        return error
    if isinstance(error, HTTPInputError):
        return BadRequest("The request is not valid HTTP", detail=str(error))
    log.error("Uncaught exception in a request handler", exc_info=error)
    return InternalError()


def when_done(
    future: Future[None], exchange: E, then: Callable[[E], None], failed: Callable[[E, BaseException], None]
) -> None:
    """Call `then(exchange)` or `failed(exchange, error)` when the future is done, at once if it is."""

    def resume(future: Future[None]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is None:
            then(exchange)
        else:
            failed(exchange, error)

    if future.done():
        resume(future)
    else:
        future.add_done_callback(resume)
