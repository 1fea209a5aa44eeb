"""One WebSocket of `GET /v1/realtime`: events in both directions, between a client and the session of a provider.

A task reads the upstream, event by event, and sends each to the client before it reads the next one. The events of the
client wait in a queue; while it is full, the client is not read. What the events cost is in `realtime_calls`. Sharp
edge: the task of the upstream is the task of every call of the session, so a call that is cut ends the socket.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from tornado.iostream import StreamClosedError

from gateway.api.endpoints.realtime import RealtimeEndpoint, error_event
from gateway.api.handler import KeyedHandler
from gateway.api.json_body import SMALL_BODY
from gateway.api.request_log import log_request
from gateway.api.sockets.realtime_calls import Origin, RealtimeCalls
from gateway.encoders.realtime import Conversation, units_of
from gateway.errors import (
    BadRequest,
    Draining,
    GatewayError,
    InternalError,
    QuotaExhausted,
    TooManyRequests,
    UpstreamError,
    UpstreamTimeout,
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
from gateway.schemas.large_json import LARGE
from gateway.schemas.realtime import server_events
from gateway.schemas.realtime.client_events import CREATE, ClientEvent, event_id_of, read_client_event
from gateway.uploads.budget import Share

QUEUED: Final = 256 * 1024  # bytes of events of a client that wait
MAX_ASKED: Final = 4  # responses of a session that a client may ask for at a time
SEND_WITHIN: Final = 30.0  # seconds in which the upstream takes an event
NORMAL, GOING_AWAY, POLICY, FAILED, TRY_AGAIN = 1000, 1001, 1008, 1011, 1013


class Waiting(NamedTuple):
    """An event of the client, and its share of the memory for bodies if it is large."""

    text: bytes
    share: Share | None


def close_code(error: GatewayError) -> int:
    """The code with which an error closes a socket (docs/api.md, "Realtime")."""
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
        self.busy = self.client_gone = False
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
        self._queue: deque[Waiting] = deque()
        self._queued = 0  # bytes
        self._growth: Share | None = None  # for a message that is not complete
        self._awaited = 0  # responses that the client has asked for and that have not begun
        self._taken = 0  # events of the upstream
        self._failure: GatewayError | None = None  # of the writer, between two calls
        self._reader: asyncio.Task[None] | None = None  # of the upstream
        self._writer: asyncio.Task[None] | None = None  # to the upstream, while events wait

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
        return self.reply.headers.get("x-request-id", "") if self.asked is None else self.asked.request_id

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
        self._queue.append(Waiting(text, share))
        self._queued += len(text)
        if self._queued > QUEUED:
            socket.hold(True)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    def on_close(self) -> None:
        """The client has left, or the socket has reached one of its limits."""
        socket, self._socket = self._socket, None
        if socket is None:
            return  # the end of the session has closed it
        self._code = socket.close_code
        self.client_gone = True
        self._left.set()
        if self._writer is not None:
            self._writer.cancel()
        call = self._calls.call
        if call is not None and call.running:
            call.client_gone = self._calls.running > 0
            call.detached = True
            call.stop()
        # Without a call the next one is being held; that must not be cancelled, or its hold might be lost.

    # From the client to the upstream --------------------------------------------------------------------------------

    async def _write(self) -> None:
        """Pass on the events that wait."""
        try:
            while self._queue:
                await self._calls.opened.wait()
                event = self._queue.popleft()
                try:
                    await self._pass_on(event.text)
                finally:
                    self._queued -= len(event.text)
                    if event.share is not None:
                        event.share.close()
                if self._queued <= QUEUED and self._socket is not None:
                    self._socket.hold(False)
        except StreamClosedError:
            pass  # the client has left
        except GatewayError as error:
            self._cut(error)
        except Exception as error:
            # The socket's edge for the other direction: after a bug the session ends, and is settled.
            gateway_log.error("%s failed in a realtime session", self.request_id, exc_info=error)
            self._cut(InternalError())
        finally:
            self._writer = None

    async def _pass_on(self, text: bytes) -> None:
        try:
            if len(text) > LARGE:
                async with self.services.paced_steps.turn(self.key.account, self):
                    event = self._read(text)
            else:
                event = self._read(text)
        except BadRequest as error:
            await self._send(error_event(error, event_id_of(text)))
            return
        await self._calls.cover(event)
        if event.type == CREATE:
            self._awaited += 1
            self.busy = True
        try:
            async with asyncio.timeout(SEND_WITHIN):
                await self._session.send(event.body)
        except TimeoutError:
            raise UpstreamTimeout(detail=f"the upstream read nothing for {SEND_WITHIN:g} s") from None
        except GatewayError:
            raise
        except BaseException as error:
            # A third-party provider may raise anything.
            raise self.services.dispatcher.contain(self._candidate, error) from error

    def _read(self, text: bytes) -> ClientEvent:
        event = read_client_event(text, names=self._names, upstream=self._candidate.target.model)
        if event.type == CREATE and self._awaited + self._calls.running >= MAX_ASKED:
            raise BadRequest("Too many responses are in progress", code="too_many_responses")
        return event

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
                await self._take(await self._receive(), task)
        except asyncio.CancelledError:
            current = self._calls.call
            if not (self.client_gone or self._ended or (current is not None and current.stopped)):
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
            self._awaited, self.busy = max(0, self._awaited - 1), True
            await calls.response_begins(server_events.response_of(event).id)
        elif kind == server_events.DONE:
            ended = calls.response_ends(server_events.response_of(event))
        elif kind == server_events.TRANSCRIBED:
            calls.transcribed(server_events.transcribed_of(event))
        elif kind == server_events.ERROR:
            self._awaited = max(0, self._awaited - 1)
            self.busy = bool(calls.running or self._awaited)
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
        self.busy = self._awaited > 0
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
        """End the session from the writer."""
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
        if self._writer is not None:
            self._writer.cancel()
        for event in self._queue:
            if event.share is not None:
                event.share.close()
        self._queue.clear()
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
