"""What answers of the console process have in common: headers for private content, and an id for the log."""

from __future__ import annotations

from collections.abc import Mapping

from tornado.httputil import HTTPServerRequest
from tornado.web import RequestHandler

from gateway.ids import request_id

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
#: Nothing is cached, shown in a frame of another site, or interpreted as another type.
PRIVATE: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def set_headers(handler: RequestHandler, headers: Mapping[str, str]) -> str:
    """Give the answer a new request id, which is returned, the headers of `PRIVATE`, and `headers`."""
    handler.clear_header("Server")
    id_ = request_id()
    handler.set_header("x-request-id", id_)
    for name, value in (*PRIVATE.items(), *headers.items()):
        handler.set_header(name, value)
    return id_


def body_length(request: HTTPServerRequest) -> int:
    """Bytes of the body as its Content-Length says; 0 without a valid one."""
    text = request.headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() else 0
