"""Every public path with its handler, and the application that makes a handler per request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from msgspec import Struct
from tornado.httputil import HTTPMessageDelegate, HTTPServerConnectionDelegate

from gateway.api.endpoints.account import BalanceHandler, ReceiptHandler
from gateway.api.endpoints.chat import ChatEndpoint
from gateway.api.endpoints.completions import CompletionsEndpoint
from gateway.api.endpoints.embeddings import EmbeddingsEndpoint
from gateway.api.endpoints.gemini import GeminiEmbeddingsEndpoint, GeminiEndpoint, GeminiTokensEndpoint
from gateway.api.endpoints.image_edits import ImageEditsEndpoint
from gateway.api.endpoints.images import ImagesEndpoint
from gateway.api.endpoints.messages import CountTokensEndpoint, MessagesEndpoint
from gateway.api.endpoints.models import ModelHandler, ModelsHandler
from gateway.api.endpoints.moderations import ModerationsEndpoint
from gateway.api.endpoints.realtime import RealtimeEndpoint
from gateway.api.endpoints.rerank import RerankEndpoint
from gateway.api.endpoints.responses import (
    ResponsesEndpoint,
    ResponsesErrors,
    ResponsesTokensEndpoint,
    StoredResponseHandler,
)
from gateway.api.endpoints.speech import SpeechEndpoint
from gateway.api.endpoints.transcriptions import TranscriptionsEndpoint, TranslationsEndpoint
from gateway.api.endpoints.usage import UsageHandler
from gateway.api.files.batches import BatchesHandler, BatchHandler
from gateway.api.files.files import FilesHandler, StoredFileHandler
from gateway.api.handler import BaseHandler, GreetingHandler, UnknownKeyedPathHandler, UnknownPathHandler
from gateway.api.inference_handler import InferenceHandler
from gateway.api.json_body import JsonBody
from gateway.api.multipart_body import MultipartBody
from gateway.api.path_aliases import plain_path
from gateway.api.sockets.handshake import OpenSockets, ResponsesSocketHandler
from gateway.api.sockets.realtime_handshake import RealtimeHandler
from gateway.errors.error_form import ErrorForm
from gateway.errors.gemini_form import GEMINI_ERRORS
from gateway.errors.messages_form import MESSAGES_ERRORS
from gateway.http_server.exchange import Exchange
from gateway.http_server.websocket import is_handshake
from gateway.inference.endpoint import Endpoint
from gateway.inference.pipeline import Pipeline
from gateway.inference.services import Services
from gateway.uploads.form_kind import AUDIO_FORM, IMAGE_FORM, FormKind


class HandlerRoute(Struct, frozen=True):
    """A handler, and its endpoint if it is an inference handler."""

    handler: type[BaseHandler]
    endpoint: Endpoint[Any] | None = None
    form: bool = False  # the body is a multipart form with files
    form_kind: FormKind = AUDIO_FORM
    errors: ErrorForm | None = None  # None: OpenAI's
    methods: Mapping[str, HandlerRoute] = {}  # by what follows the last colon of the path
    has_socket: bool = False  # a GET may ask for a WebSocket

    @property
    def name(self) -> str:
        """The endpoint's name in metrics."""
        return self.endpoint.name if self.endpoint is not None else self.handler.endpoint_name


_RESPONSES, _RESPONSES_ERRORS = ResponsesEndpoint(), ResponsesErrors()
_REALTIME = RealtimeEndpoint()
_RERANK = RerankEndpoint()

