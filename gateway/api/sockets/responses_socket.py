"""One WebSocket of `GET /v1/responses`: takes one request after the other, and keeps what the next one may refer to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tornado.httputil import RequestStartLine

from gateway.api.inference_handler import InferenceHandler
from gateway.api.json_body import SMALL_BODY, JsonBody
from gateway.api.request_metadata import RequestMetadata
from gateway.api.sockets.conversation import Conversation, Event, answer_of
from gateway.api.sockets.exchange import SocketExchange, error_event
from gateway.errors import BadRequest, GatewayError, InternalError
from gateway.http_server.head import RequestHead, RequestHeaders
from gateway.http_server.websocket import ABNORMAL, WebSocket
from gateway.inference.services import Services
from gateway.log import gateway_log
from gateway.schemas.large_json import LARGE, Examination
from gateway.uploads.budget import Share

KEPT_AFTER = frozenset({"response.completed", "response.incomplete"})
POLICY_VIOLATION = 1008
UNAUTHORIZED = 401

#: Makes the handler of one request, with the exchange of its answer; the last argument: it only prepares.
MakeRequest = Callable[[SocketExchange, JsonBody, bool], InferenceHandler]


class ResponsesSocket:
    """The user of one WebSocket; `on_closed` is called once at its end, with its code."""

    def __init__(
        self,
        services: Services,
        headers: RequestHeaders,
        *,
        account: str,
        path: str,
        make_request: MakeRequest,
        conversation: Conversation,
        on_closed: Callable[[int], None],
    ) -> None:
        self.busy = self.client_gone = False
        self._services = services
        self._headers = headers  # of the handshake, with metadata that hold for each request
        self._account = account
        self._start_line = RequestStartLine("POST", path, "HTTP/1.1")
        self._make_request = make_request
        self._conversation = conversation
        self._on_closed = on_closed
        self._growth: Share | None = None  # of the memory for bodies, for a message that is not complete
        self._socket: WebSocket | None = None
        self._exchange: SocketExchange | None = None  # of the request that is answered
        self._event: Event | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, socket: WebSocket) -> None:
        """The socket is open."""
        self._socket = socket

    # The socket's side ----------------------------------------------------------------------------------------------

    def on_growth(self, size: int) -> None:
        """Count a message that is not complete like a body in pieces."""
        if size > SMALL_BODY:
            if self._growth is None:
                self._growth = self._services.bodies.memory.share(self._account)
            self._growth.take(size - self._growth.size)

    def on_message(self, text: bytes) -> None:
        """Answer a request, if none is answered."""
        self._end_growth()
        assert self._socket is not None
        if self.busy:
            error = BadRequest("Another response is in progress on this connection", code="response_in_progress")
            self._socket.send(error_event(error.status, error.body(), {}))
            return
        self.busy = True
        self._task = asyncio.get_running_loop().create_task(self._answer(text))

    def on_close(self) -> None:
        """The client has left, or the gateway has closed: a running call ends as one of HTTP."""
        code = ABNORMAL if self._socket is None else self._socket.close_code
        self.client_gone, self._socket = True, None
        self._end_growth()
        if self._task is not None:
            self._services.paced_steps.leave(self._task)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_left()
        self._conversation.close()
        self._on_closed(code)

    def _end_growth(self) -> None:
        growth, self._growth = self._growth, None
        if growth is not None:
            growth.close()

    # One request ----------------------------------------------------------------------------------------------------

    async def _answer(self, text: bytes) -> None:
        error: Exception | None = None
        try:
            self._event = await self._read(text)
        except asyncio.CancelledError:
            if not self.client_gone:
                raise
            return
        except GatewayError as refused:
            error = refused
        except Exception as fault:
            # The socket's edge, like the handler's: every exception becomes an answer.
            gateway_log.error("a message on a WebSocket failed", exc_info=fault)
            error = InternalError()
        if self._socket is None:
            return
        event = self._event or Event(b"", True, b"")
        request = self._next_request(event)
        if error is None:
            await self._serve(request, event.body)
        else:
            request.method, request.headers, request.metadata = "POST", self._headers, self._metadata()
            request.send_error(error)
        self._task = None

    async def _serve(self, request: InferenceHandler, body: bytes) -> None:
        """What the transport does with a request of HTTP; the rest is done in the task of the handler."""
        pending = request.headers_received(self._start_line, self._headers)
        if pending is not None:
            await pending
        try:
            for part in (body[:SMALL_BODY], body[SMALL_BODY:]):
                if part and not request.reply.status:
                    request.data_received(part)
        except Exception as error:
            # The handler's edge, which is in the transport for a request of HTTP.
            request.send_error(error)
        request.finish()

    async def _read(self, text: bytes) -> Event:
        """The request in a message; a large one is examined first, in turns of the loop."""
        if len(text) <= LARGE:
            return self._conversation.event(text)
        paced, examination = self._services.paced_steps, Examination(text)
        await paced.run(self._account, self, examination.steps())
        async with paced.turn(self._account, self):
            return self._conversation.event(examination.result.content)

    def _next_request(self, event: Event) -> InferenceHandler:
        assert self._socket is not None
        head = RequestHead(self._start_line, self._headers, len(event.body), False, True, False)
        exchange = self._exchange = SocketExchange(
            self._socket, head, asyncio.get_running_loop(), on_last=self._note_last, on_end=self._request_ended
        )
        limits = self._services.settings.server.limits
        body = JsonBody(limits.max_json_body, self._services.bodies)
        return self._make_request(exchange, body, not event.generate)

    def _metadata(self) -> RequestMetadata:
        metadata = self._headers.application_data
        assert isinstance(metadata, RequestMetadata)
        return metadata

    def _note_last(self, name: str, data: bytes) -> None:
        """Keep what the next request may refer to. After a failure, what was kept before stays."""
        event, self._event = self._event, None
        if event is not None and name in KEPT_AFTER:
            response, output = answer_of(data)
            if response:
                self._conversation.keep(event.items, response, output)

    def _request_ended(self) -> None:
        exchange, self._exchange = self._exchange, None
        self._event, self.busy = None, False
        socket = self._socket
        if socket is None or exchange is None:
            return
        if exchange.status == UNAUTHORIZED:  # the key was revoked or has expired: no later request can succeed
            socket.close(POLICY_VIOLATION, "the API key is not valid")
        else:
            socket.answered()
