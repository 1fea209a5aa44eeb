"""Every public path and who answers it, on one page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tornado.web import Application

from gateway.handlers.base import GreetingHandler, UnknownKeyedPathHandler, UnknownPathHandler, build_application
from gateway.handlers.chat import ChatHandler
from gateway.handlers.models import ModelHandler, ModelsHandler

if TYPE_CHECKING:
    from gateway.server import Gateway

ROUTES = [
    (r"/v1/chat/completions/?", ChatHandler),
    (r"/v1/models/?", ModelsHandler),
    (r"/v1/models/(.+?)/?", ModelHandler),
    (r"/v1(?:/.*)?", UnknownKeyedPathHandler),
    (r"/", GreetingHandler),
]


def application(gateway: Gateway) -> Application:
    """The application that serves `gateway`."""
    return build_application(ROUTES, UnknownPathHandler, gateway=gateway)