#: Whole paths. A trailing slash makes no difference.
PATHS: Mapping[str, HandlerRoute] = {
    "/v1/chat/completions": HandlerRoute(InferenceHandler, ChatEndpoint()),
    "/v1/messages": HandlerRoute(InferenceHandler, MessagesEndpoint(), errors=MESSAGES_ERRORS),
    "/v1/responses": HandlerRoute(InferenceHandler, _RESPONSES, errors=_RESPONSES_ERRORS, has_socket=True),
    "/v1/responses/input_tokens": HandlerRoute(InferenceHandler, ResponsesTokensEndpoint(), errors=_RESPONSES_ERRORS),
    "/v1/responses/compact": HandlerRoute(InferenceHandler, ResponsesEndpoint(compacts=True), errors=_RESPONSES_ERRORS),
    "/v1/messages/count_tokens": HandlerRoute(InferenceHandler, CountTokensEndpoint(), errors=MESSAGES_ERRORS),
    "/v1/completions": HandlerRoute(InferenceHandler, CompletionsEndpoint()),
    "/v1/embeddings": HandlerRoute(InferenceHandler, EmbeddingsEndpoint()),
    "/v1/images/generations": HandlerRoute(InferenceHandler, ImagesEndpoint()),
    "/v1/images/edits": HandlerRoute(InferenceHandler, ImageEditsEndpoint(), form=True, form_kind=IMAGE_FORM),
    "/v1/images/variations": HandlerRoute(
        InferenceHandler, ImageEditsEndpoint(varies=True), form=True, form_kind=IMAGE_FORM
    ),
    "/v1/audio/speech": HandlerRoute(InferenceHandler, SpeechEndpoint()),
    "/v1/audio/transcriptions": HandlerRoute(InferenceHandler, TranscriptionsEndpoint(), form=True),
    "/v1/audio/translations": HandlerRoute(InferenceHandler, TranslationsEndpoint(), form=True),
    "/v1/moderations": HandlerRoute(InferenceHandler, ModerationsEndpoint()),
    "/v1/rerank": HandlerRoute(InferenceHandler, _RERANK),
    "/v2/rerank": HandlerRoute(InferenceHandler, _RERANK),  # Cohere's clients
    "/v1/realtime": HandlerRoute(RealtimeHandler, _REALTIME),
    "/v1/models": HandlerRoute(ModelsHandler),
    "/v1/balance": HandlerRoute(BalanceHandler),
    "/v1/usage": HandlerRoute(UsageHandler),
    "/v1/files": HandlerRoute(FilesHandler),
    "/v1/batches": HandlerRoute(BatchesHandler),
    "/v1beta/models": HandlerRoute(ModelsHandler, errors=GEMINI_ERRORS),
    "/": HandlerRoute(GreetingHandler),
}

#: What follows a deployment in Azure's paths: the endpoints of OpenAI's API that have a model in their body.
OPERATIONS = tuple(
    sorted(
        (
            path.removeprefix("/v1")
            for path, route in PATHS.items()
            if path.startswith("/v1/") and route.endpoint is not None and not route.errors
        ),
        key=len,
        reverse=True,
    )
)

#: Methods of a model in Google's API.
GEMINI_METHODS: Mapping[str, HandlerRoute] = {
    "generateContent": HandlerRoute(InferenceHandler, GeminiEndpoint(), errors=GEMINI_ERRORS),
    "streamGenerateContent": HandlerRoute(InferenceHandler, GeminiEndpoint(stream=True), errors=GEMINI_ERRORS),
    "countTokens": HandlerRoute(InferenceHandler, GeminiTokensEndpoint(), errors=GEMINI_ERRORS),
    "embedContent": HandlerRoute(InferenceHandler, GeminiEmbeddingsEndpoint(), errors=GEMINI_ERRORS),
    "batchEmbedContents": HandlerRoute(InferenceHandler, GeminiEmbeddingsEndpoint(batch=True), errors=GEMINI_ERRORS),
}

#: Path prefixes, longest first; the handler gets the rest as its argument.
PREFIXES: Mapping[str, HandlerRoute] = {
    "/v1/responses/": HandlerRoute(StoredResponseHandler),
    "/v1/models/": HandlerRoute(ModelHandler, methods=GEMINI_METHODS),  # newer clients of Google send no v1beta
    "/v1/usage/": HandlerRoute(ReceiptHandler),
    "/v1/files/": HandlerRoute(StoredFileHandler),
    "/v1/batches/": HandlerRoute(BatchHandler),
    "/v1/messages/": HandlerRoute(UnknownKeyedPathHandler, errors=MESSAGES_ERRORS),
    "/v1beta/models/": HandlerRoute(ModelHandler, errors=GEMINI_ERRORS, methods=GEMINI_METHODS),
    "/v1beta/": HandlerRoute(UnknownKeyedPathHandler, errors=GEMINI_ERRORS),
}

