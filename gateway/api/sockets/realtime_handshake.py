"""`GET /v1/realtime`: the handshake, which holds the first call and opens the session at a provider.

The upstream is connected before the client gets 101, so every refusal is an answer of HTTP. A browser cannot send
headers with a handshake; it offers its key as a subprotocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import parse_qs

from gateway import errors
from gateway.api.endpoints.realtime import RealtimeEndpoint
from gateway.api.handler import KeyedHandler
from gateway.api.sockets.handshake import OpenSockets
from gateway.api.sockets.realtime_calls import Origin
from gateway.api.sockets.realtime_socket import RealtimeSocket
from gateway.http_client.forwarded_headers import bind, with_named
from gateway.http_client.send_state import track
from gateway.http_server.exchange import Exchange
from gateway.http_server.websocket import WebSocket, handshake_headers
from gateway.inference.call import Call
from gateway.inference.call_end import fail, fail_stopped, settle
from gateway.inference.call_hold import check_permission, hold_cost
from gateway.inference.call_quote import quote_call, with_tags
from gateway.inference.call_stages import CallRequest
from gateway.inference.services import Services
from gateway.log import gateway_log
from gateway.plugins.realtime_session import RealtimeSession

PROTOCOL: Final = "realtime"
MAX_QUERY: Final = 2048  # characters
MAX_FIELDS: Final = 32  # of the query


class RealtimeHandler(KeyedHandler):
    """A handshake, up to the upgrade."""

    endpoint_name = RealtimeEndpoint.name

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        *,
        path: str,
        query: str,
        model: str,
        endpoint: RealtimeEndpoint,
        sockets: OpenSockets,
    ) -> None:
        super().__init__(services, exchange, path=path)
        self._query = query
        self._model = model  # that the path names; empty if it names none
        self.endpoint = endpoint
        self._sockets = sockets

    async def get(self) -> None:
        """Open a session; raises the errors of a refused request."""
        assert self.key is not None
        forwarded, names = self.metadata.forwarded_headers, self.services.settings.forwarded
        bind(with_named(forwarded, names, self.headers) if names else forwarded)
        asked = self.asked = CallRequest(
            self.request_id,
            self.endpoint,
            self.key,
            self.reply,
            self.task,
            self,
            self.client_gone,
            session=self.metadata.session,
        )
        traces, services = self.services.traces.current, self.services
        if traces is not None:
            asked.trace = traces.begin(self.metadata.forwarded_headers, self.path)
        try:
            upgrade = handshake_headers(self.headers)
            asked.content = self.endpoint.decode(_named_model(self._query, self._model), self.key.account, services)
            quoted = quote_call(asked, self.endpoint, services)
            if services.settings.server.tags:
                quoted = with_tags(quoted, asked, self.metadata.tags, services)
        except errors.GatewayError:
            await check_permission(asked, services)
            raise
        address = self.client_address()
        self._sockets.admit(self.key.account, address)
        leave = partial(self._sockets.remove, self.key.account, address)
        is_open = False
        try:
            call = await hold_cost(asked, quoted, self.endpoint, services)
            session = await _opened(self, call)
            if session is not None:
                is_open = _upgrade(self, upgrade, asked, call, session, leave)
        finally:
            if not is_open:
                leave()

    def call_ended(self) -> None:
        """The call was answered and settled, perhaps without its task."""
        call = self.asked.call if self.asked is not None else None
        if call is not None:
            self.outcome, self.detail = call.outcome, call.detail
        self.log_access()

    def on_connection_close(self) -> None:
        """The client disconnected before the upgrade."""
        call = self.asked.call if self.asked is not None else None
        if call is not None and call.running:
            self.services.disconnects.disconnect(call)
            return
        self.client_gone = True
        if self.asked is not None:
            self.asked.client_gone = True
        if call is not None:
            call.client_gone = True
        if self.task is None or self.task.done():
            super().on_connection_close()


def _named_model(query: str, model: str) -> str:
    """The model of the query, or else that of the path; empty if none is named."""
    if len(query) > MAX_QUERY:
        raise errors.InvalidValue("The query is too long", param="model")
    try:
        fields = parse_qs(query, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise errors.InvalidValue("The query has too many fields", param="model") from None
    named = fields.get("model") or fields.get("deployment")  # of Azure's clients
    return named[0] if named else model


async def _opened(handler: RealtimeHandler, call: Call) -> RealtimeSession | None:
    """The session; None if the call has failed, which is answered and settled then."""
    services = handler.services
    session, is_open = None, False
    track(call.sending)
    try:
        if call.client_gone:
            raise asyncio.CancelledError
        session = await services.dispatcher.call(
            call.adapted, handler.endpoint.attempt, call.attempts, kind=RealtimeSession
        )
        if call.stop_by or call.client_gone:
            raise asyncio.CancelledError
        is_open = True
    except asyncio.CancelledError:
        if not (call.stopped or call.client_gone):
            raise
        fail_stopped(call, services)
    except errors.GatewayError as error:
        if call.stopped:
            fail_stopped(call, services)
        else:
            fail(call, error, services)
    except Exception as error:
        # The handshake's edge, as that of the pipeline: after a bug the client still gets an answer.
        gateway_log.error("%s failed in provider %s", call.request_id, call.provider, exc_info=error)
        fail(call, errors.InternalError(), services)
    finally:
        if not is_open:
            _ended(handler, call, session)
    return session if is_open else None


def _upgrade(
    handler: RealtimeHandler,
    upgrade: dict[str, str],
    asked: CallRequest,
    call: Call,
    session: RealtimeSession,
    leave: Callable[[int], None],
) -> bool:
    """Answer 101 and hand the socket over; False if the client has left meanwhile."""
    headers, metadata = handler.headers, handler.metadata
    offered = [name.strip() for name in (headers.get("Sec-Websocket-Protocol") or "").split(",")]
    if PROTOCOL in offered:
        upgrade["Sec-WebSocket-Protocol"] = PROTOCOL
    detached = handler.exchange.switch({**handler.reply.headers, **upgrade})
    if detached is None:
        _ended(handler, call, session)
        return False
    settings, model = handler.services.settings.server.websocket, asked.content.model
    origin = Origin(
        asked.key, handler.exchange, handler.path, metadata.forwarded_headers, metadata.session, metadata.tags, model
    )
    user = RealtimeSocket(
        handler,
        handler.endpoint,
        origin,
        call.attempts[-1],
        session,
        names=(call.model.name, model),
        on_closed=leave,
    )
    socket = WebSocket(
        detached,
        user,
        max_message=settings.realtime_max_event,
        max_age=settings.max_age,
        max_idle=settings.realtime_max_idle,
    )
    handler.reply.status = 101
    handler.asked = None  # the session logs its calls
    handler.log_access()
    user.begin(socket, asked, call)
    socket.begin(detached)
    return True


def _ended(handler: RealtimeHandler, call: Call, session: RealtimeSession | None) -> None:
    """The call of the handshake ends without a socket."""
    call.running = False
    settle(call, handler.services)
    asked = handler.asked
    handler.call_ended()
    if asked is not None:
        asked.task = asked.caller = call.task = call.caller = None
    if session is not None:
        try:
            session.close()
        except BaseException as error:
            # Third-party clean-up must not keep the count of the socket.
            handler.services.dispatcher.contain(call.attempts[-1], error)
