"""The calls of one realtime session, one after the other: each is held before a response may begin.

::

    hold ── input, a response ── settle ── hold ── input, a response ── settle …

The first call begins with the handshake. While a call is open, the client's events go to the upstream; input that makes
the next prompt more expensive extends its hold. A response of the upstream is paid by the call that is open when it
begins, whoever asked for it; the call ends when its last response has ended. Between two calls nothing goes to the
upstream. Sharp edge: the last call of a session has no response; it costs nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Struct, structs

from gateway.api.endpoints.realtime import RealtimeEndpoint
from gateway.encoders.realtime import Conversation, RealtimeMeter
from gateway.errors import Conflict, GatewayError, RequestRateLimited, StoreUnavailable, TokenRateLimited
from gateway.http_client.deadline_timer import NEVER
from gateway.http_client.forwarded_headers import ForwardedHeaders
from gateway.http_client.send_state import track
from gateway.http_server.exchange import Exchange
from gateway.http_server.reply import ResponseWriter
from gateway.inference.call import Call, Caller
from gateway.inference.call_end import settle
from gateway.inference.call_hold import check_permission, hold_cost
from gateway.inference.call_quote import quote_call, with_tags
from gateway.inference.call_stages import CallRequest
from gateway.inference.hold_extension import HoldExtension
from gateway.inference.services import Services
from gateway.inference.sinks import EventSink
from gateway.ledger.api_key import ApiKey
from gateway.ledger.inflight_checkpoint import Slot
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.schemas.realtime.client_events import CREATE, ClientEvent
from gateway.schemas.realtime.request import RealtimeRequest
from gateway.schemas.realtime.server_events import Response, Transcribed

LONGEST_WAIT: Final = 20.0  # seconds that a rate limit may keep a session waiting
UNCHECKED_TEXT: Final = 4096  # bytes of input after which the hold is compared with the next prompt
UNCHECKED_AUDIO: Final = 5000  # milliseconds


class ErrorSink(EventSink):
    """The sink of a call whose events go to a socket: it sends the error that ends the call."""

    __slots__ = ("_send",)

    def __init__(self, send: Callable[[bytes], object]) -> None:
        self._send = send
        self.committed = True
        self.sent = False

    def fail(self, frame: bytes) -> None:
        self._send(frame)

    def close(self) -> None:
        """Nothing is open."""


class Origin(Struct, frozen=True):
    """What every call of a session has from its handshake."""

    key: ApiKey
    exchange: Exchange
    path: str
    forwarded: ForwardedHeaders
    session: str  # as the header named it
    tags: str | None  # the text of their header
    model: str  # the name that the client asked for


class RealtimeCalls:
    """`begin` takes over the call of the handshake; then `call` is the open one, or None between two calls."""

    def __init__(
        self,
        services: Services,
        endpoint: RealtimeEndpoint,
        origin: Origin,
        candidate: Candidate,
        conversation: Conversation,
        *,
        caller: Caller,
        send_error: Callable[[bytes], object],
    ) -> None:
        self.call: Call | None = None
        self.asked: CallRequest | None = None
        self.opened = asyncio.Event()  # a call is open
        self._services = services
        self._endpoint = endpoint
        self._origin = origin
        self._candidate = candidate
        self._conversation = conversation
        self._caller = caller
        self._sink = ErrorSink(send_error)
        self._adapted: Sequence[Adapted[Any]] = ()
        self._limit: HoldExtension | None = None
        self._slot: Slot | None = None  # stores what was delivered, in case this worker is killed
        self._unchecked_text = self._unchecked_audio = 0

    @property
    def meter(self) -> RealtimeMeter:
        """The counter of the open call."""
        assert self.call is not None
        meter: RealtimeMeter = self.call.encoder
        return meter

    @property
    def request_id(self) -> str:
        """The id of the last call."""
        return "" if self.asked is None else self.asked.request_id

    @property
    def running(self) -> int:
        """How many responses have begun and have not ended."""
        return 0 if self.call is None else self.meter.running

    # A call ----------------------------------------------------------------------------------------------------------

    def begin(self, asked: CallRequest, call: Call, task: asyncio.Task[None]) -> None:
        """Open a call that is held."""
        asked.task = call.task = task
        asked.caller = call.caller = self._caller
        call.sink, call.encoder = self._sink, RealtimeMeter(self._conversation, call.model)
        call.attempts = call.attempts or [self._candidate]
        call.sending.sent = False  # the prompt of a response that has not begun is not charged
        call.public_model = call.model.name
        call.deadline, call.asked_at = NEVER, 0.0
        self._adapted = call.adapted
        track(call.sending)
        self.asked, self.call = asked, call
        self._limit = self._slot = None
        self._unchecked_text = self._unchecked_audio = 0
        self.opened.set()

    async def next(self, task: asyncio.Task[None], *, wait: Callable[[GatewayError, float], Awaitable[None]]) -> None:
        """Hold the next call; raises the error of a refusal. `wait` waits for so many seconds for a rate limit."""
        services = self._services
        # The settlement of the call before is sent at the end of this tick, so that its lease ends before the next one.
        await asyncio.sleep(0)
        waited = 0.0
        while True:
            asked = self.asked = self._request(task)
            try:
                call = await self._hold(asked)
                break
            except (RequestRateLimited, TokenRateLimited) as error:
                pause = error.retry_after or 1.0
                waited += pause
                if waited > LONGEST_WAIT:
                    raise
                services.metrics.limited(self._candidate.model.name, error.limit, error.scope)
                refusal = error
            await wait(refusal, pause)
            del refusal  # its traceback refers to this frame
        self.begin(asked, call, task)

    def settle(self) -> Call | None:
        """Charge what the open call has used, once."""
        call, self.call = self.call, None
        self.opened.clear()
        if call is not None and not call.settled:
            call.fault, call.running = call.encoder.fault, False
            settle(call, self._services)
        return call

    def release(self) -> None:
        """The session has ended: drop what refers to it."""
        del self._caller, self._sink
        if self.asked is not None:
            self.asked.task = self.asked.caller = None

    def _request(self, task: asyncio.Task[None]) -> CallRequest:
        origin, services = self._origin, self._services
        request_id = services.ids.request_id()
        reply = ResponseWriter(origin.exchange, request_id)
        asked = CallRequest(request_id, self._endpoint, origin.key, reply, task, self._caller, session=origin.session)
        if services.traces.current is not None:
            asked.trace = services.traces.current.begin(origin.forwarded, origin.path)
        text, audio = self._conversation.tokens()
        asked.content = RealtimeRequest(model=origin.model, text_tokens=text, audio_tokens=audio)
        return asked

    async def _hold(self, asked: CallRequest) -> Call:
        services = self._services
        try:
            quoted = quote_call(asked, self._endpoint, services, self._adapted)  # the session has its candidate
            if services.settings.server.tags:
                quoted = with_tags(quoted, asked, self._origin.tags, services)
        except GatewayError:
            await check_permission(asked, services)
            raise
        call = await hold_cost(asked, quoted, self._endpoint, services)
        call.reply.headers.clear()  # they are sent nowhere
        return call

    # While it is open ------------------------------------------------------------------------------------------------

    async def cover(self, event: ClientEvent) -> None:
        """Count an event of the client before it is passed on; raises the caller's error if it cannot be paid."""
        self._conversation.add_input(event)
        self._unchecked_text += event.text + event.images * UNCHECKED_TEXT
        self._unchecked_audio += event.audio
        call = self.call
        if call is None or self.meter.running:
            return  # the hold of the next call covers it
        formats = self._conversation.formats
        if (
            event.type == CREATE
            or self._unchecked_text >= UNCHECKED_TEXT
            or self._unchecked_audio >= UNCHECKED_AUDIO * formats.input
        ):
            self._unchecked_text = self._unchecked_audio = 0
            text, audio = self._conversation.tokens()
            content = RealtimeRequest(text_tokens=text, audio_tokens=audio)
            more = self._endpoint.quote(content, call.model, 0).hold + call.cost_so_far() - call.hold.amount
            if more > 0:
                await self._extend(call, more)

    async def response_begins(self, response_id: str) -> None:
        """A response begins, which the client may not have asked for; raises the caller's error as `cover` does."""
        call, meter = self.call, self.meter
        assert call is not None
        if not meter.begin(response_id):
            return
        call.quote = structs.replace(call.quote, prompt=meter.prompts())
        self._limit = HoldExtension(call, self._services.ledger)
        if self._slot is not None:
            self._slot = self._services.active_calls.checkpoint(call, None)  # with the prompt of this one
        timeouts = self._candidate.target.timeouts
        if call.deadline == NEVER:
            call.deadline = time.monotonic() + timeouts.total
        call.asked_at = time.monotonic()
        self._services.clock.relays(call)
        await self._extend_if_due()

    async def delivered(self, response_id: str, *, units: int = 0, audio_ms: float = 0.0) -> None:
        """A part of a response is sent on: quarter tokens of text, or milliseconds of audio."""
        meter = self.meter
        response_id = response_id or meter.only_id
        if not meter.is_begun(response_id):
            await self.response_begins(response_id)
        meter.add(response_id, units=units, audio_ms=audio_ms)
        call = self.call
        assert call is not None
        call.chunks += 1
        await self._extend_if_due()
        if self._slot is None:
            call.first_token = call.since_start()
            self._slot = self._services.active_calls.checkpoint(call, None)
        self._slot.delivered(meter.delivered.text_quarter_tokens)

    def response_ends(self, response: Response) -> bool:
        """A response has ended; whether it was the last one of its call."""
        meter = self.meter
        was_running = meter.running
        meter.end(response)
        return meter.running == 0 and (was_running > 0 or meter.usage() is not None)

    def transcribed(self, transcript: Transcribed) -> None:
        """The upstream has transcribed what the client said."""
        self.meter.transcribed(transcript)

    async def _extend_if_due(self) -> None:
        limit, call = self._limit, self.call
        assert limit is not None and call is not None
        delivered = self.meter.delivered
        if limit.due(delivered):
            call.asked_at = 0.0
            await limit.extend(delivered)
            call.asked_at = time.monotonic()

    async def _extend(self, call: Call, more: int) -> None:
        try:
            await self._services.ledger.extend(call.hold, more)
        except StoreUnavailable:
            return  # as a stream, the session goes on while the store is away
        except Conflict:
            if call.running:
                raise  # otherwise the call has ended meanwhile, and the hold of the next one covers the input