_SLASHES = re.compile("/{2,}")

UNKNOWN, UNKNOWN_KEYED = HandlerRoute(UnknownPathHandler), HandlerRoute(UnknownKeyedPathHandler)


def find_route(path: str) -> tuple[HandlerRoute, str]:
    """The route of `path`, and the argument of its handler."""
    route = PATHS.get(path)
    if route is not None:
        return route, ""
    if "//" in path:  # a base URL with a slash at its end, before a path with one at its beginning
        path = _SLASHES.sub("/", path)
        if (route := PATHS.get(path)) is not None:
            return route, ""
    plain = path.rstrip("/") or "/"
    if plain != path and (route := PATHS.get(plain)) is not None:
        return route, ""
    for prefix, route in PREFIXES.items():
        if plain.startswith(prefix):
            rest = unquote(plain[len(prefix) :])
            name, _, method = rest.rpartition(":")
            found = route.methods.get(method) if name else None
            return (route, rest) if found is None else (found, name)
    if plain == "/v1beta":
        return PREFIXES["/v1beta/"], ""
    return (UNKNOWN_KEYED if plain == "/v1" or plain.startswith("/v1/") else UNKNOWN), ""


def _is_route(path: str) -> bool:
    return find_route(path)[0] not in (UNKNOWN, UNKNOWN_KEYED)


def endpoint_named(name: str) -> Endpoint[Any]:
    """The endpoint of that name in metrics and in a model's `endpoints`; KeyError when there is none."""
    endpoints = (route.endpoint for route in (*PATHS.values(), *GEMINI_METHODS.values()))
    return {endpoint.name: endpoint for endpoint in endpoints if endpoint is not None}[name]


class Application(HTTPServerConnectionDelegate):
    """The application of an HTTPServer: makes a handler per request. The lookup takes 0.1 µs."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._pipeline = Pipeline(services)
        self._sockets = OpenSockets(services, self._pipeline, _RESPONSES, _RESPONSES_ERRORS)

    def start_request(  # type: ignore[override]  # narrower than Tornado's: our own transport calls it
        self, server_conn: object, exchange: Exchange
    ) -> HTTPMessageDelegate:
        """The handler of the path. Unlike under Tornado's own server, the head was already read."""
        path, query = exchange.head.start_line.path, ""
        if "?" in path:
            path, _, query = path.partition("?")
        model = ""
        if path.startswith("/v1"):
            route, argument = find_route(path)
        else:
            plain, model = plain_path(path, _is_route, OPERATIONS)
            route, argument = find_route(plain)
        endpoint = route.endpoint
        handler: BaseHandler
        if endpoint is None:
            handler = route.handler(self.services, exchange, path=path, argument=argument)
        elif route.has_socket and exchange.head.start_line.method == "GET" and is_handshake(exchange.head.headers):
            handler = ResponsesSocketHandler(self.services, exchange, path=path, sockets=self._sockets)
        elif route.handler is RealtimeHandler:
            handler = RealtimeHandler(
                self.services,
                exchange,
                path=path,
                query=query,
                model=model,
                endpoint=_REALTIME,
                sockets=self._sockets,
            )
        else:
            handler = InferenceHandler(
                self.services,
                exchange,
                path=path,
                pipeline=self._pipeline,
                endpoint=endpoint.for_path(argument, query) if argument else endpoint,
                body=self._body(route, model),
            )
        if route.errors is not None:
            handler.reply.error_form = route.errors
        return handler

    def _body(self, route: HandlerRoute, model: str) -> JsonBody | MultipartBody:
        limits = self.services.settings.server.limits
        if route.form:
            kind = route.form_kind
            return MultipartBody(self.services.bodies, kind=kind, max_bytes=getattr(limits, kind.limit), model=model)
        return JsonBody(limits.max_json_body, self.services.bodies, model)

    def on_close(self, server_conn: object) -> None:
        """Do nothing: the exchange tells its handler."""
