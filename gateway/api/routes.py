"""Every public path with its handler, and the application that makes a handler per request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from msgspec import Struct
from tornado.httputil import HTTPMessageDelegate, HTTPServerConnectionDelegate

from gateway.api.endpoints.account import BalanceHandler, ReceiptHandler
from gateway.api.endpoints.chat import ChatEndpoint
from gateway.api.endpoints.embeddings import EmbeddingsEndpoint
from gateway.api.endpoints.images import ImagesEndpoint
from gateway.api.endpoints.models import ModelHandler, ModelsHandler
from gateway.api.endpoints.speech import SpeechEndpoint
from gateway.api.endpoints.transcriptions import LARGE_FIELDS, TranscriptionsEndpoint
from gateway.api.endpoints.usage import UsageHandler
from gateway.api.handler import BaseHandler, GreetingHandler, UnknownKeyedPathHandler, UnknownPathHandler
from gateway.api.inference_handler import InferenceHandler
from gateway.api.json_body import JsonBody
from gateway.api.multipart_body import MultipartBody
from gateway.http_server.exchange import Exchange
from gateway.inference.endpoint import Endpoint
from gateway.inference.pipeline import Pipeline
from gateway.inference.services import Services


class Route(Struct, frozen=True):
    """A handler, and its endpoint if it is an inference handler."""

    handler: type[BaseHandler]
    endpoint: Endpoint[Any] | None = None
    form: bool = False  # the body is a multipart form with a file

    @property
    def name(self) -> str:
        """The endpoint's name in metrics."""
        return self.endpoint.name if self.endpoint is not None else self.handler.endpoint_name


#: Whole paths. A trailing slash makes no difference.
PATHS: Mapping[str, Route] = {
    "/v1/chat/completions": Route(InferenceHandler, ChatEndpoint()),
    "/v1/embeddings": Route(InferenceHandler, EmbeddingsEndpoint()),
    "/v1/images/generations": Route(InferenceHandler, ImagesEndpoint()),
    "/v1/audio/speech": Route(InferenceHandler, SpeechEndpoint()),
    "/v1/audio/transcriptions": Route(InferenceHandler, TranscriptionsEndpoint(), form=True),
    "/v1/models": Route(ModelsHandler),
    "/v1/balance": Route(BalanceHandler),
    "/v1/usage": Route(UsageHandler),
    "/": Route(GreetingHandler),
}

#: Path prefixes, longest first; the handler gets the rest as its argument.
PREFIXES: Mapping[str, Route] = {
    "/v1/models/": Route(ModelHandler),
    "/v1/usage/": Route(ReceiptHandler),
}

UNKNOWN, UNKNOWN_KEYED = Route(UnknownPathHandler), Route(UnknownKeyedPathHandler)


def find_route(path: str) -> tuple[Route, str]:
    """The route of `path`, and the argument of its handler."""
    route = PATHS.get(path)
    if route is not None:
        return route, ""
    plain = path.rstrip("/") or "/"
    if plain != path and (route := PATHS.get(plain)) is not None:
        return route, ""
    for prefix, route in PREFIXES.items():
        if plain.startswith(prefix):
            return route, unquote(plain[len(prefix) :])
    return (UNKNOWN_KEYED if plain == "/v1" or plain.startswith("/v1/") else UNKNOWN), ""


def endpoint_named(name: str) -> Endpoint[Any]:
    """The endpoint of that name in metrics and in a model's `endpoints`; KeyError when there is none."""
    endpoints = (route.endpoint for route in PATHS.values())
    return {endpoint.name: endpoint for endpoint in endpoints if endpoint is not None}[name]


class Application(HTTPServerConnectionDelegate):
    """The application of an HTTPServer: makes a handler per request. The lookup takes 0.1 µs."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._pipeline = Pipeline(services)

    def start_request(  # type: ignore[override]  # narrower than Tornado's: our own transport calls it
        self, server_conn: object, exchange: Exchange
    ) -> HTTPMessageDelegate:
        """The handler of the path. Unlike under Tornado's own server, the head was already read."""
        path = exchange.head.start_line.path
        if "?" in path:
            path = path.partition("?")[0]
        route, argument = find_route(path)
        endpoint = route.endpoint
        if endpoint is None:
            return route.handler(self.services, exchange, path=path, argument=argument)
        return InferenceHandler(
            self.services, exchange, path=path, pipeline=self._pipeline, endpoint=endpoint, body=self._body(route)
        )

    def _body(self, route: Route) -> JsonBody | MultipartBody:
        server = self.services.settings.server
        if route.form:
            return MultipartBody(self.services.bodies, max_bytes=server.max_audio_body, large_fields=LARGE_FIELDS)
        return JsonBody(server.max_json_body, self.services.bodies)

    def on_close(self, server_conn: object) -> None:
        """Do nothing: the exchange tells its handler."""
