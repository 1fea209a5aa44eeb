"""One WebSocket of `GET /v1/realtime`: events in both directions, between a client and the session of a provider.

A task reads the upstream, event by event, and sends each to the client before it reads the next one. The events of the
client are in `realtime_input`, and what all of them cost is in `realtime_calls`. Sharp edge: the task of the upstream
is the task of every call of the session, so a call that is cut ends the socket.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tornado.iostream import StreamClosedError

from gateway.api.endpoints.realtime import RealtimeEndpoint, error_event
from gateway.api.handler import KeyedHandler
from gateway.api.json_body import SMALL_BODY
from gateway.api.request_log import log_request
from gateway.api.sockets.realtime_calls import Origin, RealtimeCalls
from gateway.api.sockets.realtime_input import ClientInput
from gateway.encoders.realtime import Conversation, units_of
from gateway.errors import (
    Draining,
    GatewayError,
    InternalError,
    QuotaExhausted,
    TooManyRequests,
    UpstreamError,
)
from gateway.errors.facts import NO_FACTS, RefusalFacts
from gateway.http_server.client_address import MAX_READ
from gateway.http_server.reply import ResponseWriter
from gateway.http_server.websocket import ABNORMAL, WebSocket
from gateway.inference.call import Call
from gateway.inference.call_end import fail
from gateway.inference.call_stages import CallRequest
from gateway.log import gateway_log
from gateway.plugins.isolation import TURN, yield_to_loop
from gateway.plugins.realtime_session import RealtimeSession
from gateway.routing.router import Candidate
from gateway.schemas.realtime import server_events
from gateway.uploads.budget import Share

NORMAL, GOING_AWAY, POLICY, FAILED, TRY_AGAIN = 1000, 1001, 1008, 1011, 1013


def close_code(error: GatewayError) -> int:
    """The code with which an error closes a socket (docs/api.md, "GET /v1/realtime")."""
    if isinstance(error, UpstreamError):
        return FAILED
    if isinstance(error, Draining):
        return GOING_AWAY
    if isinstance(error, QuotaExhausted):
        return POLICY
    if isinstance(error, TooManyRequests) or error.status == 503:
        return TRY_AGAIN
    return POLICY if error.status < 500 else FAILED


class RealtimeSocket:
    """The user of one WebSocket, and the caller of its calls; `on_closed` is called once, with the code of the end."""

    method = "GET"
    endpoint_name = RealtimeEndpoint.name

    def __init__(
        self,
        handler: KeyedHandler,
        endpoint: RealtimeEndpoint,
        origin: Origin,
        candidate: Candidate,
        session: RealtimeSession,
        *,
        names: tuple[str, ...],
        on_closed: Callable[[int], None],
    ) -> None:
        # Of the access line, as a handler has it.
        self.services, self.exchange, self.headers = handler.services, handler.exchange, handler.headers
        self.metadata, self.path, self.key = handler.metadata, handler.path, origin.key
        self.outcome, self.detail, self.facts = "ok", "", NO_FACTS
        self._address = handler.client_address()
        self._candidate = candidate
        self._session = session
        self._names = names  # of the model, the first one is public
        self._on_closed = on_closed
        self._conversation = Conversation(candidate.model)
        self._calls = RealtimeCalls(
            handler.services, endpoint, origin, candidate, self._conversation, caller=self, send_error=self._tell
        )
        self._socket: WebSocket | None = None
        self._code = ABNORMAL
        self._left = asyncio.Event()  # the socket is closed
        self._ended = False
        self._input = ClientInput(
            handler.services, origin.key, candidate, session, self._calls, names=names, answer=self._send, cut=self._cut
        )
        self._growth: Share | None = None  # for a message that is not complete
        self._taken = 0  # events of the upstream
        self._failure: GatewayError | None = None  # of the input, between two calls
        self._reader: asyncio.Task[None] | None = None  # of the upstream

    def begin(self, socket: WebSocket, asked: CallRequest, call: Call) -> None:
        """The socket is open, and its first call is held."""
        self._socket = socket
        self._candidate.circuit.enter(time.monotonic())
        self._reader = asyncio.get_running_loop().create_task(self._run(asked, call))

    # The call's side ------------------------------------------------------------------------------------------------

    @property
    def asked(self) -> CallRequest | None:
        """The request of the last call."""
        return self._calls.asked

    @property
    def request_id(self) -> str:
        """The id of the last call."""
        return self._calls.request_id

    @property
    def reply(self) -> ResponseWriter:
        """The answer of the last call, which is sent nowhere."""
        assert self.asked is not None, "a session begins with a call"
        return self.asked.reply

    def client_address(self) -> str:
        return self._address

    def call_ended(self) -> None:
        """A call was settled without its task."""
        self._end(None)

    @property
    def busy(self) -> bool:
        """Whether a response runs, or is awaited."""
        return self._calls.running > 0 or self._input.awaited > 0

    # The socket's side ----------------------------------------------------------------------------------------------

    def on_growth(self, size: int) -> None:
        """Count a message that is not complete like a body in pieces."""
        if size > SMALL_BODY:
            if self._growth is None:
                self._growth = self.services.bodies.memory.share(self.key.account)
            self._growth.take(size - self._growth.size)

    def on_message(self, text: bytes) -> None:
        """Queue an event of the client."""
        socket = self._socket
        if socket is not None and not self.busy:
            socket.answered()  # closes it if the gateway stops
        if socket is None or not socket.is_open:
            return
        share, self._growth = self._growth, None
        self._input.put(text, share, socket)

    def on_close(self) -> None:
        """The client has left, or the socket has reached one of its limits."""
        socket, self._socket = self._socket, None
        if socket is None:
            return  # the end of the session has closed it
        self._code = socket.close_code
        self._left.set()
        self._input.close()
        call = self._calls.call
        if call is not None and call.running:
            call.client_gone = self._calls.running > 0
            call.detached = True
            call.stop()
        # Without a call the next one is being held; that must not be cancelled, or its hold might be lost.

    # From the upstream to the client --------------------------------------------------------------------------------

    async def _run(self, asked: CallRequest, call: Call) -> None:
        """Read the upstream until the session ends."""
        error: GatewayError | None = None
        task = asyncio.current_task()
        assert task is not None
        try:
            self._calls.begin(asked, call, task)
            if self._socket is None:
                return
            while True:
                event = await self._receive()
                if self._ended:
                    return  # a call was ended without this task, which its provider has kept
                await self._take(event, task)
        except asyncio.CancelledError:
            current = self._calls.call
            if not (self._left.is_set() or self._ended or (current is not None and current.stopped)):
                raise
        except StreamClosedError:
            pass  # the client has left
        except GatewayError as failure:
            error = failure
        except Exception as failure:
            # The socket's edge: after a bug the session ends, and is settled.
            gateway_log.error("%s failed in a realtime session", self.request_id, exc_info=failure)
            error = InternalError()
        finally:
            self._reader = None
            self._end(error)
            del error, task

    async def _receive(self) -> bytes:
        try:
            event = await self._session.receive()
            if not isinstance(event, bytes):
                raise TypeError(f"an event is bytes, not a {type(event).__name__}")
        except GatewayError:
            raise
        except BaseException as error:
            # A third-party provider may raise anything.
            raise self.services.dispatcher.contain(self._candidate, error) from error
        self._taken += 1
        if not self._taken % TURN:
            await yield_to_loop()
        return event

    async def _take(self, event: bytes, task: asyncio.Task[None]) -> None:
        """Count an event of the upstream, and send it on."""
        found, calls = server_events.read_server_event(event), self._calls
        kind, ended = found.type, False
        if kind in server_events.AUDIO:
            milliseconds = server_events.delta_bytes(found.delta) / self._conversation.formats.output
            await calls.delivered(_id(found), audio_ms=milliseconds)
        elif kind in server_events.TEXT:
            await calls.delivered(_id(found), units=units_of(found.delta))
        elif kind == server_events.CREATED:
            self._input.begun()
            await calls.response_begins(server_events.response_of(event).id)
        elif kind == server_events.DONE:
            ended = calls.response_ends(server_events.response_of(event))
        elif kind == server_events.TRANSCRIBED:
            calls.transcribed(server_events.transcribed_of(event))
        elif kind == server_events.ERROR:
            self._input.begun()  # the answer to a response that was asked for, perhaps
            event = server_events.cleaned_error(event, self._candidate.provider.secret_texts)
        elif kind in server_events.SESSION:
            self._conversation.formats = server_events.formats_of(event) or self._conversation.formats
        if kind in server_events.NAMES_MODEL:
            event = server_events.with_model(event, server_events.NAMES_MODEL[kind], self._names[0])
        if ended:
            self._log(calls.settle())
        await self._sent(event)
        if ended:
            await self._next(task)

    async def _next(self, task: asyncio.Task[None]) -> None:
        """Hold the next call."""
        if self._socket is not None and not self.busy:
            self._socket.answered()  # closes it if the gateway stops
        if self._socket is None:
            raise StreamClosedError
        await self._calls.next(task, wait=self._wait)
        if self._socket is None:
            raise StreamClosedError
        if self._failure is not None:
            raise self._failure

    async def _wait(self, error: GatewayError, seconds: float) -> None:
        """Wait for a rate limit, and tell the client; StreamClosedError if it leaves meanwhile."""
        await self._send(error_event(error))
        try:
            async with asyncio.timeout(seconds):
                await self._left.wait()
        except TimeoutError:
            return
        raise StreamClosedError

    async def _sent(self, event: bytes) -> None:
        """Send an event of the upstream; while the client reads slowly, the upstream is not read, nor timed."""
        call, sent = self._calls.call, self._send(event)
        if not sent.done():
            if call is not None:
                call.asked_at = 0.0
            await sent
        if call is not None:
            call.asked_at = time.monotonic() if self._calls.running else 0.0

    def _send(self, event: bytes) -> asyncio.Future[None]:
        if self._socket is None:
            raise StreamClosedError
        return self._socket.send(event)

    def _tell(self, event: bytes) -> None:
        """Send an event if the socket is open."""
        if self._socket is not None:
            self._socket.send(event)

    # The end --------------------------------------------------------------------------------------------------------

    def _cut(self, error: GatewayError) -> None:
        """End the session for an error of its input."""
        if isinstance(error, UpstreamError):
            self.services.dispatcher.failed(self._candidate, error)
        call = self._calls.call
        if call is not None:
            call.cut(error)
        else:
            self._failure = error

    def _end(self, error: GatewayError | None) -> None:
        """Settle the open call, and close both sides; once."""
        if self._ended:
            return
        self._ended = True
        call, is_running = self._calls.call, self._calls.running > 0
        if call is not None and call.cut_by is not None:
            error = call.cut_by
        elif isinstance(error, UpstreamError) and is_running:
            self.services.dispatcher.failed(self._candidate, error)
        if call is None:
            if error is not None:
                self._refused(error)
        else:
            if error is not None and (is_running or not isinstance(error, UpstreamError)):
                fail(call, error, self.services)
            elif error is not None:
                self._tell(error_event(error))  # an upstream that ends a silent session has not failed a call
            self._log(self._calls.settle())
        socket, self._socket = self._socket, None
        if socket is not None:
            code, reason = (NORMAL, "") if error is None else (close_code(error), error.message)
            socket.close(code, reason)
            self._code = socket.close_code
        self._release()
        self._on_closed(self._code)

    def _release(self) -> None:
        """Close the upstream, and give back what the session had."""
        self._input.close()
        if self._growth is not None:
            self._growth.close()
        self._left.set()
        self._calls.release()
        self._candidate.circuit.leave()
        try:
            self._session.close()
        except BaseException as error:
            # Third-party clean-up must not keep the hold, nor the count of the socket.
            self.services.dispatcher.contain(self._candidate, error)

    def _refused(self, error: GatewayError) -> None:
        """The next call was refused: tell the client, and log it."""
        self.outcome, self.detail, self.facts = error.code or "error", error.log_text(), RefusalFacts.of(error)
        self._tell(error_event(error))
        if self.asked is not None and self.asked.call is None:
            self.reply.status = error.status
            log_request(self)

    def _log(self, call: Call | None) -> None:
        """Write the access line of a settled call."""
        if call is None or call.record is None:
            return
        self.outcome, self.detail = call.outcome, call.detail
        log_request(self)
        addresses, context = self.services.caller_addresses, self.exchange.context
        if addresses.keeps:
            trusted = self.services.settings.server.trusted_proxies
            forwarded = (self.headers.get("X-Forwarded-For") or "")[-MAX_READ:] if trusted else ""
            addresses.note((call.record.key, call.record.request_id, context.remote_ip, forwarded, trusted))
        asked = self.asked
        assert asked is not None
        # The task, the socket and the sink refer to the call.
        asked.task = asked.caller = call.task = call.caller = call.sink = None


def _id(event: server_events.ServerEvent) -> str:
    return event.response_id if isinstance(event.response_id, str) else ""
