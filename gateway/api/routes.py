"""Every public path and who answers it, on one page; and the way from a connection's request to its handler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tornado.httputil import HTTPMessageDelegate, HTTPServerConnectionDelegate

from gateway.api.endpoints.account import BalanceHandler, ReceiptHandler
from gateway.api.endpoints.chat import ChatHandler
from gateway.api.endpoints.embeddings import EmbeddingsHandler
from gateway.api.endpoints.images import ImagesHandler
from gateway.api.endpoints.models import ModelHandler, ModelsHandler
from gateway.api.endpoints.speech import SpeechHandler
from gateway.api.endpoints.transcriptions import TranscriptionsHandler
from gateway.api.handler import BaseHandler, GreetingHandler, UnknownKeyedPathHandler, UnknownPathHandler

if TYPE_CHECKING:
    from gateway.http_server.exchange import Exchange
    from gateway.runtime.gateway import Gateway

#: Whole paths. A trailing slash makes no difference.
PATHS: Mapping[str, type[BaseHandler]] = {
    "/v1/chat/completions": ChatHandler,
    "/v1/embeddings": EmbeddingsHandler,
    "/v1/images/generations": ImagesHandler,
    "/v1/audio/speech": SpeechHandler,
    "/v1/audio/transcriptions": TranscriptionsHandler,
    "/v1/models": ModelsHandler,
    "/v1/balance": BalanceHandler,
    "/": GreetingHandler,
}

#: Beginnings of paths, longest first; the handler gets the rest as its argument.
PREFIXES: Mapping[str, type[BaseHandler]] = {
    "/v1/models/": ModelHandler,
    "/v1/usage/": ReceiptHandler,
}


def find_handler(path: str) -> tuple[type[BaseHandler], str]:
    """Who answers `path`, and with which argument."""
    handler = PATHS.get(path)
    if handler is not None:
        return handler, ""
    plain = path.rstrip("/") or "/"
    if plain != path and (handler := PATHS.get(plain)) is not None:
        return handler, ""
    for prefix, kind in PREFIXES.items():
        if plain.startswith(prefix):
            return kind, unquote(plain[len(prefix) :])
    return (UnknownKeyedPathHandler if plain == "/v1" or plain.startswith("/v1/") else UnknownPathHandler), ""


class Application(HTTPServerConnectionDelegate):
    """What an HTTPServer serves: a handler per request. Finding it takes 0.1 µs."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    def start_request(  # type: ignore[override]  # narrower than Tornado's: our own transport calls it
        self, server_conn: object, exchange: Exchange
    ) -> HTTPMessageDelegate:
        """The handler that the path names; the head was read by now, unlike under Tornado's own server."""
        path = exchange.head.start_line.path
        if "?" in path:
            path = path.partition("?")[0]
        kind, argument = find_handler(path)
        return kind(self.gateway, exchange, path=path, argument=argument)

    def on_close(self, server_conn: object) -> None:
        """Handlers learn of it through their exchange."""
